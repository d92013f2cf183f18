//! The Rust API: a lock.

use std::fmt;
use std::time::Duration;

use bandog_core::error::{Code, Error};
use bandog_core::name::Name;
use bandog_core::owner::LocalOwner;
use bandog_core::time::Millis;

use crate::client::Client;
use crate::events::Events;
use crate::hold::{Hold, hold, run, run_blocking};
use crate::host::{self, Filter, Release, Settled, Wait, Wish};
use crate::terms::Terms;

/// How many events wait for a slow listener at most.
pub(crate) const EVENTS: usize = 1024;

const ONE_TRY: Terms = Terms { wait: Some(Wait::Try), lease: None };

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
    terms: Terms,
}

impl Lock {
    pub(crate) fn new(client: Client, name: Name) -> Self {
        Self { client, name, owner: host::next_owner(), terms: Terms::new() }
    }

    /// How long [`Lock::acquire`] waits in all. Default: for ever.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms = self.terms.wait(wait);
        self
    }

    /// Holds end after this long and are not renewed. Default: the client's watchdog renews them.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms = self.terms.lease(lease);
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
        self.acquire_with(Terms::new()).await
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn acquire_blocking(&self) -> Result<Hold, Error> {
        self.acquire_with_blocking(Terms::new())
    }

    /// As [`Lock::acquire`], on terms of its own.
    ///
    /// # Errors
    /// As [`Lock::acquire`]; `invalid_lease`, `invalid_option`.
    pub async fn acquire_with(&self, terms: Terms) -> Result<Hold, Error> {
        self.hold(run(&self.client, self.wish(terms)).await?).ok_or_else(|| self.timeout())
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::acquire_with`].
    pub fn acquire_with_blocking(&self, terms: Terms) -> Result<Hold, Error> {
        self.hold(run_blocking(&self.client, self.wish(terms))?).ok_or_else(|| self.timeout())
    }

    /// Tries once; `None` when another holds it.
    ///
    /// # Errors
    /// As [`Lock::acquire`], without `timeout`.
    pub async fn try_acquire(&self) -> Result<Option<Hold>, Error> {
        self.try_acquire_with(Terms::new()).await
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub fn try_acquire_blocking(&self) -> Result<Option<Hold>, Error> {
        self.try_acquire_with_blocking(Terms::new())
    }

    /// Waits this long in all; `None` when another still holds it then.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Hold>, Error> {
        self.try_acquire_with(Terms::new().wait(wait)).await
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub fn try_acquire_for_blocking(&self, wait: Duration) -> Result<Option<Hold>, Error> {
        self.try_acquire_with_blocking(Terms::new().wait(wait))
    }

    /// As [`Lock::try_acquire`], on terms of its own. Where they say nothing of a wait, it is one try.
    ///
    /// # Errors
    /// As [`Lock::acquire_with`], without `timeout`.
    pub async fn try_acquire_with(&self, terms: Terms) -> Result<Option<Hold>, Error> {
        Ok(self.hold(run(&self.client, self.wish(terms.or(ONE_TRY))).await?))
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::try_acquire_with`].
    pub fn try_acquire_with_blocking(&self, terms: Terms) -> Result<Option<Hold>, Error> {
        Ok(self.hold(run_blocking(&self.client, self.wish(terms.or(ONE_TRY)))?))
    }

    /// Releases the innermost level that this object holds; its [`Hold`] is over then.
    ///
    /// # Errors
    /// `not_owner` when it holds nothing; else as [`Hold::release`].
    pub async fn release(&self) -> Result<(), Error> {
        run(&self.client, self.end()).await.map(drop)
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::release`].
    pub fn release_blocking(&self) -> Result<(), Error> {
        run_blocking(&self.client, self.end()).map(drop)
    }

    /// After how long the server would free it, if no renewal comes: `None` when it is free,
    /// [`Duration::MAX`] when it has no expiry.
    ///
    /// # Errors
    /// What the server refuses; `unreachable`.
    pub async fn remaining(&self) -> Result<Option<Duration>, Error> {
        Ok(left(&run(&self.client, Wish::Status(self.name.clone())).await?))
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::remaining`].
    pub fn remaining_blocking(&self) -> Result<Option<Duration>, Error> {
        Ok(left(&run_blocking(&self.client, Wish::Status(self.name.clone()))?))
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

    /// Whether this object holds it at this very instant. No I/O.
    #[must_use]
    pub fn held(&self) -> bool {
        self.count() > 0
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
        Ok(Events::new(host::listen(&self.client, Filter::Name(self.name.clone()), EVENTS, || {})?))
    }

    fn end(&self) -> Wish {
        Wish::Release(Release::Innermost { name: self.name.clone(), owner: self.owner })
    }

    fn wish(&self, terms: Terms) -> Wish {
        let (name, owner) = (self.name.clone(), self.owner);
        let Terms { wait, lease } = terms.or(self.terms);
        let wait = wait.unwrap_or(Wait::Forever);
        Wish::Acquire { name, owner, wait, lease, reenter: None }
    }

    fn hold(&self, settled: Settled) -> Option<Hold> {
        hold(&self.client, self.owner, settled)
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

fn status(settled: &Settled) -> Option<Option<Millis>> {
    match settled {
        Settled::Status(status) => *status,
        _ => None,
    }
}

fn left(settled: &Settled) -> Option<Duration> {
    status(settled).map(|left| left.map_or(Duration::MAX, |left| Duration::from_millis(left.0)))
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name).finish_non_exhaustive()
    }
}
