//! The grant in force, told to all who commit.

use headwater_broker::{Grant, MemberId};
use tokio::sync::watch;

/// The grant in force, told to all who commit. Each hears it by a channel of its own, in the order in which they
/// began to listen: one channel for all would wake them in an order of chance.
#[derive(Debug, Default)]
pub(super) struct Grants {
    in_force: Option<Grant>,
    listeners: Vec<watch::Sender<Option<Grant>>>,
}

impl Grants {
    /// Whoever commits hears of each change from now on.
    pub(super) fn subscribe(&mut self) -> watch::Receiver<Option<Grant>> {
        let (tells, hears) = watch::channel(self.in_force.clone());
        self.listeners.push(tells);
        hears
    }

    /// As which member of the group.
    pub(super) fn member_id(&self) -> Option<&MemberId> {
        self.in_force.as_ref().map(|grant| &grant.member_id)
    }

    /// This one is in force from now on, or none.
    pub(super) fn replace(&mut self, grant: Option<Grant>) {
        self.listeners.retain(|listener| !listener.is_closed());
        for listener in &self.listeners {
            listener.send_replace(grant.clone());
        }
        self.in_force = grant;
    }
}

#[cfg(test)]
mod tests {
    use headwater_broker::GroupId;
    use tokio::sync::mpsc;

    use super::*;

    fn grant(generation: i32) -> Grant {
        Grant {
            group: GroupId::from("group"),
            member_id: MemberId::from("member"),
            group_instance_id: None,
            generation,
        }
    }

    #[tokio::test]
    async fn all_hear_of_a_grant_in_their_order() {
        let mut grants = Grants::default();
        let (says, mut hears) = mpsc::unbounded_channel();
        for listener in 0..8 {
            let (mut granted, says) = (grants.subscribe(), says.clone());
            tokio::spawn(async move {
                while granted.changed().await.is_ok() {
                    let generation = granted.borrow_and_update().as_ref().map(|it| it.generation);
                    says.send((generation, listener)).expect("the test listens");
                }
            });
        }
        tokio::task::yield_now().await;
        for generation in 1..20 {
            grants.replace(Some(grant(generation)));
            for listener in 0..8 {
                assert_eq!(hears.recv().await, Some((Some(generation), listener)));
            }
        }
    }

    #[test]
    fn who_comes_later_has_the_grant_in_force_and_who_has_gone_is_forgotten() {
        let mut grants = Grants::default();
        drop(grants.subscribe());
        grants.replace(Some(grant(3)));
        assert!(grants.listeners.is_empty());
        assert_eq!(*grants.subscribe().borrow(), Some(grant(3)));
        grants.replace(None);
        assert_eq!(*grants.subscribe().borrow(), None);
    }
}
