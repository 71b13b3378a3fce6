//! How the instance comes to its end: it hands its tasks over, commits, closes, and leaves.

use std::time::Duration;

use headwater_topology::TaskId;

use super::{Coordinator, Member};
use crate::instance::beats::{beat_interval, is_heard_soon};
use crate::instance::close::GroupMembership;
use crate::instance::error::InstanceError;
use crate::instance::life_cycle::TaskEvent;
use crate::instance::state::InstanceState;

/// Whether and how far the instance is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    No,
    /// The others have been asked to get ready for its tasks, which go on until they are told of in
    /// a plan, and not beyond this time.
    HandingOver {
        until: Duration,
    },
    /// Tasks are closing, and the group is being left.
    Tasks,
    Over,
}

/// What a round may take beyond the heartbeat by which the others hear of it.
const ROUND: Duration = Duration::from_secs(1);

/// How long the rest of an instance may take to end when a part of it is gone, and with it what the part had.
const WITHOUT_A_PART: Duration = Duration::from_secs(10);

impl Coordinator {
    /// A part of the instance has panicked. The others end in good order; what waits for that one never would.
    pub(super) fn lose_a_part(&mut self) {
        let error = InstanceError::JobPanicked;
        tracing::error!(error = &error as &dyn std::error::Error, "the instance ends");
        let now = self.shared.clock.monotonic();
        self.last.gives_up_at.get_or_insert_with(|| now.saturating_add(WITHOUT_A_PART));
        self.fatal(error);
    }

    /// Does not wait any longer for what a lost part had.
    pub(super) fn give_up_in_time(&mut self, now: Duration) {
        if self.last.gives_up_at.is_some_and(|at| at <= now) && self.ending != Ending::Over {
            let tasks: Vec<String> = self.tasks.keys().map(ToString::to_string).collect();
            tracing::warn!(?tasks, "what does not end is given up as in a crash");
            self.finish();
        }
    }

    /// The user closes the instance. In a group that hears of a round late, as its members beat
    /// rarely, its tasks are handed over first: they go on here until the others listen closely.
    /// Otherwise that would be a round too many.
    pub(super) fn close(&mut self, membership: GroupMembership, limit: Duration) {
        if self.ending != Ending::No {
            return;
        }
        self.last.membership = membership;
        let longest = Duration::from_millis(self.shared.config.heartbeat_interval_ms);
        let members = self.beats.members;
        let owns_some = self.tasks.values().any(|entry| entry.life.is_on_thread());
        let is_missed = self.leaves() && self.member == Member::Yes && members > 1 && owns_some;
        if !is_missed || is_heard_soon(longest, members) {
            self.end(InstanceState::PendingShutdown);
            return;
        }
        let wait = (beat_interval(longest, members, false) + ROUND).min(limit / 2);
        tracing::info!(members, "the tasks are handed over before the group is left");
        let until = self.shared.clock.monotonic().saturating_add(wait);
        self.become_state(InstanceState::PendingShutdown);
        self.ending = Ending::HandingOver { until };
        self.join();
    }

    /// The group knows where its tasks go, or does not come to it: they are let go of.
    pub(super) fn hand_over(&mut self) {
        if matches!(self.ending, Ending::HandingOver { .. }) {
            self.ending = Ending::Tasks;
            self.beats.round_follows = true;
            self.beat(self.shared.clock.monotonic());
            self.let_everything_go();
        }
    }

    /// The membership is lost, and with it what could be handed over: all the rest goes too.
    pub(super) fn stop_handing_over(&mut self) {
        if matches!(self.ending, Ending::HandingOver { .. }) {
            self.ending = Ending::Tasks;
            self.let_everything_go();
        }
    }

    /// Does not wait for the others any longer.
    pub(super) fn look_at_hand_over(&mut self, now: Duration) {
        if matches!(self.ending, Ending::HandingOver { until } if until <= now) {
            tracing::warn!("the others do not get ready in time; the group is left all the same");
            self.hand_over();
        }
    }

    /// Time until it does not wait for the others any longer.
    pub(super) fn hand_over_due(&self) -> Option<Duration> {
        match self.ending {
            Ending::HandingOver { until } => Some(until),
            Ending::No | Ending::Tasks | Ending::Over => None,
        }
    }

    pub(super) fn end(&mut self, state: InstanceState) {
        if self.ending != Ending::No {
            return;
        }
        self.become_state(state);
        self.ending = Ending::Tasks;
        self.let_everything_go();
    }

    fn let_everything_go(&mut self) {
        let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
        for task in tasks {
            self.drive(task, TaskEvent::Revoked);
        }
    }

    /// Whether it leaves the group at the end.
    pub(super) fn leaves(&self) -> bool {
        let is_dynamic = self.shared.config.group_instance_id.is_none();
        match self.last.membership {
            // A static member keeps its place for a quick restart.
            GroupMembership::Default => is_dynamic,
            GroupMembership::LeaveGroup => true,
            // Whoever was still coming in would be waited for as somebody that nobody can be again.
            GroupMembership::RemainInGroup => is_dynamic && self.grants.member_id().is_none(),
        }
    }

    /// Whether the group is told that it gets no tasks any more.
    pub(super) fn is_leaving(&self) -> bool {
        self.ending != Ending::No && self.leaves()
    }

    pub(super) fn end_if_all_gone(&mut self) {
        if self.ending != Ending::Tasks {
            return;
        }
        // Others can take over while the stores are being closed.
        let has_committed = self.tasks.values().all(|entry| !entry.life.is_on_thread());
        if self.leaves() && has_committed && self.member == Member::Yes {
            self.leave_group();
        }
        if self.tasks.is_empty() {
            // Nobody reads the global stores any more.
            self.global.close();
        }
        if self.tasks.is_empty() && self.global.is_gone() && self.member != Member::Leaving {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.ending = Ending::Over;
        let pending_error = *self.views.state.borrow() == InstanceState::PendingError;
        self.become_state(if pending_error {
            InstanceState::Error
        } else {
            InstanceState::NotRunning
        });
    }
}
