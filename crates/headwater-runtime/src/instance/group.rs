//! The group task: awaits the events of the membership and does nothing else, so that heartbeats
//! never wait for anything.

use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{BrokerError, GroupEvent, MemberAssignment, Membership, TopicName};
use tokio::sync::mpsc;

/// What the instance wants of the group.
#[derive(Debug)]
pub(super) enum GroupCommand {
    /// Join, or join again, with these facts; the group reads these topics.
    Join { facts: Bytes, topics: Vec<TopicName> },
    /// The leader's decision.
    Plan(Vec<MemberAssignment>),
    /// Beat at least this often from now on.
    Beat(Duration),
    /// Leave, and stop.
    Leave,
}

/// What the instance hears of the group.
#[derive(Debug)]
pub(super) enum GroupNews {
    /// Something happened.
    Event(GroupEvent),
    /// Joining again cannot mend this.
    Failed(BrokerError),
    /// The group has been left, or the coordinator could not be told.
    Left,
}

/// Runs until the group is left or the instance is gone.
pub(super) async fn run(
    mut membership: Box<dyn Membership>,
    mut commands: mpsc::UnboundedReceiver<GroupCommand>,
    news: mpsc::UnboundedSender<GroupNews>,
) {
    loop {
        let next = tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(GroupCommand::Join { facts, topics }) => {
                    membership.subscribe(topics);
                    membership.join(facts);
                    continue;
                }
                Some(GroupCommand::Plan(assignments)) => {
                    membership.plan(assignments);
                    continue;
                }
                Some(GroupCommand::Beat(interval)) => {
                    membership.set_heartbeat_interval(interval);
                    continue;
                }
                Some(GroupCommand::Leave) => {
                    if let Err(error) = membership.leave().await {
                        tracing::warn!(%error, "cannot leave the group; it goes on when the session has ended");
                    }
                    GroupNews::Left
                }
                None => return,
            },
            event = membership.next_event() => match event {
                Ok(event) => GroupNews::Event(event),
                Err(error) => GroupNews::Failed(error),
            },
        };
        let ends = !matches!(next, GroupNews::Event(_));
        if news.send(next).is_err() || ends {
            return;
        }
    }
}
