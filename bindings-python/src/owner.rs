//! Who asks: the running asyncio task, else the greenlet if it is not the thread's first, else the thread.
//!
//! Each gets a number of our own, kept beside a weak reference to it: ids and idents are used again, and
//! context variables are inherited.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bandog::host::{self, LocalOwner};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyWeakrefMethods, PyWeakrefReference};

use crate::shared;

/// Finds what cannot be found any more when the interpreter shuts down.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    modules(py)?;
    owner_ended(py).map(drop)
}

fn modules(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let find = || Ok::<_, PyErr>(py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.unbind());
    MODULES.get_or_try_init(py, find).map(|found| found.bind(py))
}

fn owner_ended(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ENDED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let find = || py.import("bandog._native")?.getattr("_owner_ended").map(Bound::unbind);
    ENDED.get_or_try_init(py, find).map(|found| found.bind(py))
}

/// The owner on whose behalf this very call is made.
pub(crate) fn current(py: Python<'_>) -> PyResult<LocalOwner> {
    if let Some(task) = current_task(py)? {
        return of_object(&task, intern!(py, "add_done_callback"));
    }
    if let Some(greenlet) = current_greenlet(py)? {
        return of_object(&greenlet, intern!(py, "rawlink"));
    }
    Ok(THREAD.with(|thread| thread.0))
}

/// Whether this is the thread itself, and no task or greenlet in it.
pub(crate) fn is_thread(owner: LocalOwner) -> bool {
    THREAD.with(|thread| thread.0 == owner)
}

/// The event loop that runs in this thread.
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(get) = imported(py, &GET, "asyncio.events", "_get_running_loop")? else { return Ok(None) };
    let running = get.call0()?;
    Ok((!running.is_none()).then_some(running))
}

/// The asyncio task that runs in this thread.
fn current_task(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(running) = running_loop(py)? else { return Ok(None) };
    let Some(get) = imported(py, &GET, "asyncio.tasks", "current_task")? else { return Ok(None) };
    let task = get.call1((running,))?;
    Ok((!task.is_none()).then_some(task))
}

/// The greenlet that runs, unless it is the first of its thread.
fn current_greenlet(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(get) = imported(py, &GET, "greenlet", "getcurrent")? else { return Ok(None) };
    let greenlet = get.call0()?;
    let first = greenlet.getattr(intern!(py, "parent"))?.is_none();
    Ok((!first).then_some(greenlet))
}

/// gevent's `socket.wait_read`, if a hub of it runs in this thread and this is not the hub itself.
pub(crate) fn gevent_wait_read(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static HUB: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static WAIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(hub) = imported(py, &HUB, "gevent._hub_local", "get_hub_if_exists")? else { return Ok(None) };
    let hub = hub.call0()?;
    if hub.is_none() {
        return Ok(None);
    }
    let current = imported(py, &GET, "greenlet", "getcurrent")?.map(|get| get.call0()).transpose()?;
    if current.is_some_and(|current| current.is(&hub)) {
        return Ok(None);
    }
    let wait = WAIT.get_or_try_init(py, || py.import("gevent.socket")?.getattr("wait_read").map(Bound::unbind))?;
    Ok(Some(wait.bind(py).clone()))
}

/// A function of a module that somebody else imported; nobody pays for one that nobody uses.
fn imported<'a, 'py>(
    py: Python<'py>,
    cell: &'a PyOnceLock<Py<PyAny>>,
    module: &str,
    function: &str,
) -> PyResult<Option<&'a Bound<'py, PyAny>>> {
    if let Some(found) = cell.get(py) {
        return Ok(Some(found.bind(py)));
    }
    let Some(module) = modules(py)?.get_item(module)? else { return Ok(None) };
    // A module still being imported lacks the function: not in use yet. One that is taken down has `None` there.
    let Some(found) = module.getattr(function).ok().filter(|found| !found.is_none()) else { return Ok(None) };
    Ok(Some(cell.get_or_init(py, || found.unbind()).bind(py)))
}

struct ThreadOwner(LocalOwner);

thread_local! {
    static THREAD: ThreadOwner = ThreadOwner(host::next_owner());
}

impl Drop for ThreadOwner {
    fn drop(&mut self) {
        shared::owner_gone(self.0);
    }
}

/// The numbers of tasks and greenlets, by address; the weak reference tells whether it is still the same one.
static KNOWN: Mutex<Option<HashMap<usize, Known>>> = Mutex::new(None);

struct Known {
    weak: Py<PyWeakrefReference>,
    owner: LocalOwner,
}

/// Called with the task or greenlet that ended, or with the weak reference to one that is gone.
#[pyfunction]
pub(crate) fn _owner_ended(ended: &Bound<'_, PyAny>) {
    let removed = with_known(|known| {
        let at = ended.as_ptr() as usize;
        let key = if known.contains_key(&at) {
            Some(at)
        } else {
            known.iter().find(|(_, entry)| entry.weak.as_ptr() == ended.as_ptr()).map(|(key, _)| *key)
        };
        key.and_then(|key| known.remove(&key))
    });
    if let Some(entry) = removed {
        shared::owner_gone(entry.owner);
    }
}

fn of_object(object: &Bound<'_, PyAny>, ended_hook: &Bound<'_, pyo3::types::PyString>) -> PyResult<LocalOwner> {
    let py = object.py();
    let key = object.as_ptr() as usize;
    let found = with_known(|known| {
        let entry = known.get(&key)?;
        entry.weak.bind(py).upgrade().is_some_and(|alive| alive.is(object)).then_some(entry.owner)
    });
    if let Some(owner) = found {
        return Ok(owner);
    }
    let ended = owner_ended(py)?;
    let weak = PyWeakrefReference::new_with(object, ended)?.unbind();
    let owner = host::next_owner();
    let stale = with_known(|known| known.insert(key, Known { weak, owner }));
    if let Some(stale) = stale {
        shared::owner_gone(stale.owner);
    }
    // A plain greenlet has no hook: its weak reference tells.
    if let Ok(hook) = object.getattr(ended_hook) {
        hook.call1((ended,))?;
    }
    Ok(owner)
}

/// No Python code runs inside: an owner that dies there would come back here.
fn with_known<R>(act: impl FnOnce(&mut HashMap<usize, Known>) -> R) -> R {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    act(known.get_or_insert_default())
}
