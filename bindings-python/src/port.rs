//! One event loop: a mailbox, a descriptor that wakes it, and what waits in it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bandog::Error;
use bandog::host::{self, Mail, Mailbox, Submitted, Wish};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit};

use crate::bell::Bell;
use crate::callbacks::LossBook;
use crate::home::WeakPort;
use crate::line::{Line, Mourner};
use crate::shared::Shared;
use crate::step::{Step, runner};
use crate::wait::Wait;

/// What one client has with one event loop. The loop calls it when its descriptor is readable.
#[pyclass(frozen, weakref, name = "_Port", module = "bandog._native")]
pub(crate) struct Port {
    bell: Arc<Bell>,
    pub(crate) mailbox: Arc<Mailbox>,
    event_loop: Py<PyWeakrefReference>,
    weak: OnceLock<WeakPort>,
    /// Since the first call.
    line: OnceLock<Arc<Line>>,
    next_token: AtomicU64,
    state: Mutex<PortState>,
}

#[derive(Default)]
struct PortState {
    /// By token.
    pending: HashMap<u64, Py<Wait>>,
    /// What the loop has to do before that.
    chores: VecDeque<Step>,
    /// The step that was given last, with what its task waited on.
    last: Option<(Step, Option<Py<Wait>>)>,
    /// Answers that came, in order.
    inbox: VecDeque<Mail>,
    /// Futures of those who await an event.
    watchers: Vec<Py<PyAny>>,
    /// Futures of those who await the end of a client, with whether that has come.
    closers: Vec<(Arc<AtomicBool>, Py<PyAny>)>,
    losses: Option<Arc<LossBook>>,
    /// Says that the loop is gone.
    mourner: Option<Py<PyWeakrefReference>>,
    /// Callbacks that are coroutines, while they run: the loop itself keeps no hold of them.
    tasks: HashMap<usize, Py<PyAny>>,
}

impl Port {
    pub(crate) fn open(event_loop: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        let py = event_loop.py();
        let bell = Arc::new(Bell::new()?);
        let mailbox = Mailbox::new({
            let bell = Arc::clone(&bell);
            move || bell.ring()
        });
        let port = Self {
            bell,
            mailbox,
            event_loop: PyWeakrefReference::new(event_loop)?.unbind(),
            weak: OnceLock::new(),
            line: OnceLock::new(),
            next_token: AtomicU64::new(1),
            state: Mutex::default(),
        };
        let port = Bound::new(py, port)?;
        let weak = WeakPort::new(&port)?;
        port.get().weak.get_or_init(|| weak);
        let descriptor = port.get().bell.fd();
        let turn = runner(&port, "_turn")?;
        if event_loop.call_method1(intern!(py, "add_reader"), (descriptor, &turn)).is_err() {
            let soon = py.import("functools")?.getattr("partial")?;
            let soon = soon.call1((event_loop.getattr("call_soon_threadsafe")?, turn))?;
            port.get().bell.without_reader(soon.unbind())?;
        }
        Ok(port.unbind())
    }

    pub(crate) fn event_loop<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.event_loop.bind(py).upgrade()
    }

    pub(crate) fn weak(&self, py: Python<'_>) -> WeakPort {
        // Every port that this module opens has one.
        self.weak.get().unwrap_or_else(|| unreachable!("a port that nobody opened")).clone_ref(py)
    }

    /// Whether the loop is closed or gone, so that nobody can be waiting any more.
    pub(crate) fn is_dead(&self, py: Python<'_>) -> bool {
        let Some(event_loop) = self.event_loop(py) else { return true };
        event_loop.call_method0(intern!(py, "is_closed")).and_then(|closed| closed.is_truthy()).unwrap_or(true)
    }

    /// The loop is closed or gone.
    pub(crate) fn retire(&self) {
        if let Some(line) = self.line.get() {
            // Without a loop there is nothing left to do.
            let _ = line.leave(None);
        }
        self.forget_loop();
    }

    /// Leaves the loop, in its own thread.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(event_loop) = self.event_loop(py) {
            let forget = event_loop.getattr(intern!(py, "remove_reader"))?;
            let unwatch = self.line.get().map(|line| line.leave(Some(&event_loop))).transpose()?.flatten();
            let mut state = lock(&self.state);
            state.chores.extend(unwatch);
            state.chores.push_back(Step::new(forget, (self.bell.fd(),))?);
        }
        self.forget_loop();
        Ok(())
    }

    fn forget_loop(&self) {
        self.bell.forget_loop();
        let mourner = {
            let mut state = lock(&self.state);
            state.losses = None;
            state.mourner.take()
        };
        drop(mourner);
    }

    /// The client is closed: leave the loop in its next turn, or now if it has none any more.
    pub(crate) fn close(&self, py: Python<'_>) {
        if self.is_dead(py) {
            self.retire();
        } else {
            self.bell.end();
        }
    }

    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// A future that the next turn of this port resolves, whatever it brings.
    pub(crate) fn watch<'py>(&self, event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let future = event_loop.call_method0(intern!(event_loop.py(), "create_future"))?;
        lock(&self.state).watchers.push(future.clone().unbind());
        Ok(future)
    }

    /// A future of the end of this client, which waits on a thread of its own: those of the loop may all be taken.
    pub(crate) fn close_client<'py>(
        &self,
        client: &Arc<Shared>,
        event_loop: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = event_loop.call_method0(intern!(event_loop.py(), "create_future"))?;
        let closed = Arc::new(AtomicBool::new(false));
        lock(&self.state).closers.push((Arc::clone(&closed), future.clone().unbind()));
        let bell = self.bell();
        let started = client.close_aside({
            let closed = Arc::clone(&closed);
            move || {
                closed.store(true, Ordering::Release);
                bell.ring();
            }
        });
        if let Err(error) = started {
            lock(&self.state).closers.retain(|(flag, _)| !Arc::ptr_eq(flag, &closed));
            return Err(error.into());
        }
        Ok(future)
    }

    /// The losses told in this loop.
    pub(crate) fn losses(&self, client: &Arc<Shared>) -> Result<Arc<LossBook>, Error> {
        if let Some(book) = &lock(&self.state).losses {
            return Ok(Arc::clone(book));
        }
        let bell = self.bell();
        let book = LossBook::open(client, move |_| bell.ring())?;
        Ok(Arc::clone(lock(&self.state).losses.get_or_insert(book)))
    }

    /// Sends a wish whose answer comes under this token, down the loop's own wire if it can watch one.
    pub(crate) fn submit(
        slf: &Bound<'_, Self>,
        client: &bandog::Client,
        event_loop: &Bound<'_, PyAny>,
        wish: Wish,
        token: u64,
    ) -> PyResult<Result<Submitted, Error>> {
        let this = slf.get();
        let line = match this.line(client, event_loop)? {
            Ok(line) => line,
            Err(error) => return Ok(Err(error)),
        };
        let Some(line) = line else {
            return Ok(host::submit(client, wish, &this.mailbox, token));
        };
        let Some((submitted, flush)) = line.submit(wish, token) else {
            return Err(PyRuntimeError::new_err("the event loop was closed"));
        };
        if flush {
            // At the end of this turn, as every bell is heard. Without Python: what raises in there would leave a
            // call behind.
            this.bell.ring();
        }
        Ok(submitted)
    }

    /// The loop's own wire, opened at the first call. `None` where the loop watches no descriptors.
    fn line(
        &self,
        client: &bandog::Client,
        event_loop: &Bound<'_, PyAny>,
    ) -> PyResult<Result<Option<&Arc<Line>>, Error>> {
        if let Some(line) = self.line.get() {
            return Ok(Ok(Some(line)));
        }
        if !self.bell.has_reader() {
            return Ok(Ok(None));
        }
        let line = match Line::open(client, &self.mailbox) {
            Ok(line) => line,
            Err(error) => return Ok(Err(error)),
        };
        let mourner = Bound::new(event_loop.py(), Mourner(Arc::clone(&line)))?;
        let mourner = PyWeakrefReference::new_with(event_loop, mourner)?;
        lock(&self.state).mourner = Some(mourner.unbind());
        Ok(Ok(Some(self.line.get_or_init(|| line))))
    }

    /// A token for a call that is about to be made.
    pub(crate) fn next_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// Who waits for the answer with this token.
    pub(crate) fn expect(&self, token: u64, wait: Py<Wait>) {
        let stale = lock(&self.state).pending.insert(token, wait);
        drop(stale);
    }

    pub(crate) fn forget(&self, token: u64) {
        let wait = lock(&self.state).pending.remove(&token);
        drop(wait);
    }
}

#[pymethods]
impl Port {
    /// The bell rang: gives the first step.
    fn _turn(slf: &Bound<'_, Self>) -> PyResult<Option<Step>> {
        slf.get().turn(slf)
    }

    /// The loop's wire can be read: gives the first step.
    fn _read(slf: &Bound<'_, Self>) -> PyResult<Option<Step>> {
        let this = slf.get();
        let Some(line) = this.line.get() else { return Ok(None) };
        let mails = line.read();
        this.attend(slf, line);
        lock(&this.state).inbox.extend(mails);
        Self::_next(slf)
    }

    /// The loop's wire can be written again: gives the first step.
    fn _flush(slf: &Bound<'_, Self>) -> PyResult<Option<Step>> {
        let this = slf.get();
        if let Some(line) = this.line.get() {
            line.flush();
            this.attend(slf, line);
        }
        Self::_next(slf)
    }

    /// The next step: what the loop has to do, then the tasks to continue. None before the one before it ran: a
    /// grant that was given back may be followed by another answer to the same task.
    fn _next(slf: &Bound<'_, Self>) -> PyResult<Option<Step>> {
        let (py, this) = (slf.py(), slf.get());
        let done = lock(&this.state).last.take();
        drop(done);
        this.collect_losses(slf)?;
        loop {
            let (wait, answer) = {
                let mut state = lock(&this.state);
                if let Some(chore) = state.chores.pop_front() {
                    state.last = Some((chore.clone_ref(py), None));
                    return Ok(Some(chore));
                }
                let Some(mail) = state.inbox.pop_front() else { return Ok(None) };
                let Some(wait) = state.pending.remove(&mail.token) else { continue };
                (wait.into_bound(py), mail.result)
            };
            if let Some(callback) = Wait::answer(&wait, answer)? {
                let step = callback.step(wait.clone())?;
                lock(&this.state).last = Some((step.clone_ref(py), Some(wait.unbind())));
                return Ok(Some(step));
            }
        }
    }

    /// A signal struck between the steps: what it kept from being done is done in the next turn.
    fn _again(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        let (last, more) = {
            let mut state = lock(&this.state);
            (state.last.take(), !state.chores.is_empty() || !state.inbox.is_empty())
        };
        if more {
            this.bell.ring();
        }
        let Some((step, wait)) = last else { return Ok(()) };
        match (this.event_loop(slf.py()), wait) {
            (Some(_), Some(wait)) if wait.get().is_seen() => Ok(()),
            (Some(event_loop), _) => step.call_soon(&event_loop),
            (None, _) => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever has it is in the middle of a change: then this is in use.
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        state.pending.values().try_for_each(|wait| visit.call(wait))?;
        state.watchers.iter().try_for_each(|future| visit.call(future))?;
        state.closers.iter().try_for_each(|(_, future)| visit.call(future))?;
        state.tasks.values().try_for_each(|task| visit.call(task))
    }

    /// Runs a callback that is a coroutine, in the loop's own thread.
    pub(crate) fn _start(slf: &Bound<'_, Self>, coroutine: Bound<'_, PyAny>) -> PyResult<()> {
        let this = slf.get();
        let Some(event_loop) = this.event_loop(slf.py()) else { return Ok(()) };
        let task = event_loop.call_method1(intern!(slf.py(), "create_task"), (coroutine,))?;
        lock(&this.state).tasks.insert(task.as_ptr() as usize, task.clone().unbind());
        task.call_method1(intern!(slf.py(), "add_done_callback"), (slf.getattr("_ended")?,))?;
        Ok(())
    }

    /// Such a callback ended.
    fn _ended(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let kept = lock(&self.state).tasks.remove(&(task.as_ptr() as usize));
        drop(kept);
        if !task.call_method0("cancelled")?.is_truthy()? {
            let raised = task.call_method0("exception")?;
            if !raised.is_none() {
                self.report(task.py(), PyErr::from_value(raised));
            }
        }
        Ok(())
    }
}

impl Port {
    fn turn(&self, slf: &Bound<'_, Self>) -> PyResult<Option<Step>> {
        let py = slf.py();
        self.bell.heard();
        if let Some(line) = self.line.get() {
            line.flush();
        }
        let mails = self.mailbox.drain();
        lock(&self.state).inbox.extend(mails);
        self.collect_losses(slf)?;
        let watchers = std::mem::take(&mut lock(&self.state).watchers);
        for future in watchers {
            resolve(future.bind(py));
        }
        let (closed, closing) = {
            let mut state = lock(&self.state);
            let (closed, open) =
                std::mem::take(&mut state.closers).into_iter().partition(|(flag, _)| flag.load(Ordering::Acquire));
            state.closers = open;
            let closed: Vec<_> = closed;
            (
                closed,
                state.closers.is_empty() && (self.bell.is_over() || self.line.get().is_some_and(|line| line.is_over())),
            )
        };
        for (_, future) in closed {
            resolve(future.bind(py));
        }
        // What was pending had its last mail before this: closing a client ends every wish.
        if closing {
            self.leave(py)?;
        } else if let Some(line) = self.line.get() {
            self.attend(slf, line);
        }
        Self::_next(slf)
    }

    /// Has the losses that came told before anything else is.
    fn collect_losses(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let losses = lock(&self.state).losses.clone();
        let (Some(losses), Some(event_loop)) = (losses, self.event_loop(slf.py())) else { return Ok(()) };
        for due in losses.due() {
            let step = due.step(&event_loop, slf.getattr(intern!(slf.py(), "_start"))?)?;
            lock(&self.state).chores.push_back(step);
        }
        Ok(())
    }

    /// Has the loop watch what there is to watch. What it cannot watch, the keeper glances at.
    fn attend(&self, slf: &Bound<'_, Self>, line: &Line) {
        let Some(event_loop) = self.event_loop(slf.py()) else { return };
        match line.attend(slf, &event_loop) {
            Ok(steps) => lock(&self.state).chores.extend(steps),
            Err(error) => error.write_unraisable(slf.py(), None),
        }
    }
}

/// A cancelled future keeps its state.
fn resolve(future: &Bound<'_, PyAny>) {
    let py = future.py();
    let open = future.call_method0(intern!(py, "done")).is_ok_and(|done| !done.is_truthy().unwrap_or(true));
    if open {
        let _ = future.call_method1(intern!(py, "set_result"), (py.None(),));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
