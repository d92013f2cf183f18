//! The table of holds: every number this client has on a server, from its first request to its last.
//!
//! ```text
//! Asked    --granted-->            Live      the server has our field
//! Asked    --given up-->           Released  nobody waits for it; a release follows if anything was sent
//! Live     --renewed-->            Live      a new deadline
//! Live     --renewal failed-->     Doubtful  told, still valid
//! Doubtful --renewed-->            Live
//! Live     --deadline-->           Lost      expired, or max_hold
//! Doubtful --deadline-->           Lost
//! Live     --not ours-->           Lost      taken, or overwritten
//! Doubtful --not ours-->           Lost
//! Live     --outermost release-->  Released  renewal ends before the first byte of the release
//! Doubtful --outermost release-->  Released
//! Lost     --outermost release-->  Released
//! ```
//!
//! Lost and Released are final (S4). A released hold stays in the table until its release is settled.

use std::collections::BTreeMap;

use crate::config::margin;
use crate::event::LossReason;
use crate::io::{HoldId, HoldView, LevelId, OpId};
use crate::name::Name;
use crate::owner::{HoldNumber, LocalOwner, Via};
use crate::road::Road;
use crate::slab::{self, Slab};
use crate::time::{Millis, Time};
use crate::wheel::TimerId;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    Asked,
    Live,
    Doubtful,
    Lost(LossReason),
    Released,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Level {
    pub(crate) id: LevelId,
    /// A handle of this level is reachable.
    pub(crate) handle: bool,
    pub(crate) owner: LocalOwner,
    pub(crate) via: Via,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Hold {
    pub(crate) name: Name,
    pub(crate) owner: LocalOwner,
    pub(crate) number: HoldNumber,
    pub(crate) levels: Vec<Level>,
    /// When the request was made that set the present lease.
    pub(crate) sent: Time,
    pub(crate) lease: Millis,
    /// D: from here on it is not valid any more.
    pub(crate) deadline: Time,
    /// Until when the longest lease that was asked for lasts; zero without one.
    pub(crate) fixed_until: Time,
    /// The last instant at which the server may still keep it, whatever was answered.
    pub(crate) free_at: Time,
    pub(crate) since: Time,
    pub(crate) road: Road,
    pub(crate) timer: Option<TimerId>,
    pub(crate) phase: Phase,
    /// The count that the server has.
    pub(crate) server_count: u32,
    /// Levels asked for and not yet answered.
    pub(crate) asked: u32,
    pub(crate) next_level: u32,
    /// The wish that works on it: the acquire while it is asked for, the release once it is released.
    pub(crate) op: Option<OpId>,
    /// Levels whose release was never answered: releasing them again is allowed.
    #[expect(clippy::box_collection, reason = "rare: 8 bytes in each hold instead of 24")]
    pub(crate) unsettled: Option<Box<Vec<LevelId>>>,
    pub(crate) renewing: bool,
    pub(crate) watched: bool,
    pub(crate) owner_alive: bool,
    /// Its owner was told of the loss by a later acquire.
    pub(crate) dropped: bool,
    /// It was valid when its outermost release began.
    pub(crate) began_valid: bool,
    pub(crate) failures: u8,
    named_next: u32,
    owned_next: u32,
    owned_prev: u32,
}

impl Hold {
    pub(crate) fn new(name: Name, owner: LocalOwner, number: HoldNumber, now: Time) -> Self {
        Self {
            name,
            owner,
            number,
            levels: Vec::new(),
            sent: now,
            lease: Millis::ZERO,
            deadline: now,
            fixed_until: Time(0),
            free_at: now,
            since: now,
            road: Road::default(),
            timer: None,
            phase: Phase::Asked,
            server_count: 0,
            asked: 0,
            next_level: 0,
            op: None,
            unsettled: None,
            renewing: false,
            watched: false,
            owner_alive: true,
            dropped: false,
            began_valid: false,
            failures: 0,
            named_next: NONE,
            owned_next: NONE,
            owned_prev: NONE,
        }
    }

    pub(crate) fn is_valid(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Live | Phase::Doubtful) && now < self.deadline
    }

    /// The server confirmed a lease that a request made at `sent` asked for.
    pub(crate) fn confirm(&mut self, sent: Time, lease: Millis) {
        let deadline = sent + lease.saturating_sub(margin(lease));
        // Replies of one road come in order, those of a renewal beside it may not: the later deadline
        // was granted by a later request and stands.
        if deadline >= self.deadline || self.phase == Phase::Asked {
            (self.sent, self.lease, self.deadline) = (sent, lease, deadline);
        }
        self.failures = 0;
    }

    /// The lease that the next request of this hold sets: the watchdog's if watched, what is left of the
    /// longest lease asked for if that is more (design 3).
    pub(crate) fn next_lease(&self, now: Time, watchdog: Millis, asked: Option<Millis>) -> Millis {
        let floor = if self.watched || asked.is_none() { watchdog } else { Millis::ZERO };
        floor.max(asked.unwrap_or_default()).max(self.fixed_until.since(now))
    }

    /// The count this hold should have: levels held and levels under way.
    pub(crate) fn wanted(&self) -> u32 {
        self.levels.len() as u32 + self.asked
    }

    pub(crate) fn add_level(&mut self, owner: LocalOwner, via: Via) -> LevelId {
        let id = LevelId(self.next_level);
        self.next_level += 1;
        self.levels.push(Level { id, handle: true, owner, via });
        id
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        !self.owner_alive && self.levels.iter().all(|level| !level.handle)
    }

    pub(crate) fn view(&self, now: Time) -> HoldView {
        let valid = self.is_valid(now);
        let lost = match self.phase {
            Phase::Lost(why) => Some(why),
            Phase::Live | Phase::Doubtful if !valid => Some(LossReason::Expired),
            _ => None,
        };
        HoldView {
            valid,
            lost,
            count: self.levels.len() as u32,
            remaining: if valid { self.deadline.since(now) } else { Millis::ZERO },
            deadline: self.deadline,
        }
    }
}

/// Every hold, by id, by name and by owner.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Holds {
    slab: Slab<HoldId, Hold>,
    // The heads of lists that run through the holds: nearly always of one.
    named: BTreeMap<Name, u32>,
    owned: BTreeMap<LocalOwner, u32>,
}

impl Holds {
    pub(crate) const fn new() -> Self {
        Self { slab: Slab::new(), named: BTreeMap::new(), owned: BTreeMap::new() }
    }

    pub(crate) fn insert(&mut self, mut hold: Hold) -> HoldId {
        hold.named_next = self.named.get(&hold.name).copied().unwrap_or(NONE);
        hold.owned_next = self.owned.get(&hold.owner).copied().unwrap_or(NONE);
        let (name, owner, behind) = (hold.name.clone(), hold.owner, hold.owned_next);
        let id = self.slab.insert(hold);
        let at = slab::index(id);
        self.named.insert(name, at);
        self.owned.insert(owner, at);
        if behind != NONE {
            self.at_mut(behind).owned_prev = at;
        }
        id
    }

    pub(crate) fn remove(&mut self, id: HoldId) -> Option<Hold> {
        let hold = self.slab.remove(id)?;
        let at = slab::index(id);
        // By owner: linked both ways, for one thread may hold a hundred thousand.
        if hold.owned_next != NONE {
            self.at_mut(hold.owned_next).owned_prev = hold.owned_prev;
        }
        if hold.owned_prev != NONE {
            self.at_mut(hold.owned_prev).owned_next = hold.owned_next;
        } else if hold.owned_next != NONE {
            self.owned.insert(hold.owner, hold.owned_next);
        } else {
            self.owned.remove(&hold.owner);
        }
        // By name: walked, for a name has few.
        match self.named.get(&hold.name).copied() {
            Some(head) if head == at && hold.named_next == NONE => {
                self.named.remove(&hold.name);
            }
            Some(head) if head == at => {
                self.named.insert(hold.name.clone(), hold.named_next);
            }
            Some(head) => {
                let mut walk = head;
                while walk != NONE {
                    let step = self.at_mut(walk);
                    if step.named_next == at {
                        step.named_next = hold.named_next;
                        break;
                    }
                    walk = step.named_next;
                }
            }
            None => {}
        }
        Some(hold)
    }

    fn at_mut(&mut self, index: u32) -> &mut Hold {
        let id = self.slab.key_at(index);
        self.slab.get_mut(id).expect("a listed hold is in the slab")
    }

    pub(crate) fn get(&self, id: HoldId) -> Option<&Hold> {
        self.slab.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: HoldId) -> Option<&mut Hold> {
        self.slab.get_mut(id)
    }

    pub(crate) fn id_at(&self, index: u32) -> HoldId {
        self.slab.key_at(index)
    }

    pub(crate) fn ids(&self) -> Vec<HoldId> {
        self.slab.keys().collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The holds of one name, newest first.
    pub(crate) fn of_name<'a>(&'a self, name: &str) -> impl Iterator<Item = (HoldId, &'a Hold)> {
        self.walk(self.named.get(name).copied(), |hold| hold.named_next)
    }

    /// The holds of one owner, newest first.
    pub(crate) fn of_owner(&self, owner: LocalOwner) -> impl Iterator<Item = (HoldId, &Hold)> {
        self.walk(self.owned.get(&owner).copied(), |hold| hold.owned_next)
    }

    fn walk<'a>(
        &'a self,
        head: Option<u32>,
        next: impl Fn(&Hold) -> u32 + 'a,
    ) -> impl Iterator<Item = (HoldId, &'a Hold)> + 'a {
        let mut at = head.unwrap_or(NONE);
        core::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let id = self.slab.key_at(at);
            let hold = self.slab.get(id)?;
            at = next(hold);
            Some((id, hold))
        })
    }

    /// The hold that this owner may re-enter, or carries lost: its own, or one it has a level of.
    pub(crate) fn carried(&self, name: &str, owner: LocalOwner) -> Option<HoldId> {
        self.of_name(name)
            .find(|(_, hold)| {
                matches!(hold.phase, Phase::Live | Phase::Doubtful | Phase::Lost(_))
                    && !hold.dropped
                    && !hold.levels.is_empty()
                    && (hold.owner == owner || hold.levels.iter().any(|level| level.owner == owner))
            })
            .map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_removals_in_any_order() {
        let mut holds = Holds::new();
        let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        let mut ids = Vec::new();
        for number in 0..12 {
            let name = if number % 2 == 0 { &a } else { &b };
            ids.push(holds.insert(Hold::new(name.clone(), LocalOwner(number % 3), HoldNumber(number), Time(0))));
        }
        for gone in [5, 0, 11, 6, 3, 2, 8] {
            let hold = holds.remove(ids[gone]).unwrap();
            assert_eq!(hold.number.0, gone as u64);
            let mut seen: Vec<u64> =
                ["a", "b"].iter().flat_map(|name| holds.of_name(name)).map(|(_, hold)| hold.number.0).collect();
            let mut owned: Vec<u64> =
                (0..3).flat_map(|owner| holds.of_owner(LocalOwner(owner))).map(|(_, hold)| hold.number.0).collect();
            seen.sort_unstable();
            owned.sort_unstable();
            assert_eq!(seen, owned);
            assert_eq!(seen.len(), holds.len());
            assert!(!seen.contains(&(gone as u64)));
        }
    }
}
