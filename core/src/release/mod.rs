//! One release: a level goes, and with the last one the hold.
//!
//! Its states and arrows are in `state.rs`; which level it is about is found in `target.rs`, what the
//! caller is told in `answer.rs`. The caller waits for `op_timeout`; the release goes on without it until
//! the server has answered, or must have let the lock go.

mod answer;
mod state;
mod target;

pub(crate) use state::{ARROWS, State};

use crate::arrows;
use crate::calls::{Purpose, Sending};
use crate::engine::{Engine, Op, Timer, closed};
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::hold::Phase;
use crate::io::{HoldId, LevelId, OpId, Outcome, Output, Wire};
use crate::name::Name;
use crate::owner::HoldNumber;
use crate::scripts::Ask;
use crate::slab;
use crate::time::{Millis, Time};
use crate::wheel::TimerId;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Release {
    hold: HoldId,
    name: Name,
    number: HoldNumber,
    /// The level that goes; none when the engine cleans up by itself.
    level: Option<LevelId>,
    wire: Wire,
    state: State,
    /// Why the hold was lost before the release began.
    lost: Option<LossReason>,
    /// An earlier send of this release has no reply.
    unknown: bool,
    /// Somebody waits for the outcome.
    pub(crate) caller: bool,
    attempts: u8,
    /// When it began to rest, and how often it was said again since.
    echoes: Option<(Time, u8)>,
    step: Option<TimerId>,
    end: Option<TimerId>,
}

impl Release {
    pub(crate) const fn is_echo(&self) -> bool {
        self.echoes.is_some()
    }

    fn arrow(&mut self, why: &'static str, to: State) {
        arrows::take(ARROWS, self.state.name(), why, to.name());
        self.state = to;
    }
}

impl Engine {
    pub(crate) fn begin_release(&mut self, now: Time, id: HoldId, level: LevelId, wire: Wire) -> OpId {
        self.lose_if_due(now, id);
        let Some(hold) = self.holds.get_mut(id) else { return self.refuse(closed()) };
        if hold.unsettled.as_deref().is_some_and(|levels| levels.contains(&level)) {
            return self.release_again(now, id, level, wire);
        }
        hold.levels.retain(|at| at.id != level);
        let left = hold.wanted();
        let lost = match hold.phase {
            Phase::Lost(why) => Some(why),
            Phase::Asked | Phase::Live | Phase::Doubtful | Phase::Released => None,
        };
        if let Some(why) = lost {
            if left > 0 || hold.nothing_is_left() {
                let (name, number) = (hold.name.clone(), hold.number);
                let error = self.lost_error(&name, number, why);
                if left == 0 {
                    self.end_hold(id);
                }
                self.sweep(now, id);
                return self.refuse(error);
            }
        } else if left > 0 && left >= hold.server_count && !hold.road.is_pending() {
            // The level was only ever counted here (`local_reentry`).
            let name = hold.name.clone();
            let op = self.at_once(Outcome::Released { left });
            self.event(Event::Released { name, hold: id, count: left });
            return op;
        }
        if left == 0 {
            self.end_hold(id);
        }
        self.start_release(now, id, Some(level), wire, (lost, false))
    }

    /// A release that was never answered is called again: the new one goes on for both.
    fn release_again(&mut self, now: Time, id: HoldId, level: LevelId, wire: Wire) -> OpId {
        let Some(hold) = self.holds.get_mut(id) else { return self.refuse(closed()) };
        if let Some(unsettled) = hold.unsettled.as_deref_mut() {
            unsettled.retain(|&at| at != level);
        }
        hold.unsettled.take_if(|levels| levels.is_empty());
        let lost = match hold.phase {
            Phase::Lost(why) => Some(why),
            _ => hold.lost_before,
        };
        let (left, settled) = (hold.wanted(), hold.gone || hold.phase != Phase::Released);
        let (name, number) = (hold.name.clone(), hold.number);
        let earlier = self.ops.keys().find(|&op| match self.ops.get(op) {
            Some(Op::Release(release)) => release.hold == id && release.level == Some(level) && !release.is_echo(),
            Some(Op::Acquire(_) | Op::Errand(_)) | None => false,
        });
        let mut unknown = true;
        if let Some(earlier) = earlier {
            if let Some(release) = self.release_mut(earlier) {
                unknown = release.unknown || release.state == State::Sent;
                release.arrow("joined", State::Ended);
            }
            self.drop_release(earlier);
        } else if settled {
            // The keeper heard the answer.
            let op = match lost {
                Some(why) => self.refuse(self.lost_error(&name, number, why)),
                None => self.at_once(Outcome::Released { left }),
            };
            self.sweep(now, id);
            return op;
        }
        self.start_release(now, id, Some(level), wire, (lost, unknown))
    }

    /// The outermost level is gone: the hold is not valid from here on and is not renewed again.
    fn end_hold(&mut self, id: HoldId) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        if let Phase::Lost(why) = hold.phase {
            hold.lost_before = Some(why);
        }
        hold.arrow(if hold.phase == Phase::Asked { "given up" } else { "released" }, Phase::Released);
        self.stop_hold_timer(id);
    }

    /// Starts a release; `earlier`: why the hold was lost before, and whether an earlier send may have
    /// done it.
    fn start_release(
        &mut self,
        now: Time,
        id: HoldId,
        level: Option<LevelId>,
        wire: Wire,
        earlier: (Option<LossReason>, bool),
    ) -> OpId {
        let Some(hold) = self.holds.get(id) else { return self.refuse(closed()) };
        let (lost, unknown) = earlier;
        let op = self.ops.insert(Op::Release(Box::new(Release {
            hold: id,
            name: hold.name.clone(),
            number: hold.number,
            level,
            wire,
            state: State::New,
            lost,
            unknown,
            caller: level.is_some(),
            attempts: 0,
            echoes: None,
            step: None,
            end: None,
        })));
        if let Some(hold) = self.holds.get_mut(id).filter(|hold| hold.op.is_none() && !hold.is_running()) {
            hold.op = Some(op);
        }
        if level.is_some() {
            let end = self.wheel.insert(now + self.config.op_timeout, Timer::End(slab::index(op)));
            if let Some(release) = self.release_mut(op) {
                release.end = Some(end);
            }
        }
        self.send_release(now, op, "began", false);
        op
    }

    /// Brings the server down to the count that is wanted here, without a caller: after a cancelled,
    /// failed or unclaimed acquire. `unanswered`: one of its requests has no reply and never will.
    pub(crate) fn release_down(&mut self, now: Time, id: HoldId, wire: Wire, unanswered: bool) {
        let Some(hold) = self.holds.get(id) else { return };
        let wanted = hold.wanted();
        let maybe = unanswered || hold.road.is_pending();
        let needed = match hold.phase {
            Phase::Asked => maybe,
            Phase::Live | Phase::Doubtful => wanted == 0 || hold.server_count > wanted || maybe,
            // While it has levels its margin is not given away (S4); without any, nobody relies on it.
            Phase::Lost(_) if wanted > 0 => return,
            Phase::Lost(_) => !hold.nothing_is_left() || maybe,
            Phase::Released => return,
        };
        if wanted == 0 {
            self.end_hold(id);
        }
        if needed {
            self.start_release(now, id, None, wire, (None, true));
        }
    }

    /// The application is closing: the whole hold goes.
    pub(crate) fn release_whole(&mut self, now: Time, id: HoldId, wire: Wire) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        hold.levels.clear();
        hold.asked = 0;
        hold.unsettled = None;
        self.release_down(now, id, wire, false);
        self.sweep(now, id);
    }

    /// What the server may still keep of a lost hold goes now (S4).
    pub(crate) fn tidy(&mut self, now: Time, id: HoldId) {
        self.stop_hold_timer(id);
        let left = self.holds.get(id).is_some_and(|hold| {
            matches!(hold.phase, Phase::Lost(_)) && hold.op.is_none() && !hold.nothing_is_left() && !hold.is_abandoned()
        });
        if left {
            self.start_release(now, id, None, Wire::KEEPER, (None, true));
        }
    }

    /// A call of a hold was reported. Once the hold is over, what may still run of it is killed.
    pub(crate) fn end_of_road(&mut self, now: Time, id: HoldId) {
        let stale = self.holds.get(id).is_some_and(|hold| {
            hold.phase == Phase::Released
                && hold.op.is_none()
                && !hold.road.is_pending()
                && hold.road.is_stale()
                && now < hold.free_at
        });
        if stale {
            self.start_release(now, id, None, Wire::KEEPER, (None, true));
        }
        self.sweep(now, id);
    }

    fn send_release(&mut self, now: Time, op: OpId, why: &'static str, source: bool) {
        let Some(release) = self.release_mut(op) else { return };
        release.step = None;
        release.arrow(why, State::Sent);
        let (id, name, number) = (release.hold, release.name.clone(), release.number);
        let wire = if release.caller || release.attempts == 0 { release.wire } else { Wire::KEEPER };
        let watchdog = self.config.watchdog;
        let (count, lease) = match self.holds.get_mut(id) {
            Some(hold) if hold.is_running() => {
                // Never nothing: a lease of zero would delete the key, and what is written next to it
                // would stay for ever (S14).
                let lease = hold.next_lease(now, watchdog, Some(Millis(1)));
                hold.free_at = hold.free_at.max(now + lease);
                (hold.wanted(), lease)
            }
            // A lost hold goes as a whole: its levels are the application's to leave, not the server's to keep.
            _ => (0, Millis::ZERO),
        };
        let ask = Ask::Release { name, owner: self.wire_owner(number), lease, count };
        let (purpose, patience) = (Purpose::Wish(op), self.config.op_timeout);
        self.send(now, Sending { wire, hold: Some(id), purpose, ask, source, lease, patience });
    }

    pub(crate) fn on_release_step(&mut self, now: Time, op: OpId) {
        let Some(release) = self.release_mut(op) else { return };
        release.step = None;
        let (id, lost, caller, state) = (release.hold, release.lost, release.caller, release.state);
        let echo = release.echoes.is_some();
        match state {
            State::Resting => self.send_release(now, op, "echo", false),
            State::HeldOff if !echo && self.holds.get(id).is_none_or(|hold| hold.gone) => {
                if caller {
                    self.tell_released(op, Ok(0), lost);
                }
                self.end_release(now, op, "settled");
            }
            State::HeldOff => self.send_release(now, op, "again", false),
            State::New | State::Sent | State::Ended => {}
        }
    }

    /// The caller has waited for as long as a caller waits; the release goes on in the background.
    pub(crate) fn on_release_end(&mut self, now: Time, op: OpId) {
        let Some(release) = self.release_mut(op) else { return };
        release.end = None;
        if !core::mem::take(&mut release.caller) {
            return;
        }
        let (id, level, name, owner) = (release.hold, release.level, release.name.clone(), release.number);
        let mut free_within = Millis::ZERO;
        if let Some(hold) = self.holds.get_mut(id) {
            free_within = hold.free_at.since(now);
            hold.unsettled.get_or_insert_default().extend(level);
        }
        let text = format!(
            "the release was not answered: the lock is free in {free_within} at the latest; calling again is allowed"
        );
        let error =
            Error::new(Code::ReleaseUnknown, text).of(&name).by(self.wire_owner(owner)).free_within(free_within);
        self.output(Output::Done(op, Outcome::Failed(error)));
    }

    /// The client closes: nothing is said again that was answered once.
    pub(crate) fn end_echo(&mut self, now: Time, op: OpId) {
        if self.release_mut(op).is_some_and(|release| release.state == State::Resting) {
            self.end_release(now, op, "over");
        }
    }

    fn end_release(&mut self, now: Time, op: OpId, why: &'static str) {
        let Some(release) = self.release_mut(op) else { return };
        release.arrow(why, State::Ended);
        let id = release.hold;
        self.drop_release(op);
        self.sweep(now, id);
    }

    fn drop_release(&mut self, op: OpId) {
        let Some(Op::Release(release)) = self.ops.remove(op) else { return };
        for timer in [release.step, release.end].into_iter().flatten() {
            self.wheel.cancel(timer);
        }
        if let Some(hold) = self.holds.get_mut(release.hold).filter(|hold| hold.op == Some(op)) {
            hold.op = None;
        }
    }

    fn release_ref(&self, op: OpId) -> Option<&Release> {
        match self.ops.get(op) {
            Some(Op::Release(release)) => Some(release),
            _ => None,
        }
    }

    fn release_mut(&mut self, op: OpId) -> Option<&mut Release> {
        match self.ops.get_mut(op) {
            Some(Op::Release(release)) => Some(release),
            _ => None,
        }
    }
}
