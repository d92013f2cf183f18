//! What a binding stands on: wishes that block a thread, wishes that answer into a loop's mailbox, and
//! the words of the host about its own threads, tasks and objects.
//!
//! ```no_run
//! use bandog::host::{self, Settled, Signals, Wish};
//!
//! # fn run(client: &bandog::Client) -> Result<(), bandog::Error> {
//! let wish = Wish::Acquire {
//!     name: client.name("order_lock")?,
//!     owner: host::next_owner(),
//!     wait: host::Wait::Forever,
//!     lease: None,
//!     reenter: None,
//! };
//! if let Some(Settled::Held(handle)) = host::block(client, wish, Signals::Open, &mut || false)? {
//!     handle.check(client)?;
//!     host::block(client, Wish::Release(host::Release::Handle(handle)), Signals::Open, &mut || false)?;
//! }
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bandog_core::config::{MAX_SPAN, check_lease};
use bandog_core::error::{Code, Error};
use bandog_core::io::{OpId, Target};
use bandog_core::name::Name;
use bandog_core::time::{Millis, Time};

pub use bandog_core::io::{HoldId, HoldView, LevelId, Wait};
pub use bandog_core::owner::LocalOwner;

pub use crate::carried::{Carried, Place};
pub use crate::handle::Handle;
pub use crate::listen::{Filter, Listener};
pub use crate::loop_wire::{LoopWire, Watched};
pub use crate::mailbox::{Mail, Mailbox, News};
pub use crate::signals::Signals;

use crate::blocking;
use crate::client::Client;
use crate::clock;
use crate::fork;
use crate::shared::Shared;
use crate::waiter::Waiter;

/// What a caller wants. Leases and waits are checked before any I/O.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Hold a lock.
    Acquire {
        /// Which.
        name: Name,
        /// For whom; who may re-enter it.
        owner: LocalOwner,
        /// How long to wait.
        wait: Wait,
        /// A fixed lease, or `None` for the watchdog.
        lease: Option<Millis>,
        /// Add a level to the hold of this handle, whoever asks.
        reenter: Option<Handle>,
    },
    /// Give a level back.
    Release(Release),
    /// Let the hold last at least this long from now.
    Extend {
        /// Any handle of the hold.
        handle: Handle,
        /// How long.
        lease: Millis,
    },
    /// Delete whoever holds it.
    ForceRelease(Name),
    /// Ask the server whether it is held, and for how long yet.
    Status(Name),
}

/// Which level to give back.
#[derive(Clone, Debug)]
pub enum Release {
    /// The level of this handle, from whatever thread or task.
    Handle(Handle),
    /// The caller's innermost level (`lock.release()`).
    Innermost {
        /// Which lock.
        name: Name,
        /// Who asks.
        owner: LocalOwner,
    },
}

/// How a wish ended well.
#[derive(Clone, Debug)]
pub enum Settled {
    /// The lock is held.
    Held(Handle),
    /// Another holds it, and the wait is over.
    Busy,
    /// A level was released; this many are left.
    Released {
        /// Levels left.
        left: u32,
    },
    /// The lease was extended.
    Extended,
    /// Whether a forced release found anything.
    Forced(bool),
    /// `None` free; `Some(None)` held without an expiry; else the time to live.
    Status(Option<Option<Millis>>),
}

/// A wish under way that was submitted for a loop. It belongs to the process that made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    pub(crate) op: OpId,
}

/// A wish that was submitted.
#[derive(Clone, Debug)]
pub enum Submitted {
    /// The answer comes as mail.
    Waiting(Ticket),
    /// It needed no server, and no mail comes: this is how it ended.
    Ended(Result<Settled, Error>),
}

/// An owner number that this process never used before: one for each thread, task or scope.
#[must_use]
pub fn next_owner() -> LocalOwner {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    LocalOwner(NEXT.fetch_add(1, Relaxed))
}

/// This instant on the clock of [`HoldView::deadline`] and of the events.
#[must_use]
pub fn now() -> Time {
    clock::now()
}

/// States a wish and serves the socket on this thread until it ends. Give the GIL up around it.
///
/// `interrupt` is called when a signal ended the park, and about once a second; `true` gives up: the
/// wish is cancelled, what it did is undone in the background (a release goes on there) and `None`
/// comes back. It is called without any lock held and may call into this crate.
///
/// # Errors
/// What the wish ended with. `closed` after [`close`].
pub fn block(
    client: &Client,
    wish: Wish,
    signals: Signals,
    interrupt: &mut dyn FnMut() -> bool,
) -> Result<Option<Settled>, Error> {
    blocking::block(client.shared(), wish, signals, Some(interrupt))
}

/// States a wish and returns at once: the request is already on its way. How it ended, or that it was
/// granted and waits for a [`claim`], comes as [`Mail`] with this token. Never blocks.
///
/// # Errors
/// What is refused before any I/O; no mail follows then.
pub fn submit(client: &Client, wish: Wish, mailbox: &Arc<Mailbox>, token: u64) -> Result<Submitted, Error> {
    mailbox.check_fork()?;
    client.shared().submit(wish, Shared::LOOP, mailbox, token)
}

/// Takes a grant, in the turn of the loop in which its caller resumes. `None`: it came too late to be of
/// use and was given back; the wish goes on, wait for the next mail of the same token.
///
/// # Errors
/// `forked_handle` in a child; `closed` when the wish has ended meanwhile.
pub fn claim(client: &Client, ticket: &Ticket) -> Result<Option<Handle>, Error> {
    let shared = client.shared();
    shared.own(ticket.generation, ticket.epoch)?;
    shared.claim(ticket.op)
}

/// The caller of a wish is gone. No mail follows that is not in the box already; what the wish did is
/// undone. A release goes on in the background. Harmless when the wish has ended.
pub fn cancel(client: &Client, ticket: &Ticket) {
    let shared = client.shared();
    if shared.own(ticket.generation, ticket.epoch).is_ok() {
        shared.cancel(ticket.op);
    }
}

/// As [`cancel`], for all that was submitted with this mailbox: its loop is closed.
pub fn cancel_all(client: &Client, mailbox: &Arc<Mailbox>) {
    if mailbox.check_fork().is_ok() {
        client.shared().cancel_all(mailbox);
    }
}

/// Gives the level of a handle back without waiting for the answer.
pub fn release_in_background(client: &Client, handle: &Handle) {
    let shared = client.shared();
    if shared.own(handle.generation(), handle.epoch()).is_ok() {
        let wish = Wish::Release(Release::Handle(handle.clone()));
        // Refused only when the client is closed, which has released everything already.
        let _ = shared.wish(wish, Shared::LOOP, |_| Waiter::Nobody);
    }
}

/// The thread, task or scope with this number ended.
pub fn owner_gone(client: &Client, owner: LocalOwner) {
    client.shared().with(|turn| turn.tell(|engine, now| engine.owner_gone(now, owner)));
}

/// The host's object for this level is gone, so nobody can release it by its handle any more. Call it
/// once for each level, not for each clone of the handle.
pub fn handle_dropped(client: &Client, handle: &Handle) {
    let shared = client.shared();
    // Of a hold that is over the engine knows nothing any more.
    if !handle.is_over() && shared.own(handle.generation(), handle.epoch()).is_ok() {
        shared.with(|turn| turn.tell(|engine, now| engine.handle_dropped(now, handle.hold(), handle.level())));
    }
}

/// How many levels this owner has on this lock; 0 when it holds nothing valid. No I/O.
#[must_use]
pub fn count(client: &Client, name: &Name, owner: LocalOwner) -> u32 {
    client.shared().read(|engine, now| engine.count(now, name, owner))
}

/// What an owner is told who would leave what it never entered.
#[must_use]
pub fn stranger(client: &Client, name: &Name, owner: LocalOwner) -> Error {
    client.shared().read(|engine, _| engine.stranger(name, owner))
}

/// Listens from now on. `wake` is called when the queue goes from empty to not empty, from the keeper's
/// thread or the one whose call brought the event; it must not block. The listener ends when it is
/// closed or dropped, and when the client is closed.
///
/// # Errors
/// `closed`; `forked_handle` for a handle of the parent process.
pub fn listen(
    client: &Client,
    filter: Filter,
    capacity: usize,
    wake: impl Fn() + Send + Sync + 'static,
) -> Result<Listener, Error> {
    crate::listen::listen(client.shared(), filter, capacity, Box::new(wake))
}

/// Ends every wish with `closed`, releases what is held if the server answers within `within`, ends all
/// listeners, stops the keeper's thread and waits for it, at most a second. Harmless when repeated.
///
/// For the end of a program: nobody is told that what it holds is over. A client that is closed while
/// the program goes on is closed by [`close_and_tell`].
pub fn close(client: &Client, within: Duration) {
    blocking::close(client.shared(), within, false);
}

/// As [`close`], and first every hold that is still valid is lost with
/// [`LossReason::Closed`](crate::LossReason::Closed): sections that run on without their lock are told by
/// event, by [`Handle::view`] and by [`Handle::check`], before anything is released.
pub fn close_and_tell(client: &Client, within: Duration) {
    blocking::close(client.shared(), within, true);
}

/// Whether this process was forked from the one that made the handle.
#[must_use]
pub fn is_forked(handle: &Handle) -> bool {
    handle.generation() != fork::generation()
}

impl Wish {
    /// The lock it is about.
    #[must_use]
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::Acquire { name, .. }
            | Self::Release(Release::Innermost { name, .. })
            | Self::ForceRelease(name)
            | Self::Status(name) => Some(name),
            Self::Release(Release::Handle(handle)) | Self::Extend { handle, .. } => Some(handle.name()),
        }
    }

    /// Refuses what no server could do.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Acquire { wait: Wait::For(span), .. } if *span > MAX_SPAN => Err(Error::new(
                Code::InvalidOption,
                format!("the wait is above {MAX_SPAN}: give none to wait for ever"),
            )),
            Self::Acquire { lease: Some(lease), .. } | Self::Extend { lease, .. } => check_lease(*lease),
            _ => Ok(()),
        }
        .map_err(|error| match self.name() {
            Some(name) => error.of(name),
            None => error,
        })
    }

    /// The handle it leans on.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        match self {
            Self::Acquire { reenter, .. } => reenter.as_ref(),
            Self::Release(Release::Handle(handle)) | Self::Extend { handle, .. } => Some(handle),
            _ => None,
        }
    }
}

impl Release {
    pub(crate) fn target(self) -> Target {
        match self {
            Self::Handle(handle) => Target::Level(handle.hold(), handle.level()),
            Self::Innermost { name, owner } => Target::Innermost { name, owner },
        }
    }
}
