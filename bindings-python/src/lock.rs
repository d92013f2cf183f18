//! A lock by name: what it is called and how it is acquired by default. Holds nothing itself.

use std::sync::Arc;

use bandog::host::{self, Filter, Release, Wait, Wish};
use bandog::{Millis, Name};
use pyo3::prelude::*;

use crate::aio::Call;
use crate::block;
use crate::convert::{self, Span};
use crate::errors::raise;
use crate::events::Events;
use crate::hold::Blocks;
use crate::owner;
use crate::shared::Shared;
use crate::wish::Answer;

/// A reentrant lock on a Redis key, the same that Redisson's `getLock` uses. Make it with `client.lock`.
///
/// `with lock:` and `async with lock:` wait for it, keep it alive and release it; both yield the hold. One
/// object may be shared by threads and tasks: each holds for itself. Who holds may enter again: the running
/// asyncio task, else the greenlet, else the thread. A child task or thread is somebody else.
///
/// A lease is not proof against long pauses: call `hold.check()` before each effect that needs the lock.
#[pyclass(frozen, module = "bandog", weakref)]
pub(crate) struct Lock {
    client: Arc<Shared>,
    name: Name,
    wait: Wait,
    lease: Option<Millis>,
    blocks: Arc<Blocks>,
}

impl Lock {
    pub(crate) fn new(client: Arc<Shared>, name: Name, wait: Wait, lease: Option<Millis>) -> Self {
        Self { client, name, wait, lease, blocks: Arc::default() }
    }

    fn acquire_wish(&self, py: Python<'_>, wait: Wait, lease: Option<Millis>) -> PyResult<Wish> {
        let owner = owner::current(py)?;
        Ok(Wish::Acquire { name: self.name.clone(), owner, wait, lease, reenter: None })
    }

    fn release_wish(&self, py: Python<'_>) -> PyResult<Wish> {
        Ok(Wish::Release(Release::Innermost { name: self.name.clone(), owner: owner::current(py)? }))
    }

    fn enter(&self, py: Python<'_>) -> PyResult<(Wish, Answer)> {
        let wish = self.acquire_wish(py, self.wait, self.lease)?;
        Ok((wish, Answer::Block(self.name.clone(), owner::current(py)?, Arc::clone(&self.blocks))))
    }

    fn leave(&self, py: Python<'_>, value: Option<Bound<'_, PyAny>>) -> PyResult<(Wish, Answer)> {
        let owner = owner::current(py)?;
        Ok(match self.blocks.leave(owner) {
            Some(hold) => (hold.get().release_wish(), Answer::Leave(value.map(Bound::unbind))),
            None => return Err(raise(py, &host::stranger(&self.client.driver, &self.name, owner))),
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
impl Lock {
    /// The name as it stands in Redis, prefix and all.
    #[getter]
    fn name(&self) -> &str {
        self.name.as_str()
    }

    /// How many times the caller holds it; 0 when it does not, or lost it. No I/O.
    #[getter]
    fn count(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(host::count(&self.client.driver, &self.name, owner::current(py)?))
    }

    /// Whether the caller holds it at this instant. No I/O. See `locked` for whether anybody does.
    fn held(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.count(py)? > 0)
    }

    /// Waits for the lock and returns the hold. Keep it, or release with `lock.release()` from here.
    ///
    /// `wait` and `lease` in seconds, as in `client.lock`; what is not given is as the lock was made with.
    /// The wait is total. Raises `LockTimeout` when it is over, `Unreachable` when no server answered,
    /// `LockLost` once if the caller still carries a lost hold of this lock, `BlockingInLoop` where an event
    /// loop runs. Ctrl-C ends the wait and leaves nothing behind.
    ///
    /// ```python
    /// hold = lock.acquire(wait=5)
    /// try:
    ///     ship_order()
    /// finally:
    ///     hold.release()
    /// ```
    #[pyo3(signature = (
        wait: "float | timedelta | None" = Span::Unset, lease: "float | timedelta | None" = Span::Unset
    ) -> "Hold")]
    fn acquire(&self, py: Python<'_>, wait: Span<'_>, lease: Span<'_>) -> PyResult<Py<PyAny>> {
        let wish = self.acquire_wish(py, convert::wait(&wait, self.wait)?, convert::lease(&lease, self.lease)?)?;
        self.call(py, wish, &Answer::Hold(self.name.clone()), "await lock.acquire_async()")
    }

    /// The twin of `acquire` for coroutines. Cancelling it leaves nothing behind.
    ///
    /// The task that calls it is the owner, even where another awaits it.
    #[pyo3(signature = (
        wait: "float | timedelta | None" = Span::Unset, lease: "float | timedelta | None" = Span::Unset
    ) -> "Coroutine[Any, Any, Hold]")]
    fn acquire_async(&self, py: Python<'_>, wait: Span<'_>, lease: Span<'_>) -> PyResult<Call> {
        let wish = self.acquire_wish(py, convert::wait(&wait, self.wait)?, convert::lease(&lease, self.lease)?)?;
        Ok(self.later(wish, Answer::Hold(self.name.clone()), "Lock.acquire_async"))
    }

    /// The hold, or `None` when another holds the lock: one try, or as long as `wait` says.
    ///
    /// Otherwise as `acquire`.
    ///
    /// ```python
    /// if (hold := lock.try_acquire()) is not None:
    ///     with hold:
    ///         tidy_up()
    /// ```
    #[pyo3(signature = (
        wait: "float | timedelta | None" = Span::Unset, lease: "float | timedelta | None" = Span::Unset
    ) -> "Hold | None", text_signature = "($self, wait=0, lease=...)")]
    fn try_acquire(&self, py: Python<'_>, wait: Span<'_>, lease: Span<'_>) -> PyResult<Py<PyAny>> {
        let wish = self.acquire_wish(py, convert::wait(&wait, Wait::Try)?, convert::lease(&lease, self.lease)?)?;
        self.call(py, wish, &Answer::HoldOrNone, "await lock.try_acquire_async()")
    }

    /// The twin of `try_acquire` for coroutines.
    #[pyo3(signature = (
        wait: "float | timedelta | None" = Span::Unset, lease: "float | timedelta | None" = Span::Unset
    ) -> "Coroutine[Any, Any, Hold | None]", text_signature = "($self, wait=0, lease=...)")]
    fn try_acquire_async(&self, py: Python<'_>, wait: Span<'_>, lease: Span<'_>) -> PyResult<Call> {
        let wish = self.acquire_wish(py, convert::wait(&wait, Wait::Try)?, convert::lease(&lease, self.lease)?)?;
        Ok(self.later(wish, Answer::HoldOrNone, "Lock.try_acquire_async"))
    }

    /// Releases the caller's innermost level. The last one frees the lock.
    ///
    /// Raises `NotOwner` when the caller holds nothing, `LockLost` when the hold ended before this,
    /// `ReleaseUnknown` when the server did not answer. Nothing of another owner is touched.
    #[pyo3(signature = () -> "None")]
    fn release(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.call(py, self.release_wish(py)?, &Answer::Nothing, "await lock.release_async()")
    }

    /// The twin of `release` for coroutines. Cancelled, it goes on in the background.
    #[pyo3(signature = () -> "Coroutine[Any, Any, None]")]
    fn release_async(&self, py: Python<'_>) -> PyResult<Call> {
        Ok(self.later(self.release_wish(py)?, Answer::Nothing, "Lock.release_async"))
    }

    /// Whether anybody holds it, as the server says.
    #[pyo3(signature = () -> "bool")]
    fn locked(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.call(py, Wish::Status(self.name.clone()), &Answer::Locked, "await lock.locked_async()")
    }

    /// The twin of `locked` for coroutines.
    #[pyo3(signature = () -> "Coroutine[Any, Any, bool]")]
    fn locked_async(&self) -> Call {
        self.later(Wish::Status(self.name.clone()), Answer::Locked, "Lock.locked_async")
    }

    /// In how many seconds the server would free it: `None` when it is free, `inf` when it has no expiry.
    #[pyo3(signature = () -> "float | None")]
    fn remaining(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.call(py, Wish::Status(self.name.clone()), &Answer::Remaining, "await lock.remaining_async()")
    }

    /// The twin of `remaining` for coroutines.
    #[pyo3(signature = () -> "Coroutine[Any, Any, float | None]")]
    fn remaining_async(&self) -> Call {
        self.later(Wish::Status(self.name.clone()), Answer::Remaining, "Lock.remaining_async")
    }

    /// Deletes whoever holds it, and wakes those who wait. The holder is told that its lock is lost.
    ///
    /// Returns whether there was anything to delete. For operators: it breaks the holder's exclusion.
    #[pyo3(signature = () -> "bool")]
    fn force_release(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.call(py, Wish::ForceRelease(self.name.clone()), &Answer::Forced, "await lock.force_release_async()")
    }

    /// The twin of `force_release` for coroutines.
    #[pyo3(signature = () -> "Coroutine[Any, Any, bool]")]
    fn force_release_async(&self) -> Call {
        self.later(Wish::ForceRelease(self.name.clone()), Answer::Forced, "Lock.force_release_async")
    }

    /// What happens to this lock in this client, from now on: iterate with `for` or `async for`.
    ///
    /// At most `capacity` events wait to be read; the oldest give way, and `dropped` counts them.
    #[pyo3(signature = (capacity: "int" = 1024) -> "Events")]
    fn events(&self, py: Python<'_>, capacity: i128) -> PyResult<Events> {
        Events::open(py, &self.client, Filter::Name(self.name.clone()), capacity)
    }

    #[pyo3(signature = () -> "Hold")]
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (wish, answer) = self.enter(py)?;
        self.call(py, wish, &answer, "async with lock")
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
        let (wish, answer) = self.leave(py, value)?;
        self.call(py, wish, &answer, "async with lock")
    }

    #[pyo3(signature = () -> "Coroutine[Any, Any, Hold]")]
    fn __aenter__(&self, py: Python<'_>) -> PyResult<Call> {
        let (wish, answer) = self.enter(py)?;
        Ok(self.later(wish, answer, "Lock.__aenter__"))
    }

    #[pyo3(signature = (
        kind: "type[BaseException] | None" = None, value: "BaseException | None" = None,
        traceback: "TracebackType | None" = None, /
    ) -> "Coroutine[Any, Any, None]")]
    fn __aexit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyAny>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let _ = (kind, traceback);
        let (wish, answer) = self.leave(py, value)?;
        Ok(self.later(wish, answer, "Lock.__aexit__"))
    }

    fn __repr__(&self) -> String {
        format!("<bandog.Lock {:?}>", self.name.as_str())
    }
}
