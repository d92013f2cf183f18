//! A wish as a Rust future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bandog_core::error::Error;
use bandog_core::io::{OpId, Outcome};

use crate::fork;
use crate::handle::forked;
use crate::host::{Settled, Wish};
use crate::runtime::Place;
use crate::shared::Shared;
use crate::turn::{Stated, settled};
use crate::waiter::{Promise, Waiter};

/// A wish under way. Dropped before its end, it is cancelled.
struct Pending {
    shared: Arc<Shared>,
    promise: Arc<Promise>,
    op: OpId,
    /// At the wire of this runtime, if it has one.
    place: Option<Place>,
    ended: bool,
}

/// States a wish and waits for its end.
pub(crate) async fn run(shared: &Arc<Shared>, wish: Wish) -> Result<Settled, Error> {
    let promise = Arc::new(Promise::default());
    let runtime = shared.runtimes.current(shared);
    let wire = runtime.as_ref().map_or(Shared::LOOP, |runtime| runtime.wire());
    let op = match shared.wish(wish, wire, |_| Waiter::Task(promise.clone()))? {
        Stated::Waiting(op) => op,
        Stated::Ended(result) => return result,
    };
    let place = runtime.map(|runtime| runtime.sit(&promise));
    Pending { shared: shared.clone(), promise, op, place, ended: false }.await
}

impl Pending {
    fn is_forked(&self) -> bool {
        self.shared.generation != fork::generation()
    }

    /// The end of the wish; reads for it, if nobody else does.
    fn outcome(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            // Before it may lead: whoever passes the lead on looks for the task here.
            if let Poll::Ready(outcome) = self.promise.poll(context) {
                return Poll::Ready(outcome);
            }
            let again = self.place.as_mut().is_some_and(|place| place.serve(&self.shared, context));
            if !again {
                return Poll::Pending;
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        if let Some(mut place) = self.place.take() {
            place.leave(&self.shared);
        }
    }
}

impl Future for Pending {
    type Output = Result<Settled, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if self.is_forked() {
                return Poll::Ready(Err(forked()));
            }
            let Poll::Ready(outcome) = self.outcome(context) else { return Poll::Pending };
            let result = match outcome {
                Outcome::Granted => match self.shared.claim(self.op) {
                    Ok(Some(handle)) => Ok(Settled::Held(handle)),
                    Ok(None) => continue,
                    Err(error) => Err(error),
                },
                outcome => settled(outcome),
            };
            self.end();
            return Poll::Ready(result);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.ended && !self.is_forked() {
            self.shared.cancel(self.op);
            self.end();
        }
    }
}
