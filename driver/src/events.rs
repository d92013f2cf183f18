//! Events for Rust programs: a stream over a listener.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bandog_core::event::Event;

use crate::host::{Listener, Signals};

/// What happens, as a stream. Ends when the client is closed.
pub struct Events(Listener);

impl Events {
    pub(crate) fn new(listener: Listener) -> Self {
        Self(listener)
    }

    /// The next event; `None` once the client is closed.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| self.0.poll_next(context)).await
    }

    /// The same on this thread.
    pub fn next_blocking(&mut self) -> Option<Event> {
        self.0.next_blocking(Signals::Open, &mut || false)
    }

    /// How many events were thrown away because nobody took them in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

impl futures_core::Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_next(context)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Events").field(&self.0).finish()
    }
}
