//! The Rust API: a lock.

use std::fmt;
use std::time::Duration;

use bandog_core::error::{Code, Error};
use bandog_core::name::Name;
use bandog_core::owner::{LocalOwner, Via};
use bandog_core::time::Millis;

use crate::client::Client;
use crate::events::Events;
use crate::hold::{Hold, hold, millis, run, run_blocking};
use crate::host::{self, Filter, Settled, Wait, Wish};

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
        self.hold(run(&self.client, self.wish(self.wait)).await?)?.ok_or_else(|| self.timeout())
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn acquire_blocking(&self) -> Result<Hold, Error> {
        self.hold(run_blocking(&self.client, self.wish(self.wait))?)?.ok_or_else(|| self.timeout())
    }

    /// Tries once; `None` when another holds it.
    ///
    /// # Errors
    /// As [`Lock::acquire`], without `timeout`.
    pub async fn try_acquire(&self) -> Result<Option<Hold>, Error> {
        self.hold(run(&self.client, self.wish(Wait::Try)).await?)
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub fn try_acquire_blocking(&self) -> Result<Option<Hold>, Error> {
        self.hold(run_blocking(&self.client, self.wish(Wait::Try))?)
    }

    /// Waits this long in all; `None` when another still holds it then.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Hold>, Error> {
        self.hold(run(&self.client, self.wish(span(wait))).await?)
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Lock::try_acquire`].
    pub fn try_acquire_for_blocking(&self, wait: Duration) -> Result<Option<Hold>, Error> {
        self.hold(run_blocking(&self.client, self.wish(span(wait)))?)
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
        Ok(Events::new(host::listen(&self.client, Filter::Name(self.name.clone()), EVENTS, || {})?))
    }

    fn wish(&self, wait: Wait) -> Wish {
        let (name, owner, via, lease) = (self.name.clone(), self.owner, self.via, self.lease);
        Wish::Acquire { name, owner, via, wait, lease, reenter: None }
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

fn status(settled: &Settled) -> Option<Option<Millis>> {
    match settled {
        Settled::Status(status) => *status,
        _ => None,
    }
}

fn span(wait: Duration) -> Wait {
    if wait.is_zero() { Wait::Try } else { Wait::For(millis(wait)) }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name).finish_non_exhaustive()
    }
}
