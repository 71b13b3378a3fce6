//! The port through which work that blocks leaves the async threads.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
            let Ok(result) = catch_unwind(AssertUnwindSafe(work)) else {
                // What was said has been written where panics are written.
                return tracing::error!("a blocking job panicked");
            };
            // Nobody waits for the result any more: the instance is being dropped.
            drop(sender.send(result));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn work_that_panics_has_no_result_wherever_it_runs() {
        let runners: [Arc<dyn Blocking>; 2] = [Arc::new(TokioBlocking), Arc::new(InlineBlocking)];
        for runner in runners {
            assert_eq!(runner.call(|| 1).await, Some(1), "{runner:?}");
            let panics = || -> i32 { panic!("told to") };
            assert_eq!(runner.call(panics).await, None, "{runner:?}");
        }
    }
}
