//! A slab whose keys are never used twice: index below, generation above.

/// Turns a key into the number that leaves the engine, and back.
pub(crate) trait Key: Copy {
    fn from_bits(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! keys {
    ($($name:ident),+) => {$(
        impl Key for crate::io::$name {
            fn from_bits(bits: u64) -> Self { Self(bits) }
            fn bits(self) -> u64 { self.0 }
        }
    )+};
}
keys!(OpId, CallId, HoldId);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Slot<T> {
    Full(T),
    Free { next: u32 },
}

const NONE: u32 = u32::MAX;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Slab<K, T> {
    slots: Vec<(u32, Slot<T>)>,
    free: u32,
    len: usize,
    key: core::marker::PhantomData<K>,
}

impl<K: Key, T> Slab<K, T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0, key: core::marker::PhantomData }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> K {
        let index = self.free_index();
        let slot = &mut self.slots[index as usize];
        if let Slot::Free { next } = slot.1 {
            self.free = next;
        }
        slot.1 = Slot::Full(value);
        self.len += 1;
        self.key_at(index)
    }

    /// A key that nothing is kept under, for what is over at once.
    pub(crate) fn skip(&mut self) -> K {
        let index = self.free_index();
        let key = self.key_at(index);
        self.slots[index as usize].0 = self.slots[index as usize].0.wrapping_add(1);
        key
    }

    /// The slot that is used next.
    fn free_index(&mut self) -> u32 {
        if self.free == NONE {
            // An eighth at a time: a hold has a budget of 400 bytes, and doubling would take half of it.
            if self.slots.len() == self.slots.capacity() {
                self.slots.reserve_exact((self.slots.len() / 8).max(16));
            }
            self.slots.push((0, Slot::Free { next: NONE }));
            self.free = self.slots.len() as u32 - 1;
        }
        self.free
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        let (index, generation) = split(key);
        let slot = self.slots.get_mut(index as usize)?;
        if slot.0 != generation || matches!(slot.1, Slot::Free { .. }) {
            return None;
        }
        let taken = core::mem::replace(&mut slot.1, Slot::Free { next: self.free });
        slot.0 = slot.0.wrapping_add(1);
        self.free = index;
        self.len -= 1;
        match taken {
            Slot::Full(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn get(&self, key: K) -> Option<&T> {
        let (index, generation) = split(key);
        match self.slots.get(index as usize) {
            Some((at, Slot::Full(value))) if *at == generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let (index, generation) = split(key);
        match self.slots.get_mut(index as usize) {
            Some((at, Slot::Full(value))) if *at == generation => Some(value),
            _ => None,
        }
    }

    /// The full key of an index that is in use: timers and lists keep indices, half the size of a key.
    pub(crate) fn key_at(&self, index: u32) -> K {
        K::from_bits(u64::from(self.slots[index as usize].0) << 32 | u64::from(index))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.slots.iter().enumerate().filter_map(|(index, (generation, slot))| match slot {
            Slot::Full(_) => Some(K::from_bits(u64::from(*generation) << 32 | index as u64)),
            Slot::Free { .. } => None,
        })
    }
}

pub(crate) fn index<K: Key>(key: K) -> u32 {
    key.bits() as u32
}

fn split<K: Key>(key: K) -> (u32, u32) {
    (key.bits() as u32, (key.bits() >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::OpId;

    #[test]
    fn a_key_is_never_used_twice() {
        let mut slab: Slab<OpId, u8> = Slab::new();
        let first = slab.insert(1);
        assert_eq!(slab.remove(first), Some(1));
        let second = slab.insert(2);
        assert_eq!(index(first), index(second), "the place is used again");
        assert_ne!(first, second, "the key is not");
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&2)));
        assert_eq!(slab.remove(first), None);
        assert_eq!((slab.len(), slab.keys().count()), (1, 1));
        let skipped = slab.skip();
        assert_eq!(slab.get(skipped), None);
        let third = slab.insert(3);
        assert_eq!(index(skipped), index(third));
        assert_ne!(skipped, third);
    }
}
