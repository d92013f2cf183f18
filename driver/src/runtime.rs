//! The wire of a tokio runtime, served by the futures that wait for its replies: the one that was polled last
//! has the descriptor and reads for all, and passes that on when it ends.
//!
//! A runtime whose I/O is switched off has no such wire: the keeper reads for it, as it does for futures
//! beside any runtime. It also reads a runtime's wire until that was seen to notice a reply: an entered
//! runtime need not be one that turns.
//!
//! The invariant that keeps wakes from being lost: while replies are due, the leader's waker is the one that
//! the descriptor has, or the leader runs, or its own waker was called. A descriptor has one waker only, and
//! the chair must not be locked while one is exchanged, for what is dropped then may be anything. So whoever
//! exchanged it looks afterwards whether the lead is still where it was.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::BuildHasherDefault;
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
use crate::turn::Ids;
use crate::waiter::{Promise, lock};

/// The runtimes in which one client is used.
#[derive(Debug, Default)]
pub(crate) struct Runtimes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    wires: HashMap<Id, Option<Arc<RuntimeWire>>, BuildHasherDefault<Ids>>,
    closed: bool,
}

/// One client's wire in one runtime.
pub(crate) struct RuntimeWire {
    pub(crate) road: Arc<Road>,
    runtime: Id,
    chair: Arc<Mutex<Chair>>,
    /// The task whose end says that the runtime is gone.
    watch: OnceLock<AbortHandle>,
}

type Fd = Arc<AsyncFd<Watched>>;

/// Who waits, and who of them reads.
#[derive(Default)]
struct Chair {
    fd: Option<Fd>,
    /// The runtime noticed something on that descriptor: the keeper need not read any more.
    taken: bool,
    /// By age, with how many calls of the road are answered once theirs is.
    waiting: BTreeMap<u64, (u64, Arc<Promise>)>,
    next: u64,
    leader: Option<u64>,
    /// The leader is at it. Others leave it to that one to go on, or to pass the lead on.
    reading: bool,
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
        let wire = has_io().then(|| RuntimeWire::open(shared, id)).flatten();
        let mut known = lock(&self.0);
        let earlier = if known.closed { Some(None) } else { known.wires.get(&id).cloned() };
        if let Some(earlier) = earlier {
            drop(known);
            if let Some(wire) = wire {
                shared.retire(&wire.road);
            }
            return earlier;
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
        if lock(&self.0).closed {
            watch.abort();
        }
        wire
    }

    /// The client is closed.
    pub(crate) fn close(&self) {
        let mut known = lock(&self.0);
        known.closed = true;
        let wires = std::mem::take(&mut known.wires);
        drop(known);
        for wire in wires.values().flatten() {
            wire.let_go();
            if let Some(watch) = wire.watch.get() {
                watch.abort();
            }
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

/// Whether this runtime watches descriptors. There is no way to ask: tokio panics, and says what is missing
/// (and so ends a program that was built to abort on panics, as any other use of its I/O there).
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
            wire.let_go();
            shared.retire(&wire.road);
        }
    }
}

impl RuntimeWire {
    fn open(shared: &Arc<Shared>, runtime: Id) -> Option<Arc<Self>> {
        let chair = Arc::new(Mutex::new(Chair::default()));
        let ring = {
            let chair = chair.clone();
            move || Chair::ring(&chair)
        };
        // Refused: whoever asked will be told by its own call.
        let road = shared.open_loop(Arc::new(ring), false).ok()?;
        Some(Arc::new(Self { road, runtime, chair, watch: OnceLock::new() }))
    }

    pub(crate) fn wire(&self) -> Wire {
        self.end().wire
    }

    fn end(&self) -> &LoopEnd {
        self.road.end.as_ref().unwrap_or_else(|| unreachable!("a loop's road without a loop"))
    }

    /// A place for a future whose call was just made.
    pub(crate) fn sit(self: &Arc<Self>, promise: &Arc<Promise>) -> Place {
        let flush = if self.end().wants_flush() { Flush::Later } else { Flush::No };
        let mut chair = lock(&self.chair);
        let id = chair.next;
        chair.next += 1;
        // Counted under the lock: it grows with the ids.
        let until = self.road.tally().posted;
        chair.waiting.insert(id, (until, promise.clone()));
        Place { wire: self.clone(), id, flush, promise: promise.clone() }
    }

    /// The runtime watches no longer.
    fn let_go(&self) {
        let fd = lock(&self.chair).fd.take();
        drop(fd);
    }

    /// Takes the lead, and gives the descriptor to wait for; `None` while somebody is at it, or there is
    /// none.
    fn lead(&self, id: u64) -> Option<Fd> {
        let mut chair = lock(&self.chair);
        if chair.reading {
            return None;
        }
        let socket = self.road.seats.socket();
        let known = chair.fd.as_ref().filter(|fd| socket.as_ref().is_some_and(|now| Arc::ptr_eq(&fd.get_ref().0, now)));
        if let Some(fd) = known {
            let fd = fd.clone();
            chair.leader = Some(id);
            return Some(fd);
        }
        let stale = std::mem::replace(&mut chair.fd, self.watched(socket));
        chair.taken = false;
        chair.leader = chair.fd.is_some().then_some(id);
        let fd = chair.fd.clone();
        drop(chair);
        drop(stale);
        fd
    }

    /// Has this runtime watch the connection. Refused elsewhere, and in a runtime that is about to end: the
    /// keeper goes on reading.
    fn watched(&self, socket: Option<Arc<Socket>>) -> Option<Fd> {
        let here = Handle::try_current().is_ok_and(|runtime| runtime.id() == self.runtime);
        let socket = socket.filter(|_| here)?;
        watch(Watched(socket)).ok().map(Arc::new)
    }

    /// Whether the lead is still where this future, which just gave its waker, took it to.
    fn is_led_by(&self, id: u64) -> bool {
        let chair = lock(&self.chair);
        chair.reading || chair.leader == Some(id)
    }

    /// Begins to read: the runtime turns, for it noticed that there is something. `None` if another is at it.
    fn begin(&self, fd: &Fd, id: u64) -> Option<Reading<'_>> {
        let mut chair = lock(&self.chair);
        if chair.reading {
            return None;
        }
        (chair.reading, chair.leader) = (true, Some(id));
        let current = chair.fd.as_ref().is_some_and(|now| Arc::ptr_eq(now, fd));
        let first = current && !std::mem::replace(&mut chair.taken, true);
        drop(chair);
        if first && self.road.seats.take(&fd.get_ref().0) {
            self.road.bell.notify_one();
        }
        Some(Reading(&self.chair))
    }

    /// Nobody has the lead any more: it goes to one of those who wait. Its waker is given to the descriptor;
    /// it need not be polled for that, which may take a while.
    fn pass(&self) {
        loop {
            let tally = self.road.tally();
            let (fd, id, heir) = {
                let mut chair = lock(&self.chair);
                if chair.reading {
                    return;
                }
                let led = chair.leader.and_then(|id| chair.waiting.get_key_value(&id));
                let heir = led.or_else(|| tally.is_due().then(|| chair.heir(tally.answered)).flatten());
                let heir = heir.map(|(id, (_, heir))| (*id, heir.clone()));
                chair.leader = heir.as_ref().map(|(id, _)| *id);
                match (chair.fd.clone(), heir) {
                    (Some(fd), Some((id, heir))) => (fd, id, heir),
                    _ => return,
                }
            };
            // Without one it runs, or was woken already: it will look by itself.
            let Some(waker) = heir.waker() else { return };
            if self.road.is_clogged() || fd.poll_read_ready(&mut Context::from_waker(&waker)).is_ready() {
                return waker.wake();
            }
            if self.is_led_by(id) {
                match heir.waker() {
                    // Polled by another task meanwhile, perhaps before its old waker was given.
                    Some(now) if !now.will_wake(&waker) => now.wake(),
                    _ => {}
                }
                return;
            }
        }
    }
}

/// While a future reads.
struct Reading<'a>(&'a Mutex<Chair>);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        lock(self.0).reading = false;
    }
}

impl Chair {
    /// Who should read: the youngest whose own reply is due, for that comes last; else anybody who waits.
    fn heir(&self, answered: u64) -> Option<(&u64, &(u64, Arc<Promise>))> {
        let waits = |(_, (_, promise)): &(&u64, &(u64, Arc<Promise>))| !promise.is_ready();
        let due = self.waiting.iter().rev().take_while(|(_, (until, _))| *until > answered).find(waits);
        due.or_else(|| self.waiting.iter().rev().find(waits))
    }

    /// Has one of those who wait look at the connection.
    fn ring(chair: &Mutex<Self>) {
        let heir = lock(chair).heir(0).map(|(_, (_, heir))| heir.clone());
        if let Some(waker) = heir.and_then(|heir| heir.deafen()) {
            waker.wake();
        }
    }
}

impl Place {
    /// Reads, if that is this future's to do; `true` if it is to look again. Else the task is woken when
    /// something can be read or written, or was. Its promise must know the task already: whoever passes the
    /// lead on looks there.
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
        while road.tally().is_due() {
            let Some(fd) = self.wire.lead(self.id) else { return false };
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
                Poll::Pending if self.wire.is_led_by(self.id) => return false,
                Poll::Pending => {}
                // The runtime that watches it is about to end.
                Poll::Ready(Err(_)) => {
                    self.wire.let_go();
                    return false;
                }
                Poll::Ready(Ok(mut ready)) => {
                    let Some(reading) = self.wire.begin(&fd, self.id) else { return false };
                    // Its own outcome needs no wake.
                    self.promise.deafen();
                    if shared.pump(road, road.reader(), None) != Flow::More {
                        ready.clear_ready();
                    }
                    drop(reading);
                    return true;
                }
            }
        }
        false
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
        let led = chair.leader.is_none_or(|id| id == self.id);
        if led {
            chair.leader = None;
        }
        drop(chair);
        if led && self.wire.road.tally().is_due() {
            self.wire.pass();
        }
    }
}

impl fmt::Debug for RuntimeWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeWire").field("road", &self.road).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
