//! Values by numbers that are never used twice: the place in the low half, how often it was used in the high half.

/// What is under way in one environment.
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    times: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// A number for a value that is still to be put.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn reserve(&mut self) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { times: 0, value: None });
            self.slots.len() as u32 - 1
        });
        u64::from(self.slots[at as usize].times) << 32 | u64::from(at)
    }

    /// Puts the value of a reserved number, or puts it back.
    pub(crate) fn put(&mut self, token: u64, value: T) {
        if let Some(slot) = self.slot(token) {
            slot.value = Some(value);
        }
    }

    /// Takes a value; its number stays reserved.
    pub(crate) fn take(&mut self, token: u64) -> Option<T> {
        self.slot(token)?.value.take()
    }

    /// The number is of no use any more.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn free(&mut self, token: u64) {
        if let Some(slot) = self.slot(token) {
            slot.times = slot.times.wrapping_add(1);
            self.free.push(token as u32);
        }
    }

    #[allow(clippy::cast_possible_truncation)]
    fn slot(&mut self, token: u64) -> Option<&mut Slot<T>> {
        self.slots.get_mut(token as u32 as usize).filter(|slot| u64::from(slot.times) == token >> 32)
    }
}
