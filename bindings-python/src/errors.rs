//! Every code of the core as a Python exception: plain classes of `bandog.errors`.

use bandog::{Code, Error};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use pyo3::{PyTypeInfo, intern};

mod classes {
    #![allow(missing_docs)]
    use pyo3::import_exception;

    import_exception!(bandog.errors, BlockingInLoop);
    import_exception!(bandog.errors, Closed);
    import_exception!(bandog.errors, ForkedHandle);
    import_exception!(bandog.errors, InvalidLease);
    import_exception!(bandog.errors, InvalidName);
    import_exception!(bandog.errors, InvalidOption);
    import_exception!(bandog.errors, InvalidUrl);
    import_exception!(bandog.errors, LockLost);
    import_exception!(bandog.errors, LockTimeout);
    import_exception!(bandog.errors, NotOwner);
    import_exception!(bandog.errors, NotReplicated);
    import_exception!(bandog.errors, OutOfMemory);
    import_exception!(bandog.errors, PermissionDenied);
    import_exception!(bandog.errors, Protocol);
    import_exception!(bandog.errors, ReadOnly);
    import_exception!(bandog.errors, ReleaseUnknown);
    import_exception!(bandog.errors, Unreachable);
    import_exception!(bandog.errors, WrongType);
}

/// The exception for an error of the core.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|failure| failure)
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
    let value = class(py, error.code()).call((error.to_string(),), Some(&fields))?;
    Ok(PyErr::from_value(value))
}

/// The one table from codes to classes.
fn class(py: Python<'_>, code: Code) -> Bound<'_, PyType> {
    match code {
        Code::Timeout => classes::LockTimeout::type_object(py),
        Code::NotOwner => classes::NotOwner::type_object(py),
        Code::LockLost => classes::LockLost::type_object(py),
        Code::ReleaseUnknown => classes::ReleaseUnknown::type_object(py),
        Code::NotReplicated => classes::NotReplicated::type_object(py),
        Code::PermissionDenied => classes::PermissionDenied::type_object(py),
        Code::WrongType => classes::WrongType::type_object(py),
        Code::ReadOnly => classes::ReadOnly::type_object(py),
        Code::OutOfMemory => classes::OutOfMemory::type_object(py),
        Code::Unreachable => classes::Unreachable::type_object(py),
        Code::Protocol => classes::Protocol::type_object(py),
        Code::ForkedHandle => classes::ForkedHandle::type_object(py),
        Code::Closed => classes::Closed::type_object(py),
        Code::InvalidName => classes::InvalidName::type_object(py),
        Code::InvalidLease => classes::InvalidLease::type_object(py),
        Code::InvalidUrl => classes::InvalidUrl::type_object(py),
        Code::InvalidOption => classes::InvalidOption::type_object(py),
        Code::BlockingInLoop => classes::BlockingInLoop::type_object(py),
    }
}
