//! What everybody in a simulation shares.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use headwater_broker::{Grant, OffsetCommit, TopicPartition};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::clock::SimClock;
use super::files::SimFiles;
use super::story::Story;
use super::writers::Writers;

/// What everybody in a simulation shares.
#[derive(Debug)]
pub(crate) struct Ground {
    clock: SimClock,
    /// Where the broker keeps everything.
    pub(crate) files: SimFiles,
    /// What has happened; held for a line at a time.
    story: Mutex<Story>,
    /// Where the state directories of this run are: no two runs have them at the same place.
    state: String,
    /// Rung when a process dies.
    pub(crate) died: Notify,
    /// Rung when one stands still by itself.
    pub(crate) stood: Notify,
    /// Rung when time does not move any more.
    pub(crate) stands_still: Arc<Notify>,
    /// Whoever brings the next plan crashes: before the coordinator has it, or when it has answered.
    leader_crash: Mutex<Option<PlanMoment>>,
    /// Who has committed; held for one commit at a time.
    commits: Mutex<Commits>,
    /// Who writes to changelogs; held for one request at a time.
    pub(crate) writers: Mutex<Writers>,
}

/// When a leader crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanMoment {
    /// The plan does not go out.
    Before,
    /// The coordinator has it.
    After,
}

/// Who has asked to commit a partition in a generation. A static member is the same under another member id: what asks
/// under the old one is refused.
#[derive(Debug, Default)]
struct Commits {
    by: BTreeMap<(TopicPartition, i32), String>,
    /// What was wrong, until somebody asks.
    wrong: Option<String>,
}

impl Ground {
    pub(crate) fn new(state: &Path, is_traced: bool) -> Self {
        Self {
            clock: SimClock::new(Arc::default()),
            files: SimFiles::default(),
            story: Mutex::new(Story::new(is_traced)),
            state: state.display().to_string(),
            died: Notify::new(),
            stood: Notify::new(),
            stands_still: Arc::default(),
            leader_crash: Mutex::default(),
            commits: Mutex::default(),
            writers: Mutex::default(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.elapsed_ms()
    }

    /// Tells something, without the place of the state directories: the same seed has the same story.
    pub(crate) fn tell(&self, line: &str) {
        let line = line.replace(&self.state, "");
        tracing::info!("{line}");
        self.story.lock().tell(self.clock.elapsed_ms(), line);
    }

    pub(crate) fn step(&self, what: &str) {
        self.story.lock().step(self.clock.elapsed_ms(), what);
    }

    pub(crate) fn with_story<T>(&self, look: impl FnOnce(&Story) -> T) -> T {
        look(&self.story.lock())
    }

    /// Whoever leads is to crash with its next plan; or nobody is.
    pub(crate) fn crash_leader(&self, at: Option<PlanMoment>) {
        *self.leader_crash.lock() = at;
    }

    /// Whether who leads crashes here.
    pub(crate) fn is_leader_crash(&self, at: PlanMoment) -> bool {
        self.leader_crash.lock().take_if(|when| *when == at).is_some()
    }

    /// Somebody asks to commit.
    pub(crate) fn note_commit(&self, grant: &Grant, offsets: &[OffsetCommit]) {
        let instance = grant.group_instance_id.as_deref();
        let member = instance.unwrap_or_else(|| grant.member_id.as_str());
        let mut commits = self.commits.lock();
        for commit in offsets {
            let of = (commit.topic_partition.clone(), grant.generation);
            let first = commits.by.entry(of).or_insert_with(|| member.to_owned());
            if first != member {
                let (first, at) = (first.clone(), &commit.topic_partition);
                commits.wrong = Some(format!(
                    "{at} is committed by {member} and by {first} in generation {}",
                    grant.generation
                ));
            }
        }
    }

    /// What two members have committed in one generation.
    pub(crate) fn committed_twice(&self) -> Option<String> {
        self.commits.lock().wrong.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_story_is_the_same_wherever_the_state_directories_are() {
        let story = |root: &str| {
            let ground = Ground::new(Path::new(root), false);
            ground.tell(&format!("cannot create {root}/0/simulated: the disk is full"));
            ground.with_story(|story| (story.hash(), story.to_string()))
        };
        let told = story("/one");
        assert_eq!(told, story("/somewhere/else"));
        assert_eq!(told.1, "    0.000  cannot create /0/simulated: the disk is full\n\n");
    }
}
