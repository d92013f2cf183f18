//! One release: a level goes, and with the last one the hold.
//!
//! ```text
//! sent      --answered-->           settled   the caller is told as the table of design 3 says
//! sent      --no script-->          sent      again, with the text
//! sent      --failed-->             held off  the next send is timed; the first one comes at once
//! held off  --again-->              sent
//! any       --op_timeout-->         same      the caller is told `release_unknown`; it goes on without
//! held off  --free at last-->       settled   the lease must have ended by now
//! settled   --not fenced-->         echoing   an old connection may still run something: said again later
//! echoing   --answered-->           echoing   after 1, 3, 10 s and L
//! ```

use crate::calls::{Answer, CallRecord, Purpose, Sending, backoff};
use crate::engine::{Engine, Op, Timer, closed};
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::holds::{Hold, Phase};
use crate::io::{HoldId, LevelId, OpId, Outcome, Output, Target, Wire};
use crate::name::Name;
use crate::owner::{HoldNumber, Via};
use crate::refusal::Refusal;
use crate::scripts::{Ask, Reply};
use crate::slab;
use crate::time::{Millis, Time};
use crate::wheel::TimerId;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Release {
    hold: HoldId,
    name: Name,
    number: HoldNumber,
    level: Option<LevelId>,
    wire: Wire,
    /// The hold was valid when the release began.
    began_valid: bool,
    /// An earlier send of this release has no reply.
    unknown: bool,
    /// Somebody waits for the outcome.
    pub(crate) caller: bool,
    attempts: u8,
    /// How often a release whose old connection could not be killed has been said again.
    echo: Option<u8>,
    step: Option<TimerId>,
    end: Option<TimerId>,
}

impl Release {
    pub(crate) const fn is_echo(&self) -> bool {
        self.echo.is_some()
    }
}

impl Engine {
    /// Wishes to give a level back; with the outermost one the lock is free. The answer is `Released`,
    /// or fails with `lock_lost`, `release_unknown`, or `not_owner` where there is nothing to release.
    pub fn release(&mut self, now: Time, target: Target, wire: Wire) -> OpId {
        let found = match &target {
            Target::Level(hold, level) => self.find_level(*hold, *level),
            Target::Innermost { name, owner } => self
                .find_held(name, |hold| {
                    hold.levels.iter().rev().find(|level| level.owner == *owner).map(|level| level.id)
                })
                .ok_or_else(|| self.not_owner(name, *owner)),
            Target::Entered { name, owner, via } => self
                .find_held(name, |hold| {
                    let mine = hold.levels.iter().rev().find(|level| level.owner == *owner && level.via == *via);
                    mine.map(|level| level.id)
                })
                .or_else(|| self.only_level_through(name, *via))
                .ok_or_else(|| {
                    let text = "this block was left by another than entered it: keep the handle and release that";
                    Error::new(Code::NotOwner, text).of(name)
                }),
        };
        match found {
            Ok((hold, level)) => self.begin_release(now, hold, level, wire),
            Err(error) => self.refuse(error),
        }
    }

    fn find_level(&self, id: HoldId, level: LevelId) -> Result<(HoldId, LevelId), Error> {
        let gone = || Error::new(Code::NotOwner, "this hold was released already: release each hold once");
        let hold = self.holds.get(id).ok_or_else(gone)?;
        let unsettled = hold.unsettled.as_deref().is_some_and(|levels| levels.contains(&level));
        if unsettled || hold.levels.iter().any(|at| at.id == level) {
            Ok((id, level))
        } else {
            Err(gone().of(&hold.name))
        }
    }

    fn find_held(&self, name: &Name, pick: impl Fn(&Hold) -> Option<LevelId>) -> Option<(HoldId, LevelId)> {
        self.holds
            .of_name(name.as_str())
            .filter(|(_, hold)| !hold.dropped)
            .find_map(|(id, hold)| pick(hold).map(|level| (id, level)))
    }

    /// The one level that was entered through an object, if it is but one.
    fn only_level_through(&self, name: &Name, via: Via) -> Option<(HoldId, LevelId)> {
        let mut found = self.holds.of_name(name.as_str()).flat_map(|(id, hold)| {
            hold.levels.iter().filter(move |level| level.via == via).map(move |level| (id, level.id))
        });
        let only = found.next()?;
        found.next().is_none().then_some(only)
    }

    fn begin_release(&mut self, now: Time, id: HoldId, level: LevelId, wire: Wire) -> OpId {
        self.lose_if_due(now, id);
        let op_timeout = self.config.op_timeout;
        let Some(hold) = self.holds.get_mut(id) else { return self.refuse(closed()) };
        let again = !hold.levels.iter().any(|at| at.id == level);
        hold.levels.retain(|at| at.id != level);
        let outermost = hold.wanted() == 0;
        let lost = match hold.phase {
            Phase::Lost(why) => Some(why),
            Phase::Asked | Phase::Live | Phase::Doubtful | Phase::Released => None,
        };
        // Of a hold that the server disowned nothing is left to release, of a lost one no inner level.
        let nothing_to_send =
            lost.is_some_and(|why| !outermost || matches!(why, LossReason::Taken | LossReason::Overwritten));
        if nothing_to_send {
            if outermost {
                hold.phase = Phase::Released;
            }
            let error = self.lost_error_of(id, lost);
            self.sweep(id);
            return self.refuse(error);
        }
        let left = hold.wanted();
        if !outermost && left >= hold.server_count && !hold.road.is_pending() {
            // The level was only ever counted here (`local_reentry`).
            let name = hold.name.clone();
            let op = self.at_once(Outcome::Released { left });
            self.event(Event::Released { name, hold: id, count: left });
            return op;
        }
        if outermost {
            self.end_hold(now, id);
        }
        let Some(hold) = self.holds.get(id) else { return self.refuse(closed()) };
        let release = Release {
            hold: id,
            name: hold.name.clone(),
            number: hold.number,
            level: Some(level),
            wire,
            began_valid: if outermost { hold.began_valid } else { hold.is_valid(now) },
            unknown: again,
            caller: true,
            attempts: 0,
            echo: None,
            step: None,
            end: None,
        };
        let op = self.start_release(now, release);
        let end = self.wheel.insert(now + op_timeout, Timer::End(slab::index(op)));
        if let Some(release) = self.release_mut(op) {
            release.end = Some(end);
        }
        op
    }

    /// The outermost level is gone: the hold is not valid from here on and is not renewed again.
    fn end_hold(&mut self, now: Time, id: HoldId) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        if hold.phase != Phase::Released {
            hold.began_valid = hold.is_valid(now);
            hold.phase = Phase::Released;
        }
        if let Some(timer) = hold.timer.take() {
            self.wheel.cancel(timer);
        }
    }

    fn start_release(&mut self, now: Time, release: Release) -> OpId {
        let hold = release.hold;
        let op = self.ops.insert(Op::Release(Box::new(release)));
        if let Some(hold) = self.holds.get_mut(hold).filter(|hold| hold.op.is_none() && hold.wanted() == 0) {
            hold.op = Some(op);
        }
        self.send_release(now, op, false);
        op
    }

    /// Brings the server down to the count that is wanted here, without a caller: after a cancelled or
    /// unclaimed acquire, and behind every one that was never answered.
    pub(crate) fn release_down(&mut self, now: Time, id: HoldId, wire: Wire) {
        let Some(hold) = self.holds.get(id) else { return };
        let settled = hold.wanted() > 0 && hold.server_count <= hold.wanted() && !hold.road.is_pending();
        if settled && !hold.road.is_unanswered() {
            return;
        }
        if hold.wanted() == 0 && !matches!(hold.phase, Phase::Lost(_)) {
            self.end_hold(now, id);
        }
        self.release_silently(now, id, wire);
    }

    /// The application is closing: the whole hold goes.
    pub(crate) fn release_whole(&mut self, now: Time, id: HoldId, wire: Wire) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        if !matches!(hold.phase, Phase::Live | Phase::Doubtful) {
            return;
        }
        hold.levels.clear();
        hold.asked = 0;
        self.end_hold(now, id);
        self.release_silently(now, id, wire);
    }

    /// The margin of a lost hold is over: what the server may still keep of it goes now (S4).
    pub(crate) fn tidy(&mut self, now: Time, id: HoldId) {
        let again = |hold: &Hold| {
            matches!(hold.phase, Phase::Lost(LossReason::Expired | LossReason::MaxHold)) && hold.op.is_none()
        };
        if self.holds.get(id).is_some_and(again) {
            self.release_silently(now, id, Wire::KEEPER);
        }
    }

    fn release_silently(&mut self, now: Time, id: HoldId, wire: Wire) {
        let Some(hold) = self.holds.get(id) else { return };
        let release = Release {
            hold: id,
            name: hold.name.clone(),
            number: hold.number,
            level: None,
            wire,
            began_valid: false,
            unknown: true,
            caller: false,
            attempts: 0,
            echo: None,
            step: None,
            end: None,
        };
        let op = self.start_release(now, release);
        if let Some(hold) = self.holds.get_mut(id) {
            hold.op.get_or_insert(op);
        }
    }

    fn send_release(&mut self, now: Time, op: OpId, source: bool) {
        let Some(release) = self.release_mut(op) else { return };
        release.step = None;
        let (id, name, number) = (release.hold, release.name.clone(), release.number);
        let wire = if release.caller || release.attempts == 0 { release.wire } else { Wire::KEEPER };
        let watchdog = self.config.watchdog;
        let (count, lease) = match self.holds.get(id) {
            // A lost hold is left whole: its levels are the application's to leave, not the server's to keep.
            Some(hold) if matches!(hold.phase, Phase::Live | Phase::Doubtful) => {
                (hold.wanted(), if hold.watched { hold.next_lease(now, watchdog, None) } else { Millis::ZERO })
            }
            _ => (0, Millis::ZERO),
        };
        let ask = Ask::Release { name, owner: self.wire_owner(number), lease, count };
        let (purpose, patience) = (Purpose::Wish(op), self.config.op_timeout);
        self.send(now, Sending { wire, hold: Some(id), purpose, ask, source, lease, patience });
    }

    pub(crate) fn on_released(&mut self, now: Time, op: OpId, call: &CallRecord, answer: Answer) {
        let Some(release) = self.release_mut(op) else { return };
        let (id, name, valid, unknown) = (release.hold, release.name.clone(), release.began_valid, release.unknown);
        let result = match answer {
            Answer::Reply(Reply::Freed { .. }) if valid => Ok(0),
            Answer::Reply(Reply::Still { count }) if valid => Ok(count),
            Answer::Reply(Reply::NotOurs) if valid && unknown => Ok(0),
            Answer::Reply(Reply::NotOurs) if valid => {
                self.lose(now, id, LossReason::Taken);
                Err(self.lost_error_of(id, Some(LossReason::Taken)))
            }
            Answer::Reply(Reply::Freed { .. } | Reply::Still { .. } | Reply::NotOurs) => {
                Err(self.lost_error_of(id, None))
            }
            Answer::Refused(Refusal::NoScript, _) if !call.source => return self.send_release(now, op, true),
            Answer::Refused(Refusal::WrongType, _) => {
                self.lose(now, id, LossReason::Overwritten);
                Err(self.lost_error_of(id, Some(LossReason::Overwritten)))
            }
            Answer::Refused(Refusal::Final(code), text) => Err(Refusal::Final(code).error(&name, &text)),
            Answer::Refused(..) | Answer::NotSent(_) => return self.release_later(now, op),
            Answer::Unknown => {
                if let Some(release) = self.release_mut(op) {
                    release.unknown = true;
                }
                return self.release_later(now, op);
            }
            Answer::Reply(other) => {
                Err(Error::new(Code::Protocol, format!("the server answered a release with {other:?}")).of(&name))
            }
            Answer::Nonsense(what) => {
                Err(Error::new(Code::Protocol, format!("the server answered a release with {what}")).of(&name))
            }
        };
        self.settle_release(now, op, result);
    }

    fn settle_release(&mut self, now: Time, op: OpId, result: Result<u32, Error>) {
        let Some(release) = self.release_mut(op) else { return };
        let (id, caller, echo, name) = (release.hold, release.caller, release.echo, release.name.clone());
        if let Some(timer) = release.end.take() {
            self.wheel.cancel(timer);
        }
        let left = result.as_ref().copied().unwrap_or_default();
        if let Some(hold) = self.holds.get_mut(id) {
            hold.server_count = left;
        }
        if caller {
            let outcome = match result {
                Ok(left) => Outcome::Released { left },
                Err(error) => Outcome::Failed(error),
            };
            self.output(Output::Done(op, outcome));
        }
        if echo.is_none() {
            self.event(Event::Released { name: name.clone(), hold: id, count: left });
            if left == 0 {
                self.told_by_release(now, &name);
            }
        }
        let unfenced = self.holds.get(id).is_some_and(|hold| hold.wanted() == 0 && hold.road.is_unfenced());
        let echoes = [Millis::secs(1), Millis::secs(3), Millis::secs(10), self.config.watchdog];
        let next = echo.map_or(0, |echo| echo + 1);
        if let Some(pause) = echoes.get(usize::from(next)).filter(|_| unfenced && !self.closed) {
            let step = self.wheel.insert(now + *pause, Timer::Step(slab::index(op)));
            if let Some(release) = self.release_mut(op) {
                (release.caller, release.echo, release.step) = (false, Some(next), Some(step));
            }
            return;
        }
        self.forget_release(op);
    }

    fn release_later(&mut self, now: Time, op: OpId) {
        let Some(release) = self.release_mut(op) else { return };
        release.attempts = release.attempts.saturating_add(1);
        let (pause, id) = (backoff(release.attempts), release.hold);
        let hopeless = !release.caller && self.holds.get(id).is_none_or(|hold| now >= hold.free_at);
        if hopeless {
            return self.forget_release(op);
        }
        if pause == Millis::ZERO {
            return self.send_release(now, op, false);
        }
        let step = self.wheel.insert(now + pause, Timer::Step(slab::index(op)));
        if let Some(release) = self.release_mut(op) {
            release.step = Some(step);
        }
    }

    pub(crate) fn on_release_step(&mut self, now: Time, op: OpId) {
        self.send_release(now, op, false);
    }

    /// The caller has waited for as long as a caller waits; the release goes on in the background.
    pub(crate) fn on_release_end(&mut self, op: OpId, now: Time) {
        let Some(release) = self.release_mut(op) else { return };
        release.end = None;
        if !core::mem::take(&mut release.caller) {
            return;
        }
        let (id, level, name, owner) = (release.hold, release.level, release.name.clone(), release.number);
        let mut free_within = Millis::ZERO;
        if let Some(hold) = self.holds.get_mut(id) {
            free_within = hold.free_at.since(now);
            if let Some(level) = level {
                hold.unsettled.get_or_insert_default().push(level);
            }
        }
        let text = format!(
            "the release was not answered: the lock is free in {free_within} at the latest; calling again is allowed"
        );
        let error =
            Error::new(Code::ReleaseUnknown, text).of(&name).by(self.wire_owner(owner)).free_within(free_within);
        self.output(Output::Done(op, Outcome::Failed(error)));
    }

    fn forget_release(&mut self, op: OpId) {
        let Some(Op::Release(release)) = self.ops.remove(op) else { return };
        for timer in [release.step, release.end].into_iter().flatten() {
            self.wheel.cancel(timer);
        }
        if let Some(hold) = self.holds.get_mut(release.hold) {
            if hold.op == Some(op) {
                hold.op = None;
            }
            if let (Some(unsettled), Some(level)) = (hold.unsettled.as_deref_mut(), release.level) {
                unsettled.retain(|&at| at != level);
            }
        }
        self.sweep(release.hold);
    }

    fn release_mut(&mut self, op: OpId) -> Option<&mut Release> {
        match self.ops.get_mut(op) {
            Some(Op::Release(release)) => Some(release),
            _ => None,
        }
    }
}
