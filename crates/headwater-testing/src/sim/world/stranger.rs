//! A member of the group that is none of the instances.

use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{Broker, GroupEvent, GroupId, GroupOptions};
use headwater_embedded::Embedded;

use super::World;

/// No version of the facts that is known begins like this.
const UNREADABLE: &[u8] = &[0xff; 8];

impl World<'_> {
    /// Somebody joins whom nobody understands, stays for a while, and leaves.
    pub(super) fn let_stranger_join(&mut self, lasts: Duration) {
        self.tell(format!("a member that nobody understands joins for {lasts:?}"));
        let config = &self.simulation.config;
        let group = GroupId::from(config.application_id.as_str());
        let session_timeout = Duration::from_millis(config.session_timeout_ms);
        let heartbeat_interval = Duration::from_millis(config.heartbeat_interval_ms);
        let broker = self.broker.clone();
        self.strangers.spawn(async move {
            // Without members there is no protocol, and nobody to be disturbed.
            let Ok(described) = broker.describe_group(&group).await else { return };
            if described.protocol.is_empty() {
                return;
            }
            let options = GroupOptions {
                group,
                protocol: described.protocol,
                client_id: "stranger".to_owned(),
                group_instance_id: None,
                replaces: None,
                topics: Vec::new(),
                session_timeout,
                rebalance_timeout: session_timeout,
                heartbeat_interval,
            };
            stay(&broker, options, lasts).await;
        });
    }
}

async fn stay(broker: &Embedded, options: GroupOptions, lasts: Duration) {
    let mut membership = broker.membership(options);
    let staying = async {
        membership.join(Bytes::from_static(UNREADABLE));
        while let Ok(event) = membership.next_event().await {
            match event {
                GroupEvent::RebalanceStarted | GroupEvent::Lost { .. } => {
                    membership.join(Bytes::from_static(UNREADABLE));
                }
                // It cannot plan for others.
                GroupEvent::PlanWanted { .. } => return,
                GroupEvent::Assigned { .. } => {}
            }
        }
    };
    // Whether its time is over or it was made the leader: it leaves.
    drop(tokio::time::timeout(lasts, staying).await);
    drop(membership.leave().await);
}
