//! How a hold ends that nobody released: doubted, lost, abandoned, forgotten (reliability L7, L9).
//!
//! At its deadline a hold is lost, whatever the network does. It is told once; what the server may still
//! keep of it goes when the application lets go of it, or when its margin is over.

use crate::engine::Engine;
use crate::error::{Code, Error};
use crate::event::{Event, LossReason};
use crate::hold::Phase;
use crate::io::HoldId;
use crate::name::Name;
use crate::owner::{HoldNumber, LocalOwner};
use crate::time::Time;

impl Engine {
    pub(crate) fn doubt(&mut self, id: HoldId) {
        let Some(hold) = self.holds.get_mut(id).filter(|hold| hold.is_running() && hold.watched) else { return };
        let told = hold.phase == Phase::Doubtful;
        hold.arrow("doubt", Phase::Doubtful);
        if !told {
            let (name, deadline) = (hold.name.clone(), hold.deadline());
            self.event(Event::Doubtful { name, hold: id, deadline });
        }
    }

    /// Notices a deadline that has passed, whether or not its timer has come.
    pub(crate) fn lose_if_due(&mut self, now: Time, id: HoldId) {
        let Some(hold) = self.holds.get(id) else { return };
        if hold.is_running() && now >= hold.deadline() {
            self.lose(now, id, hold.why_lost(now));
        }
    }

    /// The hold is over although nobody released it. Told once; final (S4).
    pub(crate) fn lose(&mut self, now: Time, id: HoldId, why: LossReason) {
        let Some(hold) = self.holds.get_mut(id).filter(|hold| hold.is_running()) else { return };
        let arrow = match why {
            LossReason::Expired | LossReason::MaxHold => "deadline",
            LossReason::Taken | LossReason::Overwritten => "not ours",
            LossReason::Closed => "closed",
        };
        hold.arrow(arrow, Phase::Lost(why));
        // A grant that nobody claimed is nobody's loss.
        let told = (!hold.levels.is_empty()).then(|| hold.name.clone());
        self.schedule(now, id);
        if let Some(name) = told {
            self.event(Event::Lost { name, hold: id, why });
        }
        self.sweep(now, id);
    }

    /// The application is about to close although locks are held: whoever relies on them is told, before
    /// [`Engine::close`] releases them. Not for the end of a program, where nobody is left to tell.
    pub fn lose_all(&mut self, now: Time) {
        for id in self.holds.ids() {
            if self.holds.get(id).is_some_and(|hold| hold.is_valid(now) && !hold.levels.is_empty()) {
                self.cut_short.insert(id, now);
                self.lose(now, id, LossReason::Closed);
            }
        }
    }

    /// Stops the renewal of a hold that nobody can release any more; the server frees it in time.
    pub(crate) fn abandon_if_nobody_is_left(&mut self, now: Time, id: HoldId) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        // While a renewal is out its timer is that of the deadline; the next renewal looks again.
        if hold.is_abandoned() && !hold.renewing {
            hold.watched = false;
            self.schedule(now, id);
        }
        self.sweep(now, id);
    }

    /// Forgets a hold that is over and that nobody can ask about any more.
    pub(crate) fn sweep(&mut self, now: Time, id: HoldId) {
        let Some(hold) = self.holds.get(id) else { return };
        let busy = hold.road.is_pending() || hold.op.is_some() || hold.asked > 0;
        let unreachable = hold.levels.iter().all(|level| !level.handle);
        let over = match hold.phase {
            // Calling again is allowed after a release without answer: it is remembered for a while.
            Phase::Released if hold.unsettled.is_some() => {
                if !busy && hold.timer.is_none() {
                    self.schedule(now, id);
                }
                false
            }
            Phase::Released => true,
            // Its owner is still to be told, unless it was or is no more.
            Phase::Lost(_) => {
                let untold = !hold.dropped && hold.owner_alive && !hold.levels.is_empty();
                hold.timer.is_none() && unreachable && !untold
            }
            Phase::Asked | Phase::Live | Phase::Doubtful => false,
        };
        if over && !busy {
            self.stop_hold_timer(id);
            self.holds.remove(id);
        }
    }

    pub(crate) fn lost_error(&self, name: &Name, number: HoldNumber, why: LossReason) -> Error {
        Error::not_held(Code::LockLost, name, &self.wire_owner(number).to_string(), &lost_text(why))
    }

    /// What one is told who asks for what it does not hold. Its own number stands for that of a hold.
    pub(crate) fn not_owner(&self, name: &Name, owner: LocalOwner, what: &str) -> Error {
        Error::not_held(Code::NotOwner, name, &self.wire_owner(HoldNumber(owner.0)).to_string(), what)
    }
}

/// What happened and what to do.
pub(crate) fn lost_text(why: LossReason) -> String {
    format!("the lock was lost ({why}), another may hold it: undo or check what was done under it")
}
