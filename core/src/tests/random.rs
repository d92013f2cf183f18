//! Random wishes, losses and delays, and what must hold whatever happens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::steps::{Step, crowd, step};
use super::world::*;
use crate::config::Config;
use crate::error::Code;
use crate::event::LossReason;
use crate::io::{AcquireRequest, CallError, Claim, Claimed, Link, OpId, Outcome, Wire};
use crate::owner::{ClientId, HoldNumber, LocalOwner};
use crate::scripts::Ask;
use crate::time::{Millis, Time};

pub(super) const CLIENTS: usize = 3;
const WATCHDOG: u64 = 3_000;
pub(super) const LONGEST: u64 = 4_000;

/// What the test knows besides the world.
#[derive(Default)]
struct Ghost {
    /// Wishes without a final outcome.
    open: BTreeMap<(usize, OpId), Wish>,
    held: Vec<(usize, Claimed)>,
    /// Levels whose release was not answered in time.
    unknown: Vec<(usize, Claimed)>,
    /// Numbers whose whole release was sent, and those whose was answered.
    begun: BTreeSet<(ClientId, HoldNumber)>,
    over: BTreeSet<(ClientId, HoldNumber)>,
    down: BTreeSet<(usize, Link)>,
    seen: [usize; CLIENTS],
    /// A message was lost though its link was up, or a link said to be down though nobody reported it so.
    dropped: bool,
}

enum Wish {
    Acquire,
    /// With the deadline, if it was valid when its release began.
    Release(Claimed, Option<Time>),
    Extend,
}

impl Ghost {
    fn step(&mut self, w: &mut World, at: usize, step: Step) {
        match step {
            Step::Acquire { owner, lock, wait, lease } => {
                let name = name(if lock { "m" } else { "n" });
                let op = w.acquire(at, AcquireRequest { name, wait, lease, ..ask(owner) });
                self.open.insert((at, op), Wish::Acquire);
            }
            Step::Reenter(nth) => {
                if let Some(held) = self.nth_held(at, nth) {
                    let op = w.acquire(at, AcquireRequest { reenter: Some(held.hold), ..ask(9) });
                    self.open.insert((at, op), Wish::Acquire);
                }
            }
            Step::Claim => self.claim(w, at),
            Step::Release(nth) => {
                let mine: Vec<_> = (0..self.held.len()).filter(|&index| self.held[index].0 == at).collect();
                if let Some(&index) = mine.get(nth) {
                    let (_, held) = self.held.remove(index);
                    self.release(w, at, held);
                }
            }
            Step::ReleaseAgain(nth) => {
                if let Some(index) = (0..self.unknown.len()).filter(|&index| self.unknown[index].0 == at).nth(nth) {
                    let (_, held) = self.unknown.remove(index);
                    let op = w.release(at, &held);
                    self.open.insert((at, op), Wish::Release(held, None));
                }
            }
            Step::Extend(nth, lease) => {
                if let Some(held) = self.nth_held(at, nth) {
                    let op = w.tell(at, |engine, now| engine.extend(now, held.hold, Millis(lease), CALLER));
                    self.open.insert((at, op), Wish::Extend);
                }
            }
            Step::Cancel(nth) => {
                let op = self.open.iter().filter(|(key, _)| key.0 == at).nth(nth).map(|(key, _)| key.1);
                if let Some(op) = op {
                    w.cancel(at, op);
                    self.open.remove(&(at, op));
                    w.clients[at].done.retain(|(of, _)| *of != op);
                }
            }
            Step::Deliver(wire) => {
                if w.in_flight(at, wire) > 0 {
                    w.deliver(at, wire);
                }
            }
            Step::Execute(wire) => {
                if w.in_flight(at, wire) > 0 {
                    w.execute_only(at, wire);
                }
            }
            Step::Reply(wire) => drop(w.reply(at, wire)),
            Step::Cut { wire, executed, late } => {
                let executed = executed.min(w.in_flight(at, wire));
                w.cut(at, wire, executed, late);
            }
            Step::NotSent(wire) => {
                self.dropped |= wire == Wire::KEEPER;
                if w.in_flight(at, wire) > 0 {
                    while w.reply(at, wire) {}
                    w.answer(at, wire, Err(CallError::NotSent(unreachable())));
                }
            }
            Step::Busy(wire) => {
                if w.in_flight(at, wire) > 0 {
                    while w.reply(at, wire) {}
                    w.answer(at, wire, Err(CallError::Server("BUSY Redis is busy".into())));
                }
            }
            Step::NoScript => w.server.forgotten = crate::scripts::Script::ALL.into_iter().collect(),
            Step::Haunt => w.haunt(),
            Step::Subscribe => drop(w.subscribe(at)),
            Step::Push => {
                w.carry();
                w.push(at);
            }
            Step::DropPush => self.dropped |= w.server.published.pop_front().is_some(),
            Step::Link(link) => {
                let up = self.down.remove(&(at, link)) || !self.down.insert((at, link));
                if link == Link::Requests && !up {
                    w.cut(at, Wire::KEEPER, 0, true);
                }
                w.link(at, link, up);
            }
            Step::OwnerGone(owner) => w.tell(at, |engine, now| engine.owner_gone(now, LocalOwner(owner))),
            Step::Listeners(count) => w.server.listeners = count,
            Step::Pass(span) => self.pass(w, span, false),
            Step::Run => w.run(),
        }
        self.sever(w);
    }

    fn release(&mut self, w: &mut World, at: usize, held: Claimed) {
        let valid = w.view(at, held.hold).filter(|view| view.valid).map(|view| view.deadline);
        let op = w.release(at, &held);
        self.open.insert((at, op), Wish::Release(held, valid));
    }

    fn nth_held(&self, at: usize, nth: usize) -> Option<Claimed> {
        self.held.iter().filter(|(client, _)| *client == at).nth(nth).map(|(_, held)| held.clone())
    }

    /// Time passes in steps short enough to see what happens in between.
    fn pass(&mut self, w: &mut World, span: u64, network: bool) {
        let end = w.now + Millis(span);
        while w.now < end {
            let step = end.since(w.now).0.min(if network { 250 } else { 50 });
            if network {
                w.live(step)
            } else {
                w.pass(step)
            }
            self.sever(w);
            self.check(w);
        }
    }

    /// Wires that were given up.
    fn sever(&mut self, w: &mut World) {
        for at in 0..CLIENTS {
            while let Some(wire) = w.clients[at].severed.pop() {
                w.cut(at, wire, 0, true);
            }
        }
    }

    fn claim(&mut self, w: &mut World, at: usize) {
        let granted = w.clients[at].done.iter().position(|(_, outcome)| *outcome == Outcome::Granted);
        let Some(index) = granted else { return };
        let (op, _) = w.clients[at].done.remove(index);
        match w.claim(at, op) {
            Claim::Held(claimed) => {
                let view = w.view(at, claimed.hold).unwrap();
                assert!(view.valid, "S6");
                self.open.remove(&(at, op)).expect("an open wish");
                assert!(!w.clients[at].done.iter().any(|(of, _)| *of == op), "settled once");
                self.held.push((at, claimed));
            }
            Claim::Again => {}
            Claim::Gone => assert!(!self.open.contains_key(&(at, op)) || self.is_told(w, at, op)),
        }
    }

    fn is_told(&self, w: &World, at: usize, op: OpId) -> bool {
        w.clients[at].done.iter().any(|(of, _)| *of == op)
    }

    fn check(&mut self, w: &mut World) {
        self.outcomes(w);
        self.sends(w);
        self.wakes(w);
        for client in &w.clients {
            client.engine.check_queues(w.now);
            // F15: no deadline passes unnoticed, whatever is under way.
            let running = client.engine.holds.ids().into_iter().filter_map(|id| client.engine.holds.get(id));
            for hold in running.filter(|hold| hold.is_running() && hold.deadline() > w.now) {
                assert!(client.engine.poll_timeout().is_some_and(|at| at <= hold.deadline()), "{hold:?}");
            }
        }
        for lock in ["n", "m"] {
            let lock = name(lock);
            // S1: no two holds are valid at once.
            let valid: BTreeSet<_> = self
                .held
                .iter()
                .filter(|(at, held)| {
                    let hold = w.clients[*at].engine.holds.get(held.hold);
                    hold.is_some_and(|hold| hold.name == lock && hold.is_valid(w.now))
                })
                .map(|(at, held)| (*at, held.owner.clone()))
                .collect();
            assert!(valid.len() <= 1, "S1: {valid:?}");
            let fields = w.server.fields(w.now, &lock);
            assert!(fields.len() <= 1, "one field: {fields:?}");
            if let Some((_, owner)) = valid.first() {
                assert_eq!(fields.first().map(|(field, _)| field), Some(owner), "who is valid holds the lock");
            }
            if !fields.is_empty() {
                let ttl = w.server.expires(w.now, &lock).expect("S14: an expiry").since(w.now);
                assert!(ttl <= Millis(LONGEST), "L: {ttl}");
            }
        }
    }

    /// L2: where a lock was released and all there is to hear of it was heard, nobody sleeps on, but for those
    /// that go first and for messages that come too often.
    fn wakes(&self, w: &World) {
        for (at, client) in w.clients.iter().enumerate() {
            let calls =
                client.wires.values().all(VecDeque::is_empty) && client.replies.values().all(VecDeque::is_empty);
            let messages = client.asked.is_empty()
                && client.inbox.is_empty()
                && !w.server.published.iter().any(|(client, _)| *client == at);
            if self.dropped || !calls || !messages || !client.messages_up {
                continue;
            }
            for lock in &w.server.released {
                let late = client.engine.looks_up(lock).filter(|until| *until > w.now + Millis(100));
                assert_eq!(late, None, "{lock} is free since it was released, now {:?}", w.now);
            }
        }
    }

    /// Each wish settles once.
    fn outcomes(&mut self, w: &mut World) {
        for at in 0..CLIENTS {
            let done = std::mem::take(&mut w.clients[at].done);
            for (op, outcome) in done {
                if outcome == Outcome::Granted {
                    w.clients[at].done.push((op, outcome));
                    continue;
                }
                let wish = self.open.remove(&(at, op)).expect("a wish settles once");
                let ok = match (&wish, &outcome) {
                    (Wish::Acquire, Outcome::Busy)
                    | (Wish::Release(..), Outcome::Released { .. })
                    | (Wish::Extend, Outcome::Extended) => true,
                    (_, Outcome::Failed(error)) => matches!(
                        error.code(),
                        Code::LockLost | Code::NotOwner | Code::Unreachable | Code::ReleaseUnknown
                    ),
                    _ => false,
                };
                assert!(ok, "{outcome:?}");
                if let (Wish::Release(held, valid), Outcome::Failed(error)) = (wish, outcome) {
                    match error.code() {
                        Code::ReleaseUnknown => self.unknown.push((at, held)),
                        Code::LockLost => assert!(valid.is_none_or(|deadline| w.now >= deadline), "{error}"),
                        _ => {}
                    }
                }
            }
            // Nobody takes a lock away in this world: the only end of a hold is that of its time.
            assert!(w.losses(at).iter().all(|why| *why == LossReason::Expired), "{:?}", w.losses(at));
        }
    }

    /// M24: nothing but its release is sent for a hold whose release began; nothing at all once that was
    /// answered.
    fn sends(&mut self, w: &World) {
        for at in 0..CLIENTS {
            let client = &w.clients[at];
            for call in &client.sent[self.seen[at]..] {
                let who = |owner: &crate::owner::WireOwner| (owner.client, owner.number);
                match &call.request.ask {
                    Ask::Acquire { owner, .. } => assert!(!self.begun.contains(&who(owner)), "{call:?}"),
                    Ask::Renew(renewals) => {
                        assert!(renewals.iter().all(|one| !self.begun.contains(&who(&one.owner))), "{call:?}");
                    }
                    Ask::Release { owner, count: 0, .. } => {
                        assert!(!self.over.contains(&who(owner)), "{call:?}");
                        self.begun.insert(who(owner));
                    }
                    Ask::Release { .. } | Ask::Force { .. } | Ask::Status { .. } => {}
                }
            }
            self.seen[at] = client.sent.len();
            let known = |number: &HoldNumber| {
                client.engine.holds.ids().iter().any(|id| client.engine.holds.get(*id).unwrap().number == *number)
            };
            let ended = self.begun.iter().filter(|(id, number)| *id == client.engine.client_id() && !known(number));
            let ended: Vec<_> = ended.copied().collect();
            self.over.extend(ended);
        }
    }

    /// The network heals, everything is released: nothing is left, and every name can be had (L10, R1).
    fn finish(mut self, w: &mut World) {
        for (at, link) in std::mem::take(&mut self.down) {
            w.link(at, link, true);
        }
        while !w.ghosts.is_empty() {
            w.haunt();
        }
        self.pass(w, LONGEST + 2_000, true);
        for _ in 0..1_000 {
            for at in 0..CLIENTS {
                self.claim(w, at);
            }
            for (at, held) in std::mem::take(&mut self.held) {
                self.release(w, at, held);
            }
            w.run();
            self.check(w);
            if self.open.is_empty() {
                break;
            }
            if w.clients.iter().all(|client| client.done.is_empty()) {
                w.live(20);
            }
        }
        let left: Vec<_> = self.open.keys().collect();
        assert!(left.is_empty(), "L10: wishes without an end: {left:?} {:#?}", w.clients[left[0].0].engine.ops);
        w.live(40_000);
        self.check(w);
        for lock in ["n", "m"] {
            let held = w.hold(0, AcquireRequest { name: name(lock), ..ask(77) });
            assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
        }
        w.assert_clean_at_last();
    }
}

fn play(steps: Vec<(usize, Step)>, local_reentry: bool) {
    let config = Config {
        watchdog: Millis(WATCHDOG),
        op_timeout: Millis(500),
        connect_timeout: Millis(1_000),
        unreachable_after: Millis(5_000),
        local_reentry,
        max_hold: None,
    };
    let mut w = World::with(CLIENTS, config);
    assert_ne!(w.now, Time(0));
    let mut ghost = Ghost::default();
    for (at, step) in steps {
        ghost.step(&mut w, at, step);
        ghost.check(&mut w);
    }
    ghost.finish(&mut w);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn s1_s4_s5_l10_r1_hold_whatever_happens(
        steps in prop::collection::vec(step(), 1..60),
        local_reentry in prop::bool::weighted(0.2),
    ) {
        play(steps, local_reentry);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn l2_in_a_crowd_nobody_sleeps_on(steps in prop::collection::vec(crowd(), 60..300)) {
        play(steps, false);
    }
}
