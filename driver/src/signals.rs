//! What a thread that waits does about signals, and how long it sleeps at a time.

use std::cell::OnceCell;

use bandog_core::time::Time;

use crate::clock;
use crate::parker::Woken;
use crate::sys;

/// What a blocking call does about signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signals {
    /// Nothing. A signal that comes between the last look at `interrupt` and the park is noticed within a
    /// second.
    Open,
    /// Blocks them in this thread except while it is parked, so that a signal always ends the park and
    /// none is missed. For the main thread of a process whose runtime handles signals there.
    Guarded,
}

/// Signals blocked from the first park on, until this is dropped.
pub(crate) struct Guard {
    wanted: bool,
    old: OnceCell<libc::sigset_t>,
}

/// How long a caller parks until it looks at `interrupt` again.
pub(crate) struct Patience {
    /// In milliseconds; `None` without an `interrupt`: it sleeps until it is woken, which spares a timer.
    every: Option<u32>,
    /// Set at the first park: most calls end without one.
    since: Option<Time>,
}

impl Signals {
    pub(crate) fn guard(self) -> Guard {
        Guard { wanted: self == Self::Guarded, old: OnceCell::new() }
    }
}

impl Guard {
    /// Blocks signals, if that is wanted and not done yet: only whoever parks pays for it. When it says so,
    /// `interrupt` is to be looked at once more, for a signal that came before this.
    pub(crate) fn shut(&self) -> bool {
        let now = self.wanted && self.old.get().is_none();
        if now {
            let _ = self.old.set(sys::set_mask(libc::SIG_BLOCK, &sys::full_mask()));
        }
        now
    }

    /// The mask to park with.
    pub(crate) fn mask(&self) -> Option<&libc::sigset_t> {
        self.old.get()
    }

    /// Calls the host back with its own mask.
    pub(crate) fn open(&self, call: &mut dyn FnMut() -> bool) -> bool {
        let Some(old) = self.old.get() else { return call() };
        let _shut = Guard { wanted: true, old: OnceCell::from(sys::set_mask(libc::SIG_SETMASK, old)) };
        call()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(old) = self.old.get() {
            sys::set_mask(libc::SIG_SETMASK, old);
        }
    }
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self::of(1000)
    }

    pub(crate) fn of(millis: u32) -> Self {
        Self { every: Some(millis.max(1)), since: None }
    }

    pub(crate) fn endless() -> Self {
        Self { every: None, since: None }
    }

    /// How long to park at most.
    pub(crate) fn millis(&mut self) -> Option<u32> {
        let every = self.every?;
        let now = clock::now();
        let passed = now.since(*self.since.get_or_insert(now)).0;
        Some(every.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX)).max(1))
    }

    /// Whether it is time to look at `interrupt`.
    pub(crate) fn is_over(&mut self, woken: Woken) -> bool {
        let Some(every) = self.every else { return false };
        let now = clock::now();
        let over = woken.interrupted || now.since(*self.since.get_or_insert(now)).0 >= every.into();
        if over {
            self.since = Some(now);
        }
        over
    }
}
