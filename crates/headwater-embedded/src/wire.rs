//! What lies between one client and the broker.

use std::fmt::{self, Display};
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use headwater_broker::{BrokerError, Grant, GroupId, OffsetCommit};

use crate::faults::{CallKind, Fault, Faults, suffer};

/// A request on its way from a client to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// What is asked.
    pub kind: CallKind,
    /// What for: see [`CallKind`].
    pub targets: Vec<String>,
    /// Of [`CallKind::CommitOffsets`] and [`CallKind::TxnOffsetCommit`]: what is committed, and by
    /// what right.
    pub commit: Option<(Grant, Vec<OffsetCommit>)>,
    /// Of [`CallKind::SyncGroup`]: the member leads its group, and brings the plan.
    pub brings_plan: bool,
}

impl Request {
    pub(crate) fn new(kind: CallKind, targets: impl IntoIterator<Item: Display>) -> Self {
        let targets = targets.into_iter().map(|target| target.to_string()).collect();
        Self { kind, targets, commit: None, brings_plan: false }
    }

    pub(crate) fn commit(kind: CallKind, grant: &Grant, offsets: &[OffsetCommit]) -> Self {
        let commit = Some((grant.clone(), offsets.to_vec()));
        Self { commit, ..Self::new(kind, [&grant.group]) }
    }

    pub(crate) fn plan(kind: CallKind, group: &GroupId, brings_plan: bool) -> Self {
        Self { brings_plan, ..Self::new(kind, [group]) }
    }
}

/// What lies between one client and the broker: a network that loses and delays, a process that
/// stands still. Every request of the client passes it, those that are sent again too, so whatever
/// a client does about a lost answer is done. See [`Embedded::behind`](crate::Embedded::behind).
///
/// A future that never ends is a client that has crashed, or that nobody answers.
#[async_trait]
pub trait Wire: fmt::Debug + Send + Sync + 'static {
    /// A request comes by on its way to the broker; what is to happen to it.
    async fn request(&self, request: &Request) -> Option<Fault>;

    /// Its answer, good or bad, comes by on its way to the client; what the client hears instead, if anything: a
    /// broker that has died meanwhile does not answer.
    async fn answer(&self, request: &Request, error: Option<&BrokerError>) -> Option<BrokerError>;
}

/// Something done once more whose outcome nobody hears.
pub(crate) fn again<T>(doing: impl Future<Output = T> + Send + 'static) -> BoxFuture<'static, ()> {
    Box::pin(async move { drop(doing.await) })
}

/// The wire of a client; none for a client that calls the broker directly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wiring(Option<Arc<dyn Wire>>);

impl Wiring {
    pub(crate) fn new(wire: Arc<dyn Wire>) -> Self {
        Self(Some(wire))
    }

    /// Whether nothing can happen to a request on its way.
    pub(crate) fn is_direct(&self, faults: &Faults) -> bool {
        self.0.is_none() && !faults.is_active()
    }

    /// Carries out a call for some targets.
    pub(crate) async fn call<T>(
        &self,
        faults: &Faults,
        kind: CallKind,
        targets: impl IntoIterator<Item: Display>,
        doing: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        if self.is_direct(faults) {
            return doing.await;
        }
        self.ask(faults, &Request::new(kind, targets), doing).await
    }

    /// Carries out a request that is not sent a second time.
    pub(crate) async fn ask<T>(
        &self,
        faults: &Faults,
        request: &Request,
        doing: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        let fault = faults.decide_all(request.kind, &request.targets);
        self.carry(request, fault, doing, || None).await
    }

    /// Carries a request to the broker, and its answer back. `fault` is what the broker's plan has
    /// for it, `again` does the same at another time.
    pub(crate) async fn carry<T>(
        &self,
        request: &Request,
        fault: Option<Fault>,
        doing: impl Future<Output = Result<T, BrokerError>>,
        again: impl FnOnce() -> Option<BoxFuture<'static, ()>>,
    ) -> Result<T, BrokerError> {
        let on_the_way = match &self.0 {
            Some(wire) => wire.request(request).await,
            None => None,
        };
        let fault = on_the_way.or(fault);
        let result = suffer(request.kind, fault.clone(), doing).await;
        let arrives_after = match fault {
            Some(Fault::Twice { apart }) => Some(apart),
            Some(Fault::LeftBehind { arrives_after }) => Some(arrives_after),
            _ => None,
        };
        if let Some(arrives_after) = arrives_after
            && let Some(again) = again()
        {
            // It belongs to nobody any more: the client may be gone when it arrives.
            tokio::spawn(async move {
                tokio::time::sleep(arrives_after).await;
                again.await;
            });
        }
        if let Some(wire) = &self.0
            && let Some(instead) = wire.answer(request, result.as_ref().err()).await
        {
            return Err(instead);
        }
        result
    }
}
