//! The port through which work that blocks leaves the async threads.

use std::fmt;

use async_trait::async_trait;
use tokio::sync::oneshot;

/// A piece of work that may block: disk, compression, user code.
pub type Job = Box<dyn FnOnce() + Send + 'static>;

/// Runs work that blocks. A simulator runs it in place, so that everything happens on one thread
/// and in one order.
#[async_trait]
pub trait Blocking: fmt::Debug + Send + Sync + 'static {
    /// Runs the job to its end.
    async fn run(&self, job: Job);
}

/// Jobs with results.
pub trait BlockingExt: Blocking {
    /// Runs `work` and gives back its result; `None` when it panicked or the runtime shuts down.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send {
        let (sender, receiver) = oneshot::channel();
        let run = self.run(Box::new(move || {
            // Nobody waits for the result any more: the instance is being dropped.
            drop(sender.send(work()));
        }));
        async move {
            run.await;
            receiver.await.ok()
        }
    }
}

impl<B: Blocking + ?Sized> BlockingExt for B {}

/// Tokio's pool for blocking work.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioBlocking;

#[async_trait]
impl Blocking for TokioBlocking {
    async fn run(&self, job: Job) {
        if let Err(error) = tokio::task::spawn_blocking(job).await {
            tracing::error!(%error, "a blocking job did not end");
        }
    }
}

/// Runs every job where it is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineBlocking;

#[async_trait]
impl Blocking for InlineBlocking {
    async fn run(&self, job: Job) {
        job();
    }
}
