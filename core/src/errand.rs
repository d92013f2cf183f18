//! The small wishes: extend a hold, look at a lock, delete it by force.
//!
//! Each is one request (force: two), said again after a failure that passes, until its time is over.

use crate::calls::{Answer, CallRecord, Purpose, Sending, backoff};
use crate::config::check_lease;
use crate::engine::{Engine, Op, Timer, closed};
use crate::error::{Code, Error};
use crate::event::LossReason;
use crate::io::{HoldId, OpId, Outcome, Output, Wire};
use crate::name::Name;
use crate::owner::HoldNumber;
use crate::refusal::Refusal;
use crate::scripts::{Ask, Renewal, Reply, Verdict};
use crate::slab;
use crate::time::{Millis, Time};
use crate::wheel::TimerId;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Errand {
    kind: Kind,
    wire: Wire,
    attempts: u8,
    trouble: Option<Error>,
    step: Option<TimerId>,
    end: Option<TimerId>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Extend {
        hold: HoldId,
        number: HoldNumber,
        name: Name,
        lease: Millis,
    },
    Status {
        name: Name,
    },
    /// First the owners are read, then exactly these are deleted: said twice, it cannot hit the next holder.
    Force {
        name: Name,
        owners: Option<Vec<Vec<u8>>>,
    },
}

impl Errand {
    fn name(&self) -> &Name {
        match &self.kind {
            Kind::Extend { name, .. } | Kind::Status { name } | Kind::Force { name, .. } => name,
        }
    }
}

impl Engine {
    /// Wishes that a hold lasts at least `lease` from now.
    pub fn extend(&mut self, now: Time, hold: HoldId, lease: Millis, wire: Wire) -> OpId {
        if let Err(error) = check_lease(lease).and_then(|()| self.check(now, hold)) {
            return self.refuse(error);
        }
        let record = self.holds.get(hold).expect("it was just checked");
        let (name, number) = (record.name.clone(), record.number);
        self.start_errand(now, Kind::Extend { hold, number, name, lease }, wire)
    }

    /// Asks the server whether a lock is held, and for how long yet.
    pub fn status(&mut self, now: Time, name: Name, wire: Wire) -> OpId {
        self.start_errand(now, Kind::Status { name }, wire)
    }

    /// Wishes that a lock is free, whoever holds it. Deletes the owners it finds, and nobody who comes after.
    pub fn force_release(&mut self, now: Time, name: Name, wire: Wire) -> OpId {
        self.start_errand(now, Kind::Force { name, owners: None }, wire)
    }

    fn start_errand(&mut self, now: Time, kind: Kind, wire: Wire) -> OpId {
        if self.closed {
            return self.refuse(closed());
        }
        let op = self.ops.insert(Op::Errand(Box::new(Errand {
            kind,
            wire,
            attempts: 0,
            trouble: None,
            step: None,
            end: None,
        })));
        let span = self.config.connect_timeout + self.config.op_timeout;
        let end = self.wheel.insert(now + span, Timer::End(slab::index(op)));
        if let Some(errand) = self.errand_mut(op) {
            errand.end = Some(end);
        }
        self.send_errand(now, op, false);
        op
    }

    fn send_errand(&mut self, now: Time, op: OpId, source: bool) {
        let Some(errand) = self.errand_mut(op) else { return };
        errand.step = None;
        let (kind, wire) = (errand.kind.clone(), errand.wire);
        let (ask, hold, lease) = match kind {
            Kind::Status { name } => (Ask::Status { name }, None, Millis::ZERO),
            Kind::Force { name, owners } => {
                (Ask::Force { name, owners: owners.unwrap_or_default() }, None, Millis::ZERO)
            }
            Kind::Extend { hold, number, name, lease } => {
                if let Err(error) = self.check(now, hold) {
                    return self.end_errand(op, Some(Outcome::Failed(error)));
                }
                let watchdog = self.config.watchdog;
                let Some(record) = self.holds.get_mut(hold) else { return };
                let lease = record.next_lease(now, watchdog, Some(lease));
                record.free_at = record.free_at.max(now + lease);
                (Ask::Renew(vec![Renewal { name, owner: self.wire_owner(number), lease }]), Some(hold), lease)
            }
        };
        let (purpose, patience) = (Purpose::Wish(op), self.config.op_timeout);
        self.send(now, Sending { wire, hold, purpose, ask, source, lease, patience });
    }

    pub(crate) fn on_errand(&mut self, now: Time, op: OpId, call: &CallRecord, answer: Answer) {
        let Some(errand) = self.errand_mut(op) else { return };
        let name = errand.name().clone();
        let (kind, again) = (errand.kind.clone(), errand.attempts > 0);
        let outcome = match (answer, kind) {
            (Answer::Reply(Reply::Status(status)), Kind::Status { .. }) => Outcome::Status(status),
            (Answer::Reply(Reply::Owners(owners)), Kind::Force { owners: None, .. }) => {
                if owners.is_empty() {
                    Outcome::Forced(false)
                } else {
                    if let Some(Errand { kind: Kind::Force { owners: seen, .. }, .. }) = self.errand_mut(op) {
                        *seen = Some(owners);
                    }
                    return self.send_errand(now, op, false);
                }
            }
            (Answer::Reply(Reply::Forced(count)), Kind::Force { owners: Some(owners), .. }) => {
                self.lose_forced(now, &name, &owners);
                // What was seen is gone: by an earlier send that was never answered, if not by this one.
                Outcome::Forced(count > 0 || again)
            }
            (Answer::Reply(Reply::Renewed { verdicts, .. }), Kind::Extend { hold, number, .. }) => {
                match verdicts.into_iter().next() {
                    Some(Verdict::Renewed) => self.extended(now, hold, call),
                    Some(Verdict::Refused(text)) if Refusal::of(&text) != Refusal::WrongType => {
                        Outcome::Failed(Refusal::of(&text).error(&name, &text))
                    }
                    verdict => {
                        let why =
                            if verdict == Some(Verdict::NotOurs) { LossReason::Taken } else { LossReason::Overwritten };
                        self.lose(now, hold, why);
                        Outcome::Failed(self.lost_error(&name, number, why))
                    }
                }
            }
            (Answer::Refused(Refusal::NoScript, _), _) if !call.source => return self.send_errand(now, op, true),
            (Answer::Refused(Refusal::Passing, text), _) => {
                return self.errand_later(now, op, Refusal::Passing.error(&name, &text));
            }
            (Answer::Refused(refusal, text), _) => Outcome::Failed(refusal.error(&name, &text)),
            (Answer::NotSent(error), _) if error.code() != Code::Unreachable || !self.reached => {
                Outcome::Failed(error.of(&name))
            }
            (Answer::NotSent(error), _) => return self.errand_later(now, op, error.of(&name)),
            (Answer::Unknown, _) => {
                let text = "the connection broke before the answer came: check the server and the network between";
                return self.errand_later(now, op, Error::new(Code::Unreachable, text).of(&name));
            }
            (Answer::Reply(other), _) => {
                Outcome::Failed(Error::new(Code::Protocol, format!("the server answered with {other:?}")).of(&name))
            }
            (Answer::Nonsense(what), _) => {
                Outcome::Failed(Error::new(Code::Protocol, format!("the server answered with {what}")).of(&name))
            }
        };
        self.end_errand(op, Some(outcome));
    }

    fn extended(&mut self, now: Time, hold: HoldId, call: &CallRecord) -> Outcome {
        // A late reply revives nothing (S4).
        if let Err(error) = self.check(now, hold) {
            return Outcome::Failed(error);
        }
        if let Some(record) = self.holds.get_mut(hold) {
            record.confirm(call.sent, call.lease);
        }
        self.schedule(now, hold);
        Outcome::Extended
    }

    /// What this client forced away from itself it knows at once.
    fn lose_forced(&mut self, now: Time, name: &Name, owners: &[Vec<u8>]) {
        let ours: Vec<_> = self
            .holds
            .of_name(name.as_str())
            .filter(|(_, hold)| owners.contains(&self.wire_owner(hold.number).to_string().into_bytes()))
            .map(|(id, _)| id)
            .collect();
        for id in ours {
            self.lose(now, id, LossReason::Taken);
        }
    }

    fn errand_later(&mut self, now: Time, op: OpId, error: Error) {
        let Some(errand) = self.errand_mut(op) else { return };
        errand.attempts = errand.attempts.saturating_add(1);
        errand.trouble = Some(error);
        let pause = backoff(errand.attempts);
        if pause == Millis::ZERO {
            return self.send_errand(now, op, false);
        }
        let step = self.wheel.insert(now + pause, Timer::Step(slab::index(op)));
        if let Some(errand) = self.errand_mut(op) {
            errand.step = Some(step);
        }
    }

    pub(crate) fn on_errand_step(&mut self, now: Time, op: OpId) {
        self.send_errand(now, op, false);
    }

    pub(crate) fn on_errand_end(&mut self, now: Time, op: OpId) {
        let Some(errand) = self.errand_mut(op) else { return };
        errand.end = None;
        if let Kind::Extend { hold, .. } = errand.kind
            && let Err(error) = self.check(now, hold)
        {
            // Lost or released meanwhile: that is worth more than a silent server.
            return self.end_errand(op, Some(Outcome::Failed(error)));
        }
        let Some(errand) = self.errand_mut(op) else { return };
        let silent =
            || Error::new(Code::Unreachable, "no server answered in time: check its address and whether it runs");
        let error = errand.trouble.take().unwrap_or_else(silent);
        let error = error.of(errand.name());
        self.end_errand(op, Some(Outcome::Failed(error)));
    }

    pub(crate) fn end_errand(&mut self, op: OpId, outcome: Option<Outcome>) {
        let Some(Op::Errand(errand)) = self.ops.remove(op) else { return };
        for timer in [errand.step, errand.end].into_iter().flatten() {
            self.wheel.cancel(timer);
        }
        if let Some(outcome) = outcome {
            self.output(Output::Done(op, outcome));
        }
    }

    fn errand_mut(&mut self, op: OpId) -> Option<&mut Errand> {
        match self.ops.get_mut(op) {
            Some(Op::Errand(errand)) => Some(errand),
            _ => None,
        }
    }
}
