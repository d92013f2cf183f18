//! A client's own wire in one event loop: watched by the loop, and let go with it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandog::Error;
use bandog::host::{LoopWire, Mail, Mailbox, Submitted, Watched, Wish};
use pyo3::intern;
use pyo3::prelude::*;

use crate::port::Port;
use crate::step::{Step, runner, turn};

/// The wire, and what the loop watches of it.
pub(crate) struct Line(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    wire: Option<LoopWire>,
    watched: Option<Watching>,
}

struct Watching {
    socket: Watched,
    /// Until it can be written, too.
    writer: bool,
}

/// What the loop has to change.
enum Change {
    Nothing,
    /// Another connection, or none.
    Socket(Option<Watching>, Option<Watched>),
    Writer(RawFd, bool),
}

impl Line {
    pub(crate) fn open(client: &bandog::Client, mailbox: &Arc<Mailbox>) -> Result<Arc<Self>, Error> {
        let wire = LoopWire::open(client, mailbox)?;
        Ok(Arc::new(Self(Mutex::new(Inner { wire: Some(wire), watched: None }))))
    }

    /// Sends a wish; says, too, whether the loop has to call [`Line::flush`] at the end of its turn. `None` once
    /// the loop is gone.
    pub(crate) fn submit(&self, wish: Wish, token: u64) -> Option<(Result<Submitted, Error>, bool)> {
        let inner = lock(&self.0);
        let wire = inner.wire.as_ref()?;
        let submitted = wire.submit(wish, token);
        Some((submitted, wire.wants_flush()))
    }

    pub(crate) fn flush(&self) {
        if let Some(wire) = &lock(&self.0).wire {
            wire.flush();
        }
    }

    pub(crate) fn read(&self) -> Vec<Mail> {
        lock(&self.0).wire.as_ref().map(LoopWire::read).unwrap_or_default()
    }

    /// Whether the client was closed, or dropped, and nothing will come any more.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.0).wire.as_ref().is_none_or(LoopWire::is_over)
    }

    /// What the loop has to do so that it watches the connection that there is now.
    pub(crate) fn attend(&self, port: &Bound<'_, Port>, event_loop: &Bound<'_, PyAny>) -> PyResult<Vec<Step>> {
        let py = port.py();
        let mut steps = Vec::new();
        loop {
            match self.change() {
                Change::Nothing => return Ok(steps),
                Change::Socket(stale, fresh) => {
                    if let Some(stale) = stale {
                        steps.push(stale.forget(event_loop)?);
                    }
                    let Some(fresh) = fresh else { return Ok(steps) };
                    let watch = event_loop.getattr(intern!(py, "add_reader"))?;
                    steps.push(Step::new(watch, (fresh.as_raw_fd(), runner(port, "_read")?))?);
                    lock(&self.0).watched = Some(Watching { socket: fresh, writer: false });
                }
                Change::Writer(descriptor, true) => {
                    let watch = event_loop.getattr(intern!(py, "add_writer"))?;
                    steps.push(Step::new(watch, (descriptor, runner(port, "_flush")?))?);
                }
                Change::Writer(descriptor, false) => {
                    let forget = event_loop.getattr(intern!(py, "remove_writer"))?;
                    steps.push(Step::new(forget, (descriptor,))?);
                }
            }
        }
    }

    fn change(&self) -> Change {
        let mut inner = lock(&self.0);
        let Inner { wire: Some(wire), watched } = &mut *inner else { return Change::Nothing };
        match watched {
            Some(watching) if wire.is_current(&watching.socket) => {
                let clogged = wire.is_clogged();
                if std::mem::replace(&mut watching.writer, clogged) == clogged {
                    return Change::Nothing;
                }
                Change::Writer(watching.socket.as_raw_fd(), clogged)
            }
            _ => Change::Socket(watched.take(), wire.socket()),
        }
    }

    /// Leaves the loop, and says what that has to do if it is still there.
    pub(crate) fn leave(&self, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Step>> {
        let Inner { wire, watched } = std::mem::take(&mut *lock(&self.0));
        drop(wire);
        watched.zip(event_loop).map(|(watching, event_loop)| watching.forget(event_loop)).transpose()
    }
}

impl Watching {
    fn forget(self, event_loop: &Bound<'_, PyAny>) -> PyResult<Step> {
        let py = event_loop.py();
        let descriptor = self.socket.as_raw_fd();
        let kept = Py::new(py, Kept(self.socket))?;
        Step::new(turn(py, "unwatch")?, (event_loop, descriptor, self.writer, kept))
    }
}

/// Keeps a descriptor open, and so its number its own, until the loop watches it no more.
#[pyclass(frozen, name = "_Kept", module = "bandog._native")]
struct Kept(#[expect(dead_code, reason = "kept for its drop")] Watched);

/// Called when the loop object is gone.
#[pyclass(frozen, name = "_Mourner", module = "bandog._native")]
pub(crate) struct Mourner(pub(crate) Arc<Line>);

#[pymethods]
impl Mourner {
    fn __call__(&self, _loop: &Bound<'_, PyAny>) {
        // Nothing is left to do for a loop that is gone.
        let _ = self.0.leave(None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
