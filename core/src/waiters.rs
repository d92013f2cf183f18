//! Who waits for whom inside this process (design 2).
//!
//! Waiters of one name stand in one queue, first come first served. The first that its host can wake is
//! the contender: it alone subscribes, tries and parks; those behind it send nothing. A park ends with a
//! message, with the end of the other's lease, or when the link comes back.

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

/// A server expires a key after the last millisecond of its time to live, not in it.
const EXPIRY_SLACK: Millis = Millis(2);

/// After how long a wait for a lock held in the same process is worth a warning.
const LONG_WAIT: Millis = Millis::secs(5);

/// Messages are hints that anybody may send (reliability X5, F23): after so many tries that found one and
/// the same hold they cost no more than one try in this time.
const VAIN: u8 = 10;
const PACE: Millis = Millis(100);

/// The server rounds a time to live to the millisecond, we round ours.
const ROUNDING: Millis = Millis(2);

/// Tries in a row that found the same hold, which is told by its expiry: that lies between what the send
/// and the receipt of each reply say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Vain {
    expiry: (Time, Time),
    tries: u8,
    last: Time,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Queue {
    entries: VecDeque<OpId>,
    /// How many wishes each owner has here.
    owners: BTreeMap<LocalOwner, u32>,
    /// Who contends now.
    front: Option<OpId>,
    /// No use trying before then without a message.
    busy_until: Option<Time>,
    vain: Option<Vain>,
    /// Somebody in it, now or before, learned that the lock is held: whoever is in it waits for the lock,
    /// not for a server.
    told_busy: bool,
}

impl Engine {
    /// Puts a newcomer into the queue of its name, if it is of use to wait for others of this process. A
    /// name that nobody here asks for or holds has no queue, and the newcomer tries at once.
    pub(crate) fn joins_queue(&mut self, now: Time, op: OpId, name: &Name) -> bool {
        if !self.queues.contains_key(name) {
            let waits = |op: &OpId| self.acquire_ref(*op).is_some_and(|acquire| acquire.request.wait != Wait::Try);
            let found = self.holds.of_name(name.as_str()).find_map(|(_, hold)| match hold.phase {
                // A single try may come to nothing: that one is not waited for.
                Phase::Asked => hold.op.filter(waits).map(|first| (Some(first), None)),
                Phase::Live | Phase::Doubtful => Some((None, Some(hold.sent + hold.lease))),
                Phase::Lost(_) | Phase::Released => None,
            });
            let Some((first, busy_until)) = found else { return false };
            let told_busy = busy_until.is_some();
            self.queues.insert(name.clone(), Queue { front: first, busy_until, told_busy, ..Queue::default() });
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
    pub(crate) fn leave_queue(&mut self, op: OpId, name: &Name, held_until: Option<Time>) {
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

    /// A try found the lock held for `ttl`.
    pub(crate) fn note_vain(&mut self, now: Time, sent: Time, name: &Name, ttl: Millis) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let (low, high) = (sent + ttl, now + ttl + ROUNDING);
        let new = Vain { expiry: (low, high), tries: 0, last: now };
        let old = queue.vain.map_or(new, |old| {
            let expiry = (old.expiry.0.max(low), old.expiry.1.min(high));
            if expiry.0 <= expiry.1 { Vain { expiry, ..old } } else { new }
        });
        queue.vain = Some(Vain { tries: old.tries.saturating_add(1), last: now, ..old });
    }

    /// Until when messages have to wait, if there were too many for nothing.
    pub(crate) fn paced_until(&self, now: Time, name: &Name) -> Option<Time> {
        let vain = self.queues.get(name)?.vain.filter(|vain| vain.tries >= VAIN)?;
        Some(vain.last + PACE).filter(|&at| at > now)
    }

    /// A message came: the lock may be free.
    pub(crate) fn hint(&mut self, now: Time, name: &Name) {
        let Some(at) = self.paced_until(now, name) else { return self.wake(now, name) };
        let Some(queue) = self.queues.get_mut(name) else { return };
        // For whoever is in front by then.
        queue.busy_until = Some(at);
        let Some(op) = queue.front else { return };
        match self.state_of(op) {
            Some(State::Parked | State::Subscribing) => {
                self.stop_step(op);
                let step = self.wheel.insert(at, Timer::Step(slab::index(op)));
                if let Some(acquire) = self.acquire_mut(op) {
                    acquire.step = Some(step);
                }
            }
            _ => self.wake(now, name),
        }
    }

    /// A message came, a subscription was confirmed, or the link is back: the lock may be free.
    pub(crate) fn wake(&mut self, now: Time, name: &Name) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        queue.busy_until = None;
        let Some(op) = queue.front else { return };
        match self.state_of(op) {
            Some(State::Parked | State::Subscribing) => self.try_now(now, op, "woken", Some(Wire::KEEPER), false),
            Some(State::Trying) => {
                if let Some(acquire) = self.acquire_mut(op) {
                    acquire.hint = true;
                }
            }
            Some(State::New | State::Queued | State::HeldOff | State::Granted | State::Passed | State::Ended)
            | None => {}
        }
    }

    /// The subscription was refused: the contender parks by time alone.
    pub(crate) fn settle_unsubscribed(&mut self, now: Time, name: &Name) {
        let Some(queue) = self.queues.get(name) else { return };
        let until = queue.busy_until.unwrap_or(now);
        let Some(op) = queue.front else { return };
        if self.state_of(op) == Some(State::Subscribing) {
            self.stop_step(op);
            self.wait_until(now, op, "refused", State::Parked, until);
        }
    }

    /// A lock of this process was released: where no message will say so, its waiters are told here.
    pub(crate) fn told_by_release(&mut self, now: Time, name: &Name) {
        if self.queues.contains_key(name) && !self.channels.is_active(name) {
            self.wake(now, name);
        }
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
