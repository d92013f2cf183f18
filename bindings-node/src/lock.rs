//! `Lock`: a name, and the wishes about it.

use std::rc::Rc;

use bandog::Name;
use bandog::host::{self, Filter, Release, Wait, Wish};
use napi::Result;
use napi::bindgen_prelude::{ClassInstance, PromiseRaw, Unknown};
use napi_derive::napi;

use crate::cancel::Cancel;
use crate::client::ClientState;
use crate::convert::{ACQUIRE, Asked};
use crate::events::Events;
use crate::owner::{Owner, Scope};
use crate::settle::{Busy, Kind};

/// A distributed lock that Redisson's `RLock` knows under the same name. Cheap, and free to share between
/// concurrent requests: each `acquire` outside {@link Lock.using} is an owner of its own.
///
/// ```js
/// const held = await lock('order_lock').acquire()
/// try { await shipOrder() } finally { await held.release() }
/// ```
#[napi]
pub struct Lock {
    pub(crate) client: Rc<ClientState>,
    pub(crate) name: Name,
    defaults: Asked,
}

type Inside<'e> = Option<ClassInstance<'e, Scope>>;

impl Lock {
    pub(crate) fn new(client: &Rc<ClientState>, name: Name, defaults: Asked) -> Self {
        Self { client: Rc::clone(client), name, defaults }
    }

    fn start(
        &self,
        asked: Asked,
        scope: &Inside<'_>,
        cancel: Option<&Cancel>,
        busy: Busy,
    ) -> Result<PromiseRaw<'static, ()>> {
        let owner =
            scope.as_ref().map_or_else(|| Owner::bare(&self.client, &self.name), |scope| Rc::clone(&scope.owner));
        let wish = Wish::Acquire {
            name: self.name.clone(),
            owner: owner.id,
            wait: asked.wait.unwrap_or(Wait::Forever),
            lease: asked.lease.flatten(),
            reenter: None,
        };
        self.client.looped.submit(&self.client, wish, Kind::Acquire { owner, busy }, cancel)
    }

    /// [`Lock::acquire`] without options and outside of every scope.
    pub(crate) fn acquire_bare(&self) -> Result<PromiseRaw<'static, ()>> {
        self.start(self.defaults, &None, None, Busy::Reject(self.name.clone()))
    }

    fn ask(&self, wish: Wish, kind: Kind) -> Result<PromiseRaw<'static, ()>> {
        self.client.looped.submit(&self.client, wish, kind, None)
    }
}

#[napi]
impl Lock {
    /// The name as it stands in Redis, with the client's `namePrefix`.
    #[napi(getter)]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Takes the lock, and waits for it if another has it: for ever, or for `wait` ms in all.
    ///
    /// Without `lease` the lock is kept for as long as it is held: a thread of its own renews it, however busy
    /// the event loop is. With `lease` it ends after that many ms, whatever happens. Inside
    /// {@link Lock.using} of the same lock it re-enters; elsewhere each call is another owner.
    ///
    /// Keep what it gives: a lock whose `Hold` was thrown away is renewed until the process ends, since nobody can
    /// tell it from one that is at work. {@link Lock.using} always releases; the client's `maxHold` ends what a
    /// program forgot or is stuck in.
    ///
    /// Rejects with `LockTimeout` when the wait is over, with the signal's reason when `signal` aborts.
    ///
    /// ```js
    /// const held = await lock.acquire({ wait: 5000 })
    /// try { await work() } finally { await held.release() }
    /// ```
    #[napi(ts_args_type = "options?: AcquireOptions", ts_return_type = "Promise<Hold>")]
    pub fn acquire(
        &self,
        options: Unknown,
        scope: Inside<'_>,
        cancel: Option<ClassInstance<'_, Cancel>>,
    ) -> Result<PromiseRaw<'static, ()>> {
        match Asked::read(&options, "acquire", ACQUIRE) {
            Ok(asked) => {
                self.start(asked.or(self.defaults), &scope, cancel.as_deref(), Busy::Reject(self.name.clone()))
            }
            Err(fail) => self.client.looped.refuse(fail),
        }
    }

    /// Takes the lock if it is free, or becomes free within `wait` ms (0 if not given: one try).
    ///
    /// Resolves to `null` when another has it.
    ///
    /// ```js
    /// const held = await lock.tryAcquire()
    /// if (held === null) return 'busy'
    /// ```
    #[napi(ts_args_type = "options?: AcquireOptions", ts_return_type = "Promise<Hold | null>")]
    pub fn try_acquire(
        &self,
        options: Unknown,
        scope: Inside<'_>,
        cancel: Option<ClassInstance<'_, Cancel>>,
    ) -> Result<PromiseRaw<'static, ()>> {
        match Asked::read(&options, "tryAcquire", ACQUIRE) {
            Ok(mut asked) => {
                asked.wait.get_or_insert(Wait::Try);
                self.start(asked.or(self.defaults), &scope, cancel.as_deref(), Busy::Null)
            }
            Err(fail) => self.client.looped.refuse(fail),
        }
    }

    /// Releases the innermost level of the {@link Lock.using} scope this runs in.
    ///
    /// Outside of one nobody is the owner, and it rejects with `NotOwner`: keep what `acquire` gave and call
    /// its `release`.
    #[napi(ts_args_type = "", ts_return_type = "Promise<void>")]
    pub fn release(&self, scope: Inside<'_>) -> Result<PromiseRaw<'static, ()>> {
        let inside = scope.as_ref().map(|scope| Rc::clone(&scope.owner));
        if let Some(owner) = &inside {
            owner.leaving();
        }
        let owner = inside.as_ref().map_or_else(host::next_owner, |owner| owner.id);
        let release = Release::Innermost { name: self.name.clone(), owner };
        self.ask(Wish::Release(release), Kind::Release(inside))
    }

    /// Whether anybody holds the lock, as the server says now.
    #[napi(ts_return_type = "Promise<boolean>")]
    pub fn locked(&self) -> Result<PromiseRaw<'static, ()>> {
        self.ask(Wish::Status(self.name.clone()), Kind::Locked)
    }

    /// How many ms the key has on the server: `null` when the lock is free, `Infinity` when it has no end.
    #[napi(ts_return_type = "Promise<number | null>")]
    pub fn remaining(&self) -> Result<PromiseRaw<'static, ()>> {
        self.ask(Wish::Status(self.name.clone()), Kind::Remaining)
    }

    /// Takes the lock away from whoever has it, who is told that it is lost. Resolves to whether anybody had it.
    #[napi(ts_return_type = "Promise<boolean>")]
    pub fn force_release(&self) -> Result<PromiseRaw<'static, ()>> {
        self.ask(Wish::ForceRelease(self.name.clone()), Kind::Force)
    }

    /// Whether the {@link Lock.using} scope this runs in holds the lock. No I/O.
    #[napi(ts_args_type = "")]
    pub fn held(&self, scope: Inside<'_>) -> bool {
        self.levels(scope) > 0
    }

    /// How many levels the scope this runs in has.
    #[napi(skip_typescript)]
    pub fn levels(&self, scope: Inside<'_>) -> u32 {
        scope.map_or(0, |scope| scope.owner.count())
    }

    /// What happens to this lock, from this call on.
    ///
    /// ```js
    /// for await (const event of lock.events()) if (event.kind === 'lost') page(event.why)
    /// ```
    #[napi(ts_args_type = "options?: EventsOptions")]
    pub fn events(&self, options: Unknown) -> Result<Events> {
        Events::open(&self.client, Filter::Name(self.name.clone()), &options)
    }
}
