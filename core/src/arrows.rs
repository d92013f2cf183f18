//! The arrows of the state machines: each machine lists its own at the top of its file, and none may be
//! taken that is not listed.

/// From, why, to.
pub(crate) type Arrow = (&'static str, &'static str, &'static str);

/// Notes that a machine went along an arrow.
#[inline]
pub(crate) fn take(table: &'static [Arrow], from: &'static str, why: &'static str, to: &'static str) {
    debug_assert!(table.contains(&(from, why, to)), "an arrow that is not listed: {from} --{why}--> {to}");
    #[cfg(test)]
    taken::note((from, why, to));
    #[cfg(not(test))]
    let _ = table;
}

#[cfg(test)]
pub(crate) mod taken {
    use super::Arrow;
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static TAKEN: RefCell<BTreeSet<Arrow>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn note(arrow: Arrow) {
        TAKEN.with_borrow_mut(|taken| taken.insert(arrow));
    }

    /// The arrows of a table that this thread has not taken.
    pub(crate) fn missing(table: &[Arrow]) -> Vec<Arrow> {
        TAKEN.with_borrow(|taken| table.iter().filter(|arrow| !taken.contains(*arrow)).copied().collect())
    }
}
