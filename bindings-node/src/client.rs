//! `Client`: one connection to one server, and the locks made from it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bandog::Event;
use bandog::host::{self, Filter, Handle, HoldId, Listener};
use napi::Result;
use napi::bindgen_prelude::{PromiseRaw, Unknown};
use napi_derive::napi;

use crate::convert::{self, Asked};
use crate::errors::Fail;
use crate::events::{CAPACITY, Events};
use crate::lock::Lock;
use crate::looped::Loop;
use crate::raw::Callback;
use crate::wire::Wire;

/// A client, shared by its JS object, its locks and its holds.
pub(crate) struct ClientState {
    pub(crate) driver: bandog::Client,
    /// How long a close may take: one `opTimeout`.
    pub(crate) patience: Duration,
    pub(crate) looped: Rc<Loop>,
    /// Its way to the server, from its first wish until it is closed.
    pub(crate) wire: RefCell<Option<Rc<Wire>>>,
    closed: Cell<bool>,
    losses: RefCell<Option<Losses>>,
    warnings: Option<Listener>,
}

/// More warnings than this in one turn of the loop are dropped.
const WARNINGS: usize = 64;

/// Who wants to be told that a hold is lost. Made for the first who asks.
struct Losses {
    listener: Listener,
    missed: u64,
    holds: BTreeMap<HoldId, Watched>,
}

struct Watched {
    handle: Handle,
    listeners: Vec<Callback>,
}

fn is_lost(handle: &Handle, driver: &bandog::Client) -> bool {
    matches!(handle.view(driver), Ok(Some(view)) if view.lost.is_some())
}

impl ClientState {
    pub(crate) fn new(driver: bandog::Client, patience: Duration, looped: &Rc<Loop>) -> Rc<Self> {
        let looped = Rc::clone(looped);
        let waker = Arc::clone(&looped.waker);
        let warnings = host::listen(&driver, Filter::Warnings, WARNINGS, move || waker.wake()).ok();
        Rc::new(Self {
            warnings,
            driver,
            patience,
            looped,
            wire: RefCell::default(),
            closed: Cell::default(),
            losses: RefCell::default(),
        })
    }

    /// Calls `listener` once, in a turn of the loop, when the hold is lost; also if that has happened already.
    pub(crate) fn on_lost(&self, handle: &Handle, listener: Callback) -> std::result::Result<(), Fail> {
        let mut losses = self.losses.borrow_mut();
        if losses.is_none() {
            let waker = self.looped.waker.clone();
            let listener = host::listen(&self.driver, Filter::Losses, CAPACITY, move || waker.wake())?;
            *losses = Some(Losses { listener, missed: 0, holds: BTreeMap::new() });
        }
        if let Some(losses) = &mut *losses {
            let watched = losses
                .holds
                .entry(handle.hold())
                .or_insert_with(|| Watched { handle: handle.clone(), listeners: Vec::new() });
            watched.listeners.push(listener);
            if is_lost(handle, &self.driver) {
                losses.missed = u64::MAX;
                self.looped.waker.wake();
            }
        }
        Ok(())
    }

    /// Tells those whose holds were lost since the last turn.
    pub(crate) fn tell_losses(&self) {
        let mut told = Vec::new();
        if let Some(losses) = &mut *self.losses.borrow_mut() {
            while let Some(event) = losses.listener.try_next() {
                if let Event::Lost { hold, .. } = event {
                    told.extend(losses.holds.remove(&hold));
                }
            }
            let dropped = losses.listener.dropped();
            if dropped != losses.missed {
                // The queue ran over, or a listener came after the loss: look at every hold.
                losses.missed = dropped;
                let lost = |watched: &Watched| is_lost(&watched.handle, &self.driver);
                let late: Vec<_> =
                    losses.holds.iter().filter(|(_, watched)| lost(watched)).map(|(hold, _)| *hold).collect();
                told.extend(late.iter().filter_map(|hold| losses.holds.remove(hold)));
            }
        }
        // The borrow is over: listeners may call back.
        for Watched { handle, listeners } in told {
            let Err(error) = handle.check(&self.driver) else { continue };
            let Ok(error) = self.looped.words.error(error.into()) else { continue };
            for listener in &listeners {
                self.looped.words.tell(listener, error);
            }
        }
    }

    /// Hands on what the engine has to say to an operator.
    pub(crate) fn tell_warnings(&self) {
        while let Some(event) = self.warnings.as_ref().and_then(Listener::try_next) {
            if let Event::Warning { name, text } = event {
                self.looped.words.warn(&name.map_or(text.clone(), |name| format!("lock {:?}: {text}", name.as_str())));
            }
        }
    }

    /// Forgets who waited for the loss of holds that were released.
    pub(crate) fn sweep_losses(&self) {
        if let Some(losses) = &mut *self.losses.borrow_mut() {
            losses.holds.retain(|_, watched| matches!(watched.handle.view(&self.driver), Ok(Some(_))));
        }
    }

    /// Nobody is told anything any more.
    pub(crate) fn forget_losses(&self) {
        if let Some(losses) = self.losses.take() {
            losses.listener.close();
        }
    }
}

/// A connection to one Redis server, and the locks made from it. Made by {@link connect}.
///
/// An open client does not keep the process alive: only a call, a wait or an awaited event does.
#[napi]
pub struct Client {
    pub(crate) state: Rc<ClientState>,
}

#[napi]
impl Client {
    /// A lock by its name. The same name is the same lock in every process, in Python, Node, Rust and Java.
    ///
    /// No I/O. `options` are defaults for each `acquire`.
    #[napi(ts_args_type = "name: string, options?: LockOptions")]
    pub fn lock(&self, name: Unknown, options: Unknown) -> Result<Lock> {
        let make = || -> std::result::Result<Lock, Fail> {
            let name = self.state.driver.name(&convert::name(name)?)?;
            Ok(Lock::new(&self.state, name, Asked::read(&options, "lock", convert::LOCK)?))
        };
        make().map_err(|fail| self.state.looped.words.thrown(fail))
    }

    /// Everything that happens to the locks of this client, from this call on.
    ///
    /// ```js
    /// for await (const event of client.events()) console.log(event.kind, event.name)
    /// ```
    #[napi(ts_args_type = "options?: EventsOptions")]
    pub fn events(&self, options: Unknown) -> Result<Events> {
        Events::open(&self.state, Filter::All, &options)
    }

    /// Whether `close` was called.
    #[napi(getter)]
    pub fn closed(&self) -> bool {
        self.state.closed.get()
    }

    /// Releases what this client holds, ends its waits with `Closed`, and stops its threads. Whoever still holds
    /// a lock of it is told first that it is lost (`why` is `closed`). Takes at most about one `opTimeout`.
    /// Calling it again does nothing.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn close(&self) -> Result<PromiseRaw<'static, ()>> {
        self.state.closed.set(true);
        self.state.looped.close(&self.state)
    }
}
