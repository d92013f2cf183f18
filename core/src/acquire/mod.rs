//! One wish to hold a lock, from the call to the claim.
//!
//! Its states and arrows are in `state.rs`, the grant in `grant.rs`. First tries and re-entries go down
//! the caller's wire; every later try is the keeper's (design 2). A re-entry is never busy.

mod grant;
mod state;

pub(crate) use state::{ARROWS, State};

use crate::arrows;
use crate::calls::{Answer, CallRecord, Purpose, Sending, backoff};
use crate::config::check_lease;
use crate::engine::{Engine, Op, Timer, closed};
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::holds::{Hold, Phase};
use crate::io::{AcquireRequest, HoldId, OpId, Outcome, Output, Wait, Wire};
use crate::owner::WireOwner;
use crate::refusal::Refusal;
use crate::scripts::{Ask, Reply};
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
    attempts: u8,
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
    pub fn acquire(&mut self, now: Time, request: AcquireRequest) -> OpId {
        let (wait, name, owner) = (request.wait, request.name.clone(), request.owner);
        let mut acquire = Box::new(Acquire {
            request,
            since: now,
            state: State::New,
            hold: None,
            reentry: false,
            told_busy: false,
            hint: false,
            queued: false,
            attempts: 0,
            trouble: None,
            step: None,
            end: None,
            notice: None,
        });
        let known = match self.known(now, &acquire.request) {
            Ok(known) => known,
            Err(error) => {
                acquire.arrow("refused", State::Ended);
                return self.refuse(error);
            }
        };
        acquire.hold = known;
        acquire.reentry = known.is_some();
        let op = self.ops.insert(Op::Acquire(acquire));
        let end = match wait {
            Wait::Try => Some(self.config.connect_timeout + self.config.op_timeout),
            Wait::For(span) => Some(span),
            Wait::Forever => None,
        };
        if let Some(span) = end {
            let timer = self.wheel.insert(now + span, Timer::End(slab::index(op)));
            self.set_end(op, timer);
        }
        if let Some(hold) = known {
            if self.may_reenter_locally(now, hold, op) {
                self.note_asked(hold, 1);
                self.grant(now, op, "local re-entry");
            } else {
                self.note_asked(hold, 1);
                self.try_now(now, op, "first try", None, false);
            }
        } else if wait != Wait::Try && self.joins_queue(now, op, &name, owner) {
            self.arrow(op, "others wait", State::Queued);
            self.advance(now, &name);
        } else {
            self.try_now(now, op, "first try", None, false);
        }
        op
    }

    /// The hold that a request re-enters, if any; or why it is refused.
    fn known(&mut self, now: Time, request: &AcquireRequest) -> Result<Option<HoldId>, Error> {
        if self.closed {
            return Err(closed().of(&request.name));
        }
        if let Some(lease) = request.lease {
            check_lease(lease).map_err(|error| error.of(&request.name))?;
        }
        let carried = match request.reenter {
            Some(id) => {
                let held = self.holds.get(id).is_some_and(|hold| hold.phase != Phase::Released);
                if !held {
                    return Err(self.not_owner(&request.name, request.owner));
                }
                Some(id)
            }
            None => self.holds.carried(request.name.as_str(), request.owner),
        };
        let Some(id) = carried else { return Ok(None) };
        self.lose_if_due(now, id);
        let Some(hold) = self.holds.get_mut(id) else { return Ok(None) };
        if hold.is_valid(now) {
            return Ok(Some(id));
        }
        // A lost hold is told once to the owner that carries it, then dropped (design 3).
        hold.dropped = true;
        let error = self.lost_error(now, &self.holds.get(id).expect("just found").clone());
        self.tidy(now, id);
        self.sweep(id);
        Err(error)
    }

    fn may_reenter_locally(&self, now: Time, hold: HoldId, op: OpId) -> bool {
        let (Some(hold), Some(acquire)) = (self.holds.get(hold), self.acquire_ref(op)) else { return false };
        self.config.local_reentry
            && match acquire.request.lease {
                None => hold.watched,
                Some(lease) => now + lease <= hold.sent + hold.lease,
            }
    }

    /// Sends a try. The first one goes down the caller's wire (`None`).
    pub(crate) fn try_now(&mut self, now: Time, op: OpId, why: &'static str, wire: Option<Wire>, source: bool) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.arrow(why, State::Trying);
        acquire.hint = false;
        let (request, reentry) = (acquire.request.clone(), acquire.reentry);
        self.stop_step(op);
        let hold = match self.acquire_ref(op).and_then(|acquire| acquire.hold) {
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
        let lease = if reentry && request.lease.is_none() {
            record.next_lease(now, watchdog, None)
        } else {
            request.lease.map_or(watchdog, |lease| record.next_lease(now, watchdog, Some(lease)))
        };
        record.free_at = record.free_at.max(now + lease);
        let ask = Ask::Acquire {
            name: request.name,
            owner: WireOwner { client, number: record.number },
            lease,
            count: record.wanted().max(1),
            fresh: !reentry,
            heal: watchdog,
        };
        let wire = wire.unwrap_or(request.wire);
        let (purpose, patience) = (Purpose::Wish(op), self.config.op_timeout);
        self.send(now, Sending { wire, hold: Some(hold), purpose, ask, source, lease, patience });
    }

    pub(crate) fn on_tried(&mut self, now: Time, op: OpId, call: &CallRecord, answer: Answer) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        if acquire.state != State::Trying {
            return;
        }
        let (reentry, name) = (acquire.reentry, acquire.request.name.clone());
        let Some(hold) = acquire.hold else { return };
        if !matches!(answer, Answer::NotSent(_) | Answer::Unknown) {
            acquire.trouble = None;
            acquire.attempts = 0;
        }
        match answer {
            Answer::Reply(Reply::Granted { count }) => self.on_granted(now, op, hold, call, count),
            Answer::Reply(Reply::Busy { ttl, healed }) if !reentry => self.on_busy(now, op, ttl, healed),
            Answer::Reply(Reply::NotOurs) if reentry => self.reentry_lost(now, op, hold, LossReason::Taken),
            Answer::Refused(Refusal::WrongType, _) if reentry => {
                self.reentry_lost(now, op, hold, LossReason::Overwritten)
            }
            Answer::Refused(Refusal::NoScript, _) if !call.source => {
                self.try_now(now, op, "no script", Some(call.wire), true);
            }
            Answer::Refused(refusal @ Refusal::Passing, text) => {
                self.hold_off(now, op, refusal.error(&name, &text));
            }
            Answer::Refused(refusal, text) => {
                let error = refusal.error(&name, &text);
                self.end_acquire(now, op, Some(Outcome::Failed(error)));
            }
            Answer::NotSent(error) => self.on_try_not_sent(now, op, call.wire, error.of(&name)),
            Answer::Unknown => {
                let text = "the connection broke before the answer came: check the server and the network between";
                self.hold_off(now, op, Error::new(Code::Unreachable, text).of(&name));
            }
            Answer::Reply(other) => self.acquire_nonsense(now, op, &format!("{other:?}")),
            Answer::Nonsense(what) => self.acquire_nonsense(now, op, &what),
        }
    }

    fn on_busy(&mut self, now: Time, op: OpId, ttl: Millis, healed: bool) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        let first = !acquire.told_busy;
        acquire.told_busy = true;
        let (name, hint) = (acquire.request.name.clone(), acquire.hint);
        if healed {
            let text = "the lock had no expiry and was given one: did somebody run PERSIST on it?".to_owned();
            self.event(Event::Warning { name: Some(name.clone()), text });
        }
        if self.acquire_ref(op).is_some_and(|acquire| acquire.request.wait == Wait::Try) {
            return self.end_acquire(now, op, Some(Outcome::Busy));
        }
        if first && self.listening {
            self.event(Event::Contended { name: name.clone(), op, ttl: Some(ttl) });
        }
        if hint {
            return self.try_now(now, op, "woken meanwhile", Some(Wire::KEEPER), false);
        }
        self.arrow(op, "busy", State::Queued);
        self.wait_in_front(now, op, &name, ttl);
    }

    fn on_try_not_sent(&mut self, now: Time, op: OpId, wire: Wire, error: Error) {
        if error.code() != Code::Unreachable || !self.reached {
            return self.end_acquire(now, op, Some(Outcome::Failed(error)));
        }
        if wire == Wire::KEEPER && self.outlasts(op) {
            // A waiter outlasts its server: it goes on when the link is back, or ends with its wait.
            let step = self.wheel.insert(now + self.config.watchdog, Timer::Step(slab::index(op)));
            if let Some(acquire) = self.acquire_mut(op) {
                acquire.arrow("link down", State::Parked);
                acquire.trouble = Some(error);
                acquire.step = Some(step);
            }
            return;
        }
        self.hold_off(now, op, error);
    }

    /// A try failed in a way that passes: the next one comes at once, then ever later, until the time for
    /// reaching a server is over.
    fn hold_off(&mut self, now: Time, op: OpId, error: Error) {
        let bound = self.config.connect_timeout + self.config.op_timeout;
        let outlasts = self.outlasts(op);
        let Some(acquire) = self.acquire_mut(op) else { return };
        acquire.attempts = acquire.attempts.saturating_add(1);
        let pause = backoff(acquire.attempts);
        let hopeless = !outlasts && (now + pause).since(acquire.since) >= bound;
        acquire.trouble = Some(error.clone());
        if hopeless {
            return self.end_acquire(now, op, Some(Outcome::Failed(error)));
        }
        self.arrow(op, "failed", State::HeldOff);
        if pause == Millis::ZERO {
            return self.on_acquire_step(now, op);
        }
        let timer = self.wheel.insert(now + pause, Timer::Step(slab::index(op)));
        if let Some(acquire) = self.acquire_mut(op) {
            acquire.step = Some(timer);
        }
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

    pub(crate) fn reentry_lost(&mut self, now: Time, op: OpId, hold: HoldId, why: LossReason) {
        self.lose(now, hold, why);
        let error = self.holds.get(hold).map(|hold| self.lost_error(now, hold));
        let error = error.unwrap_or_else(|| Error::new(Code::LockLost, "the hold ended before it could be re-entered"));
        self.end_acquire(now, op, Some(Outcome::Failed(error)));
    }

    fn acquire_nonsense(&mut self, now: Time, op: OpId, what: &str) {
        let text = format!("the server answered an acquire with something else: {what}: is it Redis 6.2 or newer?");
        self.end_acquire(now, op, Some(Outcome::Failed(Error::new(Code::Protocol, text))));
    }

    /// Ends an acquire that was not claimed, and undoes whatever it did or may still do.
    pub(crate) fn end_acquire(&mut self, now: Time, op: OpId, outcome: Option<Outcome>) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        let (name, queued, state, wire) =
            (acquire.request.name.clone(), acquire.queued, acquire.state, acquire.request.wire);
        let (hold, reentry) = (acquire.hold, acquire.reentry);
        acquire.arrow(if state == State::New { "refused" } else { "over" }, State::Ended);
        self.forget_acquire(op);
        if let Some(id) = hold {
            if let Some(hold) = self.holds.get_mut(id) {
                // A passed-over re-entry has given its level back already.
                if state != State::Passed {
                    hold.asked = hold.asked.saturating_sub(1);
                }
                if hold.op == Some(op) {
                    hold.op = None;
                }
                let maybe = hold.road.is_pending() || hold.road.is_unanswered() || state == State::Granted;
                if maybe && !(reentry && state == State::Passed) {
                    self.release_down(now, id, wire);
                } else if !reentry {
                    hold.phase = Phase::Released;
                }
            }
            self.sweep(id);
        }
        if let Some(outcome) = outcome {
            self.output(Output::Done(op, outcome));
        }
        if queued {
            self.leave_queue(op, &name, None);
            self.advance(now, &name);
        }
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

    pub(crate) fn note_asked(&mut self, hold: HoldId, levels: u32) {
        if let Some(hold) = self.holds.get_mut(hold) {
            hold.asked += levels;
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

    fn set_end(&mut self, op: OpId, timer: TimerId) {
        if let Some(acquire) = self.acquire_mut(op) {
            acquire.end = Some(timer);
        }
    }
}
