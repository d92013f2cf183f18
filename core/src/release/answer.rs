//! What the server answered to a release, and what the caller is told: the table of design 3.

use super::State;
use crate::calls::{Answer, CallRecord, backoff};
use crate::engine::{Engine, Timer};
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::hold::Phase;
use crate::io::{HoldId, OpId, Outcome, Output};
use crate::refusal::Refusal;
use crate::scripts::Reply;
use crate::slab;
use crate::time::{Millis, Time};

impl Engine {
    pub(crate) fn on_released(&mut self, now: Time, op: OpId, call: &CallRecord, answer: Answer) {
        let Some(release) = self.release_mut(op) else { return };
        let (id, name, unknown) = (release.hold, release.name.clone(), release.unknown);
        let no_script = matches!(answer, Answer::Refused(Refusal::NoScript, _)) && !call.source;
        let silent = matches!(answer, Answer::NotSent(_) | Answer::Unknown | Answer::Refused(Refusal::Passing, _));
        if release.echoes.is_some() && !no_script && !silent {
            return self.rest_or_end(now, op);
        }
        let mut told = 0;
        let result = match answer {
            Answer::Reply(Reply::Freed { told: subscribers }) => {
                told = subscribers;
                Ok(0)
            }
            Answer::Reply(Reply::Still { count }) => Ok(count),
            Answer::Reply(Reply::NotOurs) => self.not_ours(now, op, id, unknown, LossReason::Taken),
            Answer::Refused(Refusal::WrongType, _) => self.not_ours(now, op, id, false, LossReason::Overwritten),
            Answer::Refused(Refusal::NoScript, _) if no_script => {
                return self.send_release(now, op, "no script", true);
            }
            Answer::Refused(Refusal::Final(code), text) => Err(Refusal::Final(code).error(&name, &text)),
            Answer::Refused(..) | Answer::NotSent(_) => return self.release_later(now, op),
            Answer::Unknown => {
                release.unknown = true;
                return self.release_later(now, op);
            }
            Answer::Reply(other) => {
                Err(Error::new(Code::Protocol, format!("the server answered a release with {other:?}")).of(&name))
            }
            Answer::Nonsense(what) => {
                Err(Error::new(Code::Protocol, format!("the server answered a release with {what}")).of(&name))
            }
        };
        self.settle_release(now, op, result, told);
    }

    /// The server has nothing of the hold. If an earlier send may have done it, that is a release.
    fn not_ours(&mut self, now: Time, op: OpId, id: HoldId, unknown: bool, why: LossReason) -> Result<u32, Error> {
        let Some(hold) = self.holds.get_mut(id) else { return Ok(0) };
        // Another release of this hold may have been the one that freed it.
        let freed = hold.gone && hold.lost_before.is_none();
        // No release of an inner level deletes the hold: while it is still running, somebody else did.
        let lost = hold.is_running() || !(unknown || freed);
        let why = if now >= hold.deadline() { LossReason::Expired } else { why };
        if lost {
            hold.lost_before.get_or_insert(why);
        }
        hold.gone = true;
        let (name, number) = (hold.name.clone(), hold.number);
        self.lose(now, id, why);
        let silent = self.release_mut(op).is_none_or(|release| release.level.is_none());
        if lost && !silent { Err(self.lost_error(&name, number, why)) } else { Ok(0) }
    }

    /// The release was answered: whoever waits here for the lock goes on, and the caller is told.
    fn settle_release(&mut self, now: Time, op: OpId, result: Result<u32, Error>, told: u32) {
        let Some(release) = self.release_mut(op) else { return };
        let (id, name, lost) = (release.hold, release.name.clone(), release.lost);
        let (caller, wished) = (core::mem::take(&mut release.caller), release.level.is_some() && lost.is_none());
        if let Some(timer) = release.end.take() {
            self.wheel.cancel(timer);
        }
        if let (Some(hold), Ok(left)) = (self.holds.get_mut(id), &result) {
            hold.server_count = *left;
            hold.gone |= *left == 0;
        }
        if result == Ok(0) {
            // Before the caller is woken: the next one's try is on its way first.
            self.after_release(now, &name, told);
        }
        if caller {
            self.tell_released(op, result.clone(), lost);
        }
        if let Ok(count) = result
            && wished
        {
            self.event(Event::Released { name, hold: id, count });
        }
        self.rest_or_end(now, op);
    }

    pub(super) fn tell_released(&mut self, op: OpId, result: Result<u32, Error>, lost: Option<LossReason>) {
        let Some(release) = self.release_ref(op) else { return };
        let outcome = match (result, lost) {
            (Ok(left), None) => Outcome::Released { left },
            (Ok(_), Some(why)) => Outcome::Failed(self.lost_error(&release.name, release.number, why)),
            (Err(error), _) => Outcome::Failed(error),
        };
        self.output(Output::Done(op, outcome));
    }

    /// A release was answered. While an old connection may still execute something of the hold, it is
    /// said again.
    fn rest_or_end(&mut self, now: Time, op: OpId) {
        let watchdog = self.config.watchdog;
        let Some(release) = self.release_mut(op) else { return };
        let (id, (since, said)) = (release.hold, release.echoes.unwrap_or((now, 0)));
        let over = self.holds.get(id).filter(|hold| hold.phase == Phase::Released && !self.closed);
        let (stale, unfenced) = over.map_or((false, false), |hold| (hold.road.is_stale(), hold.road.is_unfenced()));
        // The last time when the longest lease is over that anything stale could set.
        let longest = self.holds.get(id).map_or(Millis::ZERO, |hold| hold.free_at.since(since));
        let last = watchdog.max(Millis::secs(10)).max(longest);
        let pauses = [Millis::secs(1), Millis::secs(3), Millis::secs(10), last];
        let next = pauses.get(usize::from(said)).filter(|_| unfenced);
        if let (Some(pause), Some(release)) = (next, self.release_mut(op)) {
            release.echoes = Some((since, said + 1));
            release.arrow("not fenced", State::Resting);
            let step = self.wheel.insert(since + *pause, Timer::Step(slab::index(op)));
            if let Some(release) = self.release_mut(op) {
                release.step = Some(step);
            }
        } else if stale && said == 0 {
            self.send_release(now, op, "still stale", false);
        } else {
            self.end_release(now, op, "answered");
        }
    }

    fn release_later(&mut self, now: Time, op: OpId) {
        let Some(release) = self.release_mut(op) else { return };
        release.attempts = release.attempts.saturating_add(1);
        let (pause, id, caller) = (backoff(release.attempts), release.hold, release.caller);
        if !caller && self.holds.get(id).is_none_or(|hold| now >= hold.free_at) {
            return self.end_release(now, op, "free at last");
        }
        if let Some(release) = self.release_mut(op) {
            release.arrow("failed", State::HeldOff);
        }
        if pause == Millis::ZERO {
            return self.on_release_step(now, op);
        }
        let step = self.wheel.insert(now + pause, Timer::Step(slab::index(op)));
        if let Some(release) = self.release_mut(op) {
            release.step = Some(step);
        }
    }
}
