//! One level of a held lock, as the caller has it in hand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandog::host::{self, Handle, HoldView, LocalOwner, Release, Wait, Wish};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::aio::Call;
use crate::block::{self, local, refuse_in_loop};
use crate::callbacks::nobody_awaits;
use crate::convert::{self, Span, seconds};
use crate::errors::raise;
use crate::home::Home;
use crate::owner;
use crate::port::Port;
use crate::shared::Shared;
use crate::wish::Answer;

/// The blocks of one lock object that are open now, with what each of them holds.
#[derive(Default)]
pub(crate) struct Blocks(Mutex<Vec<(LocalOwner, Py<Hold>)>>);

impl Blocks {
    pub(crate) fn enter(&self, owner: LocalOwner, hold: Py<Hold>) {
        self.open().push((owner, hold));
    }

    /// What the block that is left now holds: this owner's innermost, else the only one there is.
    pub(crate) fn leave(&self, owner: LocalOwner) -> Option<Py<Hold>> {
        let mut open = self.open();
        let own = open.iter().rposition(|(by, _)| *by == owner);
        own.or((open.len() == 1).then_some(0)).map(|at| open.remove(at).1)
    }

    fn open(&self) -> MutexGuard<'_, Vec<(LocalOwner, Py<Hold>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that is held: what `acquire` returns and `with` yields.
///
/// It is the right to release: it works from any thread and task. As a context manager it releases at the
/// end of the block. It has no truth of its own: ask `hold.valid`, or call `hold.check()`.
#[pyclass(frozen, module = "bandog", weakref)]
pub(crate) struct Hold {
    client: Arc<Shared>,
    handle: Handle,
    home: Home,
}

impl Hold {
    pub(crate) fn new(client: Arc<Shared>, handle: Handle, home: Home) -> Self {
        Self { client, handle, home }
    }

    fn view(&self, py: Python<'_>) -> PyResult<Option<HoldView>> {
        local(py, self.handle.view(&self.client.driver))
    }

    pub(crate) fn release_wish(&self) -> Wish {
        Wish::Release(Release::Handle(self.handle.clone()))
    }

    fn extend_wish(&self, lease: &Bound<'_, PyAny>) -> PyResult<Wish> {
        Ok(Wish::Extend { handle: self.handle.clone(), lease: convert::fixed_lease(lease)? })
    }

    fn reenter_wish(&self, py: Python<'_>, wait: &Span<'_>, lease: &Span<'_>) -> PyResult<Wish> {
        Ok(Wish::Acquire {
            name: self.handle.name().clone(),
            owner: owner::current(py)?,
            wait: convert::wait(wait, Wait::Forever)?,
            lease: convert::lease(lease, None)?,
            reenter: Some(self.handle.clone()),
        })
    }

    fn call(&self, py: Python<'_>, wish: Wish, answer: &Answer, twin: &str) -> PyResult<Py<PyAny>> {
        block::call(py, &self.client, wish, answer, twin)
    }

    fn later(&self, wish: Wish, answer: Answer, method: &'static str) -> Call {
        Call::new(&self.client, wish, answer, method)
    }
}

#[pymethods]
impl Hold {
    /// The name of the lock as it stands in Redis.
    #[getter]
    fn name(&self) -> &str {
        self.handle.name().as_str()
    }

    /// `<client uuid>:<hold number>`, the field in the lock's hash.
    #[getter]
    fn owner(&self) -> &str {
        self.handle.owner()
    }

    /// The fencing token, for kinds of locks that have one; else `None`.
    #[getter]
    fn token(&self) -> Option<u64> {
        self.handle.token()
    }

    /// Whether the lock is held at this very instant, computed now and not remembered. No I/O.
    #[getter]
    fn valid(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.view(py)?.is_some_and(|view| view.valid))
    }

    /// `None`, or why the lock was lost: `"expired"`, `"taken"`, `"overwritten"`, `"max_hold"` or `"closed"`. No I/O.
    #[getter]
    fn lost(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.view(py)?.and_then(|view| view.lost).map(|why| why.as_str()))
    }

    /// How many levels the hold has; 0 once it is over. No I/O.
    #[getter]
    fn count(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.view(py)?.map_or(0, |view| view.count))
    }

    /// For how many seconds the hold is good yet without another renewal; 0 once it is over. No I/O.
    ///
    /// This ends before the server frees the lock, by a tenth of the lease: time to stop.
    fn remaining(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.view(py)?.filter(|view| view.valid).map_or(0.0, |view| seconds(view.remaining)))
    }

    /// Raises `LockLost` unless the lock is held at this very instant. No I/O: call it before each effect.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        local(py, self.handle.check(&self.client.driver))
    }

    /// Calls `function(*args)` once if the lock is lost; at once if that has happened already.
    ///
    /// For a hold acquired in a coroutine it runs in that event loop, where it may be a coroutine function;
    /// else on a thread of this package, where others may run at the same time: one that is slow delays no
    /// other. What it raises goes to the loop's exception handler or `sys.unraisablehook`, and harms nobody.
    ///
    /// ```python
    /// stop = threading.Event()
    /// hold.on_lost(stop.set)
    /// ```
    #[pyo3(signature = (function: "Callable[..., object]", *args: "Any") -> "None")]
    fn on_lost(&self, py: Python<'_>, function: Py<PyAny>, args: Py<PyTuple>) -> PyResult<()> {
        self.view(py)?;
        if !function.bind(py).is_callable() {
            return Err(pyo3::exceptions::PyTypeError::new_err("on_lost takes something to call"));
        }
        match self.home.port(py) {
            Some(port) => {
                let book = port.get().losses(&self.client).map_err(|error| raise(py, &error))?;
                for due in book.add(&self.handle, function, args) {
                    Port::call(&port, &due);
                }
            }
            // A closed loop runs nothing any more.
            None => {
                if is_coroutine_function(function.bind(py))? {
                    return Err(nobody_awaits());
                }
                for due in self.client.losses(py)?.add(&self.handle, function, args) {
                    due.call_on_thread(py);
                }
            }
        }
        Ok(())
    }

    /// Releases this level; the last one frees the lock. Works from any thread.
    ///
    /// Raises `LockLost` when the hold ended before this, `NotOwner` when this level was released already,
    /// `ReleaseUnknown` when the server did not answer: the release then goes on in the background and the
    /// lock is free within `free_at_latest` seconds.
    #[pyo3(signature = () -> "None")]
    fn release(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.call(py, self.release_wish(), &Answer::Nothing, "await hold.release_async()")
    }

    /// The twin of `release` for coroutines. Cancelled, it goes on in the background.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn release_async(&self) -> Call {
        self.later(self.release_wish(), Answer::Nothing, "Hold.release_async")
    }

    /// Makes the hold last at least `lease` seconds from now. Never shortens it.
    ///
    /// Raises `LockLost`, `InvalidLease`, `Unreachable`.
    #[pyo3(signature = (lease: "float | timedelta") -> "None")]
    fn extend(&self, py: Python<'_>, lease: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.call(py, self.extend_wish(lease)?, &Answer::Nothing, "await hold.extend_async(...)")
    }

    /// The twin of `extend` for coroutines.
    #[pyo3(signature = (lease: "float | timedelta") -> "Coroutine[Any, Any, None]")]
    fn extend_async(&self, lease: &Bound<'_, PyAny>) -> PyResult<Call> {
        Ok(self.later(self.extend_wish(lease)?, Answer::Nothing, "Hold.extend_async"))
    }

    /// Adds a level to this hold for whoever calls, also another thread or task, and returns its hold.
    ///
    /// Raises `LockLost` when the hold is over: it never takes the lock anew.
    #[pyo3(signature = (
        wait: "float | timedelta | None" = Span::Unset, lease: "float | timedelta | None" = Span::Unset
    ) -> "Hold", text_signature = "($self, wait=None, lease=None)")]
    fn reenter(&self, py: Python<'_>, wait: Span<'_>, lease: Span<'_>) -> PyResult<Py<PyAny>> {
        let answer = Answer::Hold(self.handle.name().clone());
        self.call(py, self.reenter_wish(py, &wait, &lease)?, &answer, "await hold.reenter_async()")
    }

    /// The twin of `reenter` for coroutines.
    #[pyo3(signature = (
        wait: "float | timedelta | None" = Span::Unset, lease: "float | timedelta | None" = Span::Unset
    ) -> "Coroutine[Any, Any, Hold]", text_signature = "($self, wait=None, lease=None)")]
    fn reenter_async(&self, py: Python<'_>, wait: Span<'_>, lease: Span<'_>) -> PyResult<Call> {
        let answer = Answer::Hold(self.handle.name().clone());
        Ok(self.later(self.reenter_wish(py, &wait, &lease)?, answer, "Hold.reenter_async"))
    }

    #[pyo3(signature = () -> "Self")]
    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        refuse_in_loop(slf.py(), &slf.get().client, "async with hold")?;
        Ok(slf)
    }

    #[pyo3(signature = (
        kind: "type[BaseException] | None" = None, value: "BaseException | None" = None,
        traceback: "TracebackType | None" = None, /
    ) -> "None")]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyAny>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let _ = (kind, traceback);
        self.call(py, self.release_wish(), &Answer::Leave(value.map(Bound::unbind)), "async with hold")
    }

    #[pyo3(signature = () -> "Coroutine[Any, Any, Self]")]
    fn __aenter__(slf: Bound<'_, Self>) -> Call {
        Call::ready(&slf.get().client, slf.clone().into_any().unbind(), "Hold.__aenter__")
    }

    #[pyo3(signature = (
        kind: "type[BaseException] | None" = None, value: "BaseException | None" = None,
        traceback: "TracebackType | None" = None, /
    ) -> "Coroutine[Any, Any, None]")]
    fn __aexit__(
        &self,
        kind: Option<Bound<'_, PyAny>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> Call {
        let _ = (kind, traceback);
        self.later(self.release_wish(), Answer::Leave(value.map(Bound::unbind)), "Hold.__aexit__")
    }

    fn __repr__(&self) -> String {
        // The first eight characters tell clients apart; the rest is nobody's business in a log.
        let owner = self.handle.owner();
        let short = owner.split_once(':').map_or("", |(_, number)| number);
        let state = match self.handle.view(&self.client.driver) {
            Err(_) => "of another process",
            Ok(None) => "released",
            Ok(Some(view)) if view.valid => "valid",
            Ok(Some(_)) => "lost",
        };
        format!("<bandog.Hold {:?} {}..:{short} {state}>", self.name(), owner.get(..8).unwrap_or_default())
    }
}

/// Also a partial of one, and an object whose `__call__` is one.
fn is_coroutine_function(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is = function.py().import("inspect")?.getattr("iscoroutinefunction")?;
    Ok(is.call1((function,))?.is_truthy()? || is.call1((function.get_type().getattr("__call__")?,))?.is_truthy()?)
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A signal may raise in the step between the return of `acquire` and the assignment. Then the hold dies
        // with an exception under way, before it ever had a name: nobody could release it any more.
        let unnamed = matches!(self.home, Home::Thread) && Python::try_attach(PyErr::occurred) == Some(true);
        if unnamed {
            host::release_in_background(&self.client.driver, &self.handle);
        }
        host::handle_dropped(&self.client.driver, &self.handle);
    }
}
