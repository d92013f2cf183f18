//! Who may re-enter in Node: the scope that `lock.using(fn)` opens. A bare acquire is an owner of its own.

use std::cell::Cell;
use std::rc::Rc;

use bandog::Name;
use bandog::host::{self, LocalOwner};
use napi_derive::napi;

use crate::client::ClientState;
use crate::lock::Lock;

/// One owner of one lock.
pub(crate) struct Owner {
    client: Rc<ClientState>,
    name: Name,
    pub(crate) id: LocalOwner,
    /// Whether an acquire inside the scope re-enters. Never for a bare acquire, whose owner no one can name.
    open: Cell<bool>,
    ended: Cell<bool>,
    scoped: Cell<bool>,
}

impl Owner {
    /// An owner that only its handles can act for.
    pub(crate) fn bare(client: &Rc<ClientState>, name: &Name) -> Rc<Self> {
        Rc::new(Self {
            client: Rc::clone(client),
            name: name.clone(),
            id: host::next_owner(),
            open: Cell::new(false),
            ended: Cell::new(false),
            scoped: Cell::new(false),
        })
    }

    /// The lock that it is the owner of.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// How many levels it has.
    pub(crate) fn count(&self) -> u32 {
        host::count(&self.client.driver, &self.name, self.id)
    }

    /// A level is about to be released: with the outermost one the scope closes, so that a context that
    /// escaped from it is nobody from here on.
    pub(crate) fn leaving(&self) {
        if self.open.get() && self.count() <= 1 {
            self.open.set(false);
        }
    }

    /// Its last level was released. Nobody can name a bare owner again, so there is nothing more to say of it.
    pub(crate) fn released(&self) {
        if self.scoped.get() {
            self.gone();
        }
    }

    /// Nobody acts for it any more. What it still holds lives as long as its handles.
    pub(crate) fn gone(&self) {
        self.open.set(false);
        if !self.ended.replace(true) {
            host::owner_gone(&self.client.driver, self.id);
        }
    }
}

/// The scope of one `lock.using(fn)`.
#[napi]
pub struct Scope {
    pub(crate) owner: Rc<Owner>,
}

#[napi]
impl Scope {
    #[napi(constructor)]
    pub fn new(lock: &Lock) -> Self {
        let owner = Owner::bare(&lock.client, &lock.name);
        owner.open.set(true);
        owner.scoped.set(true);
        Self { owner }
    }

    /// Whether an acquire of this lock inside the scope re-enters.
    #[napi]
    pub fn covers(&self, lock: &Lock) -> bool {
        self.owner.open.get() && Rc::ptr_eq(&self.owner.client, &lock.client) && self.owner.name == lock.name
    }

    /// The outermost `using` leaves: nobody enters any more.
    #[napi]
    pub fn close(&self) {
        self.owner.open.set(false);
    }

    /// The outermost `using` has left.
    #[napi]
    pub fn end(&self) {
        self.owner.gone();
    }
}
