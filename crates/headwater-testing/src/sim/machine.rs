//! A machine on which one instance runs, crashes, stands still and runs again: everything that an
//! instance does to the world passes it.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::BrokerError;
use headwater_embedded::{CallKind, Fault, Request};
use headwater_store::MemoryBackend;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::chance::Chance;
use super::clock::SimClock;
use super::ground::{Ground, PlanMoment};
use super::stops::{Stop, StopPoint, Stops};
use super::writers::Writers;

/// A machine. Its disks outlive what runs on it. A process has one of them; the other one is as its last process left
/// it, or empty.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) number: usize,
    pub(crate) clock: Arc<SimClock>,
    /// What the stores of both disks hold, by directory.
    pub(crate) disk: MemoryBackend,
    state_dirs: [PathBuf; 2],
    pub(crate) ground: Arc<Ground>,
    /// Guards what follows from the faults; never held while anything is awaited.
    state: Mutex<State>,
    /// Rung when it stands still no longer.
    goes_on: Notify,
    /// Rung when nothing is left of a process.
    is_gone: Notify,
}

#[derive(Debug)]
struct State {
    /// Counts the processes that have run here; what belongs to an earlier one has no effect.
    life: u64,
    is_alive: bool,
    /// Processes of which something is left: those that died go bit by bit, and hold the lock of their
    /// state directory until then.
    remains: BTreeSet<u64>,
    stands_still: bool,
    /// Which disk processes find: 0 or 1.
    disk_in_use: usize,
    rules: Vec<Rule>,
    crash: Option<(CrashPoint, u64)>,
    /// At which requests it is to stop.
    stops: Stops,
    /// For how long it is to stand still, until somebody sees to it.
    stands_still_for: Option<Duration>,
    disk_full: bool,
    disk_delay: Duration,
    /// Directories written since somebody asked.
    touched: BTreeSet<PathBuf>,
    directories: BTreeSet<PathBuf>,
    /// Of them, those whose storage was closed in good order.
    closed: BTreeSet<PathBuf>,
    chance: Chance,
}

/// At what an instance crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// Before a request reaches the broker.
    Request,
    /// After the broker has carried a request out, before the answer is there.
    Answer,
    /// Before a piece of work that blocks.
    Job,
    /// In the middle of a write to a store.
    Write,
}

/// Something that happens to requests of one kind, or of all.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) kinds: Vec<CallKind>,
    /// So many pass before it strikes.
    pub(crate) skip: u64,
    /// So many are struck.
    pub(crate) count: u64,
    /// It ends then.
    pub(crate) until: Option<Instant>,
    pub(crate) fault: Fault,
}

/// What becomes of a write to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    Whole,
    /// Only a part of it, in sixteenths: there is no power for the rest.
    Torn(u64),
    Full,
    Dead,
}

/// More than there are machines.
const SECOND_DISK: u128 = 1 << 64;

/// Milliseconds that a request or an answer is on its way.
const LATENCY_MS: u64 = 4;

impl Machine {
    pub(crate) fn new(
        number: usize,
        state_dir: PathBuf,
        ground: Arc<Ground>,
        chance: Chance,
    ) -> Self {
        let state = State {
            life: 0,
            is_alive: false,
            remains: BTreeSet::new(),
            stands_still: false,
            disk_in_use: 0,
            rules: Vec::new(),
            crash: None,
            stops: Stops::default(),
            stands_still_for: None,
            disk_full: false,
            disk_delay: Duration::ZERO,
            touched: BTreeSet::new(),
            directories: BTreeSet::new(),
            closed: BTreeSet::new(),
            chance,
        };
        let mut second_dir = state_dir.clone().into_os_string();
        second_dir.push("-second");
        Self {
            number,
            clock: Arc::new(SimClock::new(Arc::clone(&ground.stands_still))),
            disk: MemoryBackend::durable(),
            state_dirs: [state_dir, second_dir.into()],
            ground,
            state: Mutex::new(state),
            goes_on: Notify::new(),
            is_gone: Notify::new(),
        }
    }

    /// A process starts; its number.
    pub(crate) fn start(&self) -> u64 {
        let mut state = self.state.lock();
        state.life += 1;
        state.is_alive = true;
        let life = state.life;
        state.remains.insert(life);
        life
    }

    /// Processes find the other disk from now on.
    pub(crate) fn exchange_disk(&self) {
        let mut state = self.state.lock();
        state.disk_in_use = 1 - state.disk_in_use;
    }

    /// Where a process has its state.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.state_dirs[self.state.lock().disk_in_use]
    }

    /// The process id, which is that of a state directory.
    pub(crate) fn process_id(&self) -> Uuid {
        let wide = |number: usize| u128::try_from(number).unwrap_or(0);
        let disk = self.state.lock().disk_in_use;
        Uuid::from_u128(wide(self.number) + 1 + wide(disk) * SECOND_DISK)
    }

    /// Nothing is left of a process.
    pub(crate) fn is_gone(&self, life: u64) {
        self.state.lock().remains.remove(&life);
        self.is_gone.notify_waiters();
    }

    /// Waits until nothing is left of those that ran here before: with a real process everything goes at once,
    /// its locks too.
    pub(crate) async fn others_are_gone(&self, life: u64) {
        loop {
            let is_gone = self.is_gone.notified();
            if self.state.lock().remains.range(..life).next().is_none() {
                return;
            }
            is_gone.await;
        }
    }

    /// The process dies: from now on nothing that it does has an effect.
    pub(crate) fn die(&self) {
        let mut state = self.state.lock();
        state.is_alive = false;
        state.stands_still = false;
        state.crash = None;
        drop(state);
        self.goes_on.notify_waiters();
        self.ground.died.notify_one();
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.state.lock().is_alive
    }

    /// The process of which this is what is left died, or another one runs.
    pub(crate) fn is_life(&self, life: u64) -> bool {
        let state = self.state.lock();
        state.is_alive && state.life == life
    }

    /// The number of the process that runs here, or ran here last.
    pub(crate) fn life(&self) -> u64 {
        self.state.lock().life
    }

    pub(crate) fn stand_still(&self) {
        self.state.lock().stands_still = true;
    }

    pub(crate) fn go_on(&self) {
        self.state.lock().stands_still = false;
        self.goes_on.notify_waiters();
    }

    pub(crate) fn stands_still(&self) -> bool {
        self.state.lock().stands_still
    }

    pub(crate) fn add_rule(&self, rule: Rule) {
        // The newest first: an outage hides whatever else was to happen.
        self.state.lock().rules.insert(0, rule);
    }

    /// It will crash when it has passed the point so many times more.
    pub(crate) fn crash_at(&self, point: CrashPoint, passes: u64) {
        self.state.lock().crash = Some((point, passes));
    }

    /// It will stop at a request.
    pub(crate) fn stop_at(&self, stop: Stop) {
        self.state.lock().stops.add(stop);
    }

    /// For how long it is to stand still, if it has just begun to by itself.
    pub(crate) fn take_standing(&self) -> Option<Duration> {
        self.state.lock().stands_still_for.take()
    }

    pub(crate) fn set_disk_full(&self, is_full: bool) {
        self.state.lock().disk_full = is_full;
    }

    pub(crate) fn set_disk_delay(&self, delay: Duration) {
        self.state.lock().disk_delay = delay;
    }

    /// Ends all that was to go wrong.
    pub(crate) fn calm(&self) {
        let mut state = self.state.lock();
        state.rules.clear();
        state.crash = None;
        state.stops = Stops::default();
        state.disk_full = false;
        state.disk_delay = Duration::ZERO;
        drop(state);
        self.go_on();
    }

    pub(crate) fn note_opened(&self, dir: PathBuf) {
        let mut state = self.state.lock();
        state.closed.remove(&dir);
        state.directories.insert(dir);
    }

    pub(crate) fn note_closed(&self, dir: PathBuf) {
        self.state.lock().closed.insert(dir);
    }

    /// Whether the storage of a directory was closed in good order.
    pub(crate) fn is_closed(&self, dir: &Path) -> bool {
        self.state.lock().closed.contains(dir)
    }

    pub(crate) fn directories(&self) -> BTreeSet<PathBuf> {
        self.state.lock().directories.clone()
    }

    pub(crate) fn touch(&self, dir: PathBuf) {
        self.state.lock().touched.insert(dir);
    }

    pub(crate) fn take_touched(&self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut self.state.lock().touched)
    }

    /// A request comes by.
    pub(crate) async fn request(&self, life: u64, request: &Request) -> Option<Fault> {
        if self.is_life(life) {
            self.note_changelog(request, |writers, changelog| {
                writers.sends((self.number, life), changelog);
            });
        }
        self.stop_before(life, request.kind, StopPoint::Request);
        self.pass(life, CrashPoint::Request).await;
        self.pass_plan(life, request, PlanMoment::Before).await;
        self.latency().await;
        self.stands(life).await;
        let arrives_after = self.state.lock().stops.take(request.kind, StopPoint::LeavesBehind);
        if let Some(arrives_after) = arrives_after {
            let (number, name) = (self.number, request.kind.name());
            self.ground.tell(&format!(
                "instance {number} crashes, and its {name} request arrives {arrives_after:?} later"
            ));
            self.note_changelog(request, |writers, _| writers.will_write_late());
            self.die();
            // Nothing is waited for any more, so that what is left behind is there before the process is gone.
            return Some(Fault::LeftBehind { arrives_after });
        }
        let fault = self.state.lock().strike(request.kind);
        if let Some(Fault::Fail(BrokerError::TimedOut { limit, .. })) = &fault {
            tokio::time::sleep(*limit).await;
            self.stands(life).await;
        }
        self.trace(&[request.kind.name(), fault.as_ref().map_or("", name_of)]);
        if let Some((grant, offsets)) = &request.commit {
            self.ground.note_commit(grant, offsets);
        }
        if !matches!(fault, Some(Fault::Fail(_))) {
            self.note_written(life, request);
        }
        fault
    }

    /// An answer comes by.
    pub(crate) async fn answer(&self, life: u64, request: &Request, error: Option<&BrokerError>) {
        // Some are carried out late.
        if error.is_none() {
            self.note_written(life, request);
        }
        self.latency().await;
        self.stop_before(life, request.kind, StopPoint::Answer);
        self.pass_plan(life, request, PlanMoment::After).await;
        self.pass(life, CrashPoint::Answer).await;
        let outcome = if error.is_some() { "failed" } else { "done" };
        self.trace(&[request.kind.name(), outcome]);
    }

    fn note_written(&self, life: u64, request: &Request) {
        self.note_changelog(request, |writers, changelog| {
            writers.has_written((self.number, life), changelog);
        });
    }

    /// Notes something of the changelog that a request writes to, if it does.
    fn note_changelog(&self, request: &Request, note: impl FnOnce(&mut Writers, &str)) {
        let target = request.targets.first().filter(|_| request.kind == CallKind::Produce);
        if let Some(target) = target.filter(|target| target.contains("-changelog-")) {
            note(&mut self.ground.writers.lock(), target);
        }
    }

    /// A piece of work that may block is about to be done.
    pub(crate) async fn job(&self, life: u64) {
        self.pass(life, CrashPoint::Job).await;
        let delay = self.state.lock().disk_delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
            self.stands(life).await;
        }
    }

    /// A store is about to be written.
    pub(crate) fn write(&self, life: u64) -> Writing {
        let mut state = self.state.lock();
        if !state.is_alive || state.life != life {
            return Writing::Dead;
        }
        if state.disk_full {
            return Writing::Full;
        }
        if state.is_crash(CrashPoint::Write) {
            return Writing::Torn(state.chance.in_range(0..17));
        }
        Writing::Whole
    }

    /// Stands still from now on if it is to before this.
    fn stop_before(&self, life: u64, kind: CallKind, at: StopPoint) {
        if !self.is_life(life) {
            return;
        }
        let mut state = self.state.lock();
        let Some(lasts) = state.stops.take(kind, at) else { return };
        state.stands_still = true;
        state.stands_still_for = Some(lasts);
        drop(state);
        let (number, name) = (self.number, kind.name());
        let before = if at == StopPoint::Request { "goes out" } else { "is answered" };
        self.ground.tell(&format!(
            "instance {number} stands still for {lasts:?} just before its {name} request {before}"
        ));
        self.ground.stood.notify_one();
    }

    /// Waits until the process may go on; for ever if it is dead, or dies here.
    async fn pass(&self, life: u64, point: CrashPoint) {
        self.stands(life).await;
        if self.state.lock().is_crash(point) {
            self.ground.tell(&format!("instance {} crashes at a {}", self.number, point.name()));
            self.die();
            pending::<()>().await;
        }
    }

    /// Waits for ever if this process leads its group, and dies here with the plan.
    async fn pass_plan(&self, life: u64, request: &Request, at: PlanMoment) {
        if request.brings_plan && self.is_life(life) && self.ground.is_leader_crash(at) {
            let when = match at {
                PlanMoment::Before => "with its plan",
                PlanMoment::After => "right after its plan",
            };
            self.ground.tell(&format!("instance {}, which leads, crashes {when}", self.number));
            self.die();
            pending::<()>().await;
        }
    }

    /// Waits while the process stands still; for ever when it is dead.
    async fn stands(&self, life: u64) {
        loop {
            let goes_on = self.goes_on.notified();
            {
                let state = self.state.lock();
                if state.is_alive && state.life == life && !state.stands_still {
                    return;
                }
            }
            goes_on.await;
        }
    }

    async fn latency(&self) {
        let ms = self.state.lock().chance.in_range(0..LATENCY_MS);
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }

    fn trace(&self, what: &[&str]) {
        self.ground.step(&format!("{} {}", self.number, what.join(" ")));
    }
}

impl State {
    /// What is to happen to a request; counts it.
    fn strike(&mut self, kind: CallKind) -> Option<Fault> {
        let now = Instant::now();
        self.rules.retain(|rule| rule.count > 0 && rule.until.is_none_or(|until| now < until));
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.kinds.is_empty() || rule.kinds.contains(&kind))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.count -= 1;
        Some(rule.fault.clone())
    }

    fn is_crash(&mut self, at: CrashPoint) -> bool {
        match &mut self.crash {
            Some((point, passes)) if *point == at => {
                if *passes == 0 {
                    self.crash = None;
                    return true;
                }
                *passes -= 1;
                false
            }
            _ => false,
        }
    }
}

impl CrashPoint {
    pub(crate) const ALL: [Self; 4] = [Self::Request, Self::Answer, Self::Job, Self::Write];

    fn name(self) -> &'static str {
        match self {
            Self::Request => "request that does not go out",
            Self::Answer => "answer that it does not hear",
            Self::Job => "piece of work on its disk",
            Self::Write => "write to a store",
        }
    }
}

fn name_of(fault: &Fault) -> &'static str {
    match fault {
        Fault::Delay(_) => "late",
        Fault::Fail(_) => "lost",
        Fault::LoseAnswer { .. } => "answer lost",
        Fault::Twice { .. } => "twice",
        Fault::LeftBehind { .. } => "left behind",
        _ => "fault",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_has_a_state_directory_and_a_process_id_of_its_own() {
        let ground = Arc::new(Ground::new(Path::new("/"), false));
        let machine = |number: usize| {
            let dir = Path::new("/").join(number.to_string());
            Machine::new(number, dir, Arc::clone(&ground), Chance::new(1))
        };
        let machines = [machine(0), machine(1)];
        let mut disks = BTreeSet::new();
        for _ in 0..2 {
            for machine in &machines {
                disks.insert((machine.process_id(), machine.state_dir().to_owned()));
                machine.exchange_disk();
            }
        }
        let [ids, dirs] = [
            disks.iter().map(|(id, _)| id.to_string()).collect::<BTreeSet<_>>(),
            disks.iter().map(|(_, dir)| dir.display().to_string()).collect(),
        ];
        assert_eq!((ids.len(), dirs.len()), (4, 4), "{disks:?}");
    }
}
