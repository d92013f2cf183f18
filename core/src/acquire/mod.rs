//! One wish to hold a lock, from the call to the claim.
//!
//! Its states and arrows are in `state.rs`, what the server answers in `answer.rs`, the grant in `grant.rs`.
//! First tries and re-entries go down the caller's wire; every later try is the keeper's (design 2). A
//! re-entry (`reentry.rs`) is never busy.

mod answer;
mod grant;
mod reentry;
mod state;

pub(crate) use state::{ARROWS, State};

use crate::arrows;
use crate::calls::{Purpose, Sending};
use crate::engine::{Engine, Op, Timer};
use crate::error::{Code, Error};
use crate::event::LossReason;
use crate::hold::Hold;
use crate::io::{AcquireRequest, HoldId, OpId, Outcome, Output, Wait, Wire};
use crate::owner::WireOwner;
use crate::scripts::Ask;
use crate::slab;
use crate::time::{Millis, Time};
use crate::wheel::TimerId;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Acquire {
    pub(crate) request: AcquireRequest,
    since: Time,
    pub(crate) state: State,
    /// The hold that is asked for, or re-entered.
    pub(crate) hold: Option<HoldId>,
    pub(crate) reentry: bool,
    /// The server said once that another holds the lock.
    pub(crate) told_busy: bool,
    /// A message came while a try was out.
    pub(crate) hint: bool,
    /// It has, or had, a place in the queue of its name.
    pub(crate) queued: bool,
    /// One of its tries has no reply and never will: the server may have granted it.
    unanswered: bool,
    attempts: u8,
    /// Grants in a row that came too late to be taken.
    late: u8,
    /// The last thing that went wrong since the server last answered.
    trouble: Option<Error>,
    pub(crate) step: Option<TimerId>,
    pub(crate) end: Option<TimerId>,
    pub(crate) notice: Option<TimerId>,
}

impl Acquire {
    pub(crate) fn arrow(&mut self, why: &'static str, to: State) {
        arrows::take(ARROWS, self.state.name(), why, to.name());
        self.state = to;
    }
}

impl Engine {
    /// Wishes to hold a lock. `Done(op, Granted)` is an offer: the code that resumes takes it by
    /// [`Engine::claim`].
    pub fn acquire(&mut self, now: Time, mut request: AcquireRequest) -> OpId {
        if let Some(hold) = request.reenter.and_then(|id| self.holds.get(id)) {
            request.name = hold.name.clone();
        }
        let (wait, name) = (request.wait, request.name.clone());
        let acquire = Box::new(Acquire {
            request,
            since: now,
            state: State::New,
            hold: None,
            reentry: false,
            told_busy: false,
            hint: false,
            queued: false,
            unanswered: false,
            attempts: 0,
            late: 0,
            trouble: None,
            step: None,
            end: None,
            notice: None,
        });
        let known = match self.known(now, &acquire.request) {
            Ok(known) => known,
            Err(error) => return self.refuse(error),
        };
        let op = self.ops.insert(Op::Acquire(acquire));
        let end = match wait {
            Wait::Try => Some(self.config.connect_timeout + self.config.op_timeout),
            Wait::For(span) => Some(span),
            Wait::Forever => None,
        };
        if let Some(span) = end {
            self.set_end(now, op, span);
        }
        if let Some(hold) = known {
            self.enter(now, op, hold, None);
        } else if wait != Wait::Try && self.joins_queue(now, op, &name) {
            self.arrow(op, "others wait", State::Queued);
            self.advance(now, &name);
        } else {
            self.try_now(now, op, "first try", None, false);
        }
        op
    }

    /// Sends a try. The first one goes down the caller's wire (`None`).
    pub(crate) fn try_now(&mut self, now: Time, op: OpId, why: &'static str, wire: Option<Wire>, source: bool) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        let (request, reentry) = (acquire.request.clone(), acquire.reentry);
        if let Some(id) = acquire.hold.filter(|_| reentry)
            && !self.holds.get(id).is_some_and(|hold| hold.is_valid(now))
        {
            // Ended between two tries: nothing is sent for it any more (S4).
            return self.reentry_lost(now, op, id, LossReason::Expired);
        }
        self.stop_step(op);
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.arrow(why, State::Trying);
        acquire.hint = false;
        let hold = match acquire.hold {
            Some(hold) => hold,
            None => {
                let number = self.draw_number();
                let mut hold = Hold::new(request.name.clone(), request.owner, number, now);
                hold.watched = request.lease.is_none();
                hold.asked = 1;
                hold.op = Some(op);
                let id = self.holds.insert(hold);
                if let Some(acquire) = self.acquire_mut(op) {
                    acquire.hold = Some(id);
                }
                id
            }
        };
        let (watchdog, client) = (self.config.watchdog, self.client);
        let Some(record) = self.holds.get_mut(hold) else { return };
        let lease = record.next_lease(now, watchdog, request.lease);
        record.free_at = record.free_at.max(now + lease);
        let ask = Ask::Acquire {
            name: request.name,
            owner: WireOwner { client, number: record.number },
            lease,
            count: record.wanted(),
            fresh: !reentry,
            heal: watchdog,
        };
        let wire = wire.unwrap_or(request.wire);
        let (purpose, patience) = (Purpose::Wish(op), self.config.op_timeout);
        self.send(now, Sending { wire, hold: Some(hold), purpose, ask, source, lease, patience });
    }

    pub(crate) fn on_acquire_step(&mut self, now: Time, op: OpId) {
        let outlasts = self.outlasts(op);
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.step = None;
        let wire = if outlasts { Wire::KEEPER } else { acquire.request.wire };
        match acquire.state {
            State::HeldOff => self.try_now(now, op, "again", Some(wire), false),
            State::Parked | State::Subscribing => self.try_now(now, op, "time", Some(Wire::KEEPER), false),
            State::Granted => self.pass_over(now, op),
            State::New | State::Queued | State::Trying | State::Passed | State::Ended => {}
        }
    }

    /// The time that the wait was given is over.
    pub(crate) fn on_acquire_end(&mut self, now: Time, op: OpId) {
        let (down, op_timeout) = (self.down_since.is_some(), self.config.op_timeout);
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.end = None;
        if acquire.state == State::Granted {
            // It came in time; whether the caller does is another clock.
            return;
        }
        let waited = now.since(acquire.since);
        let name = acquire.request.name.clone();
        let silent = !acquire.told_busy && !acquire.queued && waited >= op_timeout;
        let outcome = match acquire.trouble.take() {
            Some(error) => Outcome::Failed(error),
            None if down || silent => {
                let text = format!("no server answered within {waited}: check its address and whether it runs");
                Outcome::Failed(Error::new(Code::Unreachable, text).of(&name))
            }
            None => Outcome::Busy,
        };
        self.end_acquire(now, op, Some(outcome));
    }

    /// Ends an acquire that was not claimed, and undoes whatever it did or may still do.
    pub(crate) fn end_acquire(&mut self, now: Time, op: OpId, outcome: Option<Outcome>) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        let (name, queued, wire) = (acquire.request.name.clone(), acquire.queued, acquire.request.wire);
        acquire.arrow("over", State::Ended);
        self.let_go(now, op, wire);
        if queued {
            self.leave_queue(now, op, &name, None);
        }
        self.forget_acquire(op);
        if let Some(outcome) = outcome {
            self.output(Output::Done(op, outcome));
        }
        if queued {
            self.advance(now, &name);
        }
    }

    /// The wish lets go of the hold that it asked for, or of the level it was to add.
    fn let_go(&mut self, now: Time, op: OpId, wire: Wire) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        let unanswered = core::mem::take(&mut acquire.unanswered);
        acquire.reentry = false;
        let Some(id) = acquire.hold.take() else { return };
        if let Some(hold) = self.holds.get_mut(id) {
            hold.asked = hold.asked.saturating_sub(1);
            if hold.op == Some(op) {
                hold.op = None;
            }
        }
        self.release_down(now, id, wire, unanswered);
        self.sweep(now, id);
    }

    pub(crate) fn acquire_ref(&self, op: OpId) -> Option<&Acquire> {
        match self.ops.get(op) {
            Some(Op::Acquire(acquire)) => Some(acquire),
            _ => None,
        }
    }

    pub(crate) fn acquire_mut(&mut self, op: OpId) -> Option<&mut Acquire> {
        match self.ops.get_mut(op) {
            Some(Op::Acquire(acquire)) => Some(acquire),
            _ => None,
        }
    }

    pub(crate) fn forget_acquire(&mut self, op: OpId) {
        if let Some(Op::Acquire(acquire)) = self.ops.remove(op) {
            for timer in [acquire.step, acquire.end, acquire.notice].into_iter().flatten() {
                self.wheel.cancel(timer);
            }
        }
    }

    pub(crate) fn arrow(&mut self, op: OpId, why: &'static str, to: State) {
        if let Some(acquire) = self.acquire_mut(op) {
            acquire.arrow(why, to);
        }
    }

    pub(crate) fn stop_step(&mut self, op: OpId) {
        if let Some(timer) = self.acquire_mut(op).and_then(|acquire| acquire.step.take()) {
            self.wheel.cancel(timer);
        }
    }

    /// Gives the wish so much time from now.
    pub(crate) fn set_end(&mut self, now: Time, op: OpId, span: Millis) {
        let timer = self.wheel.insert(now + span, Timer::End(slab::index(op)));
        let Some(acquire) = self.acquire_mut(op) else { return };
        if let Some(old) = acquire.end.replace(timer) {
            self.wheel.cancel(old);
        }
    }
}
