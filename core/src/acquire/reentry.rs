//! Re-entry: a level more on a hold that the owner has, or that a handle names.
//!
//! Two acquires of one owner may be under way at once (a Node scope and `Promise.all`). The second one
//! waits like a stranger, until the first is claimed: then it re-enters, instead of waiting for itself.

use super::State;
use crate::config::{check_lease, margin};
use crate::engine::{Engine, closed, released};
use crate::error::Error;
use crate::event::LossReason;
use crate::hold::Phase;
use crate::io::{AcquireRequest, HoldId, OpId, Outcome, Wire};
use crate::name::Name;
use crate::owner::LocalOwner;
use crate::time::Time;

impl Engine {
    /// The hold that a request re-enters, if any; or why it is refused.
    pub(super) fn known(&mut self, now: Time, request: &AcquireRequest) -> Result<Option<HoldId>, Error> {
        if self.closed {
            return Err(closed().of(&request.name));
        }
        if let Some(lease) = request.lease {
            check_lease(lease).map_err(|error| error.of(&request.name))?;
        }
        let Some(id) = request.reenter.or_else(|| self.holds.carried(request.name.as_str(), request.owner)) else {
            return Ok(None);
        };
        self.lose_if_due(now, id);
        let Some(hold) = self.holds.get_mut(id).filter(|hold| hold.phase != Phase::Released) else {
            return Err(released());
        };
        if hold.is_valid(now) {
            return Ok(Some(id));
        }
        // A lost hold is told once to the owner that carries it, then dropped (design 3).
        hold.dropped = true;
        let (why, number) = (hold.why_lost(now), hold.number);
        let error = self.lost_error(&request.name, number, why);
        self.tidy(now, id);
        self.sweep(now, id);
        Err(error)
    }

    /// Adds a level to a valid hold: on the server, or here where that is allowed and the lease is enough.
    pub(super) fn enter(&mut self, now: Time, op: OpId, id: HoldId, wire: Option<Wire>) {
        let local = self.config.local_reentry;
        let Some(acquire) = self.acquire_mut(op) else { return };
        (acquire.hold, acquire.reentry) = (Some(id), true);
        let (lease, new) = (acquire.request.lease, acquire.state == State::New);
        let Some(hold) = self.holds.get_mut(id) else { return };
        hold.asked += 1;
        // As long as the server's answer would make it: a margin grows with the lease that it is taken from.
        let enough = lease.map_or(hold.watched, |lease| now + lease.saturating_sub(margin(lease)) <= hold.deadline());
        if local && enough {
            self.grant(now, op, "local re-entry");
        } else {
            self.try_now(now, op, if new { "first try" } else { "own hold" }, wire, false);
        }
    }

    /// If the owner of a queued wish has come to hold the lock by another wish, it re-enters.
    pub(super) fn enter_own(&mut self, now: Time, op: OpId) -> bool {
        let Some(acquire) = self.acquire_ref(op).filter(|acquire| acquire.request.reenter.is_none()) else {
            return false;
        };
        let (name, wire, queued) = (acquire.request.name.clone(), acquire.request.wire, acquire.queued);
        let carried = self.holds.carried(name.as_str(), acquire.request.owner);
        let Some(id) = carried.filter(|&id| self.holds.get(id).is_some_and(|hold| hold.is_valid(now))) else {
            return false;
        };
        if queued {
            self.leave_queue(now, op, &name, None);
        }
        self.let_go(now, op, wire);
        self.enter(now, op, id, queued.then_some(Wire::KEEPER));
        if queued {
            self.advance(now, &name);
        }
        true
    }

    /// A wish was claimed: those of the same owner that wait in the queue re-enter.
    pub(super) fn enter_others(&mut self, now: Time, name: &Name, owner: LocalOwner) {
        for op in self.queued_of(name, owner) {
            let state = self.acquire_ref(op).map(|acquire| acquire.state);
            match state {
                Some(State::Parked | State::Subscribing) => {
                    self.stop_step(op);
                    self.arrow(op, "overtaken", State::Queued);
                }
                Some(State::Queued) => {}
                // Those whose try is out, or whose host has not turned, find out by themselves.
                _ => continue,
            }
            if !self.enter_own(now, op) {
                self.advance(now, name);
            }
        }
    }

    pub(super) fn reentry_lost(&mut self, now: Time, op: OpId, id: HoldId, why: LossReason) {
        self.lose(now, id, why);
        // A hold that is asked for a level is not forgotten.
        let Some(hold) = self.holds.get(id) else { return };
        let error = self.lost_error(&hold.name, hold.number, hold.why_lost(now));
        self.end_acquire(now, op, Some(Outcome::Failed(error)));
    }
}
