//! What happened, as a sync and an async iterator.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandog::host::{self, Filter, Listener, Signals};
use bandog::{Code, Event as Told};
use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;

use crate::bell::Bell;
use crate::block::refuse_in_loop;
use crate::convert::seconds;
use crate::errors::{fail, raise};
use crate::owner;
use crate::poke::Poke;
use crate::shared::Shared;

/// Something that happened to a lock of this client.
#[pyclass(frozen, module = "bandog", get_all)]
pub(crate) struct Event {
    /// `"acquired"`, `"contended"`, `"renewed"`, `"doubtful"`, `"lost"`, `"released"`, `"link_up"`,
    /// `"link_down"` or `"warning"`.
    kind: &'static str,
    /// The lock, where it is about one.
    name: Option<String>,
    /// How many levels there are now, with `"acquired"` and `"released"`.
    count: Option<u32>,
    /// Why, with `"lost"`: `"expired"`, `"taken"`, `"overwritten"`, `"max_hold"` or `"closed"`.
    why: Option<&'static str>,
    /// For how many seconds the hold is good yet, with `"renewed"` and `"doubtful"`; for how long the other
    /// holds it at least, with `"contended"`.
    remaining: Option<f64>,
    /// What an operator should know, with `"warning"`.
    text: Option<String>,
}

impl Event {
    fn new(told: Told) -> Self {
        let (mut count, mut why, mut remaining, mut text) = (None, None, None, None);
        let (kind, name) = (told.kind(), told.name().map(|name| name.as_str().to_owned()));
        match told {
            Told::Acquired { count: levels, .. } | Told::Released { count: levels, .. } => count = Some(levels),
            Told::Contended { ttl, .. } => remaining = ttl.map(seconds),
            Told::Renewed { deadline, .. } | Told::Doubtful { deadline, .. } => {
                remaining = Some(seconds(deadline.since(host::now())));
            }
            Told::Lost { why: reason, .. } => why = Some(reason.as_str()),
            Told::Link { .. } => {}
            Told::Warning { text: told, .. } => text = Some(told),
        }
        Self { kind, name, count, why, remaining, text }
    }
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        let mut shown = format!("<bandog.Event {}", self.kind);
        if let Some(name) = &self.name {
            shown += &format!(" {name:?}");
        }
        if let Some(why) = self.why {
            shown += &format!(" {why}");
        }
        if let Some(text) = &self.text {
            shown += &format!(": {text}");
        }
        shown + ">"
    }
}

/// Events from the call that made it on, until `close`. Iterate with `for` or `async for`, or use it as a
/// context manager that closes it.
#[pyclass(frozen, module = "bandog", weakref)]
pub(crate) struct Events {
    client: Arc<Shared>,
    listener: Listener,
    ears: Arc<Mutex<Ears>>,
}

/// Who is woken by the next one, beside threads.
#[derive(Default)]
struct Ears {
    /// The loop that awaits it.
    bell: Option<Arc<Bell>>,
    /// Greenlets of gevent that wait for it.
    pokes: Vec<Arc<Poke>>,
}

impl Ears {
    fn wake(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        self.pokes.iter().for_each(|poke| poke.set());
    }
}

impl Events {
    pub(crate) fn open(py: Python<'_>, client: &Arc<Shared>, filter: Filter, capacity: i128) -> PyResult<Self> {
        let capacity = usize::try_from(capacity).ok().filter(|capacity| *capacity > 0).ok_or_else(|| {
            fail(py, Code::InvalidOption, "capacity is out of range: give how many events may wait, at least 1")
        })?;
        let ears = Arc::new(Mutex::new(Ears::default()));
        let listener = host::listen(&client.driver, filter, capacity, {
            let ears = Arc::clone(&ears);
            move || guard(&ears).wake()
        });
        let listener = listener.map_err(|error| raise(py, &error))?;
        Ok(Self { client: Arc::clone(client), listener, ears })
    }

    /// Lets gevent's hub run the other greenlets until there is one.
    fn cooperate(&self, py: Python<'_>, wait_read: &Bound<'_, PyAny>) -> PyResult<Option<Told>> {
        let poke = Arc::new(Poke::new()?);
        guard(&self.ears).pokes.push(Arc::clone(&poke));
        let told = loop {
            // Looked for after the poke was laid out, so that none slips through between the two.
            if let Some(told) = self.listener.try_next() {
                break Ok(Some(told));
            }
            if self.is_over() {
                break Ok(None);
            }
            // A kill, a timeout or Ctrl-C of gevent comes out of here.
            if let Err(raised) = wait_read.call1((poke.fd(),)).and_then(|_| py.check_signals()) {
                break Err(raised);
            }
            poke.clear();
        };
        guard(&self.ears).pokes.retain(|other| !Arc::ptr_eq(other, &poke));
        told
    }

    fn is_over(&self) -> bool {
        self.listener.is_closed()
    }
}

#[pymethods]
impl Events {
    /// How many events gave way because nobody read them in time.
    #[getter]
    fn dropped(&self) -> u64 {
        self.listener.dropped()
    }

    /// Ends it, also for those who wait.
    fn close(&self) {
        self.listener.close();
        guard(&self.ears).wake();
    }

    #[pyo3(signature = () -> "Self")]
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (
        kind: "type[BaseException] | None" = None, value: "BaseException | None" = None,
        traceback: "TracebackType | None" = None, /
    ) -> "None")]
    fn __exit__(
        &self,
        kind: Option<Bound<'_, PyAny>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) {
        let _ = (kind, value, traceback);
        self.close();
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        if let Some(told) = self.listener.try_next() {
            return Ok(Some(Event::new(told)));
        }
        refuse_in_loop(py, &self.client, "async for event in events")?;
        if let Some(wait_read) = owner::gevent_wait_read(py)? {
            return Ok(self.cooperate(py, &wait_read)?.map(Event::new));
        }
        let mut raised = None;
        let told = py.detach(|| {
            self.listener.next_blocking(Signals::Guarded, &mut || {
                Python::try_attach(|py| py.check_signals()).is_none_or(|checked| {
                    raised = checked.err();
                    raised.is_some()
                })
            })
        });
        match raised {
            Some(raised) => Err(raised),
            None => Ok(told.map(Event::new)),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(slf: Py<Self>) -> NextEvent {
        NextEvent { events: slf }
    }

    fn __repr__(&self) -> &'static str {
        if self.is_over() { "<bandog.Events closed>" } else { "<bandog.Events>" }
    }
}

/// Awaits one event. Cancelling loses none: an event is only taken by a task that runs.
#[pyclass(frozen, name = "_NextEvent", module = "bandog._native")]
pub(crate) struct NextEvent {
    events: Py<Events>,
}

#[pymethods]
impl NextEvent {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let events = self.events.get();
        let Some(event_loop) = owner::running_loop(py)? else {
            return Err(PyRuntimeError::new_err("async for needs a running event loop"));
        };
        if let Some(told) = events.listener.try_next() {
            return Err(PyStopIteration::new_err((Event::new(told),)));
        }
        if events.is_over() {
            return Err(PyStopAsyncIteration::new_err(()));
        }
        let port = events.client.port(&event_loop)?;
        guard(&events.ears).bell = Some(port.get().bell());
        // Looked for after the bell was hung, so that none slips through between the two.
        if let Some(told) = events.listener.try_next() {
            return Err(PyStopIteration::new_err((Event::new(told),)));
        }
        if events.is_over() {
            return Err(PyStopAsyncIteration::new_err(()));
        }
        let future = port.get().watch(&event_loop)?;
        future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
        Ok(future)
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
