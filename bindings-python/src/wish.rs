//! What Python gets for what the driver answered.

use bandog::host::{LocalOwner, Release, Settled, Wish};
use bandog::{Code, Error, Name};
use pyo3::exceptions::PySystemError;
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, intern};
use std::sync::Arc;

use crate::convert::seconds;
use crate::errors::raise;
use crate::hold::{Blocks, Hold};
use crate::home::Home;
use crate::shared::{Shared, cut_short};

/// Who asks, in a wish that says so.
pub(crate) fn owner_of(wish: &mut Wish) -> Option<&mut LocalOwner> {
    match wish {
        Wish::Acquire { owner, .. } | Wish::Release(Release::Innermost { owner, .. }) => Some(owner),
        Wish::Release(Release::Handle(_)) | Wish::Extend { .. } | Wish::ForceRelease(_) | Wish::Status(_) => None,
    }
}

/// What the method returns.
pub(crate) enum Answer {
    /// The hold, or `LockTimeout` with the name.
    Hold(Name),
    /// The same for a block, which is noted as entered by this owner.
    Block(Name, LocalOwner, Arc<Blocks>),
    /// The hold or `None`.
    HoldOrNone,
    /// `None`.
    Nothing,
    /// Whether there was anything to delete.
    Forced,
    /// Whether anybody holds it.
    Locked,
    /// The server's time to live.
    Remaining,
    /// The end of a block, with what the body raised.
    Leave(Option<Py<PyAny>>),
}

impl Answer {
    /// The Python value for what the driver answered.
    pub(crate) fn give(
        &self,
        py: Python<'_>,
        client: &Arc<Shared>,
        home: &Home,
        result: Result<Settled, Error>,
    ) -> PyResult<Py<PyAny>> {
        if let Some(exit) = result.as_ref().err().and_then(cut_short) {
            return Err(exit);
        }
        let settled = match (result, self) {
            (Ok(settled), _) => settled,
            // Released inside the block already: leaving it does nothing more.
            (Err(error), Self::Leave(_)) if error.code() == Code::NotOwner => return Ok(py.None()),
            (Err(error), Self::Leave(Some(body))) => {
                // The body's own exception goes first; what the release said goes with it.
                let note = format!("leaving the block: {error}");
                body.bind(py).call_method1(intern!(py, "add_note"), (note,))?;
                return Ok(py.None());
            }
            (Err(error), _) => return Err(raise(py, &error)),
        };
        match (self, settled) {
            (Self::Hold(_) | Self::HoldOrNone, Settled::Held(handle)) => {
                Py::new(py, Hold::new(Arc::clone(client), handle, home.clone_ref(py)))?.into_py_any(py)
            }
            (Self::Block(_, owner, blocks), Settled::Held(handle)) => {
                let hold = Py::new(py, Hold::new(Arc::clone(client), handle, home.clone_ref(py)))?;
                blocks.enter(*owner, hold.clone_ref(py));
                hold.into_py_any(py)
            }
            (Self::Hold(name) | Self::Block(name, ..), Settled::Busy) => {
                let busy = Error::new(
                    Code::Timeout,
                    "it was not granted within the wait: another holds it or the server was slow",
                )
                .of(name);
                Err(raise(py, &busy))
            }
            (Self::HoldOrNone, Settled::Busy)
            | (Self::Nothing | Self::Leave(_), Settled::Released { .. })
            | (Self::Nothing, Settled::Extended) => Ok(py.None()),
            (Self::Forced, Settled::Forced(any)) => any.into_py_any(py),
            (Self::Locked, Settled::Status(status)) => status.is_some().into_py_any(py),
            (Self::Remaining, Settled::Status(status)) => {
                status.map(|ttl| ttl.map_or(f64::INFINITY, seconds)).into_py_any(py)
            }
            _ => Err(PySystemError::new_err("the driver answered another question")),
        }
    }
}
