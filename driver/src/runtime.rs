//! The wire of a tokio runtime, served by the futures that wait for its replies: the one that was polled last
//! reads for all, and passes that on when it ends.
//!
//! A runtime without tokio, or whose I/O is switched off, has no such wire: the keeper reads for it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};

use bandog_core::io::Wire;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use crate::loop_wire::LoopEnd;
use crate::road::{Flow, Road};
use crate::shared::Shared;
use crate::sys::Socket;
use crate::waiter::{Promise, lock};

/// The runtimes in which one client is used.
#[derive(Debug, Default)]
pub(crate) struct Runtimes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    wires: HashMap<Id, Option<Arc<RuntimeWire>>>,
    closed: bool,
}

/// One client's wire in one runtime.
pub(crate) struct RuntimeWire {
    pub(crate) road: Arc<Road>,
    chair: Arc<Mutex<Chair>>,
    /// The task whose end says that the runtime is gone.
    watch: OnceLock<AbortHandle>,
}

/// Who waits, and who of them reads.
#[derive(Default)]
struct Chair {
    fd: Option<Arc<AsyncFd<Watched>>>,
    /// By age, with how many calls of the road are answered once theirs is.
    waiting: BTreeMap<u64, (u64, Arc<Promise>)>,
    next: u64,
    leader: Option<u64>,
}

/// Keeps the descriptor open for as long as the runtime watches it.
struct Watched(Arc<Socket>);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A future's place at a wire.
pub(crate) struct Place {
    wire: Arc<RuntimeWire>,
    id: u64,
    until: u64,
    flush: Flush,
    promise: Arc<Promise>,
}

/// Whether a future has to write what others and itself left for the end of the turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    No,
    /// When it is polled again, after the others that are ready now.
    Later,
    Now,
}

impl Runtimes {
    /// The wire of the runtime in which this is called, made at the first call in it.
    pub(crate) fn current(&self, shared: &Arc<Shared>) -> Option<Arc<RuntimeWire>> {
        let runtime = Handle::try_current().ok()?;
        let id = runtime.id();
        let known = lock(&self.0);
        if let Some(wire) = known.wires.get(&id) {
            return wire.clone();
        }
        // Opening it takes the mutex of the engine, which comes first.
        drop(known);
        let wire = has_io().then(|| RuntimeWire::open(shared)).flatten();
        let mut known = lock(&self.0);
        if known.closed {
            return None;
        }
        if let Some(other) = known.wires.get(&id) {
            return other.clone();
        }
        known.wires.insert(id, wire.clone());
        drop(known);
        let leave = Leave { shared: Arc::downgrade(shared), id };
        let watch = runtime.spawn(async move {
            let _leave = leave;
            std::future::pending::<()>().await;
        });
        if let Some(wire) = &wire {
            let _ = wire.watch.set(watch.abort_handle());
        }
        wire
    }

    /// The client is closed.
    pub(crate) fn close(&self) {
        let mut known = lock(&self.0);
        known.closed = true;
        let wires = std::mem::take(&mut known.wires);
        drop(known);
        for watch in wires.values().flatten().filter_map(|wire| wire.watch.get()) {
            watch.abort();
        }
    }
}

/// Has the runtime watch a descriptor.
fn watch<T: AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: what is watched here owns its descriptor and keeps it open for as long as it lives; it never
    // changes it, except that in a forked child, where no runtime runs, it shows another number.
    unsafe { AsyncFd::register_with_interest(owner, Interest::READABLE | Interest::WRITABLE) }
        .map_err(|error| error.into_parts().1)
}

/// Whether this runtime watches descriptors. There is no way to ask: tokio panics, and says what is missing.
fn has_io() -> bool {
    let Ok((one, _other)) = std::os::unix::net::UnixStream::pair() else { return true };
    catch_unwind(AssertUnwindSafe(|| watch(one).is_ok())).unwrap_or(false)
}

/// Dropped with the runtime.
struct Leave {
    shared: Weak<Shared>,
    id: Id,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let wire = lock(&shared.runtimes.0).wires.remove(&self.id).flatten();
        if let Some(wire) = wire {
            lock(&wire.chair).fd = None;
            shared.retire(&wire.road);
        }
    }
}

impl RuntimeWire {
    fn open(shared: &Arc<Shared>) -> Option<Arc<Self>> {
        let chair = Arc::new(Mutex::new(Chair::default()));
        let ring = {
            let chair = chair.clone();
            move || Chair::ring(&chair)
        };
        // Refused: whoever asked will be told by its own call.
        let road = shared.open_loop(Box::new(ring)).ok()?;
        Some(Arc::new(Self { road, chair, watch: OnceLock::new() }))
    }

    pub(crate) fn wire(&self) -> Wire {
        self.end().wire
    }

    fn end(&self) -> &LoopEnd {
        self.road.end.as_ref().unwrap_or_else(|| unreachable!("a loop's road without a loop"))
    }

    /// A place for a future whose call was just made.
    pub(crate) fn sit(self: &Arc<Self>, promise: &Arc<Promise>) -> Place {
        let until = self.road.tally().posted;
        let flush = if self.end().wants_flush() { Flush::Later } else { Flush::No };
        let mut chair = lock(&self.chair);
        let id = chair.next;
        chair.next += 1;
        chair.waiting.insert(id, (until, promise.clone()));
        Place { wire: self.clone(), id, until, flush, promise: promise.clone() }
    }

    /// The connection's descriptor, watched by the runtime; `None` while there is none.
    fn fd(&self, chair: &mut Chair) -> Option<Arc<AsyncFd<Watched>>> {
        let Some(socket) = self.road.seats.socket() else {
            chair.fd = None;
            return None;
        };
        if let Some(fd) = chair.fd.as_ref().filter(|fd| Arc::ptr_eq(&fd.get_ref().0, &socket)) {
            return Some(fd.clone());
        }
        // The old one first: its number may be the new one's by now.
        chair.fd = None;
        Handle::try_current().ok()?;
        // Refused in a runtime that is about to end: the keeper goes on reading.
        let fd = watch(Watched(socket.clone())).ok()?;
        if self.road.seats.take(&socket) {
            self.road.bell.notify_one();
            chair.fd = Some(Arc::new(fd));
        }
        chair.fd.clone()
    }
}

impl Chair {
    /// Has one of those who wait look at the connection.
    fn ring(chair: &Mutex<Self>) {
        let heir = lock(chair).waiting.values().find(|(_, promise)| !promise.is_ready()).map(|(_, heir)| heir.clone());
        if let Some(waker) = heir.and_then(|heir| heir.deafen()) {
            waker.wake();
        }
    }
}

impl Place {
    /// Reads, if that is this future's to do; `true` if something came. Else the task is woken when something
    /// can be read or written.
    pub(crate) fn serve(&mut self, shared: &Shared, context: &mut Context<'_>) -> bool {
        match self.flush {
            Flush::No => {}
            Flush::Later => {
                self.flush = Flush::Now;
                context.waker().wake_by_ref();
            }
            Flush::Now => self.flush(shared),
        }
        let road = &*self.wire.road;
        if road.tally().answered >= self.until {
            return false;
        }
        let fd = {
            let mut chair = lock(&self.wire.chair);
            let Some(fd) = self.wire.fd(&mut chair) else { return false };
            chair.leader = Some(self.id);
            fd
        };
        if road.is_clogged()
            && let Poll::Ready(Ok(mut ready)) = fd.poll_write_ready(context)
        {
            shared.flush(road, true);
            if road.is_clogged() {
                ready.clear_ready();
                context.waker().wake_by_ref();
            }
        }
        match fd.poll_read_ready(context) {
            Poll::Pending => false,
            // The runtime that watches it is about to end.
            Poll::Ready(Err(_)) => {
                lock(&self.wire.chair).fd = None;
                false
            }
            Poll::Ready(Ok(mut ready)) => {
                // Its own outcome needs no wake.
                self.promise.deafen();
                if shared.pump(road, road.reader(), None) != Flow::More {
                    ready.clear_ready();
                }
                true
            }
        }
    }
}

impl Place {
    fn flush(&mut self, shared: &Shared) {
        self.flush = Flush::No;
        self.wire.end().flushes();
        shared.flush(&self.wire.road, true);
    }

    /// The wish has ended, or nobody waits for it any more.
    pub(crate) fn leave(&mut self, shared: &Shared) {
        if self.flush != Flush::No {
            self.flush(shared);
        }
        let mut chair = lock(&self.wire.chair);
        chair.waiting.remove(&self.id);
        if chair.leader != Some(self.id) {
            return;
        }
        chair.leader = None;
        let answered = self.wire.road.tally().answered;
        let heir = chair.waiting.values().find(|(until, promise)| *until > answered && !promise.is_ready());
        let waker = heir.and_then(|(_, heir)| heir.deafen());
        drop(chair);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for RuntimeWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeWire").field("road", &self.road).finish_non_exhaustive()
    }
}
