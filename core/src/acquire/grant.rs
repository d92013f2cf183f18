//! A grant: offered to the caller, claimed by the code that resumes, or given back (S6).
//!
//! The server's word alone makes nobody a holder. The caller may have been cancelled, or its host may be
//! blocked; so a grant is an offer until it is claimed, and one that is not claimed in time goes back to
//! the server. Its arrows are those of the acquire it belongs to.

use crate::acquire::State;
use crate::calls::CallRecord;
use crate::engine::{Engine, Timer};
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::hold::Phase;
use crate::io::{Claim, Claimed, HoldId, OpId, Outcome, Output, Wait, Wire};
use crate::name::Name;
use crate::owner::WireOwner;
use crate::slab;
use crate::time::{Millis, Time};

/// So many grants in a row that came too late are not bad luck.
const TOO_LATE: u8 = 5;

impl Engine {
    pub(crate) fn on_granted(&mut self, now: Time, op: OpId, hold: HoldId, call: &CallRecord, count: u32) {
        let watched = self.acquire_ref(op).is_some_and(|acquire| acquire.request.lease.is_none());
        let Some(record) = self.holds.get_mut(hold) else { return };
        if record.phase == Phase::Asked {
            record.confirm(call.sent, call.lease);
            record.arrow("granted", Phase::Live);
            record.since = now;
        } else if record.is_valid(now) {
            record.confirm(call.sent, call.lease);
            record.watched |= watched;
        } else {
            // The hold that was to be re-entered ended while the reply was on its way (S4).
            return self.reentry_lost(now, op, hold, LossReason::Expired);
        }
        record.server_count = count;
        self.schedule(now, hold);
        self.on_turn(now, op);
        self.grant(now, op, "granted");
    }

    /// Offers the grant to the caller, for no longer than a caller that runs needs to take it.
    pub(crate) fn grant(&mut self, now: Time, op: OpId, why: &'static str) {
        let Some(hold) = self.acquire_ref(op).and_then(|acquire| acquire.hold) else { return };
        let lease = self.holds.get(hold).map_or(Millis::ZERO, |hold| hold.lease);
        let timer = self.wheel.insert(now + Millis((lease.0 / 3).min(1000)), Timer::Step(slab::index(op)));
        if let Some(acquire) = self.acquire_mut(op) {
            acquire.arrow(why, State::Granted);
            acquire.step = Some(timer);
        }
        self.output(Output::Done(op, Outcome::Granted));
    }

    /// The caller of an acquire resumed and takes its grant (S6): with less than half of its lease left
    /// the grant is given back and the wish goes on.
    pub fn claim(&mut self, now: Time, op: OpId) -> Claim {
        let client = self.client;
        let Some(acquire) = self.acquire_mut(op) else { return Claim::Gone };
        let (name, owner) = (acquire.request.name.clone(), acquire.request.owner);
        let wire = acquire.request.wire;
        let (state, hold, reentry, queued) = (acquire.state, acquire.hold, acquire.reentry, acquire.queued);
        match state {
            State::Granted => {}
            State::Passed => {
                self.host_turned(now, op);
                return Claim::Again;
            }
            _ => return Claim::Again,
        }
        let Some(id) = hold else { return Claim::Gone };
        let good = self
            .holds
            .get(id)
            .is_some_and(|hold| hold.is_valid(now) && (reentry || hold.deadline().since(now).0 * 2 >= hold.lease.0));
        if !good {
            self.stop_step(op);
            if reentry {
                self.reentry_lost(now, op, id, LossReason::Expired);
            } else {
                self.claimed_too_late(now, op, wire);
            }
            return Claim::Again;
        }
        self.arrow(op, "claimed", State::Ended);
        let Some(hold) = self.holds.get_mut(id) else { return Claim::Gone };
        hold.op = None;
        hold.asked -= 1;
        let level = hold.add_level(owner);
        let (number, count, until) = (hold.number, hold.levels.len() as u32, hold.sent + hold.lease);
        if queued {
            self.leave_queue(now, op, &name, Some(until));
        }
        self.forget_acquire(op);
        self.enter_others(now, &name, owner);
        if queued {
            self.advance(now, &name);
        }
        if self.listening {
            self.event(Event::Acquired { name, hold: id, number, count });
        }
        let owner = WireOwner { client, number }.to_string();
        Claim::Held(Claimed { hold: id, level, owner, token: None })
    }

    /// With less than half of its lease left a grant is of no use. One such may be bad luck; a row of
    /// them is a lease that is too short for the way to the server, and no further try will help.
    fn claimed_too_late(&mut self, now: Time, op: OpId, wire: Wire) {
        self.arrow(op, "claimed too late", State::Queued);
        self.let_go(now, op, wire);
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.late += 1;
        let name = acquire.request.name.clone();
        if acquire.late < TOO_LATE {
            return self.go_on(now, op, &name);
        }
        let text = format!("{TOO_LATE} grants came with less than half of the lease left: give a longer lease");
        self.end_acquire(now, op, Some(Outcome::Failed(Error::new(Code::InvalidLease, text).of(&name))));
    }

    /// Nobody claimed the grant: it is given back, and the waiter keeps its place but is passed over
    /// until its host has turned. Of a re-entry only the level goes back.
    pub(super) fn pass_over(&mut self, now: Time, op: OpId) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.arrow("nobody claims", State::Passed);
        let name = acquire.request.name.clone();
        // By the keeper: a host that does not turn may not serve its own wire either.
        self.let_go(now, op, Wire::KEEPER);
        self.advance(now, &name);
    }

    /// The host of one who was passed over has turned: it goes on as if it had just come, where it stood.
    fn host_turned(&mut self, now: Time, op: OpId) {
        let Some(acquire) = self.acquire_ref(op) else { return };
        let request = acquire.request.clone();
        match self.known(now, &request) {
            Err(error) => self.end_acquire(now, op, Some(Outcome::Failed(error))),
            Ok(own) => {
                self.arrow(op, "host turned", State::Queued);
                match own.filter(|_| request.reenter.is_some()) {
                    Some(id) => self.enter(now, op, id, None),
                    None => self.go_on(now, op, &request.name),
                }
            }
        }
    }

    /// After a grant was given back: on to the next try, if there is time left.
    fn go_on(&mut self, now: Time, op: OpId, name: &Name) {
        if self.enter_own(now, op) {
            return;
        }
        let Some(acquire) = self.acquire_ref(op) else { return };
        let over = acquire.request.wait == Wait::Try
            || (acquire.end.is_none() && matches!(acquire.request.wait, Wait::For(_)));
        if over {
            return self.end_acquire(now, op, Some(Outcome::Busy));
        }
        self.take_place_again(now, op, name);
    }
}
