//! The states of an instance (feature row R1), and how they follow from its tasks (R2).

use std::fmt;

/// Where an instance stands, in Kafka Streams' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceState {
    /// Not started.
    Created,
    /// Tasks are being assigned, opened or restored.
    Rebalancing,
    /// All its tasks process records.
    Running,
    /// It is being closed.
    PendingShutdown,
    /// It has been closed. Final.
    NotRunning,
    /// It is being closed after an error.
    PendingError,
    /// It has stopped after an error. Final.
    Error,
}

impl InstanceState {
    /// Whether `next` may follow.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Created => matches!(next, Self::Rebalancing | Self::PendingShutdown),
            Self::Rebalancing => {
                matches!(next, Self::Running | Self::PendingShutdown | Self::PendingError)
            }
            Self::Running => {
                matches!(next, Self::Rebalancing | Self::PendingShutdown | Self::PendingError)
            }
            Self::PendingShutdown => next == Self::NotRunning,
            Self::PendingError => next == Self::Error,
            Self::NotRunning | Self::Error => false,
        }
    }

    /// Whether it is on its way down or has stopped.
    pub fn is_ending(self) -> bool {
        match self {
            Self::PendingShutdown | Self::NotRunning | Self::PendingError | Self::Error => true,
            Self::Created | Self::Rebalancing | Self::Running => false,
        }
    }

    /// Whether it has stopped for good.
    pub fn is_final(self) -> bool {
        matches!(self, Self::NotRunning | Self::Error)
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "CREATED",
            Self::Rebalancing => "REBALANCING",
            Self::Running => "RUNNING",
            Self::PendingShutdown => "PENDING_SHUTDOWN",
            Self::NotRunning => "NOT_RUNNING",
            Self::PendingError => "PENDING_ERROR",
            Self::Error => "ERROR",
        })
    }
}

#[cfg(test)]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
mod tests {
    use std::fmt::Write;

    use expect_test::expect;

    use super::InstanceState::{
        Created, Error, NotRunning, PendingError, PendingShutdown, Rebalancing, Running,
    };

    #[test]
    fn transitions_are_those_of_kafka_streams() {
        let states =
            [Created, Rebalancing, Running, PendingShutdown, NotRunning, PendingError, Error];
        let mut text = String::new();
        for state in states {
            let next: Vec<String> = states
                .into_iter()
                .filter(|next| state.may_become(*next))
                .map(|next| next.to_string())
                .collect();
            writeln!(text, "{state}: {}", next.join(", ")).unwrap();
            assert_eq!(state.is_final(), next.is_empty());
        }
        expect![[r#"
            CREATED: REBALANCING, PENDING_SHUTDOWN
            REBALANCING: RUNNING, PENDING_SHUTDOWN, PENDING_ERROR
            RUNNING: REBALANCING, PENDING_SHUTDOWN, PENDING_ERROR
            PENDING_SHUTDOWN: NOT_RUNNING
            NOT_RUNNING: 
            PENDING_ERROR: ERROR
            ERROR: 
        "#]]
        .assert_eq(&text);
    }
}
