//! Listeners: bounded queues of events.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bandog_core::error::Error;
use bandog_core::event::Event;
use bandog_core::io::HoldId;
use bandog_core::name::Name;

use crate::fork;
use crate::handle::Handle;
use crate::parker::{Parker, Woken};
use crate::shared::Shared;
use crate::signals::{Patience, Signals};
use crate::turn::closed;
use crate::waiter::{Wake, lock};

/// Which events a listener gets.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Everything.
    All,
    /// Everything about one lock.
    Name(Name),
    /// The loss of any hold, and nothing else. Costs nothing while nothing is lost.
    Losses,
    /// What an operator should know. Costs nothing while there is nothing.
    Warnings,
    /// The loss of one hold, and nothing else. A loss that came before is not told again: look at
    /// [`Handle::view`] once more after `listen`.
    Loss(Handle),
}

/// Gets events until it is closed or dropped.
pub struct Listener {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

/// The events one listener has not taken yet.
pub(crate) struct Queue {
    generation: u64,
    filter: Filter,
    capacity: usize,
    inner: Mutex<Inner>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Inner {
    events: VecDeque<Event>,
    dropped: u64,
    closed: bool,
    thread: Option<Arc<Parker>>,
    task: Option<Waker>,
}

/// All listeners of one engine.
#[derive(Default)]
pub(crate) struct Ears {
    queues: Vec<Arc<Queue>>,
    /// Apart, so that a hundred thousand holds can each be listened to.
    losses: BTreeMap<HoldId, Vec<Arc<Queue>>>,
    closed: bool,
}

pub(crate) fn listen(
    shared: &Arc<Shared>,
    filter: Filter,
    capacity: usize,
    wake: Box<dyn Fn() + Send + Sync>,
) -> Result<Listener, Error> {
    if let Filter::Loss(handle) = &filter {
        handle.own(shared)?;
    }
    let queue = Arc::new(Queue {
        generation: fork::generation(),
        filter,
        capacity: capacity.max(1),
        inner: Mutex::default(),
        wake,
    });
    shared.with(|turn| turn.hear(&queue))?;
    Ok(Listener { shared: shared.clone(), queue })
}

impl Listener {
    /// The oldest event not taken yet.
    #[must_use]
    pub fn try_next(&self) -> Option<Event> {
        self.inner()?.events.pop_front()
    }

    /// Waits for the next event on this thread. `None` when the listener was closed, or `interrupt` said
    /// so; it is called as [`block`](crate::host::block) calls it.
    pub fn next_blocking(&self, signals: Signals, interrupt: &mut dyn FnMut() -> bool) -> Option<Event> {
        let parker = Parker::current().ok()?;
        let guard = signals.guard();
        let mut unseen = guard.shut();
        let mut patience = Patience::new();
        loop {
            {
                let mut inner = self.inner()?;
                if let Some(event) = inner.events.pop_front() {
                    return Some(event);
                }
                if inner.closed {
                    return None;
                }
                inner.thread = Some(parker.clone());
            }
            let woken = if std::mem::take(&mut unseen) {
                Woken { interrupted: true, ..Woken::default() }
            } else {
                parker.park(None, patience.millis(), guard.mask())
            };
            if patience.is_over(woken) && guard.open(&mut *interrupt) {
                return None;
            }
        }
    }

    /// The next event when there is one; `Ready(None)` when the listener was closed.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let Some(mut inner) = self.inner() else { return Poll::Ready(None) };
        match inner.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if inner.closed => Poll::Ready(None),
            None => {
                inner.task = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// How many events were thrown away because the queue was full: the oldest, losses last.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.inner().map_or(0, |inner| inner.dropped)
    }

    /// Whether no event will come any more, beside those in the queue.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner().is_none_or(|inner| inner.closed)
    }

    /// Ends it, and a wait for its next event. Harmless when repeated.
    pub fn close(&self) {
        if self.queue.generation == fork::generation() {
            self.shared.with(|turn| turn.deafen(&self.queue));
        }
    }

    /// `None` in a forked child: the queue is the parent's.
    fn inner(&self) -> Option<std::sync::MutexGuard<'_, Inner>> {
        (self.queue.generation == fork::generation()).then(|| lock(&self.queue.inner))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

impl Ears {
    pub(crate) fn add(&mut self, queue: &Arc<Queue>) -> Result<(), Error> {
        if self.closed {
            return Err(closed());
        }
        match &queue.filter {
            Filter::Loss(handle) => self.losses.entry(handle.hold()).or_default().push(queue.clone()),
            _ => self.queues.push(queue.clone()),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, queue: &Arc<Queue>) {
        let list = match &queue.filter {
            Filter::Loss(handle) => self.losses.get_mut(&handle.hold()),
            _ => Some(&mut self.queues),
        };
        if let Some(list) = list {
            list.retain(|other| !Arc::ptr_eq(other, queue));
        }
        if let Filter::Loss(handle) = &queue.filter
            && self.losses.get(&handle.hold()).is_some_and(Vec::is_empty)
        {
            self.losses.remove(&handle.hold());
        }
    }

    /// Whether anybody wants more than losses.
    pub(crate) fn are_open(&self) -> bool {
        self.queues.iter().any(|queue| matches!(queue.filter, Filter::All | Filter::Name(_)))
    }

    pub(crate) fn tell(&self, event: &Event, wakes: &mut Vec<Wake>) {
        for queue in &self.queues {
            let wanted = match &queue.filter {
                Filter::All => true,
                Filter::Name(name) => event.name() == Some(name),
                Filter::Losses => matches!(event, Event::Lost { .. }),
                Filter::Warnings => matches!(event, Event::Warning { .. }),
                Filter::Loss(_) => false,
            };
            if wanted {
                queue.push(event.clone(), wakes);
            }
        }
        if let Event::Lost { hold, .. } = event {
            for queue in self.losses.get(hold).into_iter().flatten() {
                queue.push(event.clone(), wakes);
            }
        }
    }

    pub(crate) fn close(&mut self, wakes: &mut Vec<Wake>) {
        self.closed = true;
        let losses = std::mem::take(&mut self.losses);
        for queue in self.queues.drain(..).chain(losses.into_values().flatten()) {
            queue.close(wakes);
        }
    }
}

impl Queue {
    fn push(self: &Arc<Self>, event: Event, wakes: &mut Vec<Wake>) {
        let mut inner = lock(&self.inner);
        if inner.events.len() >= self.capacity {
            let victim = inner.events.iter().position(|event| !matches!(event, Event::Lost { .. })).unwrap_or(0);
            inner.events.remove(victim);
            inner.dropped += 1;
        }
        inner.events.push_back(event);
        let first = inner.events.len() == 1;
        self.call(inner, first, wakes);
    }

    pub(crate) fn close(self: &Arc<Self>, wakes: &mut Vec<Wake>) {
        let mut inner = lock(&self.inner);
        let first = !inner.closed;
        inner.closed = true;
        self.call(inner, first, wakes);
    }

    fn call(self: &Arc<Self>, mut inner: std::sync::MutexGuard<'_, Inner>, first: bool, wakes: &mut Vec<Wake>) {
        wakes.extend(inner.thread.take().map(Wake::Thread));
        wakes.extend(inner.task.take().map(Wake::Task));
        if first {
            wakes.push(Wake::Queue(self.clone()));
        }
    }

    pub(crate) fn wake(&self) {
        (self.wake)();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("filter", &self.queue.filter).finish_non_exhaustive()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("filter", &self.filter).finish_non_exhaustive()
    }
}
