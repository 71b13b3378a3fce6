//! The place in the group that an instance keeps while it is started again.
//!
//! A member that ends without leaving is waited for until its session is over, also by itself: started
//! again it is a new member, and the round with which it comes in ends only when the old one is gone. So
//! the id of the old one is kept in the state directory, and the new one takes it out as it comes in.

use std::sync::Arc;

use headwater_broker::MemberId;
use headwater_changelog::BlockingExt as _;

use super::Coordinator;
use crate::instance::shared::Shared;

impl Coordinator {
    /// Finds out whether it was a member before, and does so once only.
    pub(super) async fn take_up_place(&mut self) {
        let left = self.shared.state_dir.as_ref().and_then(|it| it.left_member());
        self.replaces = left.map(MemberId::from);
        if self.replaces.is_some() {
            note_left_member(&self.shared, None).await;
        }
    }

    /// Leaves word of the member that stays behind when the instance is gone, for the next one. A static
    /// member is known by its own id.
    pub(super) async fn leave_place(self) {
        let is_static = self.shared.config.group_instance_id.is_some();
        if let Some(member) = self.grants.member_id().filter(|_| !self.leaves() && !is_static) {
            let (shared, member) = (Arc::clone(&self.shared), member.clone());
            note_left_member(&shared, Some(member)).await;
        }
    }
}

async fn note_left_member(shared: &Shared, member: Option<MemberId>) {
    let Some(state_dir) = shared.state_dir.clone() else { return };
    let noting = move || state_dir.note_left_member(member.as_ref().map(MemberId::as_str));
    // Without it the session of that member is waited for, and an id that is not used any more does no
    // harm.
    if let Some(Err(error)) = shared.blocking.call(noting).await {
        tracing::warn!(%error, "the place in the group is not kept");
    }
}
