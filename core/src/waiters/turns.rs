//! Whose turn it is among processes that wait for one lock.
//!
//! A release publishes, and the server says how many heard it: those are the other processes that wait. Each
//! of them goes before the one that released: its next waiter counts one message for each of them, and tries
//! at the last one. As every process counts so, the one that has waited longest tries at once, the next one
//! only if that one does not come, and nobody races. Where nobody else was told nothing of this happens.

use crate::acquire::State;
use crate::arrows::{self, Arrow};
use crate::engine::Engine;
use crate::hold::Phase;
use crate::io::{OpId, Wait};
use crate::name::Name;
use crate::time::{Millis, Time};

#[rustfmt::skip]
pub(crate) const ARROWS: &[Arrow] = &[
    ("ours",   "told none",   "ours"),   // a release that nobody else waited for
    ("ours",   "told others", "theirs"), // they go first
    ("theirs", "told none",   "ours"),
    ("theirs", "told others", "theirs"),
    ("theirs", "message",     "theirs"), // one of them released it: one fewer
    ("theirs", "message",     "ours"),   // the last one
    ("theirs", "granted",     "ours"),   // they did not come, and the patience with them was over
];

/// How long the lock may stand idle before we take it out of turn: 2 ms for one that goes first, long enough
/// for a process that runs, and twice as long for each one more. Those far behind look up rarely, for it takes
/// many that are gone at once to leave the lock to them.
const fn patience(ahead: u32) -> Millis {
    match ahead {
        0 => Millis::ZERO,
        1..=5 => Millis(1 << ahead),
        _ => MOST,
    }
}

/// The most patience there is, and how long one who released is remembered to have had its turn.
const MOST: Millis = Millis(64);

/// How long a message waits for the answer to a release that went out before it came.
const ANSWER: Millis = Millis(8);

/// So many grants in a row for which somebody did not come tell that he never will.
const LATE: u8 = 3;

/// After so many releases one of those who never came is expected again.
const AGAIN: u8 = 64;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Turn {
    /// How many messages come before ours.
    ahead: u32,
    /// When it is ours whether or not they came.
    until: Time,
    /// Messages since our release went out, while it has no answer: which one is ours is not known yet.
    heard: u32,
}

impl Turn {
    fn set(&mut self, now: Time, why: &'static str, ahead: u32) {
        let name = |ahead| if ahead > 0 { "theirs" } else { "ours" };
        arrows::take(ARROWS, name(self.ahead), why, name(ahead));
        self.ahead = ahead;
        self.until = now + patience(ahead);
    }
}

/// Subscribers that never take a lock: somebody who only listens, a process that is stopped. They are found
/// out, for to wait for them would slow down a lock that nobody else wants.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Audience {
    idle: u32,
    /// Grants in a row for which somebody did not come, and the fewest that did not.
    late: u8,
    fewest: u32,
    releases: u8,
}

impl Audience {
    /// How many of the subscribers that were told will take the lock.
    fn takers(&mut self, told: u32) -> u32 {
        self.idle = self.idle.min(told);
        self.releases = (self.releases + 1) % AGAIN;
        if self.releases == 0 && self.idle > 0 {
            self.idle -= 1;
            // Once is enough to be sure again.
            (self.late, self.fewest) = (LATE - 1, 1);
        }
        told - self.idle
    }

    /// The lock was granted while so many were still expected.
    fn granted(&mut self, ahead: u32) {
        if ahead == 0 {
            self.late = 0;
            return;
        }
        self.fewest = if self.late == 0 { ahead } else { self.fewest.min(ahead) };
        self.late += 1;
        if self.late >= LATE {
            self.idle += self.fewest;
            self.late = 0;
        }
    }
}

#[cfg(test)]
impl super::Queue {
    pub(super) fn turn_is_near(&self, now: Time) -> bool {
        self.turn.until <= now + MOST && (self.turn.ahead > 0 || self.turn.until <= now)
    }
}

impl Engine {
    /// A lock of this process was released, and so many subscribers were told: the others go first.
    pub(crate) fn after_release(&mut self, now: Time, name: &Name, told: u32) {
        if told == 0 && !self.queues.contains_key(name) {
            return;
        }
        let own = u32::from(self.channels.is_active(name));
        let takers = self.audience.takers(told.saturating_sub(own));
        if self.closed || takers == 0 && !self.queues.contains_key(name) {
            return;
        }
        let queue = self.queues.entry(name.clone()).or_default();
        let unheard = own.saturating_sub(core::mem::take(&mut queue.turn.heard));
        // Our own copy of the message is counted when it comes.
        let (why, ahead) = if takers == 0 { ("told none", 0) } else { ("told others", takers + unheard) };
        queue.turn.set(now, why, ahead);
        let (until, empty) = (queue.turn.until, queue.entries.is_empty());
        if empty {
            // Whoever comes again soon has had its turn, though by then the lock may be free.
            self.rest(now, name, if ahead > 0 { now + MOST } else { now });
            self.advance(now, name);
        } else if ahead > 0 {
            self.put_off(name, until);
        } else {
            self.wake(now, name);
        }
    }

    /// A message came: somebody released the lock.
    pub(crate) fn on_message(&mut self, now: Time, name: &Name) {
        let releasing = self.is_releasing(name);
        let Some(queue) = self.queues.get_mut(name) else { return };
        if releasing {
            // Likely our own. The answer to the release is as near as its message, and says whose turn it is.
            queue.turn.heard = queue.turn.heard.saturating_add(1);
            // Once: anybody may send messages, and as many as he likes.
            if queue.turn.heard == 1 {
                self.put_off(name, now + ANSWER);
            }
            return;
        }
        if let Some(ahead) = queue.turn.ahead.checked_sub(1) {
            queue.turn.set(now, "message", ahead);
        }
        self.hint(now, name);
    }

    fn is_releasing(&self, name: &Name) -> bool {
        let mut holds = self.holds.of_name(name.as_str());
        holds.any(|(_, hold)| hold.phase == Phase::Released && hold.road.is_pending())
    }

    /// The subscription was confirmed: what was missed before may have been the one message that mattered.
    pub(crate) fn on_subscribed(&mut self, now: Time, name: &Name) {
        let (Some(until), Some(queue)) = (self.turn_at(now, name), self.queues.get(name)) else {
            return self.wake(now, name);
        };
        // Others go first, and not for long: the try that follows is the check.
        if let Some(op) = queue.front.filter(|&op| self.state_of(op) == Some(State::Subscribing)) {
            self.stop_step(op);
            self.wait_until(now, op, "others first", State::Parked, until);
        }
        self.put_off(name, until);
    }

    /// When it is our turn at the latest, if it is not now.
    pub(super) fn turn_at(&self, now: Time, name: &Name) -> Option<Time> {
        self.queues.get(name).map(|queue| queue.turn.until).filter(|&until| until > now)
    }

    /// Whether a newcomer lets others go first, and until when: for a quarter of its own time at most.
    pub(super) fn yields(&self, now: Time, op: OpId, name: &Name) -> Option<Time> {
        let until = self.turn_at(now, name)?;
        match self.acquire_ref(op)?.request.wait {
            Wait::Forever => Some(until),
            Wait::For(span) => Some(until.min(now + Millis(span.0 / 4))).filter(|&until| until > now),
            Wait::Try => None,
        }
    }

    /// The server granted the lock to this process.
    pub(crate) fn on_turn(&mut self, now: Time, op: OpId) {
        if self.queues.is_empty() {
            return;
        }
        let Some(acquire) = self.acquire_ref(op).filter(|acquire| !acquire.reentry) else { return };
        let (name, queued) = (acquire.request.name.clone(), acquire.queued);
        let Some(queue) = self.queues.get_mut(&name) else { return };
        let ahead = queue.turn.ahead;
        if ahead > 0 {
            queue.turn.set(now, "granted", 0);
        }
        // One that did not queue did not wait for them either.
        if queued {
            self.audience.granted(ahead);
        }
    }
}
