//! The run-time nodes.

use headwater_runtime::{Cx, FailureKind, NodeIndex, TaskError, UserError};
use headwater_store::serde::SerdeError;

mod aggregate;
mod branch;
mod change_format;
mod foreign_key;
mod kept_table;
mod regroup;
mod session_window;
mod sink;
mod sliding_window;
mod source;
mod step;
mod stream_global_join;
mod stream_join;
mod stream_table_join;
mod suppress;
mod table;
mod table_join;
mod time_window;
mod transform_table;
mod view;
mod windowed;
mod windowed_view;

pub(crate) use aggregate::{Aggregation, aggregate};
pub(crate) use branch::{BranchTest, branch};
pub(crate) use foreign_key::{
    ForeignKeyResult, KeyPartitioner, SubscriptionOf, foreign_table_join, response_join,
    response_sink, response_source, subscription_join, subscription_receive, subscription_send,
    subscription_sink, subscription_source,
};
pub(crate) use kept_table::Kept;
pub(crate) use regroup::{aggregate_table, change_sink, change_source, regroup};
pub(crate) use session_window::{Merge, SessionSpans, aggregate_sessions};
pub(crate) use sink::{WriteAs, choosing_sink, sink};
pub(crate) use sliding_window::aggregate_sliding_windows;
pub(crate) use source::{ReadAs, source};
pub(crate) use step::{Out, pass, step};
pub(crate) use stream_global_join::{StreamGlobalJoin, stream_global_join};
pub(crate) use stream_join::{
    KeptRecords, KeptUnmatched, StreamJoin, join_itself, join_side, keep_records,
};
pub(crate) use stream_table_join::{Grace, StreamTableJoin, stream_table_join};
pub(crate) use suppress::{Suppression, suppress, suppress_view};
pub(crate) use table::{MapTable, map_table, pass_on_table, table_source, table_to_stream};
pub(crate) use table_join::{join_left, join_merge, join_right};
pub(crate) use time_window::{TimeSpans, aggregate_time_windows};
pub(crate) use transform_table::{transform_table, transform_view};
pub(crate) use view::{AnyView, Optional, SharedView, StoreView, filter_view, join_view, map_view};
pub(crate) use windowed::{KeptWindows, WindowAggregation};
pub(crate) use windowed_view::windowed_view;

/// What a user function made of a value: another one, or what it was given.
#[derive(Debug)]
pub(crate) enum NewValue<'a, T> {
    Made(Option<T>),
    Given(&'a T),
}

impl<T> NewValue<'_, T> {
    pub(crate) const fn as_ref(&self) -> Option<&T> {
        match self {
            Self::Made(value) => value.as_ref(),
            Self::Given(value) => Some(value),
        }
    }
}

/// Why a node could not finish with a record.
#[derive(Debug)]
pub(crate) enum StepError {
    /// The task cannot go on.
    Task(TaskError),
    /// User code failed, serdes included; the handler decides.
    User(UserError),
}

impl From<TaskError> for StepError {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

impl From<UserError> for StepError {
    fn from(error: UserError) -> Self {
        Self::User(error)
    }
}

impl From<SerdeError> for StepError {
    fn from(error: SerdeError) -> Self {
        Self::User(error.into())
    }
}

/// Runs a step with a buffer for keys and values, and lets the handler decide where user code failed.
#[inline]
pub(crate) fn with_buffer(
    cx: &mut Cx<'_>,
    index: NodeIndex,
    step: impl FnOnce(&mut Cx<'_>, &mut Vec<u8>) -> Result<(), StepError>,
) -> Result<(), TaskError> {
    let mut buffer = cx.take_buffer();
    let result = step(cx, &mut buffer);
    cx.give_buffer(buffer);
    settle(cx, index, result)
}

/// Handles one of the results that have waited for their time: where it fails or panics the handler decides, and `Ok`
/// means that its turn is over, and whoever kept it takes it out.
///
/// What is let go comes with a record that has nothing to do with it. A failure that was that record's would leave what
/// failed where it is: it would fail again with each record that comes, and nothing behind it would have its turn.
pub(crate) fn let_go(
    cx: &mut Cx<'_>,
    index: NodeIndex,
    handle: impl FnOnce(&mut Cx<'_>) -> Result<(), StepError>,
) -> Result<(), TaskError> {
    let outcome = cx.guarded(|cx| {
        let handled = handle(cx);
        settle(cx, index, handled)
    });
    cx.enter(index);
    outcome
}

/// Lets the handler decide where user code failed.
#[inline]
pub(crate) fn settle(
    cx: &mut Cx<'_>,
    index: NodeIndex,
    result: Result<(), StepError>,
) -> Result<(), TaskError> {
    match result {
        Ok(()) => Ok(()),
        Err(StepError::Task(error)) => Err(error),
        Err(StepError::User(error)) => cx.failed(index, FailureKind::Processing, error),
    }
}
