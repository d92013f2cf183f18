//! The guard of one level of a held lock, and what the Rust API runs wishes with.

use std::fmt;
use std::future::poll_fn;
use std::time::Duration;

use bandog_core::error::{Code, Error};
use bandog_core::event::{Event, LossReason};
use bandog_core::name::Name;
use bandog_core::owner::LocalOwner;

use crate::blocking;
use crate::client::Client;
use crate::host::{self, Filter, Handle, Release, Settled, Signals, Wait, Wish};
use crate::pending;
use crate::terms::{Terms, millis};

/// One level of a held lock. Dropped, it is released in the background.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn run(held: bandog::Hold) -> Result<(), bandog::Error> {
/// println!("{} is held as {} for {:?} yet", held.name(), held.owner(), held.remaining());
/// held.check()?; // before each effect that needs the lock
/// held.extend(Duration::from_secs(90)).await?;
/// if let Some(why) = held.loss() {
///     println!("lost: {why}");
/// }
/// held.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a hold releases the lock"]
pub struct Hold {
    client: Client,
    owner: LocalOwner,
    handle: Handle,
    released: bool,
}

impl Hold {
    /// The lock, with the client's prefix.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.handle.name()
    }

    /// `<client uuid>:<hold number>`, the field in the lock's hash.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.handle.owner()
    }

    /// The fencing token, for kinds of locks that have one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.handle.token()
    }

    /// Whether the lock was lost: it ended although nobody released it. No I/O.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why it was lost, if it was. No I/O.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.handle.view(&self.client).ok().flatten().and_then(|view| view.lost)
    }

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
        let listener = host::listen(&self.client, Filter::Loss(self.handle.clone()), 1, || {});
        // Looked at after listening began, so that no loss falls in between.
        if let Ok(Some(view)) = self.handle.view(&self.client)
            && let Some(why) = view.lost
        {
            return why;
        }
        let Ok(listener) = listener else { return std::future::pending().await };
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
        self.reenter_with(Terms::new()).await
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Hold::reenter`].
    pub fn reenter_blocking(&self) -> Result<Self, Error> {
        self.reenter_with_blocking(Terms::new())
    }

    /// As [`Hold::reenter`], with a lease: the hold lasts at least that long from now. It never waits for
    /// another holder, so the wait bounds only a server that does not answer.
    ///
    /// # Errors
    /// As [`Hold::reenter`]; `invalid_lease`.
    pub async fn reenter_with(&self, terms: Terms) -> Result<Self, Error> {
        let settled = run(&self.client, self.deeper(terms)).await?;
        hold(&self.client, self.owner, settled).ok_or_else(|| self.busy())
    }

    /// The same on this thread.
    ///
    /// # Errors
    /// As [`Hold::reenter_with`].
    pub fn reenter_with_blocking(&self, terms: Terms) -> Result<Self, Error> {
        let settled = run_blocking(&self.client, self.deeper(terms))?;
        hold(&self.client, self.owner, settled).ok_or_else(|| self.busy())
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

    fn deeper(&self, terms: Terms) -> Wish {
        Wish::Acquire {
            name: self.handle.name().clone(),
            owner: self.owner,
            wait: terms.wait.unwrap_or(Wait::Try),
            lease: terms.lease,
            reenter: Some(self.handle.clone()),
        }
    }

    fn end(&self) -> Wish {
        Wish::Release(Release::Handle(self.handle.clone()))
    }

    fn busy(&self) -> Error {
        self.handle.tell(Error::new(Code::LockLost, "this hold is over: it cannot be entered again"))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.released {
            host::release_in_background(&self.client, &self.handle);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.handle).finish()
    }
}

pub(crate) async fn run(client: &Client, wish: Wish) -> Result<Settled, Error> {
    pending::run(client.shared(), wish).await
}

pub(crate) fn run_blocking(client: &Client, wish: Wish) -> Result<Settled, Error> {
    // Never interrupted, so never `None`.
    blocking::block(client.shared(), wish, Signals::Open, None).map(|settled| settled.unwrap_or(Settled::Busy))
}

pub(crate) fn hold(client: &Client, owner: LocalOwner, settled: Settled) -> Option<Hold> {
    match settled {
        Settled::Held(handle) => Some(Hold { client: client.clone(), owner, handle, released: false }),
        _ => None,
    }
}
