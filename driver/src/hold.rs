//! The guard of one level of a held lock, and what the Rust API runs wishes with.

use std::fmt;
use std::future::poll_fn;
use std::time::Duration;

use bandog_core::error::{Code, Error};
use bandog_core::event::{Event, LossReason};
use bandog_core::owner::{LocalOwner, Via};
use bandog_core::time::Millis;

use crate::client::Client;
use crate::host::{self, Filter, Handle, Release, Settled, Signals, Wait, Wish};
use crate::pending::Pending;

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
    Pending::new(client.shared(), wish)?.await
}

pub(crate) fn run_blocking(client: &Client, wish: Wish) -> Result<Settled, Error> {
    // Never interrupted, so never `None`.
    host::block(client, wish, Signals::Open, &mut || false).map(|settled| settled.unwrap_or(Settled::Busy))
}

pub(crate) fn hold(client: &Client, owner: LocalOwner, via: Via, settled: Settled) -> Option<Hold> {
    match settled {
        Settled::Held(handle) => Some(Hold { client: client.clone(), owner, via, handle, released: false }),
        _ => None,
    }
}

pub(crate) fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
