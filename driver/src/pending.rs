//! A wish as a Rust future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bandog_core::error::Error;
use bandog_core::io::{OpId, Outcome};

use crate::fork;
use crate::handle::forked;
use crate::host::{Settled, Wish};
use crate::shared::Shared;
use crate::turn::settled;
use crate::waiter::{Promise, Waiter};

/// A wish under way. Dropped before its end, it is cancelled.
pub(crate) struct Pending {
    shared: Arc<Shared>,
    promise: Arc<Promise>,
    op: OpId,
    ended: bool,
}

impl Pending {
    pub(crate) fn new(shared: &Arc<Shared>, wish: Wish) -> Result<Self, Error> {
        let promise = Arc::new(Promise::default());
        let op = shared.wish(wish, Shared::LOOP, |_| Waiter::Task(promise.clone()))?;
        Ok(Self { shared: shared.clone(), promise, op, ended: false })
    }

    fn is_forked(&self) -> bool {
        self.shared.generation != fork::generation()
    }
}

impl Future for Pending {
    type Output = Result<Settled, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if self.is_forked() {
                return Poll::Ready(Err(forked()));
            }
            let Poll::Ready(outcome) = self.promise.poll(context) else { return Poll::Pending };
            let result = match outcome {
                Outcome::Granted => match self.shared.claim(self.op) {
                    Ok(Some(handle)) => Ok(Settled::Held(handle)),
                    Ok(None) => continue,
                    Err(error) => Err(error),
                },
                outcome => settled(outcome),
            };
            self.ended = true;
            return Poll::Ready(result);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.ended && !self.is_forked() {
            self.shared.cancel(self.op);
        }
    }
}
