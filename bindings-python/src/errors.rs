//! Every code of the core as a Python exception: plain classes of `bandog.errors`.

use bandog::{Code, Error};
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// All classes, found when the first client is made: an interpreter that shuts down imports nothing any more.
static CLASSES: PyOnceLock<Vec<(Code, Py<PyAny>)>> = PyOnceLock::new();

/// The one table from codes to classes.
const NAMES: [(Code, &str); 18] = [
    (Code::Timeout, "LockTimeout"),
    (Code::NotOwner, "NotOwner"),
    (Code::LockLost, "LockLost"),
    (Code::ReleaseUnknown, "ReleaseUnknown"),
    (Code::NotReplicated, "NotReplicated"),
    (Code::PermissionDenied, "PermissionDenied"),
    (Code::WrongType, "WrongType"),
    (Code::ReadOnly, "ReadOnly"),
    (Code::OutOfMemory, "OutOfMemory"),
    (Code::Unreachable, "Unreachable"),
    (Code::Protocol, "Protocol"),
    (Code::ForkedHandle, "ForkedHandle"),
    (Code::Closed, "Closed"),
    (Code::InvalidName, "InvalidName"),
    (Code::InvalidLease, "InvalidLease"),
    (Code::InvalidUrl, "InvalidUrl"),
    (Code::InvalidOption, "InvalidOption"),
    (Code::BlockingInLoop, "BlockingInLoop"),
];

/// Finds every class.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<&[(Code, Py<PyAny>)]> {
    let find = || {
        let module = PyModule::import(py, "bandog.errors")?;
        NAMES.iter().map(|(code, name)| Ok((*code, module.getattr(*name)?.unbind()))).collect::<PyResult<Vec<_>>>()
    };
    CLASSES.get_or_try_init(py, find).map(Vec::as_slice)
}

/// The exception for an error of the core.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|failure| {
        // Late in a shutdown the builtins that the classes use are gone. Ctrl-C is no such failure.
        if failure.is_instance_of::<PyException>(py) { PyRuntimeError::new_err(error.to_string()) } else { failure }
    })
}

/// An exception of our own making.
pub(crate) fn fail(py: Python<'_>, code: Code, message: impl Into<String>) -> PyErr {
    raise(py, &Error::new(code, message))
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    fields.set_item(intern!(py, "name"), error.name().map(|name| name.as_str()))?;
    fields.set_item(intern!(py, "owner"), error.owner())?;
    if error.code() == Code::ReleaseUnknown {
        let span = error.free_at_latest().map(crate::convert::seconds);
        fields.set_item(intern!(py, "free_at_latest"), span)?;
    }
    let class = prepare(py)?.iter().find(|(code, _)| *code == error.code());
    let class = class.ok_or_else(|| PyRuntimeError::new_err("a code without a class"))?;
    let value = class.1.bind(py).call((text(error),), Some(&fields))?;
    Ok(PyErr::from_value(value))
}

/// The driver names its own options; all but one are called the same here.
fn text(error: &Error) -> String {
    let message = error.message().replace("tls_client_certificate", "tls_certificate and tls_key");
    if message == error.message() {
        return error.to_string();
    }
    let told = Error::new(error.code(), message);
    match error.name() {
        Some(name) => told.of(name).to_string(),
        None => told.to_string(),
    }
}
