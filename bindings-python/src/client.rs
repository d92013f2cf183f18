//! The client: where to connect, and how long things may take.

use std::sync::Arc;
use std::time::Duration;

use bandog::host::{Filter, Wait};
use bandog::{Code, Options};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::aio::Call;
use crate::block::{self, local, refuse_in_loop};
use crate::convert::{self, Span};
use crate::errors::{self, fail};
use crate::events::Events;
use crate::lock::Lock;
use crate::owner;
use crate::shared::Shared;

/// Connects to a Redis or Valkey server, at the first call that needs it.
///
/// Does no I/O and starts no thread. `url` is `redis://user:password@host:6379/0`, `rediss://` for TLS or
/// `unix:///run/redis.sock`; without it `BANDOG_URL`, then `REDIS_URL`, then `redis://127.0.0.1:6379`.
/// The server must be Redis 6.2 or Valkey 7.2 at least.
///
/// Durations are seconds, as a number or a `timedelta`:
///
/// - `watchdog` (30): the lease of a hold without one of its own, renewed every third of it.
/// - `op_timeout` (3): how long one request may stay without an answer.
/// - `connect_timeout` (5): how long connecting, TLS and login may take together.
/// - `unreachable_after` (30): how long a wait without an end goes on while no server answers.
/// - `max_hold` (never): after how long the watchdog gives up a hold.
///
/// `local_reentry`: a re-entry may be answered without asking the server. `allow_blocking_in_loop`: calls
/// that block are allowed where an event loop runs, as in notebooks. `name_prefix` goes in front of every
/// name. `tls_ca` is PEM text of the certificates that may vouch for the server instead of the system's;
/// `tls_certificate` and `tls_key` are shown to a server that asks; `tls_without_verification` accepts any
/// server and is for tests only.
///
/// Raises `InvalidUrl`, `InvalidLease` for the watchdog, `InvalidOption` for the rest.
///
/// ```python
/// with bandog.connect("redis://localhost:6379/0", watchdog=15) as client:
///     with client.lock("order_lock"):
///         ship_order()
/// ```
#[pyfunction]
#[pyo3(
    signature = (
        url: "str | None" = None, *, watchdog: "float | timedelta" = Span::Unset,
        op_timeout: "float | timedelta" = Span::Unset, connect_timeout: "float | timedelta" = Span::Unset,
        unreachable_after: "float | timedelta" = Span::Unset, max_hold: "float | timedelta | None" = Span::Unset,
        local_reentry = false, allow_blocking_in_loop = false, name_prefix: "str" = Prefix::default(),
        tls_ca: "str | bytes | None" = None, tls_certificate: "str | bytes | None" = None,
        tls_key: "str | bytes | None" = None, tls_without_verification = false
    ) -> "Client",
    text_signature = "(url=None, *, watchdog=30, op_timeout=3, connect_timeout=5, unreachable_after=30, \
        max_hold=None, local_reentry=False, allow_blocking_in_loop=False, name_prefix='', tls_ca=None, \
        tls_certificate=None, tls_key=None, tls_without_verification=False)"
)]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn connect(
    py: Python<'_>,
    url: Option<Bound<'_, PyAny>>,
    watchdog: Span<'_>,
    op_timeout: Span<'_>,
    connect_timeout: Span<'_>,
    unreachable_after: Span<'_>,
    max_hold: Span<'_>,
    local_reentry: bool,
    allow_blocking_in_loop: bool,
    name_prefix: Prefix,
    tls_ca: Option<Pem>,
    tls_certificate: Option<Pem>,
    tls_key: Option<Pem>,
    tls_without_verification: bool,
) -> PyResult<Client> {
    errors::prepare(py)?;
    owner::prepare(py)?;
    let mut options = local(py, Options::new(&find_url(py, url)?))?;
    if let Some(span) = convert::option(py, &watchdog, "watchdog", Code::InvalidLease)? {
        options = options.watchdog(span);
    }
    let timeout = convert::option(py, &op_timeout, "op_timeout", Code::InvalidOption)?;
    if let Some(span) = timeout {
        options = options.op_timeout(span);
    }
    if let Some(span) = convert::option(py, &connect_timeout, "connect_timeout", Code::InvalidOption)? {
        options = options.connect_timeout(span);
    }
    if let Some(span) = convert::option(py, &unreachable_after, "unreachable_after", Code::InvalidOption)? {
        options = options.unreachable_after(span);
    }
    if let Span::Given(_) = max_hold
        && let Some(span) = convert::option(py, &max_hold, "max_hold", Code::InvalidOption)?
    {
        options = options.max_hold(span);
    }
    if let Some(Pem(ca)) = tls_ca {
        options = options.tls_ca(ca);
    }
    match (tls_certificate, tls_key) {
        (Some(Pem(chain)), Some(Pem(key))) => options = options.tls_client_certificate(chain, key),
        (None, None) => {}
        _ => return Err(fail(py, Code::InvalidOption, "give tls_certificate and tls_key together")),
    }
    if tls_without_verification {
        options = options.tls_without_verification();
    }
    options = options.local_reentry(local_reentry).name_prefix(name_prefix.0);
    let driver = local(py, bandog::Client::new(options))?;
    let op_timeout = timeout.unwrap_or(Duration::from_secs(3));
    let shared = Shared::new(driver, allow_blocking_in_loop, op_timeout);
    Ok(Client { shared })
}

/// PEM, as text or bytes.
pub(crate) struct Pem(Vec<u8>);

impl<'a, 'py> FromPyObject<'a, 'py> for Pem {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match value.cast::<PyString>() {
            Ok(text) => Ok(Self(text.to_cow()?.as_bytes().to_vec())),
            Err(_) => value.extract::<Vec<u8>>().map(Self),
        }
    }
}

/// What goes in front of every name.
#[derive(Default)]
pub(crate) struct Prefix(String);

impl<'a, 'py> FromPyObject<'a, 'py> for Prefix {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text = value.cast::<PyString>()?;
        let text = text.to_cow().map_err(|_| {
            fail(value.py(), Code::InvalidOption, "name_prefix has a lone surrogate, which UTF-8 cannot carry")
        })?;
        Ok(Self(text.into_owned()))
    }
}

fn find_url(py: Python<'_>, url: Option<Bound<'_, PyAny>>) -> PyResult<String> {
    if let Some(url) = url {
        // The value is not quoted: a URL holds a password.
        let text = url.cast::<PyString>().ok().and_then(|text| text.to_cow().ok().map(|text| text.into_owned()));
        return text.ok_or_else(|| fail(py, Code::InvalidUrl, "the URL is not text"));
    }
    let environment = |key| std::env::var(key).ok().filter(|value| !value.is_empty());
    Ok(environment("BANDOG_URL").or_else(|| environment("REDIS_URL")).unwrap_or("redis://127.0.0.1:6379".into()))
}

/// A client of one server. Make it with `connect`; share it freely between threads, tasks and event loops.
///
/// It goes on working in a forked child, as a client of its own that holds nothing. `with` closes it.
#[pyclass(frozen, module = "bandog", weakref)]
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
}

#[pymethods]
impl Client {
    /// A reentrant lock of this name, the one that Redisson's `getLock` gives Java programs. No I/O.
    ///
    /// `wait` is how long `with` and `acquire` wait, in seconds: `None` for ever, 0 one try. `lease` is for
    /// how long the lock is held: `None` lets the watchdog renew it until it is released, a number is fixed
    /// and never renewed. Names are text of at most 512 bytes, `name_prefix` counted in.
    ///
    /// Raises `InvalidName`, `InvalidOption` for the wait, `InvalidLease`.
    ///
    /// ```python
    /// with client.lock("order_lock", wait=5) as hold:
    ///     hold.check()  # before each effect that needs the lock
    /// ```
    #[pyo3(signature = (
        name: "str", wait: "float | timedelta | None" = Span::Unset, lease: "float | timedelta | None" = Span::Unset
    ) -> "Lock", text_signature = "($self, name, wait=None, lease=None)")]
    fn lock(&self, name: &Bound<'_, PyAny>, wait: Span<'_>, lease: Span<'_>) -> PyResult<Lock> {
        let wait = convert::wait(&wait, Wait::Forever)?;
        let lease = convert::lease(&lease, None)?;
        Ok(Lock::new(Arc::clone(&self.shared), convert::name(&self.shared, name)?, wait, lease))
    }

    /// What happens to the locks of this client, from now on: iterate with `for` or `async for`.
    ///
    /// At most `capacity` events wait to be read; the oldest give way, and `dropped` counts them.
    #[pyo3(signature = (capacity: "int" = 1024) -> "Events")]
    fn events(&self, py: Python<'_>, capacity: i128) -> PyResult<Events> {
        Events::open(py, &self.shared, Filter::All, capacity)
    }

    /// Releases what is held, ends every wait with `Closed`, and stops the background thread.
    ///
    /// Returns within `op_timeout` whether or not the server answers; what it did not hear of ends with its
    /// lease. Harmless when repeated. Raises `BlockingInLoop` where an event loop runs.
    #[pyo3(signature = () -> "None")]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        refuse_in_loop(py, &self.shared, "await client.close_async()")?;
        block::close(py, &self.shared)
    }

    /// The twin of `close` for coroutines.
    #[pyo3(signature = () -> "Awaitable[None]")]
    fn close_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let Some(event_loop) = owner::running_loop(py)? else {
            return Err(PyRuntimeError::new_err("Client.close_async needs a running event loop"));
        };
        let client = &slf.get().shared;
        client.port(&event_loop)?.get().close_client(client, &event_loop)
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    #[pyo3(signature = () -> "Self")]
    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        refuse_in_loop(slf.py(), &slf.get().shared, "async with connect(...) as client")?;
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
    ) -> PyResult<()> {
        let _ = (kind, value, traceback);
        block::close(py, &self.shared)
    }

    #[pyo3(signature = () -> "Awaitable[Self]")]
    fn __aenter__(slf: Bound<'_, Self>) -> Call {
        Call::ready(&slf.get().shared, slf.clone().into_any().unbind(), "Client.__aenter__")
    }

    #[pyo3(signature = (
        kind: "type[BaseException] | None" = None, value: "BaseException | None" = None,
        traceback: "TracebackType | None" = None, /
    ) -> "Awaitable[None]")]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        kind: Option<Bound<'_, PyAny>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (kind, value, traceback);
        Self::close_async(slf)
    }

    fn __repr__(&self) -> &'static str {
        if self.closed() { "<bandog.Client closed>" } else { "<bandog.Client>" }
    }
}
