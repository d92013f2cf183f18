//! The world around a few engines: one server, wires whose calls the test delivers, loses or executes
//! late, and time as a number. Nothing moves unless the test says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::server::{Kept, Server};
use crate::Engine;
use crate::config::Config;
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::io::{
    AcquireRequest, Call, CallError, Claim, Claimed, HoldId, HoldView, OpId, Outcome, Push, Target, Value, Wait, Wire,
};
use crate::name::{Channel, Name};
use crate::owner::{ClientId, LocalOwner};
use crate::scripts::Ask;
use crate::time::{Millis, Time};

/// The wire of the callers.
pub(super) const CALLER: Wire = Wire(1);

/// A call, and what the server said to it.
type Answered = (Call, Result<Value, CallError>);

pub(super) struct World {
    pub(super) now: Time,
    pub(super) server: Server,
    pub(super) clients: Vec<Client>,
    /// Calls that lie in a connection that was given up, and may still be executed.
    pub(super) ghosts: VecDeque<(u64, Call)>,
    pub(super) connections: u64,
}

pub(super) struct Client {
    pub(super) engine: Engine,
    pub(super) wires: BTreeMap<Wire, VecDeque<Call>>,
    pub(super) connections: BTreeMap<Wire, u64>,
    /// Answers on their way back.
    pub(super) replies: BTreeMap<Wire, VecDeque<Answered>>,
    /// Every call it made, in order.
    pub(super) sent: Vec<Call>,
    pub(super) done: Vec<(OpId, Outcome)>,
    pub(super) events: Vec<Event>,
    pub(super) severed: Vec<Wire>,
    /// SUBSCRIBEs and UNSUBSCRIBEs it made, in order.
    pub(super) subscribes: Vec<(Channel, bool)>,
    /// Those that the server has not seen yet.
    pub(super) asked: VecDeque<(Channel, bool)>,
    pub(super) inbox: VecDeque<Push>,
    pub(super) messages_up: bool,
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A wish to hold the lock `n`, for ever.
pub(super) fn ask(owner: u64) -> AcquireRequest {
    AcquireRequest {
        name: name("n"),
        owner: LocalOwner(owner),
        wire: CALLER,
        wait: Wait::Forever,
        lease: None,
        reenter: None,
    }
}

pub(super) fn unreachable() -> Error {
    Error::new(Code::Unreachable, "connection refused")
}

impl World {
    pub(super) fn new(clients: usize) -> Self {
        Self::with(clients, Config::default())
    }

    pub(super) fn with(clients: usize, config: Config) -> Self {
        config.check().unwrap();
        let client = |number: usize| {
            let mut engine = Engine::new(config.clone(), ClientId([number as u8 + 1; 16]), 100 * number as u64);
            engine.set_listening(true);
            Client {
                engine,
                wires: BTreeMap::new(),
                connections: BTreeMap::new(),
                replies: BTreeMap::new(),
                sent: Vec::new(),
                done: Vec::new(),
                events: Vec::new(),
                severed: Vec::new(),
                subscribes: Vec::new(),
                asked: VecDeque::new(),
                inbox: VecDeque::new(),
                messages_up: false,
            }
        };
        Self {
            now: Time(1_000_000),
            server: Server::default(),
            clients: (0..clients).map(client).collect(),
            ghosts: VecDeque::new(),
            connections: 0,
        }
    }

    // ----- wishes -----

    pub(super) fn tell<R>(&mut self, at: usize, tell: impl FnOnce(&mut Engine, Time) -> R) -> R {
        let result = tell(&mut self.clients[at].engine, self.now);
        self.drain(at);
        result
    }

    pub(super) fn acquire(&mut self, at: usize, request: AcquireRequest) -> OpId {
        self.tell(at, |engine, now| engine.acquire(now, request))
    }

    pub(super) fn claim(&mut self, at: usize, op: OpId) -> Claim {
        self.tell(at, |engine, now| engine.claim(now, op))
    }

    /// Claims what must be there to be claimed.
    pub(super) fn take(&mut self, at: usize, op: OpId) -> Claimed {
        assert_eq!(self.done(at, op), Some(Outcome::Granted));
        match self.claim(at, op) {
            Claim::Held(claimed) => claimed,
            other => panic!("the grant was not to be had: {other:?}"),
        }
    }

    /// Acquires over a network that works, and claims.
    pub(super) fn hold(&mut self, at: usize, request: AcquireRequest) -> Claimed {
        let op = self.acquire(at, request);
        self.run();
        self.take(at, op)
    }

    pub(super) fn release(&mut self, at: usize, held: &Claimed) -> OpId {
        let target = Target::Level(held.hold, held.level);
        self.tell(at, |engine, now| engine.release(now, target, CALLER))
    }

    /// Releases over a network that works.
    pub(super) fn freed(&mut self, at: usize, held: &Claimed) -> Outcome {
        let op = self.release(at, held);
        self.run();
        self.done(at, op).expect("a release that was answered is settled")
    }

    pub(super) fn cancel(&mut self, at: usize, op: OpId) {
        self.tell(at, |engine, now| engine.cancel(now, op));
    }

    /// Takes out the oldest thing that was said about a wish.
    pub(super) fn done(&mut self, at: usize, op: OpId) -> Option<Outcome> {
        let done = &mut self.clients[at].done;
        let index = done.iter().position(|(of, _)| *of == op)?;
        Some(done.remove(index).1)
    }

    pub(super) fn error(&mut self, at: usize, op: OpId) -> Error {
        match self.done(at, op) {
            Some(Outcome::Failed(error)) => error,
            other => panic!("this should have failed: {other:?}"),
        }
    }

    // ----- time -----

    /// Time passes; timers fire when they are due, nothing else moves.
    pub(super) fn pass(&mut self, span: u64) {
        self.pass_with(span, |_| {});
    }

    /// Time passes; calls are answered, subscriptions and messages lie still.
    pub(super) fn pass_calls(&mut self, span: u64) {
        self.pass_with(span, |w| {
            for at in 0..w.clients.len() {
                for wire in [Wire::KEEPER, CALLER] {
                    while w.in_flight(at, wire) > 0 {
                        w.deliver(at, wire);
                    }
                }
            }
        });
    }

    /// Time passes over a network that works.
    pub(super) fn live(&mut self, span: u64) {
        self.run();
        self.pass_with(span, Self::run);
    }

    fn pass_with(&mut self, span: u64, mut then: impl FnMut(&mut Self)) {
        let end = self.now + Millis(span);
        loop {
            let next = self.clients.iter().filter_map(|client| client.engine.poll_timeout()).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            for at in 0..self.clients.len() {
                self.tell(at, Engine::handle_timeout);
            }
            then(self);
        }
        self.now = end;
        // A host that wakes often does no harm.
        for at in 0..self.clients.len() {
            self.tell(at, Engine::handle_timeout);
        }
    }

    // ----- what there is to see -----

    /// What the server has at `n`: one count for each owner.
    pub(super) fn counts(&mut self) -> Vec<u32> {
        self.server.fields(self.now, &name("n")).into_iter().map(|(_, count)| count).collect()
    }

    pub(super) fn is_free(&mut self) -> bool {
        self.counts().is_empty()
    }

    pub(super) fn ttl(&mut self) -> u64 {
        self.server.expires(self.now, &name("n")).expect("a lock with an expiry").since(self.now).0
    }

    /// Somebody gives the lock another expiry.
    pub(super) fn set_expiry(&mut self, at: Option<Time>) {
        match self.server.keys.get_mut(&name("n")) {
            Some(Kept::Lock { expires, .. }) => *expires = at,
            other => panic!("no lock: {other:?}"),
        }
    }

    /// Somebody deletes the key.
    pub(super) fn delete(&mut self) {
        self.server.keys.remove(&name("n"));
    }

    /// Another's value stands at the key.
    pub(super) fn overwrite(&mut self) {
        self.server.keys.insert(name("n"), Kept::Foreign);
    }

    /// A stranger holds the lock for so long.
    pub(super) fn stranger(&mut self, ttl: Option<u64>) {
        let fields = BTreeMap::from([("28a24051-6e84-4f1c-b23c-6a3a0f4a1f0e:1".to_owned(), 1)]);
        let expires = ttl.map(|ttl| self.now + Millis(ttl));
        self.server.keys.insert(name("n"), Kept::Lock { fields, expires });
    }

    pub(super) fn view(&self, at: usize, hold: HoldId) -> Option<HoldView> {
        self.clients[at].engine.view(self.now, hold)
    }

    pub(super) fn is_valid(&self, at: usize, held: &Claimed) -> bool {
        self.view(at, held.hold).is_some_and(|view| view.valid)
    }

    /// The losses that were told, in order.
    pub(super) fn losses(&self, at: usize) -> Vec<LossReason> {
        let lost = |event: &Event| match event {
            Event::Lost { why, .. } => Some(*why),
            _ => None,
        };
        self.clients[at].events.iter().filter_map(lost).collect()
    }

    pub(super) fn kinds(&self, at: usize) -> Vec<&'static str> {
        self.clients[at].events.iter().map(Event::kind).collect()
    }

    /// What a client sent so far, shortly: `+n` acquire, `-n` release to n, `~n` renewal of n holds, `?`
    /// status, `!n` force with n owners; `*` when it carries fences, `$` with the script's text.
    pub(super) fn sent(&self, at: usize) -> Vec<String> {
        self.clients[at].sent.iter().map(short).collect()
    }

    /// The same, of what was sent since the last look.
    pub(super) fn fresh(&mut self, at: usize) -> Vec<String> {
        self.clients[at].sent.drain(..).map(|call| short(&call)).collect()
    }

    /// The same once the application lets go of all that it still has: owners end, handles are dropped.
    pub(super) fn assert_clean_at_last(&mut self) {
        for at in 0..self.clients.len() {
            for id in self.clients[at].engine.holds.ids() {
                let hold = self.clients[at].engine.holds.get(id).unwrap();
                let (owner, levels) = (hold.owner, hold.levels.iter().map(|at| at.id).collect::<Vec<_>>());
                for level in levels {
                    self.tell(at, |engine, now| engine.handle_dropped(now, id, level));
                }
                self.tell(at, |engine, now| engine.owner_gone(now, owner));
            }
        }
        self.assert_clean();
    }

    /// Nothing is left anywhere: no key, no hold, no wish, no call, no timer, no subscription (R1).
    pub(super) fn assert_clean(&mut self) {
        // What a release keeps for those who go first is over in a moment.
        self.live(64);
        self.carry();
        let now = self.now;
        assert!(self.server.keys.keys().cloned().collect::<Vec<_>>().iter().all(|key| {
            let left = self.server.fields(now, key);
            assert_eq!(left, [], "left at {key}");
            true
        }));
        assert_eq!(self.server.subscribers, BTreeSet::new());
        for client in &self.clients {
            let engine = &client.engine;
            assert_eq!(engine.holds.len(), 0, "holds: {:#?}", engine.holds);
            assert_eq!(engine.ops.len(), 0, "wishes: {:#?}", engine.ops);
            assert_eq!(engine.calls.len(), 0, "calls: {:#?}", engine.calls);
            assert_eq!(engine.wheel.len(), 0, "timers");
            assert!(engine.queues.is_empty(), "{:#?}", engine.queues);
            assert!(engine.channels.is_empty(), "{:#?}", engine.channels);
            assert!(engine.is_idle());
            assert_eq!(engine.poll_timeout(), None);
        }
    }
}

fn short(call: &Call) -> String {
    let what = match &call.request.ask {
        Ask::Acquire { count, .. } => format!("+{count}"),
        Ask::Release { count, .. } => format!("-{count}"),
        Ask::Renew(renewals) => format!("~{}", renewals.len()),
        Ask::Force { owners, .. } => format!("!{}", owners.len()),
        Ask::Status { .. } => "?".to_owned(),
    };
    let fenced = if call.fences.is_empty() { "" } else { "*" };
    let source = if call.request.source { "$" } else { "" };
    format!("{what}{fenced}{source}")
}
