//! One road per hold (design 3): its requests reach the server in the order in which they were made.
//!
//! While a request has no reply the next one goes behind it, down the same wire. Where a reply will never
//! come (the connection broke), the old connection is killed in front of the next request, so that
//! nothing stale executes afterwards.

use crate::io::{Fence, Wire};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Road {
    /// Requests without a reply, renewals not counted, and the wire they are on.
    pending: u32,
    wire: Option<Wire>,
    /// Some request was never answered, and its connection could not be killed or named.
    unfenced: bool,
    /// Connections that may still execute something of this hold.
    #[expect(clippy::box_collection, reason = "rare: 8 bytes in each hold instead of 24")]
    stale: Option<Box<Vec<Fence>>>,
}

impl Road {
    /// Chooses the wire of the next request and says which connections to kill in front of it.
    pub(crate) fn take(&mut self, caller: Wire) -> (Wire, Vec<Fence>) {
        let wire = match self.wire {
            Some(wire) if self.pending > 0 => wire,
            _ => caller,
        };
        self.wire = Some(wire);
        self.pending += 1;
        (wire, self.stale.take().map(|stale| *stale).unwrap_or_default())
    }

    /// A request was answered: what it was told to kill is dead, unless the server `refused`.
    pub(crate) fn answered(&mut self, refused: bool) {
        self.pending = self.pending.saturating_sub(1);
        self.unfenced |= refused;
    }

    /// A request did nothing; what it was told to kill is still to be killed.
    pub(crate) fn not_sent(&mut self, fences: Vec<Fence>) {
        self.pending = self.pending.saturating_sub(1);
        self.remember(fences);
    }

    /// A request may have run, or may still run.
    pub(crate) fn unknown(&mut self, fences: Vec<Fence>, own: Option<Fence>) {
        self.pending = self.pending.saturating_sub(1);
        self.unfenced |= own.is_none();
        self.remember(fences);
        self.remember(own);
    }

    fn remember(&mut self, fences: impl IntoIterator<Item = Fence>) {
        for fence in fences {
            let stale = self.stale.get_or_insert_default();
            if !stale.contains(&fence) {
                stale.push(fence);
            }
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Whether a connection is still to be killed.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.is_some()
    }

    /// Whether something of this hold may execute late, and nothing can be done against it.
    pub(crate) fn is_unfenced(&self) -> bool {
        self.unfenced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_road_counts_on_past_two_to_the_sixteenth() {
        let mut road = Road::default();
        for _ in 0..65_536 {
            road.take(Wire(1));
        }
        assert_eq!(road.take(Wire(2)).0, Wire(1), "behind all the others");
        for _ in 0..65_536 {
            road.answered(false);
        }
        assert!(road.is_pending());
    }
}
