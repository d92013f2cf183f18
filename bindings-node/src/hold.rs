//! `Hold`: one level of a lock that is held. The handle is the capability: it works wherever it is passed.

use std::cell::Cell;
use std::rc::Rc;

use bandog::host::{self, Handle, HoldView, Release, Wait, Wish};
use bandog::{Code, Error, LossReason};
use napi::Result;
use napi::bindgen_prelude::{JsValue, PromiseRaw, Unknown};
use napi_derive::napi;

use crate::client::ClientState;
use crate::convert::{self, Asked};
use crate::owner::Owner;
use crate::raw::{self, Callback};
use crate::settle::{Busy, Kind};

/// A lock that is held: what `acquire` gives. Pass it to whoever does the work; any of them may release it.
#[napi]
pub struct Hold {
    client: Rc<ClientState>,
    handle: Handle,
    owner: Rc<Owner>,
    /// Whether a release was asked for: leaving a block after that does nothing more.
    asked: Cell<bool>,
}

impl Hold {
    pub(crate) fn new(client: &Rc<ClientState>, handle: Handle, owner: Rc<Owner>) -> Self {
        Self { client: Rc::clone(client), handle, owner, asked: Cell::new(false) }
    }

    fn view(&self) -> Option<HoldView> {
        self.handle.view(&self.client.driver).ok().flatten()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        host::handle_dropped(&self.client.driver, &self.handle);
    }
}

#[napi]
impl Hold {
    /// The name of the lock as it stands in Redis.
    #[napi(getter)]
    pub fn name(&self) -> &str {
        self.handle.name().as_str()
    }

    /// The owner as the server knows it: `<client uuid>:<number>`.
    #[napi(getter)]
    pub fn owner(&self) -> &str {
        self.handle.owner()
    }

    /// Whether the lock is held at this very instant. `false` comes before anybody else can get the lock.
    #[napi(getter)]
    pub fn valid(&self) -> bool {
        self.view().is_some_and(|view| view.valid)
    }

    /// Why the lock ended although nobody released it; `null` as long as it has not.
    #[napi(getter, ts_return_type = "LossReason | null")]
    pub fn lost(&self) -> Option<&'static str> {
        self.view().and_then(|view| view.lost).map(LossReason::as_str)
    }

    /// How many levels the lock has: 1, and one more for each re-entry.
    #[napi(getter)]
    pub fn count(&self) -> u32 {
        self.view().map_or(0, |view| view.count)
    }

    /// The fencing token, for kinds of locks that have one: send it along with every write that the lock guards.
    #[napi(getter, ts_return_type = "number | null")]
    #[allow(clippy::cast_precision_loss)]
    pub fn token(&self) -> Option<f64> {
        // Below 2^53 by construction.
        self.handle.token().map(|token| token as f64)
    }

    /// For how many ms the lock is good without another renewal. No I/O.
    #[napi]
    pub fn remaining(&self) -> f64 {
        self.view().map_or(0.0, |view| convert::number(view.remaining))
    }

    /// Throws `LockLost` unless the lock is held at this very instant. No I/O: call it before each step that
    /// must not run without the lock.
    #[napi]
    pub fn check(&self) -> Result<()> {
        self.handle.check(&self.client.driver).map_err(|error| self.client.looped.words.thrown(error.into()))
    }

    /// Calls `listener` once with a `LockLost` when the lock ends although nobody released it, before anybody
    /// else can get it. It runs in the event loop; what it throws becomes a process warning.
    #[napi(ts_args_type = "listener: (error: LockLost) => unknown")]
    pub fn on_lost(&self, listener: Unknown) -> Result<()> {
        let watch = || {
            if listener.get_type()? != napi::ValueType::Function {
                return Err(Error::new(Code::InvalidOption, "onLost needs a function").into());
            }
            self.client.on_lost(&self.handle, Callback::keep(self.client.looped.env, listener.raw())?)
        };
        watch().map_err(|fail| self.client.looped.words.thrown(fail))
    }

    /// Releases this level; the lock is free when it was the outermost.
    ///
    /// Rejects with `LockLost` when the lock had ended before, with `ReleaseUnknown` when no server answered
    /// in time: renewal has stopped, and the lock is free after its `freeAtLatest` ms at the latest.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn release(&self) -> Result<PromiseRaw<'static, ()>> {
        self.asked.set(true);
        self.owner.leaving();
        let wish = Wish::Release(Release::Handle(self.handle.clone()));
        self.client.looped.submit(&self.client, wish, Kind::Release(Some(Rc::clone(&self.owner))), None)
    }

    /// Keeps the lock for at least `lease` ms from now.
    #[napi(ts_args_type = "lease: number", ts_return_type = "Promise<void>")]
    pub fn extend(&self, lease: Unknown) -> Result<PromiseRaw<'static, ()>> {
        let lease = match convert::lease(&lease) {
            Ok(lease) => lease,
            Err(fail) => return self.client.looped.refuse(fail),
        };
        let wish = Wish::Extend { handle: self.handle.clone(), lease };
        self.client.looped.submit(&self.client, wish, Kind::Extend, None)
    }

    /// Adds a level to this very hold, whoever runs it. The lock is free when every level was released.
    #[napi(ts_args_type = "options?: { lease?: number | null }", ts_return_type = "Promise<Hold>")]
    pub fn reenter(&self, options: Unknown) -> Result<PromiseRaw<'static, ()>> {
        let asked = match Asked::read(&options, "reenter", &["lease"]) {
            Ok(asked) => asked,
            Err(fail) => return self.client.looped.refuse(fail),
        };
        let wish = Wish::Acquire {
            name: self.handle.name().clone(),
            owner: self.owner.id,
            wait: Wait::Forever,
            lease: asked.lease.flatten(),
            reenter: Some(self.handle.clone()),
        };
        let kind = Kind::Acquire { owner: Rc::clone(&self.owner), busy: Busy::Reject(self.handle.name().clone()) };
        self.client.looped.submit(&self.client, wish, kind, None)
    }

    /// Leaves a block: releases, unless a release was asked for already.
    #[napi(well_known_symbol = "asyncDispose", ts_return_type = "Promise<void>")]
    pub fn leave(&self) -> Result<PromiseRaw<'static, ()>> {
        if !self.asked.get() {
            return self.release();
        }
        let env = self.client.looped.env;
        let (deferred, promise) = raw::Deferred::new(env)?;
        deferred.settle(env, Ok(raw::undefined(env)?))?;
        Ok(PromiseRaw::new(env.raw(), promise))
    }
}
