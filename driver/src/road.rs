//! A wire: the calls on their way to one connection, the connection, and who reads it.
//!
//! Locks are taken in this order: reader, engine, io, outbox. Calls are appended to the outbox under the
//! engine's mutex, so in the order in which the engine made them; they are encoded and written under
//! `io`, outside the engine's mutex. Whoever finds `io` taken leaves its calls to the one who has it:
//! that one looks into the outbox again after letting go.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use bandog_core::error::Error;
use bandog_core::io::{Call, CallError, CallId, Link};
use bandog_core::name::Channel;
use tokio::sync::Notify;

use crate::loop_wire::LoopEnd;
use crate::seats::{Next, Readers, Seats, Tally};
use crate::sys::Socket;
use crate::waiter::lock;
use crate::wire::{Connection, Incoming};

/// Up to this many calls in flight each is written at once; above, the replies that come set the pace.
const AT_ONCE: usize = 4;

/// The same for a loop, which writes the others at the end of its turn.
const AT_ONCE_IN_LOOP: usize = 1;

/// As much as one read takes. Replies are short; a hundred of them fit.
const READ: usize = 16 << 10;

/// One wire, or the connection of subscriptions.
#[derive(Debug)]
pub(crate) struct Road {
    /// The keeper's own connections, as the engine calls them.
    pub(crate) link: Option<Link>,
    /// The loop that serves it.
    pub(crate) end: Option<LoopEnd>,
    pub(crate) seats: Seats,
    /// Tells the keeper's task of this road to look what there is to do.
    pub(crate) bell: Notify,
    reader: Mutex<Reader>,
    io: Mutex<Io>,
    outbox: Mutex<Outbox>,
    /// Bytes wait until the socket can be written.
    clogged: AtomicBool,
    /// The server owes an answer.
    owed: AtomicBool,
    posted: AtomicU64,
    answered: AtomicU64,
}

/// What one reader needs from the read to the report. Held for so long, it keeps reports in order when
/// the lead changes hands.
#[derive(Debug)]
pub(crate) struct Reader {
    buffer: Box<[u8]>,
    pub(crate) incoming: Vec<Incoming>,
}

#[derive(Debug, Default)]
struct Io {
    live: Option<Live>,
    /// How many connections there were.
    epoch: u64,
    /// What was taken from the outbox; kept to use its memory again.
    batch: VecDeque<Item>,
}

struct Live {
    connection: Connection,
    socket: Arc<Socket>,
}

#[derive(Debug, Default)]
struct Outbox {
    items: VecDeque<Item>,
    /// The channels asked for. Not empty: a lost connection is opened again.
    channels: BTreeSet<Channel>,
}

#[derive(Debug)]
enum Item {
    Call(Call),
    Subscribe(Channel),
    Unsubscribe(Channel),
    Ping,
}

/// How a flush or a read went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Nothing more to do now.
    Done,
    /// There may be more to read at once.
    More,
    /// There was nothing to read.
    Empty,
    /// A signal came while there was nothing to read.
    Interrupted,
    /// Left to whoever reads next, or for the end of the loop's turn.
    Later,
    /// There is no connection, and something waits for one.
    Down,
    /// Bytes wait until the socket can be written: its leader must know.
    Clogged,
    /// This connection is broken; it is for [`Road::take_down`].
    Broken(u64),
}

impl Road {
    pub(crate) fn new(link: Option<Link>, readers: Readers) -> Self {
        Self::made(link, readers, None)
    }

    /// The road of one event loop.
    pub(crate) fn of_loop(end: LoopEnd) -> Self {
        Self::made(None, Readers::Loop, Some(end))
    }

    fn made(link: Option<Link>, readers: Readers, end: Option<LoopEnd>) -> Self {
        Self {
            link,
            end,
            seats: Seats::new(readers),
            bell: Notify::new(),
            reader: Mutex::new(Reader { buffer: vec![0; READ].into(), incoming: Vec::new() }),
            io: Mutex::default(),
            outbox: Mutex::default(),
            clogged: AtomicBool::new(false),
            owed: AtomicBool::new(false),
            posted: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        }
    }

    /// Appends a call. Under the engine's mutex.
    pub(crate) fn post(&self, call: Call) {
        self.posted.fetch_add(1, SeqCst);
        lock(&self.outbox).items.push_back(Item::Call(call));
        if self.end.as_ref().is_some_and(|end| end.resting.swap(false, SeqCst)) {
            self.bell.notify_one();
        }
    }

    /// Wants a channel. Under the engine's mutex.
    pub(crate) fn subscribe(&self, channel: Channel) {
        let mut outbox = lock(&self.outbox);
        if outbox.channels.insert(channel.clone()) {
            outbox.items.push_back(Item::Subscribe(channel));
        }
    }

    /// Wants a channel no more. Under the engine's mutex.
    pub(crate) fn unsubscribe(&self, channel: Channel) {
        let mut outbox = lock(&self.outbox);
        if outbox.channels.remove(&channel) {
            outbox.items.push_back(Item::Unsubscribe(channel));
        }
    }

    /// Has the loop of this road turn, if it has one.
    pub(crate) fn ring(&self) {
        if let Some(end) = &self.end {
            (end.ring)();
        }
    }

    /// Whether the loop of this road is gone.
    pub(crate) fn is_retired(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.retired.load(SeqCst))
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(&self) {
        lock(&self.outbox).items.push_back(Item::Ping);
    }

    pub(crate) fn is_owed(&self) -> bool {
        self.owed.load(SeqCst)
    }

    pub(crate) fn listens(&self) -> bool {
        !lock(&self.outbox).channels.is_empty()
    }

    /// Replies are about to be reported to the engine. Under its mutex.
    pub(crate) fn answer(&self, count: usize) {
        self.answered.fetch_add(count as u64, SeqCst);
    }

    pub(crate) fn tally(&self) -> Tally {
        // In this order, so that the difference is never negative.
        let answered = self.answered.load(SeqCst);
        Tally { answered, posted: self.posted.load(SeqCst) }
    }

    pub(crate) fn is_clogged(&self) -> bool {
        self.clogged.load(SeqCst)
    }

    /// Writes what waits. Not `eager`: leaves it to the reader, or to the end of the loop's turn, while
    /// enough is in flight.
    pub(crate) fn flush(&self, eager: bool) -> Flow {
        loop {
            let mut io = match self.io.try_lock() {
                Ok(io) => io,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Flow::Done,
            };
            let epoch = io.epoch;
            let Some(live) = &io.live else {
                return if self.has_work() { Flow::Down } else { Flow::Done };
            };
            let at_once = if self.end.is_some() { AT_ONCE_IN_LOOP } else { AT_ONCE };
            if !eager && live.connection.in_flight() >= at_once {
                return Flow::Later;
            }
            let written = self.write(&mut io);
            drop(io);
            match written {
                Err(_) => return Flow::Broken(epoch),
                Ok(false) => return Flow::Clogged,
                Ok(true) if !self.has_mail() => return Flow::Done,
                Ok(true) => {}
            }
        }
    }

    /// Takes the right to read, until what was read is reported.
    pub(crate) fn reader(&self) -> MutexGuard<'_, Reader> {
        lock(&self.reader)
    }

    /// The same for the keeper, which must not wait for a caller that waits for its reply.
    pub(crate) fn try_reader(&self) -> Option<MutexGuard<'_, Reader>> {
        match self.reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Reads once, decodes, and writes what waits. With a socket: waits a little for something to come.
    pub(crate) fn read(&self, reader: &mut Reader, patient: Option<&Arc<Socket>>) -> Flow {
        // Not under `io`: others write meanwhile. Nobody else reads meanwhile.
        let received = patient.map(|socket| socket.receive(&mut reader.buffer));
        let mut io = lock(&self.io);
        let epoch = io.epoch;
        let Some(live) = &mut io.live else { return Flow::Done };
        if patient.is_some_and(|socket| !Arc::ptr_eq(socket, &live.socket)) {
            return Flow::Done;
        }
        let count = match received.unwrap_or_else(|| live.socket.read(&mut reader.buffer)) {
            Ok(0) => return Flow::Broken(epoch),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Flow::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Flow::Interrupted,
            Err(_) => return Flow::Broken(epoch),
        };
        let fine = live.connection.input(&reader.buffer[..count]).is_ok();
        while let Some(incoming) = live.connection.poll() {
            reader.incoming.push(incoming);
        }
        if !fine || self.write(&mut io).is_err() {
            return Flow::Broken(epoch);
        }
        if count == reader.buffer.len() { Flow::More } else { Flow::Done }
    }

    /// A connection is there. Under the engine's mutex. Gives who reads it.
    pub(crate) fn install(&self, connection: Connection, socket: Arc<Socket>) -> Next {
        let mut io = lock(&self.io);
        io.epoch += 1;
        io.live = Some(Live { connection, socket: socket.clone() });
        if self.link == Some(Link::Messages) {
            // The engine, told next that the link is up, asks for every channel anew.
            let mut outbox = lock(&self.outbox);
            outbox.items.clear();
            outbox.channels.clear();
        }
        self.seats.came_up(socket, || self.tally())
    }

    /// Takes the connection away, this one or whichever there is, and tells what becomes of each call, in
    /// order. Calls that were not written yet are not kept for the next connection: an earlier call of
    /// the same hold may have an unknown outcome, and only the engine knows what to fence then. `None`
    /// when that connection is gone already. Under the engine's mutex.
    pub(crate) fn take_down(&self, epoch: Option<u64>, why: &Error) -> Option<Vec<(CallId, CallError)>> {
        let mut io = lock(&self.io);
        if epoch.is_some_and(|epoch| epoch != io.epoch || io.live.is_none()) {
            return None;
        }
        let mut reports = Vec::new();
        let mut reason = None;
        if let Some(live) = io.live.take() {
            reason = live.connection.failure().cloned();
            reports = live.connection.abandon();
            let unknown = reports.iter().any(|(_, error)| matches!(error, CallError::Unknown(_)));
            self.clogged.store(false, SeqCst);
            self.owed.store(false, SeqCst);
            self.seats.went_down();
            live.socket.end(unknown);
        }
        reports.extend(self.give_up(reason.as_ref().unwrap_or(why)));
        Some(reports)
    }

    /// There is no connection and none could be made: takes the calls out of the outbox.
    pub(crate) fn give_up(&self, why: &Error) -> Vec<(CallId, CallError)> {
        let mut outbox = lock(&self.outbox);
        outbox
            .items
            .drain(..)
            .filter_map(|item| match item {
                Item::Call(call) => Some((call.id, CallError::NotSent(why.clone()))),
                Item::Subscribe(_) | Item::Unsubscribe(_) | Item::Ping => None,
            })
            .collect()
    }

    /// Whether something waits to be written.
    pub(crate) fn has_mail(&self) -> bool {
        !lock(&self.outbox).items.is_empty()
    }

    /// Whether something waits for a connection.
    pub(crate) fn has_work(&self) -> bool {
        let outbox = lock(&self.outbox);
        !outbox.channels.is_empty() || outbox.items.iter().any(|item| matches!(item, Item::Call(_)))
    }

    /// Encodes and writes what waits; `false` when the socket takes no more now.
    fn write(&self, io: &mut Io) -> io::Result<bool> {
        let Some(Live { connection, socket }) = &mut io.live else { return Ok(true) };
        loop {
            // While bytes wait for the socket, calls wait in the outbox: the connection's buffer stays small.
            if connection.output().is_empty() {
                std::mem::swap(&mut lock(&self.outbox).items, &mut io.batch);
                for item in io.batch.drain(..) {
                    match item {
                        Item::Call(call) => connection.call(call),
                        Item::Subscribe(channel) => connection.subscribe(&channel),
                        Item::Unsubscribe(channel) => connection.unsubscribe(&channel),
                        Item::Ping => connection.ping(),
                    }
                }
            }
            self.owed.store(connection.is_owed(), SeqCst);
            let output = connection.output();
            if output.is_empty() {
                self.clogged.store(false, SeqCst);
                return Ok(true);
            }
            match socket.write(output) {
                Ok(count) => connection.wrote(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.clogged.store(true, SeqCst);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("socket", &self.socket).finish_non_exhaustive()
    }
}
