//! Who waits for a wish, and how to wake them once the engine is unlocked.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bandog_core::io::Outcome;
use bandog_core::name::Name;

use crate::handle::Handle;
use crate::listen::Queue;
use crate::mailbox::Mailbox;
use crate::parker::Parker;
use crate::seat::Seat;
pub(crate) use crate::sync::lock;

/// Who is told how a wish ends.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// Nobody: it goes on in the background.
    Nobody,
    /// A thread.
    Seat(Arc<Seat>),
    /// A loop of another language.
    Mailbox(Arc<Mailbox>, u64),
    /// A Rust future.
    Task(Arc<Promise>),
}

/// A wish under way.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) waiter: Waiter,
    /// Of an acquire: for its handle.
    pub(crate) name: Option<Name>,
    /// The handle it leans on: whom to name if the engine has forgotten the hold.
    pub(crate) handle: Option<Handle>,
}

/// A future that waits for the end of one wish.
#[derive(Debug, Default)]
pub(crate) struct Promise(Mutex<(Option<Outcome>, Option<Waker>)>);

impl Promise {
    pub(crate) fn is_ready(&self) -> bool {
        lock(&self.0).0.is_some()
    }

    /// Whom to wake; from now on nobody is woken for it.
    pub(crate) fn deafen(&self) -> Option<Waker> {
        lock(&self.0).1.take()
    }

    pub(crate) fn put(&self, outcome: Outcome) -> Option<Waker> {
        let mut inner = lock(&self.0);
        inner.0 = Some(outcome);
        inner.1.take()
    }

    /// Whom to wake, if anybody.
    pub(crate) fn waker(&self) -> Option<Waker> {
        lock(&self.0).1.clone()
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut inner = lock(&self.0);
        if let Some(outcome) = inner.0.take() {
            return Poll::Ready(outcome);
        }
        if !inner.1.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            let old = inner.1.replace(context.waker().clone());
            // The last waker of a task may take the task with it, and futures of ours.
            drop(inner);
            drop(old);
        }
        Poll::Pending
    }
}

/// Whom to wake after the engine is unlocked.
#[derive(Debug)]
pub(crate) enum Wake {
    Thread(Arc<Parker>),
    Task(Waker),
    Mailbox(Arc<Mailbox>),
    Queue(Arc<Queue>),
}

impl Wake {
    /// Threads first: waking the others runs code of the host.
    pub(crate) fn run_all(wakes: Vec<Self>) {
        match &wakes[..] {
            [] => return,
            [Self::Thread(parker)] => return parker.unpark(),
            _ => {}
        }
        Parker::unpark_all(wakes.iter().filter_map(Self::thread));
        wakes.into_iter().for_each(Self::run);
    }

    fn thread(&self) -> Option<&Parker> {
        match self {
            Self::Thread(parker) => Some(parker),
            _ => None,
        }
    }

    fn run(self) {
        match self {
            Self::Thread(_) => {}
            Self::Task(waker) => waker.wake(),
            Self::Mailbox(mailbox) => mailbox.wake(),
            Self::Queue(queue) => queue.wake(),
        }
    }
}
