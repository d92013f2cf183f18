//! Where a hold was acquired, and an event loop's port seen from what outlives it.

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::port::Port;

/// Where a hold was acquired.
pub(crate) enum Home {
    Thread,
    Loop(WeakPort),
}

/// A port that nobody but its loop, and the calls under way in it, keeps. Else a loop that ends in the middle of a
/// call would never be collected: the task that waits knows its loop.
pub(crate) struct WeakPort(Py<PyWeakrefReference>);

impl Home {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Thread => Self::Thread,
            Self::Loop(port) => Self::Loop(port.clone_ref(py)),
        }
    }

    /// The port of a loop that still runs callbacks.
    pub(crate) fn port<'py>(&self, py: Python<'py>) -> Option<Bound<'py, Port>> {
        match self {
            Self::Thread => None,
            Self::Loop(port) => port.get(py).filter(|port| !port.get().is_dead(py)),
        }
    }
}

impl WeakPort {
    pub(crate) fn new(port: &Bound<'_, Port>) -> PyResult<Self> {
        PyWeakrefReference::new(port).map(|weak| Self(weak.unbind()))
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, Port>> {
        self.0.bind(py).upgrade_as().ok().flatten()
    }
}
