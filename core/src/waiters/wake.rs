//! What ends a park: a message, a subscription that begins, the link that is back, a release of our own.

use crate::acquire::State;
use crate::engine::{Engine, Timer};
use crate::hold::Phase;
use crate::io::Wire;
use crate::name::Name;
use crate::slab;
use crate::time::{Millis, Time};

/// Messages are hints that anybody may send (reliability X5, F23): after so many tries that found one and
/// the same hold they cost no more than one try in this time.
const VAIN: u8 = 10;
const PACE: Millis = Millis(100);

/// The server rounds a time to live to the millisecond, we round ours.
const ROUNDING: Millis = Millis(2);

/// Tries in a row that found the same hold, which is told by its expiry: that lies between what the send
/// and the receipt of each reply say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Vain {
    expiry: (Time, Time),
    tries: u8,
    last: Time,
}

impl Engine {
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

    /// Until when a message has to wait: others go first, or there were too many for nothing.
    pub(crate) fn not_before(&self, now: Time, name: &Name) -> Option<Time> {
        self.paced_until(now, name).max(self.turn_at(now, name))
    }

    fn paced_until(&self, now: Time, name: &Name) -> Option<Time> {
        let vain = self.queues.get(name)?.vain.filter(|vain| vain.tries >= VAIN)?;
        Some(vain.last + PACE).filter(|&at| at > now)
    }

    /// The lock may be free: the contender tries, as soon as it may.
    pub(crate) fn hint(&mut self, now: Time, name: &Name) {
        match self.not_before(now, name) {
            Some(at) => self.put_off(name, at),
            None => self.wake(now, name),
        }
    }

    /// Whoever is in front tries then, and not before.
    pub(super) fn put_off(&mut self, name: &Name, at: Time) {
        self.hint_tries(name);
        let Some(queue) = self.queues.get_mut(name) else { return };
        // For whoever is in front by then.
        queue.busy_until = Some(at);
        let Some(op) = queue.front else { return };
        if matches!(self.state_of(op), Some(State::Parked | State::Subscribing)) {
            self.stop_step(op);
            let step = self.wheel.insert(at, Timer::Step(slab::index(op)));
            if let Some(acquire) = self.acquire_mut(op) {
                acquire.step = Some(step);
            }
        }
    }

    /// Those whose try is out try once more if it comes back busy: it may have been too early. In a queue or
    /// not, for the subscription may be that of others.
    fn hint_tries(&mut self, name: &Name) {
        let asked = self.holds.of_name(name.as_str()).filter(|(_, hold)| hold.phase == Phase::Asked);
        for op in asked.filter_map(|(_, hold)| hold.op).collect::<Vec<_>>() {
            if let Some(acquire) = self.acquire_mut(op).filter(|acquire| acquire.state == State::Trying) {
                acquire.hint = true;
            }
        }
    }

    /// A message came, a subscription was confirmed, or the link is back: the lock may be free.
    pub(crate) fn wake(&mut self, now: Time, name: &Name) {
        self.hint_tries(name);
        let Some(queue) = self.queues.get_mut(name) else { return };
        queue.busy_until = None;
        let Some(op) = queue.front else { return };
        if matches!(self.state_of(op), Some(State::Parked | State::Subscribing)) {
            self.try_now(now, op, "woken", Some(Wire::KEEPER), false);
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
}
