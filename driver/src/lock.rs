//! The Rust API: a lock, the guard of its hold, and its events.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bandog_core::error::{Code, Error};
use bandog_core::event::{Event, LossReason};
use bandog_core::name::Name;
use bandog_core::owner::{LocalOwner, Via};
use bandog_core::time::Millis;

use crate::client::Client;
use crate::host::{self, Filter, Handle, Listener, Release, Settled, Signals, Wait, Wish};
use crate::pending::Pending;

/// How many events wait for a slow listener at most.
const EVENTS: usize = 1024;

/// A lock by name, and an owner of its own: acquired again while held, it goes one level deeper; another
/// `Lock` of the same name waits, in this process as in any other.
///
/// ```no_run
/// # fn run(client: &bandog::Client) -> Result<(), bandog::Error> {
/// let lock = client.lock("order_lock")?.wait(std::time::Duration::from_secs(5));
/// let held = lock.acquire_blocking()?;
/// held.check()?;
/// held.release_blocking()?;
/// # Ok(())
/// # }
/// ```
pub struct Lock {
    client: Client,
    name: Name,
    owner: LocalOwner,
    via: Via,
    wait: Wait,
    lease: Option<Millis>,
}

impl Lock {
    pub(crate) fn new(client: Client, name: Name) -> Self {
        Self { client, name, owner: host::next_owner(), via: host::next_via(), wait: Wait::Forever, lease: None }
    }

    /// How long [`Lock::acquire`] waits in all. Default: for ever.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = span(wait);
        self
    }

    /// Holds end after this long and are not renewed. Default: the client's watchdog renews them.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(millis(lease));
        self
    }

    /// The name, with the client's prefix.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Waits until the lock is held. Dropped before, the future cleans up behind itself.
    ///
    /// # Errors
    /// `timeout` when the wait is over; what the server refuses; `unreachable`.
    pub async fn acquire(&self) -> Result<Hold, Error> {
        self.hold(run(&self.client, self.wish(self.wait, None)).await?)?.ok_or_else(|| self.timeout())
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn acquire_blocking(&self) -> Result<Hold, Error> {
        self.hold(run_blocking(&self.client, self.wish(self.wait, None))?)?.ok_or_else(|| self.timeout())
    }

    /// Tries once; `None` when another holds it.
    ///
    /// # Errors
    /// As [`Lock::acquire`], without `timeout`.
    pub async fn try_acquire(&self) -> Result<Option<Hold>, Error> {
        self.hold(run(&self.client, self.wish(Wait::Try, None)).await?)
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub fn try_acquire_blocking(&self) -> Result<Option<Hold>, Error> {
        self.hold(run_blocking(&self.client, self.wish(Wait::Try, None))?)
    }

    /// Waits this long in all; `None` when another still holds it then.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Hold>, Error> {
        self.hold(run(&self.client, self.wish(span(wait), None)).await?)
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub fn try_acquire_for_blocking(&self, wait: Duration) -> Result<Option<Hold>, Error> {
        self.hold(run_blocking(&self.client, self.wish(span(wait), None))?)
    }

    /// Whether anybody holds it, as the server says.
    ///
    /// # Errors
    /// What the server refuses; `unreachable`.
    pub async fn locked(&self) -> Result<bool, Error> {
        Ok(status(&run(&self.client, Wish::Status(self.name.clone())).await?).is_some())
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::locked`].
    pub fn locked_blocking(&self) -> Result<bool, Error> {
        Ok(status(&run_blocking(&self.client, Wish::Status(self.name.clone()))?).is_some())
    }

    /// Deletes whoever holds it, and wakes who waits; whether anybody did.
    ///
    /// # Errors
    /// What the server refuses; `unreachable`.
    pub async fn force_release(&self) -> Result<bool, Error> {
        Ok(matches!(run(&self.client, Wish::ForceRelease(self.name.clone())).await?, Settled::Forced(true)))
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::force_release`].
    pub fn force_release_blocking(&self) -> Result<bool, Error> {
        Ok(matches!(run_blocking(&self.client, Wish::ForceRelease(self.name.clone()))?, Settled::Forced(true)))
    }

    /// How many levels this object holds. No I/O.
    #[must_use]
    pub fn count(&self) -> u32 {
        host::count(&self.client, &self.name, self.owner)
    }

    /// What happens to this lock from now on, in this process.
    ///
    /// # Errors
    /// `closed`.
    pub fn events(&self) -> Result<Events, Error> {
        Ok(Events(host::listen(&self.client, Filter::Name(self.name.clone()), EVENTS, || {})?))
    }

    fn wish(&self, wait: Wait, reenter: Option<Handle>) -> Wish {
        let (name, owner, via, lease) = (self.name.clone(), self.owner, self.via, self.lease);
        Wish::Acquire { name, owner, via, wait, lease, reenter }
    }

    fn hold(&self, settled: Settled) -> Result<Option<Hold>, Error> {
        Ok(hold(&self.client, self.owner, self.via, settled))
    }

    fn timeout(&self) -> Error {
        Error::new(Code::Timeout, "still held by another when the wait was over").of(&self.name)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        host::owner_gone(&self.client, self.owner);
    }
}

/// One level of a held lock. Dropped, it is released in the background.
#[must_use = "dropping a hold releases the lock"]
pub struct Hold {
    client: Client,
    owner: LocalOwner,
    via: Via,
    handle: Handle,
    released: bool,
}

impl Hold {
    /// Whether the lock is held at this very instant. No I/O.
    #[must_use]
    pub fn valid(&self) -> bool {
        matches!(self.handle.view(&self.client), Ok(Some(view)) if view.valid)
    }

    /// `lock_lost` unless it is: the guard to put in front of each effect that needs the lock. No I/O.
    ///
    /// # Errors
    /// `lock_lost`; `forked_handle` in a child process.
    pub fn check(&self) -> Result<(), Error> {
        self.handle.check(&self.client)
    }

    /// How long it is held yet if no renewal comes. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let left = self.handle.view(&self.client).ok().flatten().map_or(0, |view| view.remaining.0);
        Duration::from_millis(left)
    }

    /// How many levels the hold has. No I/O.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.handle.view(&self.client).ok().flatten().map_or(0, |view| view.count)
    }

    /// The handle, for [`host`].
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits until the hold is lost, and says why. Never ends for a hold that is released.
    pub async fn lost(&self) -> LossReason {
        let Ok(listener) = host::listen(&self.client, Filter::Loss(self.handle.clone()), 1, || {}) else {
            return std::future::pending().await;
        };
        // Looked at after listening began, so that no loss falls in between.
        if let Ok(Some(view)) = self.handle.view(&self.client)
            && let Some(why) = view.lost
        {
            return why;
        }
        loop {
            match poll_fn(|context| listener.poll_next(context)).await {
                Some(Event::Lost { why, .. }) => return why,
                Some(_) => {}
                None => return std::future::pending().await,
            }
        }
    }

    /// Lets it last at least this long from now.
    ///
    /// # Errors
    /// `lock_lost`; `invalid_lease`; what the server refuses.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        run(&self.client, self.extension(lease)).await.map(drop)
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Hold::extend`].
    pub fn extend_blocking(&self, lease: Duration) -> Result<(), Error> {
        run_blocking(&self.client, self.extension(lease)).map(drop)
    }

    /// Adds a level to this hold, whoever asks.
    ///
    /// # Errors
    /// `lock_lost`; what the server refuses.
    pub async fn reenter(&self) -> Result<Self, Error> {
        let settled = run(&self.client, self.deeper()).await?;
        hold(&self.client, self.owner, self.via, settled).ok_or_else(|| self.busy())
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Hold::reenter`].
    pub fn reenter_blocking(&self) -> Result<Self, Error> {
        let settled = run_blocking(&self.client, self.deeper())?;
        hold(&self.client, self.owner, self.via, settled).ok_or_else(|| self.busy())
    }

    /// Releases this level and waits for the server's word.
    ///
    /// # Errors
    /// `lock_lost` when the hold had ended before; `release_unknown` when the server did not answer.
    pub async fn release(mut self) -> Result<(), Error> {
        self.released = true;
        run(&self.client, self.end()).await.map(drop)
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Hold::release`].
    pub fn release_blocking(mut self) -> Result<(), Error> {
        self.released = true;
        run_blocking(&self.client, self.end()).map(drop)
    }

    fn extension(&self, lease: Duration) -> Wish {
        Wish::Extend { handle: self.handle.clone(), lease: millis(lease) }
    }

    fn deeper(&self) -> Wish {
        Wish::Acquire {
            name: self.handle.name().clone(),
            owner: self.owner,
            via: self.via,
            wait: Wait::Try,
            lease: None,
            reenter: Some(self.handle.clone()),
        }
    }

    fn end(&self) -> Wish {
        Wish::Release(Release::Handle(self.handle.clone()))
    }

    fn busy(&self) -> Error {
        Error::new(Code::LockLost, "the hold is over: it cannot be entered again").of(self.handle.name())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.released {
            host::release_in_background(&self.client, &self.handle);
        }
    }
}

/// What happens, as a stream. Ends when the client is closed.
pub struct Events(Listener);

impl Events {
    /// The next event; `None` once the client is closed.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| self.0.poll_next(context)).await
    }

    /// The same on this thread.
    pub fn next_blocking(&mut self) -> Option<Event> {
        self.0.next_blocking(Signals::Open, &mut || false)
    }

    /// How many events were thrown away because nobody took them in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

impl futures_core::Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_next(context)
    }
}

async fn run(client: &Client, wish: Wish) -> Result<Settled, Error> {
    Pending::new(client.shared(), wish)?.await
}

fn run_blocking(client: &Client, wish: Wish) -> Result<Settled, Error> {
    // Never interrupted, so never `None`.
    host::block(client, wish, Signals::Open, &mut || false).map(|settled| settled.unwrap_or(Settled::Busy))
}

fn hold(client: &Client, owner: LocalOwner, via: Via, settled: Settled) -> Option<Hold> {
    match settled {
        Settled::Held(handle) => Some(Hold { client: client.clone(), owner, via, handle, released: false }),
        _ => None,
    }
}

fn status(settled: &Settled) -> Option<Option<Millis>> {
    match settled {
        Settled::Status(status) => *status,
        _ => None,
    }
}

fn span(wait: Duration) -> Wait {
    if wait.is_zero() { Wait::Try } else { Wait::For(millis(wait)) }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.handle).finish()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Events").field(&self.0).finish()
    }
}
