//! A handle: the capability to release, extend and question one level of a hold.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bandog_core::error::{Code, Error};
use bandog_core::io::{Claimed, HoldId, HoldView, LevelId};
use bandog_core::name::Name;

use crate::client::Client;
use crate::shared::Shared;

/// One level of a hold. Works from any thread and task of the process that acquired it, with the client
/// that acquired it; clones are the same level.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    generation: u64,
    epoch: u64,
    name: Name,
    claimed: Claimed,
    /// Its level was the last, and is given back.
    over: AtomicBool,
}

impl Handle {
    pub(crate) fn new(shared: &Shared, name: Name, claimed: Claimed) -> Self {
        Self(Arc::new(Inner {
            generation: shared.generation,
            epoch: shared.epoch,
            name,
            claimed,
            over: AtomicBool::new(false),
        }))
    }

    /// The lock.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// `<uuid>:<number>` as in the lock's hash.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.0.claimed.owner
    }

    /// The fencing token, for kinds of locks that have one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.0.claimed.token
    }

    /// Which hold; events name it.
    #[must_use]
    pub fn hold(&self) -> HoldId {
        self.0.claimed.hold
    }

    /// Which level of the hold.
    #[must_use]
    pub fn level(&self) -> LevelId {
        self.0.claimed.level
    }

    /// What the hold looks like at this instant. `None` once it was released and forgotten. No I/O.
    ///
    /// # Errors
    /// `forked_handle` in a child; `not_owner` with another client than the one that acquired it.
    pub fn view(&self, client: &Client) -> Result<Option<HoldView>, Error> {
        let shared = client.shared();
        self.own(shared)?;
        Ok(shared.read(|engine, now| engine.view(now, self.hold())))
    }

    /// `lock_lost` unless the hold is valid at this very instant. No I/O.
    ///
    /// # Errors
    /// `lock_lost`, and what [`Handle::view`] refuses.
    pub fn check(&self, client: &Client) -> Result<(), Error> {
        let shared = client.shared();
        self.own(shared)?;
        shared.read(|engine, now| engine.check(now, self.hold())).map_err(|error| self.tell(error))
    }

    pub(crate) fn own(&self, shared: &Shared) -> Result<(), Error> {
        shared.own(self.generation(), self.epoch()).map_err(|error| self.tell(error))
    }

    /// Names the lock and the owner in what the engine says of a hold that it has forgotten.
    pub(crate) fn tell(&self, error: Error) -> Error {
        match error.code() {
            code @ (Code::NotOwner | Code::LockLost) if error.owner().is_none() => {
                Error::not_held(code, self.name(), self.owner(), error.message())
            }
            _ if error.owner().is_none() => error.of(self.name()).by(self.owner()),
            _ => error,
        }
    }

    pub(crate) fn note_end(&self) {
        self.0.over.store(true, Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.over.load(Relaxed)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.0.generation
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.0.epoch
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        let place = |handle: &Self| (handle.generation(), handle.epoch(), handle.hold(), handle.level());
        place(self) == place(other)
    }
}

impl Eq for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("name", self.name()).field("hold", &self.hold().0).finish_non_exhaustive()
    }
}

/// A handle or ticket of the process this one was forked from.
pub(crate) fn forked() -> Error {
    Error::new(
        Code::ForkedHandle,
        "this belongs to the process that this one was forked from, which still has it: acquire the lock anew here",
    )
}

/// A handle or ticket of another client.
pub(crate) fn foreign() -> Error {
    Error::new(Code::NotOwner, "this hold was acquired by another client: use that one")
}
