//! What threads share. `tests/loom` puts its own in this module's place, to try every order of events.

pub(crate) use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Locks a mutex whatever a panic elsewhere left behind.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
