//! How one event loop is woken from any thread.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::dispatcher::{Dispatcher, Job};
use crate::poke::Poke;

/// A descriptor that the loop watches, or for a loop that watches none, `call_soon_threadsafe`.
pub(crate) struct Bell {
    poke: Poke,
    without_reader: Mutex<Option<Turn>>,
    over: AtomicBool,
}

type Turn = (Arc<Dispatcher>, Arc<Py<PyAny>>);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { poke: Poke::new()?, without_reader: Mutex::new(None), over: AtomicBool::new(false) })
    }

    pub(crate) fn ring(&self) {
        match &*lock(&self.without_reader) {
            // The dispatcher's thread calls into Python; whoever rings may not.
            Some((dispatcher, turn)) => dispatcher.post(Job::Turn(Arc::clone(turn))),
            None => self.poke.set(),
        }
    }

    /// The client is gone: the loop is to be left when it turns.
    pub(crate) fn end(&self) {
        self.over.store(true, SeqCst);
        self.ring();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// The loop looks: from here on it is woken again.
    pub(crate) fn heard(&self) {
        self.poke.clear();
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.poke.fd()
    }

    /// The loop watches no descriptors: calls `turn` instead.
    pub(crate) fn without_reader(&self, turn: Py<PyAny>) -> PyResult<()> {
        *lock(&self.without_reader) = Some((Dispatcher::get()?, Arc::new(turn)));
        Ok(())
    }

    pub(crate) fn has_reader(&self) -> bool {
        lock(&self.without_reader).is_none()
    }

    /// The loop is left.
    pub(crate) fn forget_loop(&self) {
        let turn = lock(&self.without_reader).take();
        drop(turn);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
