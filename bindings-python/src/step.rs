//! What an event loop's turn does in Python frames (`python/bandog/_turn.py`).
//!
//! Native frames must not be below code that may give the GIL up, as a loop's own methods and tasks do: where the
//! program ends meanwhile, Python ends the thread right there, and that aborts the process.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyTuple};

use crate::port::Port;

/// A function and what it is called with.
#[derive(IntoPyObject)]
pub(crate) struct Step(Py<PyAny>, Py<PyTuple>);

impl Step {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py), self.1.clone_ref(py))
    }

    /// Has the loop do it in its next turn.
    pub(crate) fn call_soon(self, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = event_loop.py();
        let (function, arguments) = (self.0.into_bound(py), self.1.into_bound(py));
        let partial = py.import("functools")?.getattr("partial")?;
        let all: Vec<_> = std::iter::once(function).chain(arguments.iter()).collect();
        event_loop.call_method1("call_soon", (partial.call1(PyTuple::new(py, all)?)?,)).map(drop)
    }

    pub(crate) fn new<'py, A>(function: Bound<'py, PyAny>, arguments: A) -> PyResult<Self>
    where
        A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
    {
        let arguments = arguments.into_pyobject(function.py())?.unbind();
        Ok(Self(function.unbind(), arguments))
    }
}

/// What a loop calls: `first` of the port, then the steps that it and those after it give.
pub(crate) fn runner<'py>(port: &Bound<'py, Port>, first: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = port.py();
    let partial = py.import("functools")?.getattr("partial")?;
    partial.call1((turn(py, "run")?, port.getattr(first)?, port.getattr("_next")?, port.getattr("_again")?))
}

/// A function of `_turn.py`.
pub(crate) fn turn<'py>(py: Python<'py>, function: &str) -> PyResult<Bound<'py, PyAny>> {
    static TURN: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let turn = TURN.get_or_try_init(py, || py.import("bandog._turn").map(Bound::unbind))?;
    turn.bind(py).getattr(function)
}
