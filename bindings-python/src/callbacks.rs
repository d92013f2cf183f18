//! Callbacks for lost holds: in the hold's event loop, or on threads of our own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bandog::host::{self, Filter, Handle, HoldId, Listener};
use bandog::{Error, Event};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::owner;
use crate::port::Port;
use crate::shared::Shared;
use crate::step::{Step, turn};

/// More losses than this at once are found by looking at every hold that has a callback.
const QUEUE: usize = 1024;

/// The callbacks of one client that run in one place.
pub(crate) struct LossBook {
    client: Weak<Shared>,
    listener: OnceLock<Listener>,
    missed: AtomicU64,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    of: HashMap<HoldId, Vec<Due>>,
    /// At how many entries those of released holds are thrown out.
    sweep_at: usize,
}

/// A callback, from the moment it is given until it has been called.
pub(crate) struct Due {
    handle: Handle,
    function: Py<PyAny>,
    args: Py<PyTuple>,
}

impl Due {
    pub(crate) fn call<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).call1(self.args.bind(py))
    }

    /// Has a loop call it. `start` takes what is a coroutine.
    pub(crate) fn step<'py>(&self, event_loop: &Bound<'py, PyAny>, start: Bound<'py, PyAny>) -> PyResult<Step> {
        let py = event_loop.py();
        Step::new(turn(py, "tell")?, (event_loop, self.function.bind(py), self.args.bind(py), start))
    }

    /// Calls it where no event loop is at hand, and reports what it raised.
    pub(crate) fn call_on_thread(&self, py: Python<'_>) {
        let done = self.call(py).and_then(|result| {
            if result.is_none() || !result.hasattr("__await__")? {
                return Ok(());
            }
            // A coroutine that is thrown away says so in a warning, unless it is closed.
            if let Ok(close) = result.getattr("close") {
                close.call0()?;
            }
            Err(nobody_awaits())
        });
        if let Err(error) = done {
            error.write_unraisable(py, None);
        }
    }
}

/// The hold was acquired outside any event loop, or its loop is closed.
pub(crate) fn nobody_awaits() -> PyErr {
    PyTypeError::new_err(
        "a callback that is a coroutine needs an event loop, and this hold has none: acquire it with \
         acquire_async, or give a plain function",
    )
}

impl LossBook {
    /// `wake` is called from threads that may not touch Python.
    pub(crate) fn open(
        client: &Arc<Shared>,
        wake: impl Fn(&Weak<Self>) + Send + Sync + 'static,
    ) -> Result<Arc<Self>, Error> {
        let book = Arc::new(Self {
            client: Arc::downgrade(client),
            listener: OnceLock::new(),
            missed: AtomicU64::new(0),
            entries: Mutex::default(),
        });
        let weak = Arc::downgrade(&book);
        let listener = host::listen(&client.driver, Filter::Losses, QUEUE, move || wake(&weak))?;
        let _ = book.listener.set(listener);
        Ok(book)
    }

    /// Keeps it until the hold is lost. What comes back is due at once: the hold is lost already.
    pub(crate) fn add(&self, handle: &Handle, function: Py<PyAny>, args: Py<PyTuple>) -> Vec<Due> {
        {
            let mut entries = self.entries();
            if entries.of.len() >= entries.sweep_at.max(64) {
                entries.of.retain(|_, list| list.iter().any(|entry| self.state(&entry.handle) == State::Held));
                entries.sweep_at = entries.of.len() * 2;
            }
            let entry = Due { handle: handle.clone(), function, args };
            entries.of.entry(handle.hold()).or_default().push(entry);
        }
        // Looked at after it was entered: a loss in between is found by one of the two, and only by one.
        match self.state(handle) {
            State::Held => Vec::new(),
            State::Lost => self.take(handle.hold()),
            State::Over => {
                self.take(handle.hold());
                Vec::new()
            }
        }
    }

    /// What is due by now.
    pub(crate) fn due(&self) -> Vec<Due> {
        let Some(listener) = self.listener.get() else { return Vec::new() };
        let mut due = Vec::new();
        while let Some(event) = listener.try_next() {
            if let Event::Lost { hold, .. } = event {
                due.extend(self.take(hold));
            }
        }
        let missed = listener.dropped();
        if self.missed.swap(missed, Ordering::Relaxed) != missed {
            let lost: Vec<HoldId> = {
                let entries = self.entries();
                let all = entries.of.values().filter_map(|list| list.first());
                all.filter(|entry| self.state(&entry.handle) == State::Lost).map(|entry| entry.handle.hold()).collect()
            };
            due.extend(lost.into_iter().flat_map(|hold| self.take(hold)));
        }
        due
    }

    fn take(&self, hold: HoldId) -> Vec<Due> {
        self.entries().of.remove(&hold).unwrap_or_default()
    }

    fn state(&self, handle: &Handle) -> State {
        let view = self.client.upgrade().and_then(|client| handle.view(&client.driver).ok().flatten());
        match view {
            Some(view) if view.lost.is_some() => State::Lost,
            Some(_) => State::Held,
            None => State::Over,
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    /// Calls a callback. What it raises is reported; the others run all the same.
    pub(crate) fn call(slf: &Bound<'_, Self>, due: &Due) {
        let py = slf.py();
        let done = due.call(py).and_then(|result| {
            let asyncio = py.import("asyncio")?;
            if result.is_none() || !asyncio.call_method1("iscoroutine", (&result,))?.is_truthy()? {
                return Ok(());
            }
            let Some(event_loop) = slf.get().event_loop(py) else { return Ok(()) };
            if owner::running_loop(py)?.is_some_and(|running| running.is(&event_loop)) {
                return Self::_start(slf, result);
            }
            event_loop.call_method1("call_soon_threadsafe", (slf.getattr("_start")?, result))?;
            Ok(())
        });
        if let Err(error) = done {
            slf.get().report(py, error);
        }
    }

    /// An exception out of a callback goes to the loop's handler, once, and harms nobody else.
    pub(crate) fn report(&self, py: Python<'_>, error: PyErr) {
        let told = (|| {
            let event_loop = self.event_loop(py)?;
            let context = PyDict::new(py);
            context.set_item("message", "a callback for a lost lock raised").ok()?;
            context.set_item("exception", error.value(py)).ok()?;
            event_loop.call_method1(intern!(py, "call_exception_handler"), (context,)).ok()
        })();
        if told.is_none() {
            error.write_unraisable(py, None);
        }
    }
}

#[derive(PartialEq, Eq)]
enum State {
    Held,
    Lost,
    Over,
}
