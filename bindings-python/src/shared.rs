//! What all locks of one client share, and every client of the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use bandog::host::{self, LocalOwner};
use bandog::{ClientId, Code, Error};
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;

use crate::bell::Bell;
use crate::callbacks::LossBook;
use crate::dispatcher::{Dispatcher, Job};
use crate::errors::raise;
use crate::home::WeakPort;
use crate::port::Port;
use crate::warnings::Warnings;

/// How long the end of the program may wait for the server, for all clients together.
const AT_EXIT: Duration = Duration::from_millis(200);

/// One driver client and what this binding keeps beside it.
pub(crate) struct Shared {
    pub(crate) driver: bandog::Client,
    pub(crate) allow_blocking_in_loop: bool,
    op_timeout: Duration,
    _warnings: Arc<Warnings>,
    /// By the address of the loop, with the client id of the process that made it.
    ports: Mutex<HashMap<usize, Known>>,
    losses: Mutex<Option<(ClientId, Arc<LossBook>)>>,
}

/// A loop that this client was used in.
struct Known {
    made_by: ClientId,
    port: WeakPort,
    bell: Weak<Bell>,
}

impl Shared {
    pub(crate) fn new(driver: bandog::Client, allow_blocking_in_loop: bool, op_timeout: Duration) -> Arc<Self> {
        let shared = Arc::new(Self {
            _warnings: Warnings::open(&driver),
            driver,
            allow_blocking_in_loop,
            op_timeout,
            ports: Mutex::default(),
            losses: Mutex::default(),
        });
        let mut clients = guard(&CLIENTS);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&shared));
        drop(clients);
        shared
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.driver.is_closed()
    }

    /// Releases what is held and ends every wish, within the time one request may take.
    ///
    /// Whoever still holds is told first, for the program goes on.
    pub(crate) fn close(&self, py: Python<'_>) {
        py.detach(|| host::close_and_tell(&self.driver, self.op_timeout));
        self.tell_losses(py);
        self.leave_loops(py);
    }

    /// The same on a thread of its own: nothing may be waited for here. `done` is called when
    /// it is over, and must not touch Python.
    pub(crate) fn close_aside(self: &Arc<Self>, done: impl Fn() + Send + 'static) -> std::io::Result<()> {
        let this = Arc::clone(self);
        let close = move || {
            host::close_and_tell(&this.driver, this.op_timeout);
            // Before the word: a loop that hears of the end leaves in the same turn, which may be its last.
            // Without an interpreter there is nobody left to be told.
            Python::try_attach(|py| {
                this.tell_losses(py);
                this.leave_loops(py);
            });
            done();
        };
        std::thread::Builder::new().name("bandog-close".into()).spawn(close).map(drop)
    }

    /// What this client has with a running loop; made at the first call in it.
    pub(crate) fn port(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<Py<Port>> {
        let py = event_loop.py();
        let (key, id) = (event_loop.as_ptr() as usize, self.driver.id());
        let known =
            guard(&self.ports).get(&key).filter(|known| known.made_by == id).and_then(|known| known.port.get(py));
        if let Some(port) = known
            && port.get().event_loop(py).is_some_and(|known| known.is(event_loop))
        {
            return Ok(port.unbind());
        }
        self.sweep_ports(py);
        let port = Port::open(event_loop)?;
        let known = Known { made_by: id, port: port.get().weak(py), bell: Arc::downgrade(&port.get().bell()) };
        let stale = guard(&self.ports).insert(key, known);
        drop(stale);
        Ok(port)
    }

    /// Forgets loops that were closed. Nothing will resume who waits in them.
    fn sweep_ports(&self, py: Python<'_>) {
        let all: Vec<_> = guard(&self.ports).iter().map(|(key, known)| (*key, known.port.get(py))).collect();
        for (key, port) in all {
            if port.as_ref().is_some_and(|port| !port.get().is_dead(py)) {
                continue;
            }
            if let Some(port) = port {
                port.get().retire();
                host::cancel_all(&self.driver, &port.get().mailbox);
            }
            let dead = guard(&self.ports).remove(&key);
            drop(dead);
        }
    }

    /// The losses told on our own threads.
    pub(crate) fn losses(self: &Arc<Self>, py: Python<'_>) -> PyResult<Arc<LossBook>> {
        let id = self.driver.id();
        let known =
            guard(&self.losses).as_ref().filter(|(made_by, _)| *made_by == id).map(|(_, book)| Arc::clone(book));
        if let Some(book) = known {
            return Ok(book);
        }
        let dispatcher = Dispatcher::get()?;
        let book = LossBook::open(self, move |book| dispatcher.post(Job::Losses(Weak::clone(book))));
        let book = book.map_err(|error| raise(py, &error))?;
        *guard(&self.losses) = Some((id, Arc::clone(&book)));
        Ok(book)
    }

    /// What the dispatcher has not come to before the client is gone.
    fn tell_losses(&self, py: Python<'_>) {
        let book = guard(&self.losses).as_ref().map(|(_, book)| Arc::clone(book));
        for due in book.iter().flat_map(|book| book.due()) {
            due.call_on_thread(py);
        }
    }

    fn leave_loops(&self, py: Python<'_>) {
        *guard(&self.losses) = None;
        let ports: Vec<_> = guard(&self.ports).drain().collect();
        for (_, known) in ports {
            if let Some(port) = known.port.get(py) {
                port.get().close(py);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let ports: Vec<_> = guard(&self.ports).drain().collect();
        ports.iter().filter_map(|(_, known)| known.bell.upgrade()).for_each(|bell| bell.end());
    }
}

/// Every client that is still there.
static CLIENTS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn clients() -> Vec<Arc<Shared>> {
    guard(&CLIENTS).iter().filter_map(Weak::upgrade).collect()
}

/// A thread, task or greenlet ended.
pub(crate) fn owner_gone(owner: LocalOwner) {
    for client in clients() {
        host::owner_gone(&client.driver, owner);
    }
}

/// The thread that ends the program, once it does.
static EXITING: Mutex<Option<ThreadId>> = Mutex::new(None);

/// `SystemExit` for a call that the end of the program cut short in a thread of the background. All that could be
/// done with an error there is to print it.
pub(crate) fn cut_short(error: &Error) -> Option<PyErr> {
    let exiting = (*guard(&EXITING))?;
    (error.code() == Code::Closed && exiting != std::thread::current().id()).then(|| PySystemExit::new_err(()))
}

/// At the end of the program: releases what is held if the server answers soon.
#[pyfunction]
pub(crate) fn _exit(py: Python<'_>) {
    *guard(&EXITING) = Some(std::thread::current().id());
    let end = Instant::now() + AT_EXIT;
    for client in clients() {
        // Quietly: there is no program left that could act on it.
        py.detach(|| host::close(&client.driver, end.saturating_duration_since(Instant::now())));
        client.leave_loops(py);
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
