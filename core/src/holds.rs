//! The table of holds: every number this client has on a server, from its first request to its last.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::hold::{Hold, NONE, Phase};
use crate::io::HoldId;
use crate::name::Name;
use crate::owner::LocalOwner;
use crate::slab::{self, Slab};

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

    pub(crate) fn insert(&mut self, hold: Hold) -> HoldId {
        let (name, owner) = (hold.name.clone(), hold.owner);
        let id = self.slab.insert(hold);
        let at = slab::index(id);
        // In front of the others: one look into each map.
        let named = self.named.insert(name, at).unwrap_or(NONE);
        let owned = self.owned.insert(owner, at).unwrap_or(NONE);
        let hold = self.at_mut(at);
        (hold.named_next, hold.owned_next) = (named, owned);
        if owned != NONE {
            self.at_mut(owned).owned_prev = at;
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
        if let Entry::Occupied(mut head) = self.named.entry(hold.name.clone()) {
            let mut walk = *head.get();
            if walk != at {
                while walk != NONE {
                    let step = self.at_mut(walk);
                    if step.named_next == at {
                        step.named_next = hold.named_next;
                        break;
                    }
                    walk = step.named_next;
                }
            } else if hold.named_next == NONE {
                head.remove();
            } else {
                head.insert(hold.named_next);
            }
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

    /// The hold that this owner may re-enter, or carries lost: one it has a level of.
    pub(crate) fn carried(&self, name: &str, owner: LocalOwner) -> Option<HoldId> {
        self.of_name(name)
            .find(|(_, hold)| {
                matches!(hold.phase, Phase::Live | Phase::Doubtful | Phase::Lost(_))
                    && !hold.dropped
                    && hold.levels.iter().any(|level| level.owner == owner)
            })
            .map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::HoldNumber;
    use crate::time::Time;

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
