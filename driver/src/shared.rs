//! The engine behind its mutex, and the one way to it: [`Shared::with`] applies a wish or a report, drains
//! the engine, and performs what it asks for.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bandog_core::Engine;
use bandog_core::error::{Code, Error};
use bandog_core::io::{Claim, Link, OpId, Outcome, Wire};
use bandog_core::owner::ClientId;
use bandog_core::time::Time;

use crate::clock;
use crate::fork;
use crate::handle::{Handle, foreign, forked};
use crate::host::{Submitted, Ticket, Wish};
use crate::keeper::Keeper;
use crate::mailbox::Mailbox;
use crate::options::Options;
use crate::road::{Flow, Reader, Road};
use crate::runtime::Runtimes;
use crate::seats::{Next, Readers};
use crate::sys::Socket;
use crate::turn::{After, State, Stated, Turn, closed};
use crate::waiter::{Waiter, Wake, lock};
use crate::wire::Connection;

/// The road of subscriptions, behind those of the wires.
pub(crate) const MESSAGES: usize = 3;

/// One engine, its connections and its keeper, in one process.
pub(crate) struct Shared {
    /// The process: see `fork.rs`.
    pub(crate) generation: u64,
    /// Which engine of this process: holds and wishes are known to one engine only.
    pub(crate) epoch: u64,
    pub(crate) id: ClientId,
    pub(crate) options: Options,
    pub(crate) roads: [Arc<Road>; 4],
    pub(crate) keeper: Keeper,
    pub(crate) runtimes: Runtimes,
    state: Mutex<State>,
}

impl Shared {
    /// The wire of callers that block.
    pub(crate) const THREADS: Wire = Wire(1);
    /// The wire of event loops that cannot watch a descriptor.
    pub(crate) const LOOP: Wire = Wire(2);

    pub(crate) fn new(options: &Options) -> Arc<Self> {
        static EPOCHS: AtomicU64 = AtomicU64::new(0);
        let id = ClientId(uuid::Uuid::new_v4().into_bytes());
        let seed = uuid::Uuid::new_v4().as_u64_pair().1;
        Arc::new(Self {
            generation: fork::generation(),
            epoch: EPOCHS.fetch_add(1, Ordering::Relaxed),
            id,
            options: options.clone(),
            roads: [
                Road::new(Some(Link::Requests), Readers::Keeper),
                Road::new(None, Readers::Threads),
                Road::new(None, Readers::Keeper),
                Road::new(Some(Link::Messages), Readers::Keeper),
            ]
            .map(Arc::new),
            keeper: Keeper::default(),
            runtimes: Runtimes::default(),
            state: Mutex::new(State::new(Engine::new(options.config().clone(), id, seed))),
        })
    }

    /// Asks the engine something that changes nothing.
    pub(crate) fn read<R>(&self, ask: impl FnOnce(&Engine, Time) -> R) -> R {
        let state = lock(&self.state);
        ask(&state.engine, clock::now())
    }

    /// Applies a wish or report, drains the engine, and performs what it asks for. The only way to change
    /// the engine.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Turn<'_>) -> R) -> R {
        let (result, after) = self.apply(change);
        self.settle(after, None);
        result
    }

    /// All of [`Shared::with`] that is done under the mutex.
    fn apply<R>(&self, change: impl FnOnce(&mut Turn<'_>) -> R) -> (R, After) {
        let state = lock(&self.state);
        // Read under the mutex, so that the engine never sees time go back.
        let mut turn = Turn { now: clock::now(), shared: self, state, after: After::default(), stated: None };
        let result = change(&mut turn);
        turn.drain();
        (result, turn.finish())
    }

    /// States a wish; its end is told to the waiter, unless it comes at once.
    pub(crate) fn wish(
        self: &Arc<Self>,
        wish: Wish,
        wire: Wire,
        waiter: impl FnOnce(OpId) -> Waiter,
    ) -> Result<Stated, Error> {
        wish.check()?;
        if let Some(handle) = wish.handle() {
            handle.own(self)?;
        }
        self.keeper.start(self).map_err(|error| match wish.name() {
            Some(name) => error.of(name),
            None => error,
        })?;
        let (stated, after) = self.apply(|turn| turn.wish(wish, wire, waiter));
        self.settle(after, Some(wire));
        stated
    }

    /// States a wish for an event loop.
    pub(crate) fn submit(
        self: &Arc<Self>,
        wish: Wish,
        wire: Wire,
        mailbox: &Arc<Mailbox>,
        token: u64,
    ) -> Result<Submitted, Error> {
        let ticket = |op| Ticket { generation: self.generation, epoch: self.epoch, op };
        Ok(match self.wish(wish, wire, |_| Waiter::Mailbox(mailbox.clone(), token))? {
            Stated::Waiting(op) => Submitted::Waiting(ticket(op)),
            Stated::Ended(result) => Submitted::Ended(result),
        })
    }

    /// Takes a grant for the caller that resumed. `None`: wait for the next end of this wish.
    pub(crate) fn claim(&self, op: OpId) -> Result<Option<Handle>, Error> {
        self.with(|turn| {
            match turn.tell(|engine, now| engine.claim(now, op)) {
                Claim::Held(claimed) => {
                    let name = turn.state.waiting.remove(&op).and_then(|waiting| waiting.name);
                    let name = name.ok_or_else(|| Error::new(Code::Closed, "the grant was claimed twice"))?;
                    Ok(Some(Handle::new(self, name, claimed)))
                }
                Claim::Again => Ok(None),
                // Its waiter is there only if no later end was told.
                Claim::Gone if turn.state.waiting.remove(&op).is_none() => Ok(None),
                Claim::Gone => Err(Error::new(Code::Closed, "the wish ended before its grant was taken")),
            }
        })
    }

    /// The caller of a wish is gone.
    pub(crate) fn cancel(&self, op: OpId) {
        self.with(|turn| {
            if turn.state.waiting.remove(&op).is_some() {
                turn.tell(|engine, now| engine.cancel(now, op));
            }
        });
    }

    /// Nobody in a loop waits any more.
    pub(crate) fn cancel_all(&self, mailbox: &Arc<Mailbox>) {
        self.with(|turn| {
            let of_loop = |waiter: &Waiter| matches!(waiter, Waiter::Mailbox(of, _) if Arc::ptr_eq(of, mailbox));
            let mut ops: Vec<_> =
                turn.state.waiting.iter().filter(|(_, waiting)| of_loop(&waiting.waiter)).map(|(op, _)| *op).collect();
            ops.sort_unstable();
            for op in ops {
                turn.state.waiting.remove(&op);
                turn.tell(|engine, now| engine.cancel(now, op));
                turn.drain();
            }
        });
    }

    /// Refuses what belongs to another process or another client.
    pub(crate) fn own(&self, generation: u64, epoch: u64) -> Result<(), Error> {
        if generation != self.generation {
            Err(forked())
        } else if epoch != self.epoch {
            Err(foreign())
        } else {
            Ok(())
        }
    }

    /// Whether a road is worth a connection.
    pub(crate) fn wants(&self, road: &Road) -> bool {
        road.has_work() || road.link == Some(Link::Requests) && lock(&self.state).lasts()
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    /// Reads a road once and reports what came. With a socket: waits a little for something to come.
    pub(crate) fn pump(&self, road: &Road, mut reader: MutexGuard<'_, Reader>, patient: Option<&Arc<Socket>>) -> Flow {
        let flow = road.read(&mut reader, patient);
        if reader.incoming.is_empty() {
            drop(reader);
        } else {
            let ((), after) = self.apply(|turn| turn.report(road, &mut reader.incoming));
            drop(reader);
            self.settle(after, None);
        }
        match flow {
            Flow::Broken(epoch) => self.fail(road, epoch),
            // Left to us while we had the socket, or waiting for replies to come.
            _ if road.has_mail() => self.flush(road, true),
            _ => {}
        }
        flow
    }

    /// Writes what waits on a road, and sees to it that somebody serves it.
    pub(crate) fn flush(&self, road: &Road, eager: bool) {
        if self.send(road, eager) {
            self.pass(road, road.seats.attend(|| road.tally()));
        }
    }

    /// Writes what waits on a road; says whether replies may come that somebody has to read.
    fn send(&self, road: &Road, eager: bool) -> bool {
        let known = road.end.is_some() && road.is_clogged();
        let flow = road.flush(eager);
        if road.link == Some(Link::Messages) {
            // The keeper counts how long the answer takes.
            road.bell.notify_one();
        }
        match flow {
            Flow::Done | Flow::More | Flow::Empty | Flow::Interrupted => {}
            Flow::Later => {
                if let Some(end) = &road.end {
                    end.put_off();
                }
            }
            Flow::Down => {
                road.bell.notify_one();
                return false;
            }
            // A loop that knows waits until the socket can be written.
            Flow::Clogged if known => {}
            Flow::Clogged => self.nudge(road),
            Flow::Broken(epoch) => {
                self.fail(road, epoch);
                return false;
            }
        }
        true
    }

    /// Wakes whom the lead of a road went to.
    pub(crate) fn pass(&self, road: &Road, next: Next) {
        match next {
            Next::Nobody => {}
            Next::Caller(parker) => parker.unpark(),
            Next::Loop => road.ring(),
            Next::Keeper => road.bell.notify_one(),
        }
    }

    /// A connection is there.
    pub(crate) fn came_up(&self, road: &Road, connection: Connection, socket: Arc<Socket>) {
        let next = self.with(|turn| {
            // Its loop may have ended meanwhile.
            if road.is_retired() {
                return Next::Nobody;
            }
            let next = road.install(connection, socket);
            if let Some(link) = road.link {
                turn.tell(|engine, now| engine.handle_link(now, link, true));
            }
            next
        });
        self.flush(road, true);
        self.pass(road, next);
        // The loop is to watch it.
        road.ring();
    }

    /// A road for one event loop. `ring` has that loop turn.
    pub(crate) fn open_loop(
        self: &Arc<Self>,
        ring: Arc<dyn Fn() + Send + Sync>,
        carries: bool,
    ) -> Result<Arc<Road>, Error> {
        self.keeper.start(self)?;
        let road = self.with(|turn| turn.add_loop(ring, carries));
        self.keeper.tend(self, &road);
        Ok(road)
    }

    /// The loop is gone. What is still to be said goes down the keeper's own wire.
    pub(crate) fn retire(&self, road: &Arc<Road>) {
        let why = closed();
        self.with(|turn| {
            turn.remove_loop(road);
            if let Some(reports) = road.take_down(None, &why) {
                turn.lost(road, reports);
            }
        });
        road.bell.notify_one();
    }

    /// A connection on which nothing comes any more, though an answer is due.
    pub(crate) fn drop_silent(&self, road: &Road) {
        let why = self.silent();
        self.with(|turn| {
            if let Some(reports) = road.take_down(None, &why) {
                turn.lost(road, reports);
            }
        });
    }

    pub(crate) fn silent(&self) -> Error {
        Error::new(Code::Unreachable, format!("the server at {} did not answer in time", self.options.server()))
    }

    /// This connection broke.
    fn fail(&self, road: &Road, epoch: u64) {
        let why = Error::new(
            Code::Unreachable,
            format!("the connection to {} was lost before the request was sent", self.options.server()),
        );
        self.with(|turn| {
            if let Some(reports) = road.take_down(Some(epoch), &why) {
                turn.lost(road, reports);
            }
        });
        road.bell.notify_one();
    }

    /// No connection could be made.
    pub(crate) fn refused(&self, road: &Road, why: &Error) {
        self.with(|turn| {
            let reports = road.give_up(why);
            turn.lost(road, reports);
        });
    }

    /// The deadline the keeper slept for has come.
    pub(crate) fn timeout(&self) {
        self.with(|turn| {
            turn.state.armed = None;
            turn.tell(|engine, now| engine.handle_timeout(now));
        });
    }

    /// Refuses new wishes, ends those under way and releases what is held. `idle` is told when all that
    /// is done; with `tell`, holders are told first. Says whether this was the first call.
    pub(crate) fn shut(&self, tell: bool, idle: Waiter) -> bool {
        self.with(|turn| {
            let first = !turn.state.closed;
            turn.state.closed = true;
            turn.state.idle.push(idle);
            if first && tell {
                turn.tell(Engine::lose_all);
            }
            if first {
                turn.tell(|engine, now| engine.close(now, Self::THREADS));
            }
            first
        })
    }

    /// The end: closes connections and listeners; whoever still waits is told that the client is closed.
    pub(crate) fn end(&self) {
        self.runtimes.close();
        let why = closed();
        let loops = self.with(|turn| {
            let loops: Vec<_> = turn.state.loops.values().cloned().collect();
            loops.iter().for_each(|road| turn.remove_loop(road));
            for road in self.roads.iter().chain(&loops) {
                road.take_down(None, &why);
            }
            let mut waiting: Vec<_> = turn.state.waiting.drain().collect();
            waiting.sort_unstable_by_key(|(op, _)| *op);
            for (_, waiting) in waiting {
                waiting.waiter.tell(Outcome::Failed(why.clone()), &mut turn.after.wakes);
            }
            for waiter in std::mem::take(&mut turn.state.idle) {
                waiter.tell(Outcome::Extended, &mut turn.after.wakes);
            }
            turn.state.ears.close(&mut turn.after.wakes);
            loops
        });
        // The loops may stop watching.
        for road in loops {
            road.ring();
        }
    }

    /// The last client object is gone: the keeper releases what is held, briefly, and ends.
    pub(crate) fn abandon(&self) {
        // First, for a keeper that is being started meanwhile looks whether this happened.
        self.shut(false, Waiter::Nobody);
        if self.keeper.is_started() {
            self.keeper.stop(true);
        } else {
            self.end();
        }
    }

    fn nudge(&self, road: &Road) {
        self.pass(road, road.seats.leader());
    }

    /// Does what the turn left to do. `own`: the wire of whoever stated a wish just now.
    fn settle(&self, after: After, own: Option<Wire>) {
        let mut dirty = after.dirty;
        while dirty != 0 {
            let at = dirty.trailing_zeros() as usize;
            if own == Some(Self::THREADS) && at == Self::THREADS.0 as usize {
                // Its caller sits down next, or passes the lead on.
                self.send(&self.roads[at], false);
            } else {
                self.flush(&self.roads[at], false);
            }
            dirty &= dirty - 1;
        }
        for road in after.loops {
            // Only the loop itself can put a write off to the end of its turn.
            let elsewhere = own.is_none() || own != road.end.as_ref().map(|end| end.wire);
            self.flush(&road, elsewhere);
        }
        Wake::run_all(after.wakes);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("id", &self.id).finish_non_exhaustive()
    }
}
