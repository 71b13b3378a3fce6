//! What the user can set about assignment.

use crate::lag::MAX_OFFSET;

/// How copies are placed with respect to the racks of brokers and instances (KIP-925).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RackAwareStrategy {
    /// Racks play no part.
    #[default]
    None,
    /// Least reading across racks, each instance keeping its number of tasks.
    MinTraffic,
    /// The same, with the tasks of every sub-topology spread evenly.
    BalanceSubtopology,
}

/// The settings of an application that assignors look at, with Kafka Streams' names and defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// `acceptable.recovery.lag`: offsets behind that still count as caught up.
    /// [`MAX_OFFSET`]: everybody is caught up. Default 10 000.
    pub acceptable_recovery_lag: u64,
    /// `max.warmup.replicas`: extra copies at one time, over the whole group. Default 2.
    pub max_warmup_replicas: u32,
    /// `num.standby.replicas`: standby copies of each stateful task. Default 0.
    pub num_standby_replicas: u32,
    /// `probing.rebalance.interval.ms`: wait before asking again whether warm-ups are ready, in
    /// milliseconds. Default 600 000.
    pub probing_rebalance_interval_ms: u64,
    /// `rack.aware.assignment.strategy`. Default [`RackAwareStrategy::None`].
    pub rack_aware_assignment_strategy: RackAwareStrategy,
    /// `rack.aware.assignment.traffic_cost`: cost of one partition read across racks. `None`: the
    /// assignor's own default.
    pub rack_aware_assignment_traffic_cost: Option<u32>,
    /// `rack.aware.assignment.non_overlap_cost`: cost of a copy that is not where it was planned
    /// before racks were looked at. `None`: the assignor's own default.
    pub rack_aware_assignment_non_overlap_cost: Option<u32>,
    /// `rack.aware.assignment.tags`: keys of instance tags over which the copies of a task are
    /// spread, the most important first. Default none.
    pub rack_aware_assignment_tags: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            acceptable_recovery_lag: 10_000,
            max_warmup_replicas: 2,
            num_standby_replicas: 0,
            probing_rebalance_interval_ms: 600_000,
            rack_aware_assignment_strategy: RackAwareStrategy::None,
            rack_aware_assignment_traffic_cost: None,
            rack_aware_assignment_non_overlap_cost: None,
            rack_aware_assignment_tags: Vec::new(),
        }
    }
}

impl Settings {
    /// Whether even an instance without any state counts as caught up.
    pub fn everybody_is_caught_up(&self) -> bool {
        self.acceptable_recovery_lag >= MAX_OFFSET
    }
}
