//! A client's own wire in one event loop: watched by the loop, and let go with it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandog::Error;
use bandog::host::{LoopWire, Mail, Mailbox, Submitted, Watched, Wish};
use pyo3::intern;
use pyo3::prelude::*;

use crate::port::{Port, runner};

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

    /// Has the loop watch the connection that there is now. In the loop's own thread.
    pub(crate) fn attend(&self, port: &Bound<'_, Port>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = port.py();
        loop {
            match self.change() {
                Change::Nothing => return Ok(()),
                Change::Socket(stale, fresh) => {
                    if let Some(stale) = stale {
                        stale.forget(event_loop);
                    }
                    let Some(fresh) = fresh else { return Ok(()) };
                    let arguments = (fresh.as_raw_fd(), runner(port, "_read")?);
                    event_loop.call_method1(intern!(py, "add_reader"), arguments)?;
                    lock(&self.0).watched = Some(Watching { socket: fresh, writer: false });
                }
                Change::Writer(descriptor, true) => {
                    let arguments = (descriptor, port.getattr(intern!(py, "_flush"))?);
                    return event_loop.call_method1(intern!(py, "add_writer"), arguments).map(drop);
                }
                Change::Writer(descriptor, false) => {
                    return event_loop.call_method1(intern!(py, "remove_writer"), (descriptor,)).map(drop);
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

    /// Leaves the loop. In the loop's own thread, or when the loop is closed.
    pub(crate) fn leave(&self, event_loop: Option<&Bound<'_, PyAny>>) {
        let Inner { wire, watched } = std::mem::take(&mut *lock(&self.0));
        if let (Some(watching), Some(event_loop)) = (&watched, event_loop) {
            watching.forget(event_loop);
        }
        // Last: its descriptor is nobody's after that.
        drop(wire);
        drop(watched);
    }
}

impl Watching {
    /// A closed loop has forgotten it already.
    fn forget(&self, event_loop: &Bound<'_, PyAny>) {
        let py = event_loop.py();
        let descriptor = self.socket.as_raw_fd();
        let _ = event_loop.call_method1(intern!(py, "remove_reader"), (descriptor,));
        if self.writer {
            let _ = event_loop.call_method1(intern!(py, "remove_writer"), (descriptor,));
        }
    }
}

/// Called when the loop object is gone.
#[pyclass(frozen, name = "_Mourner", module = "bandog._native")]
pub(crate) struct Mourner(pub(crate) Arc<Line>);

#[pymethods]
impl Mourner {
    fn __call__(&self, _loop: &Bound<'_, PyAny>) {
        self.0.leave(None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
