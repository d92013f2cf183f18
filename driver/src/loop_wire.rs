//! A wire that an event loop serves itself: written in the turn that submits, read when the loop says that
//! its descriptor is readable, closed with the loop.
//!
//! The keeper opens its connection, as it does for every wire, and reads it until the loop watches the
//! descriptor. After that it only glances: a loop that is blocked, or gone, leaves replies unread, and what
//! they say must not wait for it.
//!
//! A loop that cannot watch a descriptor carries the bytes itself (`carried.rs`). The keeper cannot glance at
//! those: a lock whose grant a blocked loop leaves unread is taken until the loop turns, or the lease ends, as
//! with every client that lives in its loop. What is held is renewed by the keeper as ever.

use std::fmt;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bandog_core::error::Error;
use bandog_core::io::Wire;

use crate::carried::{Carried, Pipe};
use crate::client::Client;
use crate::fork;
use crate::host::{Submitted, Wish};
use crate::mailbox::{Mail, Mailbox};
use crate::road::{Flow, Road};
use crate::server::Address;
use crate::shared::Shared;
use crate::sys::Socket;
use crate::waiter::lock;

/// The loop's end of its road.
pub(crate) struct LoopEnd {
    pub(crate) wire: Wire,
    /// Has the loop turn: there is a connection to watch, or bytes that the kernel did not take.
    pub(crate) ring: Arc<dyn Fn() + Send + Sync>,
    /// The connection that the loop was asked for last, if it carries its bytes itself.
    carried: Option<Mutex<Option<Carried>>>,
    /// The keeper sleeps until the next call.
    pub(crate) resting: AtomicBool,
    /// Calls wait for the end of the turn.
    later: AtomicBool,
    /// Somebody was told to write then.
    promised: AtomicBool,
    /// The loop is gone.
    pub(crate) retired: AtomicBool,
}

impl LoopEnd {
    pub(crate) fn new(wire: Wire, ring: Arc<dyn Fn() + Send + Sync>, carries: bool) -> Self {
        Self {
            wire,
            ring,
            carried: carries.then(Mutex::default),
            resting: AtomicBool::new(false),
            later: AtomicBool::new(false),
            promised: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        }
    }
}

/// One event loop's own way to the server. Made and used in the loop's thread; dropped with the loop, it
/// leaves the outcome of calls under way to the keeper.
///
/// In every turn that its mailbox asked for, and after every [`LoopWire::read`], the loop compares
/// [`LoopWire::socket`] with the descriptor it watches: connections come and go.
pub struct LoopWire {
    shared: Arc<Shared>,
    road: Arc<Road>,
    mailbox: Arc<Mailbox>,
}

/// A connection's descriptor. It stays open, and so its number stays its own, until this is dropped: the
/// loop must have stopped watching it before.
#[derive(Clone)]
pub struct Watched(Arc<Socket>);

impl LoopWire {
    /// A wire for the loop with this mailbox. No I/O yet.
    ///
    /// # Errors
    /// `closed`; `unreachable` when the system refuses the keeper's thread.
    pub fn open(client: &Client, mailbox: &Arc<Mailbox>) -> Result<Self, Error> {
        Self::made(client, mailbox, false)
    }

    /// The same for a loop that carries the bytes itself. In every turn, and after whatever it does with the
    /// wire, it looks at [`LoopWire::carried`]: for a connection to be made, for bytes to be sent
    /// ([`Carried::take`]), for the end of the one it serves. The mailbox's `wake` may then be called with
    /// locks of the driver held.
    ///
    /// # Errors
    /// As [`LoopWire::open`].
    pub fn open_carried(client: &Client, mailbox: &Arc<Mailbox>) -> Result<Self, Error> {
        Self::made(client, mailbox, true)
    }

    fn made(client: &Client, mailbox: &Arc<Mailbox>, carries: bool) -> Result<Self, Error> {
        mailbox.check_fork()?;
        let shared = client.shared();
        let ring = {
            let mailbox = mailbox.clone();
            move || mailbox.wake()
        };
        let road = shared.open_loop(Arc::new(ring), carries)?;
        Ok(Self { shared: shared.clone(), road, mailbox: mailbox.clone() })
    }

    /// As [`host::submit`](crate::host::submit), down this wire: written at once when nothing is in flight
    /// on it, else with [`LoopWire::flush`].
    ///
    /// # Errors
    /// What is refused before any I/O; no mail follows then.
    pub fn submit(&self, wish: Wish, token: u64) -> Result<Submitted, Error> {
        self.check_fork()?;
        let wire = self.end().wire;
        self.quietly(|| self.shared.submit(wish, wire, &self.mailbox, token))
    }

    /// Whether calls wait for a [`LoopWire::flush`] that nobody was asked for yet: whoever gets `true` sees to
    /// it that the loop calls it at the end of its turn.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.end().wants_flush()
    }

    /// Writes what waits.
    pub fn flush(&self) {
        if self.check_fork().is_ok() {
            self.end().flushes();
            self.quietly(|| self.shared.flush(&self.road, true));
        }
    }

    /// Reads what came, reports it, and gives everything that is in the mailbox now.
    #[must_use]
    pub fn read(&self) -> Vec<Mail> {
        let mut mails = Vec::new();
        self.read_into(&mut mails);
        mails
    }

    /// The same, appended to `mails`.
    pub fn read_into(&self, mails: &mut Vec<Mail>) {
        if self.check_fork().is_ok() {
            self.mailbox.hush();
            self.quietly(|| while self.shared.pump(&self.road, self.road.reader(), None) == Flow::More {});
            self.mailbox.drain_into(mails);
        }
    }

    /// The descriptor to watch for reading, if there is a connection. From this call on the loop reads it.
    #[must_use]
    pub fn socket(&self) -> Option<Watched> {
        self.check_fork().ok()?;
        let socket = self.road.seats.socket().filter(|socket| socket.pipe().is_none())?;
        // The keeper, should it still wait for the same bytes, hears that it need not.
        self.road.seats.take(&socket).then(|| {
            self.road.bell.notify_one();
            Watched(socket)
        })
    }

    /// Whether this is still the connection. No locks of the engine's are taken.
    #[must_use]
    pub fn is_current(&self, watched: &Watched) -> bool {
        self.check_fork().is_ok() && self.road.seats.socket().is_some_and(|socket| Arc::ptr_eq(&socket, &watched.0))
    }

    /// The connection that the loop is to make, or carries. The last one that was asked for, be it over.
    #[must_use]
    pub fn carried(&self) -> Option<Carried> {
        self.end().carried()
    }

    /// Whether bytes wait until the descriptor can be written; then [`LoopWire::flush`] is due.
    #[must_use]
    pub fn is_clogged(&self) -> bool {
        self.road.is_clogged()
    }

    /// Whether the client was closed, or its last object is gone, so that nothing will come any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.check_fork().is_err() || self.road.is_retired()
    }

    fn end(&self) -> &LoopEnd {
        // Every road that this module opens has one.
        self.road.end.as_ref().unwrap_or_else(|| unreachable!("a loop's road without a loop"))
    }

    /// What the loop's own calls give it to send needs no ring: it looks after each of them.
    fn quietly<R>(&self, call: impl FnOnce() -> R) -> R {
        let carried = self.carried();
        if let Some(carried) = &carried {
            carried.hush();
        }
        let result = call();
        if let Some(carried) = &carried {
            carried.unhush();
        }
        result
    }

    fn check_fork(&self) -> Result<(), Error> {
        if self.shared.generation == fork::generation() { Ok(()) } else { Err(crate::handle::forked()) }
    }
}

impl Drop for LoopWire {
    fn drop(&mut self) {
        if self.check_fork().is_ok() {
            self.shared.retire(&self.road);
        }
    }
}

impl Watched {
    /// Whether it is the same connection.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl LoopEnd {
    /// Whether the loop carries the bytes.
    pub(crate) fn carries(&self) -> bool {
        self.carried.is_some()
    }

    fn carried(&self) -> Option<Carried> {
        lock(self.carried.as_ref()?).clone()
    }

    /// Asks the loop for a connection.
    pub(crate) fn ask(&self, address: &Address) -> Socket {
        let pipe = Pipe::new(address, self.ring.clone());
        if let Some(carried) = &self.carried {
            *lock(carried) = Some(pipe.host_end());
        }
        (self.ring)();
        Socket::carried(pipe)
    }

    /// Calls are left for the end of the turn.
    pub(crate) fn put_off(&self) {
        self.later.store(true, SeqCst);
    }

    /// Whether whoever asks has to write at the end of the turn.
    pub(crate) fn wants_flush(&self) -> bool {
        self.later.swap(false, SeqCst) && !self.promised.swap(true, SeqCst)
    }

    /// That is done now.
    pub(crate) fn flushes(&self) {
        self.promised.store(false, SeqCst);
    }
}

impl fmt::Debug for LoopEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopEnd").field("wire", &self.wire).finish_non_exhaustive()
    }
}

impl fmt::Debug for LoopWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopWire").field("road", &self.road).finish_non_exhaustive()
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.0).finish()
    }
}
