//! What a task waits on: as much of a future as asyncio asks for. It is resumed in the very callback that
//! brings the answer; a future of asyncio's own would put a turn of the loop between the two.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bandog::Error;
use bandog::host::News;
use pyo3::exceptions::asyncio::{CancelledError, InvalidStateError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::step::Step;

/// The end of one call, as a task awaits it. In the loop's thread.
#[pyclass(frozen, name = "_Wait", module = "bandog._native")]
pub(crate) struct Wait {
    event_loop: Py<PyAny>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Asyncio's mark of a future that was yielded and not taken up yet.
    blocking: bool,
    answer: Option<Result<News, Error>>,
    end: Option<End>,
    /// The task has looked how it ended.
    seen: bool,
    callbacks: Vec<Callback>,
}

enum End {
    Answered,
    /// With what was said about it.
    Cancelled(Option<Py<PyAny>>),
}

/// What asyncio wants called, and in which context.
pub(crate) struct Callback {
    function: Py<PyAny>,
    context: Option<Py<PyAny>>,
}

impl Callback {
    /// What the loop has to do to continue whoever gave this.
    pub(crate) fn step(self, wait: Bound<'_, Wait>) -> PyResult<Step> {
        let py = wait.py();
        let function = self.function.into_bound(py);
        match self.context {
            Some(context) => Step::new(context.bind(py).getattr(intern!(py, "run"))?, (function, wait)),
            None => Step::new(function, (wait,)),
        }
    }
}

impl Wait {
    pub(crate) fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        let state = State { blocking: true, ..State::default() };
        Py::new(event_loop.py(), Self { event_loop: event_loop.clone().unbind(), state: Mutex::new(state) })
    }

    pub(crate) fn take_answer(&self) -> Option<Result<News, Error>> {
        lock(&self.state).answer.take()
    }

    /// Lays the answer down, and gives what continues the task that waits for it. Nothing where that was given up.
    pub(crate) fn answer(slf: &Bound<'_, Self>, answer: Result<News, Error>) -> PyResult<Option<Callback>> {
        let callbacks = {
            let mut state = lock(&slf.get().state);
            state.answer = Some(answer);
            state.end.get_or_insert(End::Answered);
            std::mem::take(&mut state.callbacks)
        };
        let mut callbacks = callbacks.into_iter();
        let first = callbacks.next();
        callbacks.try_for_each(|callback| Self::call_soon(slf, callback))?;
        Ok(first)
    }

    /// Whether the task was continued.
    pub(crate) fn is_seen(&self) -> bool {
        lock(&self.state).seen
    }

    fn call_soon(slf: &Bound<'_, Self>, callback: Callback) -> PyResult<()> {
        let py = slf.py();
        let how = PyDict::new(py);
        if let Some(context) = callback.context {
            how.set_item(intern!(py, "context"), context)?;
        }
        let event_loop = slf.get().event_loop.bind(py);
        event_loop.call_method(intern!(py, "call_soon"), (callback.function, slf), Some(&how)).map(drop)
    }
}

#[pymethods]
impl Wait {
    #[getter(_asyncio_future_blocking)]
    fn blocking(&self) -> bool {
        lock(&self.state).blocking
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        lock(&self.state).blocking = blocking;
    }

    fn get_loop<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.event_loop.bind(py).clone()
    }

    #[pyo3(signature = (function, *, context=None))]
    fn add_done_callback(
        slf: &Bound<'_, Self>,
        function: Bound<'_, PyAny>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let callback = Callback { function: function.unbind(), context: context.map(Bound::unbind) };
        let mut state = lock(&slf.get().state);
        if state.end.is_none() {
            state.callbacks.push(callback);
            return Ok(());
        }
        drop(state);
        Self::call_soon(slf, callback)
    }

    fn remove_done_callback(&self, py: Python<'_>, function: &Bound<'_, PyAny>) -> PyResult<usize> {
        // Comparing runs Python code: not under the lock.
        let all = std::mem::take(&mut lock(&self.state).callbacks);
        let mut kept = Vec::new();
        let before = all.len();
        for callback in all {
            if !callback.function.bind(py).eq(function)? {
                kept.push(callback);
            }
        }
        let removed = before - kept.len();
        lock(&self.state).callbacks.extend(kept);
        Ok(removed)
    }

    #[pyo3(signature = (msg=None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let callbacks = {
            let mut state = lock(&slf.get().state);
            if state.end.is_some() {
                return Ok(false);
            }
            state.end = Some(End::Cancelled(msg));
            std::mem::take(&mut state.callbacks)
        };
        // Not from here: this is called by other tasks.
        callbacks.into_iter().try_for_each(|callback| Self::call_soon(slf, callback))?;
        Ok(true)
    }

    fn cancelled(&self) -> bool {
        matches!(lock(&self.state).end, Some(End::Cancelled(_)))
    }

    fn done(&self) -> bool {
        lock(&self.state).end.is_some()
    }

    fn result(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = lock(&self.state);
        state.seen = true;
        match &state.end {
            Some(End::Answered) => Ok(()),
            Some(End::Cancelled(None)) => Err(CancelledError::new_err(())),
            Some(End::Cancelled(Some(message))) => Err(CancelledError::new_err((message.clone_ref(py),))),
            None => Err(InvalidStateError::new_err("the answer is not there yet")),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        // Whoever has it is in the middle of a change: then this is in use.
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        if let Some(End::Cancelled(message)) = &state.end {
            visit.call(message)?;
        }
        state.callbacks.iter().try_for_each(|callback| {
            visit.call(&callback.function)?;
            visit.call(&callback.context)
        })
    }

    fn exception(&self, py: Python<'_>) -> PyResult<()> {
        self.result(py)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
