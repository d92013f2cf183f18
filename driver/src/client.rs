//! The client: options and the engine behind them, new after a fork.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use bandog_core::error::Error;
use bandog_core::name::Name;
use bandog_core::owner::ClientId;

use crate::events::Events;
use crate::fork;
use crate::host::{self, Filter};
use crate::lock::{EVENTS, Lock};
use crate::options::Options;
use crate::shared::Shared;

/// A client of one server. Cheap to clone; all clones share one engine and its connections. When the
/// last is dropped, what is held is released in the background and the keeper's thread ends.
///
/// In a forked child the same object goes on working, as a client of its own that holds nothing.
#[derive(Clone)]
pub struct Client {
    slot: Arc<Slot>,
}

struct Slot {
    options: Options,
    /// Made by `Box::into_raw`. Replaced only in a forked child, where the old value is the parent's: its
    /// mutex may be locked for ever and its sockets are not ours, so it is leaked.
    current: AtomicPtr<Arc<Shared>>,
}

impl Client {
    /// A client with these options. Does no I/O and starts no thread: both begin with the first wish.
    ///
    /// # Errors
    /// `invalid_lease` or `invalid_option` for options out of range.
    pub fn new(options: Options) -> Result<Self, Error> {
        options.check()?;
        fork::install();
        let first = Box::into_raw(Box::new(Shared::new(&options)));
        Ok(Self { slot: Arc::new(Slot { options, current: AtomicPtr::new(first) }) })
    }

    /// A checked lock name, with the client's `name_prefix` in front.
    ///
    /// # Errors
    /// `invalid_name`.
    pub fn name(&self, text: &str) -> Result<Name, Error> {
        Name::with_prefix(self.slot.options.prefix(), text)
    }

    /// A lock. Each call makes an owner of its own: two locks of one name exclude each other, and one
    /// lock object can be acquired again while it is held. No I/O.
    ///
    /// # Errors
    /// `invalid_name`.
    pub fn lock(&self, name: &str) -> Result<Lock, Error> {
        Ok(Lock::new(self.clone(), self.name(name)?))
    }

    /// What happens to all locks of this client from now on. Ends when the client is closed.
    ///
    /// ```no_run
    /// # async fn run(client: &bandog::Client) -> Result<(), bandog::Error> {
    /// let mut events = client.events()?;
    /// while let Some(event) = events.next().await {
    ///     println!("{} {:?}", event.kind(), event.name());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `closed`.
    pub fn events(&self) -> Result<Events, Error> {
        Ok(Events::new(host::listen(self, Filter::All, EVENTS, || {})?))
    }

    /// The id that stands in front of every owner this client writes; new in a forked child.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.shared().id
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.slot.options
    }

    /// Whether [`host::close`](crate::host::close) was called in this process.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared().is_closed()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        let current = self.slot.current.load(Ordering::Acquire);
        // SAFETY: the pointer came from `Box::into_raw` and is freed only by the drop of the slot, which
        // `self` keeps alive; a value that is replaced is leaked.
        let shared = unsafe { &*current };
        if shared.generation == fork::generation() { shared } else { self.slot.renew(current) }
    }
}

impl Slot {
    #[cold]
    fn renew(&self, stale: *mut Arc<Shared>) -> &Arc<Shared> {
        let fresh = Box::into_raw(Box::new(Shared::new(&self.options)));
        let current = match self.current.compare_exchange(stale, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(winner) => {
                // SAFETY: nobody else saw the pointer; the box is taken back.
                drop(unsafe { Box::from_raw(fresh) });
                winner
            }
        };
        // SAFETY: as in `Client::shared`.
        unsafe { &*current }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let current = *self.current.get_mut();
        // SAFETY: as in `Client::shared`; nobody can reach the slot any more.
        if unsafe { &*current }.generation == fork::generation() {
            // SAFETY: made by `Box::into_raw`, freed once, here.
            unsafe { Box::from_raw(current) }.abandon();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.slot.options).finish_non_exhaustive()
    }
}
