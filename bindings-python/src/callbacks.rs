//! Callbacks for lost holds: in the hold's event loop, or on one thread of our own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bandog::host::{self, Filter, Handle, HoldId, Listener};
use bandog::{Error, Event};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::shared::Shared;

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
    of: HashMap<HoldId, Vec<Entry>>,
    /// At how many entries those of released holds are thrown out.
    sweep_at: usize,
}

struct Entry {
    handle: Handle,
    function: Py<PyAny>,
    args: Py<PyTuple>,
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

    /// Calls it when the hold is lost; at once if that is so already.
    pub(crate) fn add(&self, py: Python<'_>, handle: &Handle, function: Py<PyAny>, args: Py<PyTuple>) -> Vec<PyErr> {
        {
            let mut entries = self.entries();
            if entries.of.len() >= entries.sweep_at.max(64) {
                entries.of.retain(|_, list| list.iter().any(|entry| self.state(&entry.handle) == State::Held));
                entries.sweep_at = entries.of.len() * 2;
            }
            let entry = Entry { handle: handle.clone(), function, args };
            entries.of.entry(handle.hold()).or_default().push(entry);
        }
        // Looked at after it was entered: a loss in between is found by one of the two, and only by one.
        match self.state(handle) {
            State::Held => Vec::new(),
            State::Lost => self.call(py, self.take(handle.hold())),
            State::Over => {
                self.take(handle.hold());
                Vec::new()
            }
        }
    }

    /// Runs what is due. `report` gets what a callback raised; the others run all the same.
    pub(crate) fn run(&self, py: Python<'_>, report: &dyn Fn(PyErr)) {
        let Some(listener) = self.listener.get() else { return };
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
        for error in self.call(py, due) {
            report(error);
        }
    }

    fn call(&self, py: Python<'_>, due: Vec<Entry>) -> Vec<PyErr> {
        due.into_iter().filter_map(|entry| entry.function.call1(py, entry.args.bind(py)).err()).collect()
    }

    fn take(&self, hold: HoldId) -> Vec<Entry> {
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

#[derive(PartialEq, Eq)]
enum State {
    Held,
    Lost,
    Over,
}

/// Something to do with Python, asked for by a thread that may not touch it.
pub(crate) enum Job {
    /// Run the callbacks that are due.
    Losses(Weak<LossBook>),
    /// Call this: a loop that watches no descriptors is to turn.
    Turn(Arc<Py<PyAny>>),
}

/// The thread that calls callbacks of holds that no event loop acquired. It lives while a client needs it.
pub(crate) struct Dispatcher {
    jobs: Sender<Job>,
    process: u32,
}

impl Dispatcher {
    /// The process's one, started now if there is none; a child has to start its own.
    pub(crate) fn get() -> PyResult<Arc<Self>> {
        static CURRENT: Mutex<Weak<Dispatcher>> = Mutex::new(Weak::new());
        let process = std::process::id();
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = current.upgrade().filter(|running| running.process == process) {
            return Ok(running);
        }
        let (jobs, due) = channel();
        std::thread::Builder::new().name("bandog-callbacks".into()).spawn(move || serve(&due))?;
        let started = Arc::new(Self { jobs, process });
        *current = Arc::downgrade(&started);
        Ok(started)
    }

    pub(crate) fn post(&self, job: Job) {
        // The thread ends only with the interpreter.
        let _ = self.jobs.send(job);
    }
}

fn serve(due: &Receiver<Job>) {
    block_signals();
    while let Ok(job) = due.recv() {
        let attached = Python::try_attach(|py| match job {
            Job::Losses(book) => {
                if let Some(book) = book.upgrade() {
                    book.run(py, &|error| error.write_unraisable(py, None));
                }
            }
            Job::Turn(turn) => {
                // A closed loop has nobody waiting.
                let _ = turn.call0(py);
            }
        });
        if attached.is_none() {
            return;
        }
    }
}

/// Signals are for the threads of the program.
fn block_signals() {
    // SAFETY: both calls write to and read from a live set.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
