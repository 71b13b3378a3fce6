//! The contract suite: what every [`Broker`] must do, as tests to be mounted by its crate.
//!
//! ```ignore
//! async fn subject() -> Subject {
//!     Subject::new(Arc::new(MyBroker::connect().await))
//! }
//!
//! headwater_broker::contract_suite!(my_broker, subject().await);
//! ```
//!
//! The expression is evaluated anew for each test, in an async context; it may give the same
//! broker each time, since every test makes topics and groups of its own. The tests run under
//! tokio's paused time, or under the attributes that stand before the name:
//! `contract_suite!(#[tokio::test] my_broker, subject().await)`.

#![expect(
    clippy::missing_panics_doc,
    reason = "each of these is a test: it panics if the broker breaks the contract"
)]

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

use crate::{Broker, GroupId, NewTopic, TopicDescription, TopicName, TopicPartition};

pub mod committing;
pub mod logs;
pub mod members;
pub mod statics;
mod tools;
pub mod topics;
pub mod transactions;
pub mod writing;

/// A broker under test.
pub struct Subject {
    broker: Arc<dyn Broker>,
    disturb: Option<Disturber>,
    kept: Vec<Box<dyn Any + Send + Sync>>,
    /// Makes the names of this test's topics and groups its own.
    prefix: String,
    names: AtomicU64,
}

/// Makes the calls of a broker's clients go wrong from now on, and no earlier order counts.
pub type Disturber = Arc<dyn Fn(&[Disturbance]) + Send + Sync>;

/// Something that goes wrong between a writer and the broker. The numbers count the produce
/// requests for the partition, repeated ones included, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disturbance {
    /// Whose batches.
    pub topic_partition: TopicPartition,
    /// Which of them.
    pub numbers: std::ops::Range<u64>,
    /// What happens to them.
    pub trouble: Trouble,
}

/// What can happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is carried out, but the answer does not arrive.
    LostAnswer,
    /// It does not arrive.
    LostRequest,
    /// It arrives so much later, and others overtake it.
    Delay(Duration),
}

impl Subject {
    /// A broker that cannot be disturbed.
    pub fn new(broker: Arc<dyn Broker>) -> Self {
        let prefix = Uuid::new_v4().simple().to_string();
        Self { broker, disturb: None, kept: Vec::new(), prefix, names: AtomicU64::new(0) }
    }

    /// Lets the tests disturb the broker. Without it those that need to are passed over, with a
    /// line that says so.
    pub fn disturbed_by(mut self, disturb: Disturber) -> Self {
        self.disturb = Some(disturb);
        self
    }

    /// Keeps something until the test is over, for instance a temporary directory.
    pub fn keeping(mut self, thing: impl Any + Send + Sync) -> Self {
        self.kept.push(Box::new(thing));
        self
    }

    /// The broker.
    pub fn broker(&self) -> &dyn Broker {
        &*self.broker
    }

    /// Disturbs the broker, if that is possible.
    #[expect(clippy::print_stderr, reason = "a test that is passed over has to say so")]
    fn disturb(&self, disturbances: &[Disturbance]) -> bool {
        if let Some(disturb) = &self.disturb {
            disturb(disturbances);
            true
        } else {
            eprintln!("passed over: this broker cannot be disturbed");
            false
        }
    }

    /// A name of this test's own.
    fn name(&self, base: &str) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("{base}-{number}-{}", self.prefix)
    }

    fn topic_name(&self) -> TopicName {
        self.name("topic").into()
    }

    fn group_id(&self) -> GroupId {
        self.name("group").into()
    }

    /// Creates a topic of this test's own. Its records are kept, though their timestamps are of
    /// 1970.
    async fn create(&self, partitions: i32, configs: &[(&str, &str)]) -> TopicDescription {
        let configs = [&[("retention.ms", "-1")], configs].concat();
        let topic = new_topic(self.topic_name(), partitions, &configs);
        self.broker.create_topic(&topic).await.expect("a valid topic is created")
    }

    /// Creates a topic with one partition.
    async fn partition(&self) -> TopicPartition {
        TopicPartition::new(self.create(1, &[]).await.name, 0)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("broker", &self.broker).finish_non_exhaustive()
    }
}

fn new_topic(name: TopicName, partitions: i32, configs: &[(&str, &str)]) -> NewTopic {
    let configs: BTreeMap<String, String> =
        configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    NewTopic { name, partitions, replication_factor: None, configs }
}

/// Runs a test of the suite, and fails it if it hangs.
#[doc(hidden)]
pub async fn run(test: impl Future<Output = ()>) {
    const LIMIT: Duration = Duration::from_mins(10);
    tokio::time::timeout(LIMIT, test).await.expect("the test ends in time");
}

/// Mounts the [contract suite](crate::contract) as a module of tests.
#[macro_export]
macro_rules! contract_suite {
    ($name:ident, $subject:expr) => {
        $crate::contract_suite!(#[tokio::test(start_paused = true)] $name, $subject);
    };
    ($(#[$attribute:meta])+ $name:ident, $subject:expr) => {
        mod $name {
            use super::*;

            $crate::contract_suite! { @tests [$(#[$attribute])+] $subject;
                logs::a_fetch_brings_what_was_written
                logs::an_append_wakes_a_waiting_fetch
                logs::every_partition_is_answered_when_time_is_over
                logs::a_fetch_keeps_its_limits
                logs::a_fetch_begins_with_the_batch_that_holds_the_offset
                logs::an_error_of_one_partition_is_its_own
                logs::offsets_are_found_by_time
                logs::the_epoch_that_leads_ends_with_the_log
                logs::deleted_records_are_gone
                writing::batches_keep_their_order
                writing::writers_do_not_mix_up_each_other
                writing::a_lost_answer_does_not_append_twice
                writing::lost_requests_keep_the_order
                writing::an_overtaken_batch_keeps_its_place
                writing::nothing_follows_a_failed_batch
                writing::refused_records_are_left_out
                writing::a_batch_with_refused_records_fails
                writing::a_batch_that_is_too_large_is_sent_in_parts
                writing::a_batch_that_does_not_arrive_times_out
                transactions::a_transaction_is_seen_when_it_is_committed
                transactions::an_aborted_transaction_is_passed_over
                transactions::an_empty_transaction_leaves_nothing
                transactions::an_open_transaction_holds_back_what_follows
                transactions::transactions_follow_on_each_other
                transactions::offsets_are_committed_with_the_transaction
                transactions::a_transaction_outlives_a_stale_grant
                transactions::a_failed_batch_is_aborted_with_its_transaction
                transactions::a_transaction_goes_on_without_refused_records
                transactions::a_disturbed_transaction_is_whole
                transactions::a_newer_writer_fences_the_older
                transactions::a_fenced_writer_does_not_commit
                transactions::a_crash_is_ended_by_the_next_writer
                transactions::a_transaction_that_is_open_for_too_long_is_aborted
                topics::a_topic_is_created_and_deleted
                topics::a_topic_created_again_has_another_id
                topics::an_offset_is_of_one_topic
                topics::settings_are_checked
                topics::unknown_topics_are_never_created
                committing::offsets_are_committed_with_metadata
                committing::a_commit_is_all_or_nothing
                committing::only_the_present_generation_commits
                committing::nobody_commits_while_the_plan_is_made
                members::one_member_plans_for_itself
                members::members_share_a_generation
                members::an_unchanged_member_starts_nothing
                members::a_member_takes_the_place_of_one_that_has_ended
                members::a_member_takes_the_place_of_one_that_is_gone
                members::a_member_that_is_replaced_is_lost
                members::a_changed_member_starts_a_round
                members::a_silent_member_is_dropped
                members::a_member_that_does_not_join_again_is_dropped
                members::a_member_that_leaves_is_not_waited_for
                members::another_protocol_is_refused
                members::the_interval_of_heartbeats_can_change
                members::dropping_the_wait_loses_no_event
                members::a_group_is_described
                statics::a_static_member_that_is_back_moves_nothing
                statics::a_second_member_of_the_same_instance_fences_the_first
                statics::a_static_member_is_dropped_when_its_session_is_over
                statics::who_was_dropped_before_another_came_is_fenced_too
            }
        }
    };
    (@tests $attributes:tt $subject:expr; $($module:ident :: $test:ident)+) => {
        $($crate::contract_suite! { @test $attributes $subject; $module::$test })+
    };
    (@test [$(#[$attribute:meta])+] $subject:expr; $module:ident :: $test:ident) => {
        $(#[$attribute])+
        async fn $test() {
            $crate::contract::run(async { $crate::contract::$module::$test($subject).await }).await;
        }
    };
}
