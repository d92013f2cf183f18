//! Names and durations, checked before any I/O.

use std::time::Duration;

use bandog::host::Wait;
use bandog::{Code, Millis, Name, Options};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyEllipsis, PyFloat, PyInt, PyString};

use crate::errors::{fail, raise};
use crate::shared::Shared;

/// Above this many seconds no sum of two spans is exact in milliseconds any more; the core says so in its words.
const MAX_SECONDS: f64 = 9_007_199_254_740.0;

/// A span as the caller wrote it: nothing, `None`, or a number of seconds or `timedelta`.
#[derive(Default)]
pub(crate) enum Span<'py> {
    /// `...`, or not given: whatever the lock was made with.
    #[default]
    Unset,
    /// `None`.
    Nothing,
    /// Something that is yet to be judged.
    Given(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Span<'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(if value.is_none() {
            Self::Nothing
        } else if value.is_instance_of::<PyEllipsis>() {
            Self::Unset
        } else {
            Self::Given(value.to_owned())
        })
    }
}

/// How long to wait: `None` for ever, 0 one try.
pub(crate) fn wait(span: &Span<'_>, default: Wait) -> PyResult<Wait> {
    Ok(match span {
        Span::Unset => default,
        Span::Nothing => Wait::Forever,
        Span::Given(value) => match millis(value, "wait", Code::InvalidOption)? {
            Millis(0) => Wait::Try,
            span => Wait::For(span),
        },
    })
}

/// A fixed lease, or `None` for the watchdog. Whether a server could keep it is the core's to say.
pub(crate) fn lease(span: &Span<'_>, default: Option<Millis>) -> PyResult<Option<Millis>> {
    match span {
        Span::Unset => Ok(default),
        Span::Nothing => Ok(None),
        Span::Given(value) => fixed_lease(value).map(Some),
    }
}

/// Refuses a wait or a lease that no call could take, before there is a client.
#[pyfunction]
pub(crate) fn _check_spans(py: Python<'_>, wait: Span<'_>, lease: Span<'_>) -> PyResult<()> {
    self::wait(&wait, Wait::Forever)?;
    let Some(Millis(span)) = self::lease(&lease, None)? else { return Ok(()) };
    // The same bounds hold for the watchdog's lease.
    let options = Options::new("redis://127.0.0.1").map(|options| options.watchdog(Duration::from_millis(span)));
    options.and_then(|options| options.check()).map_err(|error| raise(py, &error))
}

/// A lease that must be given.
pub(crate) fn fixed_lease(value: &Bound<'_, PyAny>) -> PyResult<Millis> {
    millis(value, "lease", Code::InvalidLease)
}

/// An option of the client; `None` when it was not given.
pub(crate) fn option(py: Python<'_>, span: &Span<'_>, what: &str, code: Code) -> PyResult<Option<Duration>> {
    let value = match span {
        Span::Unset => return Ok(None),
        Span::Nothing => &py.None().into_bound(py),
        Span::Given(value) => value,
    };
    Ok(Some(Duration::from_millis(millis(value, what, code)?.0)))
}

/// Whole milliseconds of a number of seconds or a `timedelta`. A span above zero never becomes zero.
fn millis(value: &Bound<'_, PyAny>, what: &str, code: Code) -> PyResult<Millis> {
    let py = value.py();
    let refuse = |why: String| Err(fail(py, code, format!("{what} {why}: give seconds as a number or a timedelta")));
    let kind = || value.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
    let seconds = if value.is_instance_of::<PyBool>() {
        return refuse("is a bool".into());
    } else if value.is_instance_of::<PyDelta>() {
        value.call_method0(intern!(py, "total_seconds"))?.extract::<f64>()?
    } else if value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyInt>()
        || value.get_type().hasattr(intern!(py, "__float__"))?
    {
        // An int beyond a double is out of range like every other that is too big.
        value.extract::<f64>().unwrap_or(f64::INFINITY)
    } else {
        return refuse(format!("is of type {}", kind()));
    };
    if !seconds.is_finite() {
        return refuse("is not a finite number".into());
    }
    if seconds < 0.0 {
        return refuse("is negative".into());
    }
    if seconds > MAX_SECONDS {
        return refuse("is too long".into());
    }
    let whole = (seconds * 1e3).round();
    // In range by the checks above.
    Ok(Millis(if seconds > 0.0 { (whole as u64).max(1) } else { 0 }))
}

/// Seconds, the unit of everything Python sees.
pub(crate) fn seconds(span: Millis) -> f64 {
    // Exact below 2^53 ms.
    span.0 as f64 / 1e3
}

/// A lock name with the client's prefix.
pub(crate) fn name(client: &Shared, value: &Bound<'_, PyAny>) -> PyResult<Name> {
    let py = value.py();
    let Ok(text) = value.cast::<PyString>() else {
        let bytes = if value.is_instance_of::<PyBytes>() { ": decode the bytes first" } else { "" };
        let kind = value.get_type().name()?.to_string();
        return Err(fail(py, Code::InvalidName, format!("the name of a lock is text, not {kind}{bytes}")));
    };
    let Ok(text) = text.to_cow() else {
        return Err(fail(py, Code::InvalidName, "the name of a lock has a lone surrogate, which UTF-8 cannot carry"));
    };
    client.driver.name(&text).map_err(|error| raise(py, &error))
}
