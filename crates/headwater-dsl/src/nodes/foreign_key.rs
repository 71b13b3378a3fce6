//! Joins of a table with another one by a key that is made of its values (feature rows D41 to D44).
//!
//! ```text
//! left table ─▶ SubscriptionSend ─▶ topic ─▶ SubscriptionReceive ─▶ SubscriptionJoin ─┐
//!                                               (subscriptions)      (right table)     ├▶ topic ─▶ ResponseJoin ─▶ result
//!                          right table ─▶ ForeignTableJoin ───────────────────────────┘          (left table)
//!                                               (subscriptions)
//! ```
//!
//! Keys and values travel between these nodes as bytes wherever nobody looks at them.

use std::sync::Arc;

use headwater_runtime::{Cx, TaskError};
use headwater_store::{Subscription, SubscriptionResponse, ValueHash};

mod receive;
mod respond;
mod send;

pub(crate) use receive::{foreign_table_join, subscription_join, subscription_receive};
pub(crate) use respond::{ForeignKeyResult, response_join, response_sink, response_source};
pub(crate) use send::{SubscriptionOf, subscription_send, subscription_sink, subscription_source};

/// A user's partitioner of one side: topic, key, number of partitions.
pub(crate) type KeyPartitioner<K> = Arc<dyn Fn(&str, &K, i32) -> i32 + Send + Sync>;

/// Takes subscriptions.
trait SubscriptionNode<KO>: Send + Sync {
    fn subscribe(
        &self,
        cx: &mut Cx<'_>,
        foreign_key: Option<&KO>,
        subscription: Subscription<'_>,
        timestamp: i64,
    ) -> Result<(), TaskError>;
}

/// Takes answers on their way out.
trait ResponseNode: Send + Sync {
    fn respond(
        &self,
        cx: &mut Cx<'_>,
        subscriber: Subscriber<'_>,
        response: SubscriptionResponse<'_>,
        timestamp: i64,
    ) -> Result<(), TaskError>;
}

/// Whom an answer goes to.
#[derive(Clone, Copy)]
struct Subscriber<'s> {
    primary_key: &'s [u8],
    partition: Option<i32>,
}

impl<'s> Subscriber<'s> {
    const fn of(subscription: &Subscription<'s>) -> Self {
        Self { primary_key: subscription.primary_key, partition: subscription.primary_partition }
    }
}

/// Takes answers that have come back.
trait AnswerNode<K, VO>: Send + Sync {
    fn answer(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        hash: Option<ValueHash>,
        value: Option<&VO>,
        timestamp: i64,
    ) -> Result<(), TaskError>;
}

/// A record of a foreign-key join without key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record has no key or no value")]
struct MissingPart;
