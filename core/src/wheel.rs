//! A hashed timing wheel: where every deadline of the engine waits.
//!
//! 4,096 slots of 8 ms make a turn of 32.8 s, so a lease of 30 s and its renewal fit in one. An entry
//! goes to the slot its instant hashes to, however many turns ahead, and carries the exact instant.
//!
//! Classic wheels turn: a cursor passes every slot, and counts down a rounds counter in each entry it
//! meets. This one does not turn. Each slot has a *bound*, an instant that no entry in it is earlier than, and
//! each span of 64 slots has the least bound of its slots; bitmaps tell which slots and spans are in use. The
//! next deadline is the least of at most 64 bounds, be it in this turn or a later one, and a clock that jumps
//! by hours (a suspended laptop) costs nothing for the slots it jumps over.
//!
//! The bound of a slot is raised late: a cancel leaves it alone, and a search that finds it too low corrects
//! it. So the price of a constant-time cancel is at most one early wake, and no wake is ever late.

use crate::time::Time;

/// How many milliseconds share a slot.
const SLOT_MS: u64 = 8;
/// A word of the bitmap has a bit for each slot of a span, its summary a bit for each span.
const SPAN_SLOTS: usize = 64;
const SPANS: usize = 64;
const SLOTS: usize = SPANS * SPAN_SLOTS;
/// The link that leads nowhere: no entry has this index.
const NIL: u32 = u32::MAX;
/// The bound of what is empty.
const NEVER: Time = Time(u64::MAX);

/// Names an entry of a [`Wheel`], to cancel it. Once the entry is gone its id is stale: it cancels nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// Items, each due at an instant. Reads no clock: the host tells what time it is.
///
/// ```
/// # use bandog_core::{time::Time, wheel::Wheel};
/// let mut wheel = Wheel::default();
/// wheel.insert(Time(10_000), "renew");
/// let expiry = wheel.insert(Time(30_000), "expire");
///
/// assert_eq!(wheel.next_at(), Some(Time(10_000))); // sleep until then, and then:
/// assert_eq!(wheel.pop(Time(10_000)), Some("renew"));
/// assert_eq!(wheel.pop(Time(10_000)), None);
///
/// assert_eq!(wheel.cancel(expiry), Some("expire"));
/// assert_eq!(wheel.next_at(), None); // nothing to wake for
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Wheel<T: Copy> {
    /// Bit `n`: span `n` has an entry.
    occupied: u64,
    spans: Box<[Span; SPANS]>,
    slots: Box<[Slot; SLOTS]>,
    /// All entries, and gaps that wait to be used again.
    entries: Vec<Entry<T>>,
    /// The gap used last; gaps are linked by `next`.
    free: u32,
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Span {
    /// Bit `n`: slot `n` of this span has an entry.
    occupied: u64,
    /// The least bound of the slots, exactly.
    bound: Time,
}

/// A list of entries. Those of one instant stand in the order of their insertion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Slot {
    first: u32,
    last: u32,
    /// No entry is earlier; the earliest may be later.
    bound: Time,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry<T> {
    at: Time,
    /// Stale in a gap; overwriting it would take an `Option`, and 8 bytes more for each timer.
    item: T,
    prev: u32,
    next: u32,
    /// Counts the entries that had this index, so that an id means one of them only.
    generation: u32,
}

// A hundred thousand holds have two timers each.
const _: () = assert!(size_of::<Entry<u64>>() == 32);

impl<T: Copy> Wheel<T> {
    /// Adds `item`, due at `at`, in constant time. An instant that has passed is due at the next [`pop`](Self::pop).
    pub fn insert(&mut self, at: Time, item: T) -> TimerId {
        let id = self.place(Entry { at, item, prev: NIL, next: NIL, generation: 0 });
        let slot = slot_of(at);
        self.link(slot, self.slots[slot].last, id.index);
        self.slots[slot].bound = self.slots[slot].bound.min(at);

        let span = &mut self.spans[slot / SPAN_SLOTS];
        span.occupied |= 1 << (slot % SPAN_SLOTS);
        span.bound = span.bound.min(at);
        self.occupied |= 1 << (slot / SPAN_SLOTS);
        self.len += 1;
        id
    }

    /// Takes an entry out again, in constant time. `None` if it was popped, taken or cancelled before.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let entry = self.entries.get(id.index as usize)?;
        (entry.generation == id.generation).then(|| self.remove(id.index))
    }

    /// Takes the earliest item due at or before `now`; call it until `None`.
    ///
    /// Exact to the millisecond. Items come in the order of their instants, those of one instant in the
    /// order of their insertion: a host that wakes late gets them as a punctual one would have.
    pub fn pop(&mut self, now: Time) -> Option<T> {
        loop {
            let (span, bound) = self.soonest().filter(|&(_, bound)| bound <= now)?;
            let slot = self.slots_of(span).find(|&slot| self.slots[slot].bound == bound)?;
            let first = self.slots[slot].first;
            if self.entries[first as usize].at == bound {
                return Some(self.remove(first));
            }
            let earliest = self.bring_forward(slot);
            self.raise(slot, earliest);
        }
    }

    /// Moves at most `limit` items due at or before `until` to `out`, those that `want` accepts, early
    /// slots first. `until` may lie ahead of now: what is due soon can ride along with what is due.
    ///
    /// Looks at every entry up to `until`, refused ones included, until the limit is reached. Items less
    /// than 8 ms apart come in any order.
    pub fn take_until(&mut self, until: Time, limit: usize, mut want: impl FnMut(&T) -> bool, out: &mut Vec<T>) {
        let full = out.len().saturating_add(limit);
        let Some((_, start)) = self.soonest() else { return };
        // One more for the slot `start` is in, one for what division drops; past a turn, slots come again.
        let ticks = (until.since(start).0 / SLOT_MS + 2).min(SLOTS as u64) as usize;
        for slot in (slot_of(start)..SLOTS).chain(0..slot_of(start)).take(ticks) {
            if self.slots[slot].bound > until {
                continue;
            }
            let mut kept = NEVER;
            let mut index = self.slots[slot].first;
            while let Some(&Entry { at, ref item, next, .. }) = self.entries.get(index as usize) {
                if out.len() >= full {
                    return;
                }
                if at <= until && want(item) {
                    out.push(self.remove(index));
                } else {
                    kept = kept.min(at);
                }
                index = next;
            }
            // Having seen the whole slot, spare the host a wake for what was taken.
            self.raise(slot, kept);
        }
    }

    /// When to call [`pop`](Self::pop) next; `None` for an empty wheel.
    ///
    /// Never later than the earliest item. It may be earlier if that one was cancelled, but always later
    /// than the last `pop` that gave `None`, so a host that sleeps until then does not spin.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.soonest().map(|(_, bound)| bound)
    }

    #[cfg(test)]
    pub(crate) fn due(&self, id: TimerId) -> Option<Time> {
        self.entries.get(id.index as usize).filter(|entry| entry.generation == id.generation).map(|entry| entry.at)
    }

    /// How many items wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The span with the least bound, and that bound.
    fn soonest(&self) -> Option<(usize, Time)> {
        bits(self.occupied).map(|span| (span, self.spans[span].bound)).min_by_key(|&(_, bound)| bound)
    }

    /// The slots of a span that have an entry.
    fn slots_of(&self, span: usize) -> impl Iterator<Item = usize> + use<T> {
        bits(self.spans[span].occupied).map(move |slot| span * SPAN_SLOTS + slot)
    }

    /// Moves the earliest entries of a slot to its front and tells when they are due. Doing so once for each
    /// instant, rather than searching for each entry, keeps crowded slots from costing a square.
    fn bring_forward(&mut self, slot: usize) -> Time {
        let mut earliest = NEVER;
        let mut index = self.slots[slot].first;
        while let Some(entry) = self.entries.get(index as usize) {
            earliest = earliest.min(entry.at);
            index = entry.next;
        }
        let mut front = NIL;
        let mut index = self.slots[slot].first;
        while let Some(&Entry { at, next, .. }) = self.entries.get(index as usize) {
            if at == earliest {
                self.unlink(slot, index);
                self.link(slot, front, index);
                front = index;
            }
            index = next;
        }
        earliest
    }

    /// Puts an entry into the gap used last, or at the end.
    fn place(&mut self, entry: Entry<T>) -> TimerId {
        match self.entries.get_mut(self.free as usize) {
            Some(gap) => {
                let id = TimerId { index: self.free, generation: gap.generation };
                self.free = gap.next;
                *gap = Entry { generation: id.generation, ..entry };
                id
            }
            None => {
                let index = u32::try_from(self.entries.len()).ok().filter(|&index| index != NIL);
                if self.entries.len() == self.entries.capacity() {
                    // A quarter at a time: of a hundred thousand holds each counts the bytes.
                    self.entries.reserve_exact((self.entries.len() / 4).max(16));
                }
                self.entries.push(entry);
                TimerId { index: index.expect("fewer than 2^32 timers"), generation: 0 }
            }
        }
    }

    /// Takes an entry out of its slot and leaves a gap.
    fn remove(&mut self, index: u32) -> T {
        let Entry { at, item, .. } = self.entries[index as usize];
        let slot = slot_of(at);
        self.unlink(slot, index);
        if self.slots[slot].first == NIL {
            // At once, for at most 64 steps: a client with few timers shall not wake for cancelled ones.
            self.spans[slot / SPAN_SLOTS].occupied &= !(1 << (slot % SPAN_SLOTS));
            self.raise(slot, NEVER);
        }
        let gap = &mut self.entries[index as usize];
        gap.generation = gap.generation.wrapping_add(1);
        gap.next = self.free;
        self.free = index;
        self.len -= 1;
        item
    }

    /// Links an entry into a slot, behind `prev` or at its front.
    fn link(&mut self, slot: usize, prev: u32, index: u32) {
        let next = match self.entries.get_mut(prev as usize) {
            None => std::mem::replace(&mut self.slots[slot].first, index),
            Some(entry) => std::mem::replace(&mut entry.next, index),
        };
        match self.entries.get_mut(next as usize) {
            None => self.slots[slot].last = index,
            Some(entry) => entry.prev = index,
        }
        let entry = &mut self.entries[index as usize];
        (entry.prev, entry.next) = (prev, next);
    }

    fn unlink(&mut self, slot: usize, index: u32) {
        let Entry { prev, next, .. } = self.entries[index as usize];
        match self.entries.get_mut(prev as usize) {
            None => self.slots[slot].first = next,
            Some(entry) => entry.next = next,
        }
        match self.entries.get_mut(next as usize) {
            None => self.slots[slot].last = prev,
            Some(entry) => entry.prev = prev,
        }
    }

    /// Raises the bound of a slot, and with it that of its span.
    fn raise(&mut self, slot: usize, bound: Time) {
        let raised = std::mem::replace(&mut self.slots[slot].bound, bound);
        let span = slot / SPAN_SLOTS;
        if self.spans[span].bound == raised {
            self.spans[span].bound = self.slots_of(span).map(|slot| self.slots[slot].bound).min().unwrap_or(NEVER);
        }
        if self.spans[span].occupied == 0 {
            self.occupied &= !(1 << span);
        }
    }
}

impl<T: Copy> Default for Wheel<T> {
    /// An empty wheel. It allocates 65 KiB, and from then on only for more entries than it ever had.
    fn default() -> Self {
        // A vector first: an array would be built on the stack.
        let slots = vec![Slot::EMPTY; SLOTS].into_boxed_slice();
        Self {
            occupied: 0,
            spans: Box::new([Span::EMPTY; SPANS]),
            slots: slots.try_into().expect("the vector has the length of the array"),
            entries: Vec::new(),
            free: NIL,
            len: 0,
        }
    }
}

impl Span {
    const EMPTY: Self = Self { occupied: 0, bound: NEVER };
}

impl Slot {
    const EMPTY: Self = Self { first: NIL, last: NIL, bound: NEVER };
}

const fn slot_of(at: Time) -> usize {
    (at.0 / SLOT_MS % SLOTS as u64) as usize
}

/// The positions of the ones in a word, lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let lowest = word.trailing_zeros() as usize;
            word &= word - 1;
            lowest
        })
    })
}
