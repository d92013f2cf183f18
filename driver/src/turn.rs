//! One turn of the engine: a wish or report, then all that the engine asks for, until it asks no more.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, MutexGuard};

use bandog_core::Engine;
use bandog_core::error::Error;
use bandog_core::io::{AcquireRequest, Call, CallError, CallId, Claim, OpId, Outcome, Output, Wire};
use bandog_core::time::Time;

pub(crate) use bandog_core::engine::closed;

use crate::handle::Handle;
use crate::host::{Settled, Wish};
use crate::listen::{Ears, Queue};
use crate::loop_wire::LoopEnd;
use crate::mailbox::{Mail, News};
use crate::road::Road;
use crate::shared::{MESSAGES, Shared};
use crate::waiter::{Waiter, Waiting, Wake};
use crate::wire::Incoming;

/// What the mutex guards.
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) waiting: HashMap<OpId, Waiting, BuildHasherDefault<Ids>>,
    pub(crate) ears: Ears,
    /// The roads of event loops. Their wires are never used twice.
    pub(crate) loops: BTreeMap<Wire, Arc<Road>>,
    next_loop: Wire,
    /// Who wants to know that nothing is under way any more.
    pub(crate) idle: Vec<Waiter>,
    /// Something was granted or waited for once: the server was there, and the keeper has, or will have,
    /// requests of its own.
    pub(crate) met: bool,
    /// When the keeper will wake at the latest.
    pub(crate) armed: Option<Time>,
    pub(crate) closed: bool,
}

/// Hashes ids that are never used twice and come from our own engine: nobody can choose them badly.
#[derive(Default)]
pub(crate) struct Ids(u64);

impl Hasher for Ids {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        // Fibonacci's multiplier: the table looks at high and low bits.
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The engine, locked, for one wish or report (or several, with [`Turn::drain`] between them).
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    pub(crate) shared: &'a Shared,
    pub(crate) state: MutexGuard<'a, State>,
    pub(crate) after: After,
    /// The wish that is being stated, and its end, should that come at once.
    pub(crate) stated: Option<(OpId, Option<Outcome>)>,
}

/// What became of a wish when it was stated.
pub(crate) enum Stated {
    /// Its waiter will be told.
    Waiting(OpId),
    /// It needed no server. Nobody is told.
    Ended(Result<Settled, Error>),
}

/// What to do once the engine is unlocked.
#[derive(Default)]
pub(crate) struct After {
    /// Roads with something to write, a bit each.
    pub(crate) dirty: u8,
    pub(crate) loops: Vec<Arc<Road>>,
    pub(crate) wakes: Vec<Wake>,
}

impl State {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            waiting: HashMap::default(),
            ears: Ears::default(),
            loops: BTreeMap::new(),
            next_loop: Wire(MESSAGES as u32 + 1),
            idle: Vec::new(),
            met: false,
            armed: None,
            closed: false,
        }
    }

    /// Whether the keeper's link for requests has to be up: from the first grant or wait on, while anything
    /// is timed. Not with the first renewal or retry only, when it might be too late to find that there is
    /// no way; and not for an idle client, whose server may well close it.
    pub(crate) fn lasts(&self) -> bool {
        self.met && self.engine.poll_timeout().is_some()
    }
}

impl Turn<'_> {
    pub(crate) fn tell<R>(&mut self, tell: impl FnOnce(&mut Engine, Time) -> R) -> R {
        tell(&mut self.state.engine, self.now)
    }

    pub(crate) fn add_loop(&mut self, ring: Arc<dyn Fn() + Send + Sync>, carries: bool) -> Arc<Road> {
        let wire = self.state.next_loop;
        self.state.next_loop = Wire(wire.0 + 1);
        let road = Arc::new(Road::of_loop(LoopEnd::new(wire, ring, carries)));
        self.state.loops.insert(wire, road.clone());
        road
    }

    pub(crate) fn remove_loop(&mut self, road: &Road) {
        if let Some(end) = &road.end {
            end.retired.store(true, SeqCst);
            self.state.loops.remove(&end.wire);
        }
    }

    /// The road with this number, and that it has something to write. What an event loop that is gone would
    /// have said, the keeper says.
    fn road(&mut self, wire: Wire) -> Arc<Road> {
        let at = wire.0 as usize;
        if at < MESSAGES {
            return self.shared.roads[at].clone();
        }
        self.state.loops.get(&wire).unwrap_or(&self.shared.roads[Wire::KEEPER.0 as usize]).clone()
    }

    pub(crate) fn hear(&mut self, queue: &Arc<Queue>) -> Result<(), Error> {
        self.state.ears.add(queue)?;
        self.listening();
        Ok(())
    }

    pub(crate) fn deafen(&mut self, queue: &Arc<Queue>) {
        self.state.ears.remove(queue);
        queue.close(&mut self.after.wakes);
        self.listening();
    }

    fn listening(&mut self) {
        let open = self.state.ears.are_open();
        self.state.engine.set_listening(open);
    }

    pub(crate) fn wish(
        &mut self,
        wish: Wish,
        wire: Wire,
        waiter: impl FnOnce(OpId) -> Waiter,
    ) -> Result<Stated, Error> {
        if self.state.closed {
            return Err(wish.name().map_or_else(closed, |name| closed().of(name)));
        }
        let now = self.now;
        let engine = &mut self.state.engine;
        let mut held = None;
        let handle = wish.handle().cloned();
        let op = match wish {
            Wish::Acquire { name, owner, wait, lease, reenter } => {
                held = Some(name.clone());
                let reenter = reenter.map(|handle| handle.hold());
                engine.acquire(now, AcquireRequest { name, owner, wire, wait, lease, reenter })
            }
            Wish::Release(release) => engine.release(now, release.target(), wire),
            Wish::Extend { handle, lease } => engine.extend(now, handle.hold(), lease, wire),
            Wish::ForceRelease(name) => engine.force_release(now, name, wire),
            Wish::Status(name) => engine.status(now, name, wire),
        };
        self.stated = Some((op, None));
        self.drain();
        let outcome = self.stated.take().and_then(|(_, outcome)| outcome);
        let claim = match outcome {
            None => None,
            Some(Outcome::Granted) => Some(self.tell(|engine, now| engine.claim(now, op))),
            Some(outcome) => return Ok(Stated::Ended(settled(told(outcome, handle.as_ref())))),
        };
        if let (Some(Claim::Held(claimed)), Some(name)) = (claim, &held) {
            let handle = Handle::new(self.shared, name.clone(), claimed);
            return Ok(Stated::Ended(Ok(Settled::Held(handle))));
        }
        match waiter(op) {
            Waiter::Nobody => {}
            waiter => drop(self.state.waiting.insert(op, Waiting { waiter, name: held, handle })),
        }
        Ok(Stated::Waiting(op))
    }

    pub(crate) fn report(&mut self, road: &Road, incoming: &mut Vec<Incoming>) {
        for incoming in incoming.drain(..) {
            match incoming {
                Incoming::Ready => continue,
                Incoming::Reply { call, result } => {
                    road.answer(1);
                    self.tell(|engine, now| engine.handle_reply(now, call, result));
                }
                Incoming::Unfenced(call) => self.tell(|engine, now| engine.handle_unfenced(now, call)),
                Incoming::Push(push) => self.tell(|engine, now| engine.handle_push(now, push)),
            }
            self.drain();
        }
    }

    /// Reports calls that will get no reply, and that the link is down.
    pub(crate) fn lost(&mut self, road: &Road, reports: Vec<(CallId, CallError)>) {
        for (call, error) in reports {
            road.answer(1);
            self.tell(|engine, now| engine.handle_reply(now, call, Err(error)));
            self.drain();
        }
        if let Some(link) = road.link {
            self.tell(|engine, now| engine.handle_link(now, link, false));
            self.drain();
        }
    }

    pub(crate) fn drain(&mut self) {
        loop {
            let mut severed = None;
            while let Some(output) = self.state.engine.poll() {
                match output {
                    Output::Send(call) => self.send(call),
                    Output::Subscribe(channel) => {
                        self.state.met = true;
                        self.after.dirty |= 1 << MESSAGES;
                        self.shared.roads[MESSAGES].subscribe(channel);
                    }
                    Output::Unsubscribe(channel) => {
                        self.after.dirty |= 1 << MESSAGES;
                        self.shared.roads[MESSAGES].unsubscribe(channel);
                    }
                    Output::Sever(wire) => {
                        severed = Some(wire);
                        break;
                    }
                    Output::Done(op, outcome) => self.done(op, outcome),
                    Output::Event(event) => self.state.ears.tell(&event, &mut self.after.wakes),
                }
            }
            // At once, before later calls join those that this connection takes with it.
            let Some(wire) = severed else { return };
            let road = &self.road(wire);
            if !road.seats.is_up() {
                // What waits for a connection was not asked yet: it has `connect_timeout`, and is told when
                // the attempt fails.
                continue;
            }
            let reports = road.take_down(None, &self.shared.silent()).unwrap_or_default();
            road.bell.notify_one();
            for (call, error) in reports {
                road.answer(1);
                self.tell(|engine, now| engine.handle_reply(now, call, Err(error)));
            }
            if let Some(link) = road.link {
                self.tell(|engine, now| engine.handle_link(now, link, false));
            }
        }
    }

    fn send(&mut self, call: Call) {
        let at = call.wire.0 as usize;
        let road = self.road(call.wire);
        road.post(call);
        if road.end.is_none() {
            self.after.dirty |= 1 << if at < MESSAGES { at } else { Wire::KEEPER.0 as usize };
        } else if !self.after.loops.iter().any(|known| Arc::ptr_eq(known, &road)) {
            self.after.loops.push(road);
        }
    }

    fn done(&mut self, op: OpId, outcome: Outcome) {
        self.state.met |= outcome == Outcome::Granted;
        if let Some((stated, end)) = &mut self.stated
            && *stated == op
        {
            *end = Some(outcome);
            return;
        }
        let wakes = &mut self.after.wakes;
        if outcome == Outcome::Granted {
            if let Some(waiting) = self.state.waiting.get(&op) {
                waiting.waiter.tell(outcome, wakes);
            }
        } else if let Some(waiting) = self.state.waiting.remove(&op) {
            waiting.waiter.tell(told(outcome, waiting.handle.as_ref()), wakes);
        }
    }

    pub(crate) fn finish(mut self) -> After {
        let state = &mut *self.state;
        if let Some(next) = state.engine.poll_timeout()
            && state.armed.is_none_or(|armed| next < armed)
        {
            state.armed = Some(next);
            self.shared.keeper.arm(next);
        }
        let keepers = &self.shared.roads[Wire::KEEPER.0 as usize];
        if state.lasts() && !keepers.seats.is_up() {
            keepers.bell.notify_one();
        }
        if !state.idle.is_empty() && state.engine.is_idle() {
            for waiter in std::mem::take(&mut state.idle) {
                waiter.tell(Outcome::Extended, &mut self.after.wakes);
            }
        }
        self.after
    }
}

impl Waiter {
    pub(crate) fn tell(&self, outcome: Outcome, wakes: &mut Vec<Wake>) {
        match self {
            Self::Nobody => {}
            Self::Seat(seat) => {
                seat.put(outcome);
                wakes.push(Wake::Thread(seat.parker.clone()));
            }
            Self::Task(promise) => wakes.extend(promise.put(outcome).map(Wake::Task)),
            Self::Mailbox(mailbox, token) => {
                let result = match outcome {
                    Outcome::Granted => Ok(News::Granted),
                    other => settled(other).map(News::Ended),
                };
                if mailbox.post(Mail { token: *token, result }) {
                    wakes.push(Wake::Mailbox(mailbox.clone()));
                }
            }
        }
    }
}

/// The end of a wish that leans on a handle, in that handle's words.
fn told(outcome: Outcome, handle: Option<&Handle>) -> Outcome {
    match (outcome, handle) {
        (outcome @ Outcome::Released { left: 0 }, Some(handle)) => {
            handle.note_end();
            outcome
        }
        (Outcome::Failed(error), Some(handle)) => Outcome::Failed(handle.tell(error)),
        (outcome, _) => outcome,
    }
}

/// How a wish ended, for its caller.
pub(crate) fn settled(outcome: Outcome) -> Result<Settled, Error> {
    match outcome {
        // A grant is claimed, not handed on.
        Outcome::Granted | Outcome::Busy => Ok(Settled::Busy),
        Outcome::Released { left } => Ok(Settled::Released { left }),
        Outcome::Extended => Ok(Settled::Extended),
        Outcome::Forced(any) => Ok(Settled::Forced(any)),
        Outcome::Status(status) => Ok(Settled::Status(status)),
        Outcome::Failed(error) => Err(error),
    }
}
