//! Calls in a coroutine: one awaitable each, which sends when it is awaited.

use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandog::host::{self, Mailbox, News, Settled, Submitted, Ticket, Wish};
use bandog::{Code, Error};
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTraverseError, PyVisit};

use crate::errors::fail;
use crate::home::Home;
use crate::owner;
use crate::port::Port;
use crate::shared::Shared;
use crate::wait::Wait;
use crate::wish::{Answer, owner_of};

/// One call in a coroutine. Nothing is sent before it is awaited; it looks like a coroutine to asyncio.
#[pyclass(frozen, name = "_Call", module = "bandog._native")]
pub(crate) struct Call {
    client: Arc<Shared>,
    answer: Answer,
    method: &'static str,
    state: Mutex<State>,
}

enum State {
    /// Whether the owner is still to be found: the call was made outside any task.
    New(Wish, bool),
    Ready(Py<PyAny>),
    Waiting(Waiting),
    Done,
}

struct Waiting {
    port: Py<Port>,
    ticket: Ticket,
    token: u64,
    /// Not there before it is first awaited.
    wait: Option<Py<Wait>>,
}

impl Call {
    pub(crate) fn new(client: &Arc<Shared>, mut wish: Wish, answer: Answer, method: &'static str) -> Self {
        let late = owner_of(&mut wish).is_some_and(|owner| owner::is_thread(*owner));
        Self { client: Arc::clone(client), answer, method, state: Mutex::new(State::New(wish, late)) }
    }

    /// One that is answered already.
    pub(crate) fn ready(client: &Arc<Shared>, value: Py<PyAny>, method: &'static str) -> Self {
        Self { client: Arc::clone(client), answer: Answer::Nothing, method, state: Mutex::new(State::Ready(value)) }
    }

    fn start<'py>(&self, py: Python<'py>, mut wish: Wish, late: bool) -> PyResult<Bound<'py, PyAny>> {
        let Some(event_loop) = owner::running_loop(py)? else {
            return Err(PyRuntimeError::new_err(format!("{} needs a running event loop", self.method)));
        };
        if late && let Some(owner) = owner_of(&mut wish) {
            *owner = owner::current(py)?;
        }
        if self.client.is_closed() {
            // Nothing may be left in a loop that nobody would take out again.
            return Err(fail(py, Code::Closed, "the client was closed: make a new one"));
        }
        let port = self.client.port(&event_loop)?;
        let ours = port.get();
        let token = ours.next_token();
        let submitted = Port::submit(port.bind(py), &self.client.driver, &event_loop, wish, token);
        match submitted? {
            Ok(Submitted::Waiting(ticket)) => self.suspend(&event_loop, Waiting { port, ticket, token, wait: None }),
            Ok(Submitted::Ended(result)) => Err(self.finish(py, &Home::Loop(ours.weak(py)), result)),
            Err(error) => Err(self.finish(py, &Home::Thread, Err(error))),
        }
    }

    /// Yields something new to wait on, as a future's own `__await__` would.
    fn suspend<'py>(&self, event_loop: &Bound<'py, PyAny>, mut waiting: Waiting) -> PyResult<Bound<'py, PyAny>> {
        let py = event_loop.py();
        let wait = Wait::new(event_loop).inspect_err(|_| self.abandon(&waiting))?;
        waiting.port.get().expect(waiting.token, wait.clone_ref(py));
        waiting.wait = Some(wait.clone_ref(py));
        *lock(&self.state) = State::Waiting(waiting);
        Ok(wait.into_bound(py).into_any())
    }

    /// The task runs again: takes what was laid down, and claims a grant in this very turn.
    fn resume<'py>(&self, py: Python<'py>, waiting: Waiting) -> PyResult<Bound<'py, PyAny>> {
        let Some(answer) = waiting.wait.as_ref().and_then(|wait| wait.get().take_answer()) else {
            // By another task: the one that waits is not to be robbed of its answer.
            *lock(&self.state) = State::Waiting(waiting);
            return Err(PyRuntimeError::new_err(format!("{} is being awaited already", self.method)));
        };
        let result = match answer {
            Ok(News::Granted) => match host::claim(&self.client.driver, &waiting.ticket) {
                Ok(Some(handle)) => Ok(Settled::Held(handle)),
                // Too late to be of use: it went back, and the wait goes on.
                Ok(None) => return self.wait_on(py, waiting),
                Err(error) => Err(error),
            },
            Ok(News::Ended(settled)) => Ok(settled),
            Err(error) => Err(error),
        };
        Err(self.finish(py, &Home::Loop(waiting.port.get().weak(py)), result))
    }

    fn wait_on<'py>(&self, py: Python<'py>, waiting: Waiting) -> PyResult<Bound<'py, PyAny>> {
        match owner::running_loop(py)? {
            Some(event_loop) => self.suspend(&event_loop, waiting),
            None => {
                self.abandon(&waiting);
                Err(PyRuntimeError::new_err("the event loop stopped under a call"))
            }
        }
    }

    /// The end of an await: `StopIteration` with the value, or the error.
    fn finish(&self, py: Python<'_>, home: &Home, result: Result<Settled, Error>) -> PyErr {
        match self.answer.give(py, &self.client, home, result) {
            Ok(value) => stop(value),
            Err(error) => error,
        }
    }

    fn abandon(&self, waiting: &Waiting) {
        waiting.port.get().forget(waiting.token);
        host::cancel(&self.client.driver, &waiting.ticket);
    }

    fn take(&self) -> State {
        std::mem::replace(&mut *lock(&self.state), State::Done)
    }
}

#[pymethods]
impl Call {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.take() {
            State::New(wish, late) => self.start(py, wish, late),
            State::Waiting(waiting) => self.resume(py, waiting),
            State::Ready(value) => Err(stop(value)),
            State::Done => Err(PyRuntimeError::new_err(format!("{} was awaited already", self.method))),
        }
    }

    fn send<'py>(&self, py: Python<'py>, _value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.__next__(py)
    }

    /// A cancelled task throws here. A wish goes no further; a release goes on in the background.
    #[pyo3(signature = (kind, value=None, traceback=None, /))]
    fn throw<'py>(
        &self,
        kind: &Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = traceback;
        match self.take() {
            // Whoever wanted to release still wants to.
            State::New(wish @ Wish::Release(_), false) => {
                let nobody = Mailbox::new(|| {});
                let _ = host::submit(&self.client.driver, wish, &nobody, 0);
            }
            State::Waiting(waiting) => self.abandon(&waiting),
            State::New(..) | State::Ready(_) | State::Done => {}
        }
        let error = match (kind.cast::<PyType>(), value) {
            (Ok(class), None) => class.call0()?,
            (Ok(_), Some(value)) if value.is_instance(kind)? => value,
            (Ok(class), Some(value)) => class.call1((value,))?,
            (Err(_), _) => kind.clone(),
        };
        Err(PyErr::from_value(error))
    }

    fn close(&self) {
        if let State::Waiting(waiting) = self.take() {
            self.abandon(&waiting);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.state.try_lock().as_deref() {
            Ok(State::Ready(value)) => visit.call(value),
            Ok(State::Waiting(waiting)) => {
                visit.call(&waiting.port)?;
                visit.call(&waiting.wait)
            }
            // Whoever has it is in the middle of a change: then this is in use.
            Ok(State::New(..) | State::Done) | Err(_) => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<await {}>", self.method)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        match self.take() {
            State::New(..) => Python::try_attach(|py| {
                // What drops it may be an exception on its way, which a warning must not swallow.
                let passing = PyErr::take(py);
                let text = format!("{} was never awaited", self.method);
                let warned = CString::new(text)
                    .map_err(PyErr::from)
                    .and_then(|text| PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1));
                if let Err(error) = warned {
                    error.write_unraisable(py, None);
                }
                if let Some(passing) = passing {
                    passing.restore(py);
                }
            })
            .unwrap_or_default(),
            State::Waiting(waiting) => self.abandon(&waiting),
            State::Ready(_) | State::Done => {}
        }
    }
}

/// The end of an await. The value goes as it is, not in a tuple: then no exception object is made. None of ours is
/// a tuple or an exception itself.
fn stop(value: Py<PyAny>) -> PyErr {
    PyStopIteration::new_err(value)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
