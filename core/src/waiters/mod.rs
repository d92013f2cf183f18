//! Who waits for whom inside this process (design 2).
//!
//! Waiters of one name stand in one queue, first come first served. The first that its host can wake is
//! the contender: it alone subscribes, tries and parks; those behind it send nothing. What ends a park is
//! told in `wake.rs`; when other processes go first, in `turns.rs`.

pub(crate) mod turns;
mod wake;

pub(crate) use turns::Audience;

use std::collections::{BTreeMap, VecDeque};

use crate::acquire::State;
use crate::engine::{Engine, Timer};
use crate::event::Event;
use crate::hold::Phase;
use crate::io::{OpId, Output, Wait, Wire};
use crate::name::Name;
use crate::owner::LocalOwner;
use crate::slab;
use crate::time::{Millis, Time};
use crate::wheel::TimerId;

/// A server expires a key after the last millisecond of its time to live, not in it.
const EXPIRY_SLACK: Millis = Millis(2);

/// After how long a wait for a lock held in the same process is worth a warning.
const LONG_WAIT: Millis = Millis::secs(5);

/// How long a queue whose last waiter was granted the lock stays, and its subscription with it: who holds
/// briefly and comes again does not subscribe each time.
const STAY: Millis = Millis::secs(1);

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Queue {
    entries: VecDeque<OpId>,
    /// How many wishes each owner has here.
    owners: BTreeMap<LocalOwner, u32>,
    /// Who contends now.
    front: Option<OpId>,
    /// No use trying before then without a message.
    busy_until: Option<Time>,
    vain: Option<wake::Vain>,
    turn: turns::Turn,
    /// While nobody is in it: the end of its stay, by its number in `resting`.
    rest: Option<(u32, TimerId)>,
    /// Somebody in it, now or before, learned that the lock is held: whoever is in it waits for the lock,
    /// not for a server.
    told_busy: bool,
}

impl Engine {
    /// Puts a newcomer into the queue of its name, if it is of use to wait for others of this process. A
    /// name that nobody here asks for or holds has no queue, and the newcomer tries at once.
    pub(crate) fn joins_queue(&mut self, now: Time, op: OpId, name: &Name) -> bool {
        if self.queues.get(name).is_none_or(|queue| queue.entries.is_empty()) {
            let waits = |op: &OpId| self.acquire_ref(*op).is_some_and(|acquire| acquire.request.wait != Wait::Try);
            let found = self.holds.of_name(name.as_str()).find_map(|(_, hold)| match hold.phase {
                // A single try may come to nothing: that one is not waited for.
                Phase::Asked => hold.op.filter(waits).map(|first| (Some(first), None)),
                Phase::Live | Phase::Doubtful => Some((None, Some(hold.sent + hold.lease))),
                Phase::Lost(_) | Phase::Released => None,
            });
            let told_busy = matches!(found, Some((_, Some(_))));
            let yields = || self.yields(now, op, name).map(|until| (None, Some(until)));
            let Some((first, busy_until)) = found.or_else(yields) else { return false };
            let queue = self.queues.entry(name.clone()).or_default();
            (queue.front, queue.busy_until, queue.told_busy) = (first, busy_until, told_busy);
            if let Some(first) = first {
                self.join(now, first, name, false);
            }
        }
        self.join(now, op, name, false);
        true
    }

    fn join(&mut self, now: Time, op: OpId, name: &Name, in_front: bool) {
        let Some(owner) = self.acquire_ref(op).map(|acquire| acquire.request.owner) else { return };
        let queue = self.queues.entry(name.clone()).or_default();
        if let Some((number, timer)) = queue.rest.take() {
            self.resting.remove(&number);
            self.wheel.cancel(timer);
        }
        *queue.owners.entry(owner).or_default() += 1;
        if in_front {
            queue.entries.push_front(op);
        } else {
            queue.entries.push_back(op);
        }
        self.mark_queued(now, op);
    }

    fn mark_queued(&mut self, now: Time, op: OpId) {
        let notice = self.wheel.insert(now + LONG_WAIT, Timer::Notice(slab::index(op)));
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.queued = true;
        acquire.notice = Some(notice);
        if acquire.request.wait == Wait::Forever && self.down_since.is_some() {
            self.set_end(now, op, self.config.unreachable_after);
        }
    }

    /// A waiter was told that the lock is busy for `ttl`: it waits for that in front of all others.
    pub(crate) fn wait_in_front(&mut self, now: Time, op: OpId, name: &Name, ttl: Millis) {
        self.keep_place(now, op, name);
        if let Some(queue) = self.queues.get_mut(name) {
            queue.busy_until = Some(now + ttl + EXPIRY_SLACK);
            queue.told_busy = true;
        }
        self.advance(now, name);
    }

    /// Whether it waits for a lock that is known to be held: it outlasts an outage.
    pub(crate) fn outlasts(&self, op: OpId) -> bool {
        self.acquire_ref(op).is_some_and(|acquire| {
            let queue = || self.queues.get(&acquire.request.name);
            acquire.told_busy || acquire.queued && queue().is_some_and(|queue| queue.told_busy)
        })
    }

    /// A waiter gave its grant back, and waits again where it stood.
    pub(crate) fn take_place_again(&mut self, now: Time, op: OpId, name: &Name) {
        self.keep_place(now, op, name);
        self.advance(now, name);
    }

    fn keep_place(&mut self, now: Time, op: OpId, name: &Name) {
        if self.acquire_ref(op).is_some_and(|acquire| !acquire.queued) {
            self.join(now, op, name, true);
        }
    }

    /// A waiter leaves. `held_until` is given when it holds the lock now.
    pub(crate) fn leave_queue(&mut self, now: Time, op: OpId, name: &Name, held_until: Option<Time>) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.queued = false;
        let (owner, notice) = (acquire.request.owner, acquire.notice.take());
        if let Some(notice) = notice {
            self.wheel.cancel(notice);
        }
        let Some(queue) = self.queues.get_mut(name) else { return };
        // The one that leaves nearly always stands in front.
        if let Some(at) = queue.entries.iter().position(|&entry| entry == op) {
            queue.entries.remove(at);
        }
        if let Some(wishes) = queue.owners.get_mut(&owner) {
            *wishes -= 1;
            if *wishes == 0 {
                queue.owners.remove(&owner);
            }
        }
        if queue.front == Some(op) {
            queue.front = None;
        }
        if held_until.is_some() {
            queue.busy_until = held_until;
            queue.told_busy = true;
            if queue.entries.is_empty() && self.channels.is_active(name) {
                self.rest(now, name, now + STAY);
            }
        }
    }

    /// Keeps a queue, in which nobody is, until then.
    fn rest(&mut self, now: Time, name: &Name, until: Time) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        if let Some((number, timer)) = queue.rest.take() {
            self.resting.remove(&number);
            self.wheel.cancel(timer);
        }
        if until > now {
            self.next_rest = self.next_rest.wrapping_add(1);
            queue.rest = Some((self.next_rest, self.wheel.insert(until, Timer::Rest(self.next_rest))));
            self.resting.insert(self.next_rest, name.clone());
        }
    }

    pub(crate) fn on_rested(&mut self, now: Time, number: u32) {
        let Some(name) = self.resting.remove(&number) else { return };
        if let Some(queue) = self.queues.get_mut(&name) {
            queue.rest = None;
            self.advance(now, &name);
        }
    }

    /// The client closes: what nobody waits in goes.
    pub(crate) fn close_queues(&mut self, now: Time) {
        for number in self.resting.keys().copied().collect::<Vec<_>>() {
            if let Some((_, timer)) = self.resting.get(&number).and_then(|name| self.queues.get(name)?.rest) {
                self.wheel.cancel(timer);
            }
            self.on_rested(now, number);
        }
    }

    /// The wishes of one owner that wait here.
    pub(crate) fn queued_of(&self, name: &Name, owner: LocalOwner) -> Vec<OpId> {
        match self.queues.get(name) {
            Some(queue) if queue.owners.contains_key(&owner) => {
                let own = |op: &OpId| self.acquire_ref(*op).is_some_and(|acquire| acquire.request.owner == owner);
                queue.entries.iter().copied().filter(own).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Lets the contender of a name do its next step, after anything changed in its queue.
    pub(crate) fn advance(&mut self, now: Time, name: &Name) {
        let Some(queue) = self.queues.get(name) else { return };
        if queue.entries.is_empty() {
            if queue.rest.is_some() {
                return;
            }
            self.queues.remove(name);
            if let Some(channel) = self.channels.unwant(name) {
                self.output(Output::Unsubscribe(channel));
            }
            return;
        }
        let (front, busy_until) = (queue.front, queue.busy_until);
        let contender =
            queue.entries.iter().copied().find(|&op| self.state_of(op).is_some_and(|state| state != State::Passed));
        if let Some(other) = front.filter(|_| front != contender) {
            match self.state_of(other) {
                // One in flight at a time: its end calls here again.
                Some(State::Trying | State::HeldOff | State::Granted) => return,
                Some(State::Parked | State::Subscribing) => {
                    self.stop_step(other);
                    self.arrow(other, "overtaken", State::Queued);
                }
                Some(State::New | State::Queued | State::Passed | State::Ended) | None => {}
            }
        }
        if let Some(queue) = self.queues.get_mut(name) {
            queue.front = contender;
        }
        let Some(op) = contender else { return };
        if self.state_of(op) != Some(State::Queued) {
            return;
        }
        if let Some(channel) = self.channels.want(name) {
            self.output(Output::Subscribe(channel));
        }
        let settled = self.channels.is_settled(name);
        match busy_until.filter(|&until| until > now) {
            Some(until) if settled => self.wait_until(now, op, "front and known", State::Parked, until),
            Some(until) => self.wait_until(now, op, "to the front", State::Subscribing, until),
            None => self.try_now(now, op, "front and free", Some(Wire::KEEPER), false),
        }
    }

    fn wait_until(&mut self, now: Time, op: OpId, why: &'static str, to: State, until: Time) {
        // A time to live above our own is the holder's choice; we look again all the same (L3).
        let until = until.min(now + self.config.watchdog + EXPIRY_SLACK);
        let step = self.wheel.insert(until, Timer::Step(slab::index(op)));
        if let Some(acquire) = self.acquire_mut(op) {
            acquire.arrow(why, to);
            acquire.step = Some(step);
        }
    }

    fn state_of(&self, op: OpId) -> Option<State> {
        self.acquire_ref(op).map(|acquire| acquire.state)
    }

    /// Waiters without an end give up some time after the link went down; those that are left try at
    /// once when it is back.
    pub(crate) fn waiters_and_link(&mut self, now: Time, up: bool) {
        let names: Vec<Name> = self.queues.keys().cloned().collect();
        let span = self.config.unreachable_after;
        for name in names {
            let Some(queue) = self.queues.get(&name) else { continue };
            for op in queue.entries.clone() {
                let Some(acquire) = self.acquire_ref(op) else { continue };
                if acquire.request.wait != Wait::Forever {
                    continue;
                }
                if !up {
                    self.set_end(now, op, span);
                } else if let Some(timer) = self.acquire_mut(op).and_then(|acquire| acquire.end.take()) {
                    self.wheel.cancel(timer);
                }
            }
            if up {
                self.wake(now, &name);
            }
        }
    }

    /// A wait has gone on for long: if the lock is held in this very process, that is likely a mistake.
    pub(crate) fn on_notice(&mut self, now: Time, op: OpId) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.notice = None;
        let (name, waiting) = (acquire.request.name.clone(), acquire.request.owner);
        let holding =
            self.holds.of_name(name.as_str()).find(|(_, hold)| hold.is_valid(now)).map(|(_, hold)| hold.owner);
        if let Some(holding) = holding {
            let text = format!(
                "owner {} has waited for {LONG_WAIT} for a lock that owner {} of the same process holds",
                waiting.0, holding.0
            );
            self.event(Event::Warning { name: Some(name), text });
        }
    }
}

#[cfg(test)]
impl Engine {
    /// When the contender of a name looks up at the latest, if it sleeps.
    pub(crate) fn looks_up(&self, name: &Name) -> Option<Time> {
        let front = self.acquire_ref(self.queues.get(name)?.front?)?;
        match front.state {
            State::Parked | State::Subscribing => self.wheel.due(front.step?),
            _ => None,
        }
    }

    /// Nobody waits without an end, nor long for others to go first.
    pub(crate) fn check_queues(&self, now: Time) {
        for (name, queue) in &self.queues {
            assert_eq!(queue.entries.is_empty(), queue.rest.is_some(), "{name}: {queue:?}");
            assert!(queue.turn_is_near(now), "{name}: {queue:?}");
            for &op in &queue.entries {
                let acquire = self.acquire_ref(op).expect("whoever waits is there");
                let timed = match acquire.state {
                    State::Parked | State::Subscribing | State::Granted => acquire.step.is_some(),
                    State::New | State::Ended => false,
                    State::Queued => queue.front != Some(op),
                    State::Trying | State::HeldOff | State::Passed => true,
                };
                assert!(timed, "{name}: {acquire:?} in {queue:?}");
            }
        }
        assert_eq!(self.resting.len(), self.queues.values().filter(|queue| queue.rest.is_some()).count());
    }
}
