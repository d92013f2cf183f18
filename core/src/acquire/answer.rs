//! What the server answered to a try.

use super::State;
use crate::calls::{Answer, CallRecord, backoff};
use crate::engine::{Engine, Timer};
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::io::{OpId, Outcome, Wait, Wire};
use crate::refusal::Refusal;
use crate::scripts::Reply;
use crate::slab;
use crate::time::{Millis, Time};

impl Engine {
    pub(crate) fn on_tried(&mut self, now: Time, op: OpId, call: &CallRecord, answer: Answer) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        if acquire.state != State::Trying {
            return;
        }
        let (reentry, name) = (acquire.reentry, acquire.request.name.clone());
        let Some(hold) = acquire.hold else { return };
        if !matches!(answer, Answer::NotSent(_) | Answer::Unknown | Answer::Refused(Refusal::Passing, _)) {
            acquire.trouble = None;
            acquire.attempts = 0;
        }
        acquire.unanswered |= answer == Answer::Unknown;
        match answer {
            Answer::Reply(Reply::Granted { count }) => self.on_granted(now, op, hold, call, count),
            Answer::Reply(Reply::Busy { ttl, healed }) if !reentry => self.on_busy(now, op, call.sent, ttl, healed),
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

    fn on_busy(&mut self, now: Time, op: OpId, sent: Time, ttl: Millis, healed: bool) {
        let Some(acquire) = self.acquire_mut(op) else { return };
        let first = !acquire.told_busy;
        acquire.told_busy = true;
        let (name, hint) = (acquire.request.name.clone(), acquire.hint);
        if healed {
            let text = "the lock had no expiry and was given one: did somebody run PERSIST on it?".to_owned();
            self.event(Event::Warning { name: Some(name.clone()), text });
        }
        let waits = self.acquire_ref(op).is_some_and(|acquire| acquire.request.wait != Wait::Try);
        self.arrow(op, "busy", State::Queued);
        // By now the one who holds it may be the owner itself.
        if self.enter_own(now, op) {
            return;
        }
        if !waits {
            return self.end_acquire(now, op, Some(Outcome::Busy));
        }
        if first && self.listening {
            self.event(Event::Contended { name: name.clone(), op, ttl: Some(ttl) });
        }
        self.note_vain(now, sent, &name, ttl);
        if hint && self.not_before(now, &name).is_none() {
            return self.try_now(now, op, "woken meanwhile", Some(Wire::KEEPER), false);
        }
        self.wait_in_front(now, op, &name, ttl);
        if hint {
            self.hint(now, &name);
        }
    }

    fn on_try_not_sent(&mut self, now: Time, op: OpId, wire: Wire, error: Error) {
        if error.code() != Code::Unreachable || !self.reached {
            return self.end_acquire(now, op, Some(Outcome::Failed(error)));
        }
        if wire == Wire::KEEPER && self.outlasts(op) {
            // A waiter outlasts its server: it goes on when the link is back, or ends with its wait.
            let Some(acquire) = self.acquire_mut(op) else { return };
            acquire.arrow("link down", State::Queued);
            acquire.trouble = Some(error);
            let name = acquire.request.name.clone();
            return self.wait_in_front(now, op, &name, self.config.watchdog);
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

    fn acquire_nonsense(&mut self, now: Time, op: OpId, what: &str) {
        if let Some(acquire) = self.acquire_mut(op) {
            // Whatever it was: it may have been a grant.
            acquire.unanswered = true;
        }
        let text = format!("the server answered an acquire with something else: {what}: is it Redis 6.2 or newer?");
        self.end_acquire(now, op, Some(Outcome::Failed(Error::new(Code::Protocol, text))));
    }
}
