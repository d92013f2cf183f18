//! Which level a release is about.

use crate::engine::{Engine, released};
use crate::error::Error;
use crate::hold::Hold;
use crate::io::{HoldId, LevelId, OpId, Target, Wire};
use crate::name::Name;
use crate::owner::LocalOwner;
use crate::time::Time;

/// Who asks by the lock and not by a handle must be who acquired it.
const STRANGER: &str = "the caller holds nothing here: keep the handle that the acquire gave, and release that";

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
                .ok_or_else(|| self.stranger(name, *owner)),
        };
        match found {
            Ok((hold, level)) => self.begin_release(now, hold, level, wire),
            Err(error) => self.refuse(error),
        }
    }

    fn find_level(&self, id: HoldId, level: LevelId) -> Result<(HoldId, LevelId), Error> {
        let hold = self.holds.get(id).ok_or_else(released)?;
        let unsettled = hold.unsettled.as_deref().is_some_and(|levels| levels.contains(&level));
        if unsettled || hold.levels.iter().any(|at| at.id == level) { Ok((id, level)) } else { Err(released()) }
    }

    fn find_held(&self, name: &Name, pick: impl Fn(&Hold) -> Option<LevelId>) -> Option<(HoldId, LevelId)> {
        self.holds
            .of_name(name.as_str())
            .filter(|(_, hold)| !hold.dropped)
            .find_map(|(id, hold)| pick(hold).map(|level| (id, level)))
    }

    /// What an owner is told who would release a lock of which it holds nothing.
    #[must_use]
    pub fn stranger(&self, name: &Name, owner: LocalOwner) -> Error {
        self.not_owner(name, owner, STRANGER)
    }
}
