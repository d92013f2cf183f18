//! A thread's place among those that wait: where its outcome is put, and where it sleeps.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bandog_core::io::Outcome;

use crate::parker::Parker;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// A thread that waits for the end of one wish.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Never used twice.
    pub(crate) id: u64,
    pub(crate) parker: Arc<Parker>,
    outcome: Mutex<Option<Outcome>>,
    ready: AtomicBool,
}

impl Seat {
    pub(crate) fn new(parker: Arc<Parker>) -> Self {
        // Nothing hangs on when others see it.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, parker, outcome: Mutex::new(None), ready: AtomicBool::new(false) }
    }

    pub(crate) fn put(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        self.ready.store(true, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Option<Outcome> {
        if !self.is_ready() {
            return None;
        }
        let outcome = lock(&self.outcome).take();
        self.ready.store(false, Ordering::Release);
        outcome
    }
}
