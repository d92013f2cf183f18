//! Instants and durations as the engine sees them: numbers given from outside.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// An instant: milliseconds of a clock that also counts while the machine is suspended
/// (`CLOCK_BOOTTIME` on Linux). The engine never reads a clock; its host passes `now` in.
///
/// Hosts round down. A deadline computed from a rounded-down send time is early, never late.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

/// A duration in whole milliseconds, the unit of every duration on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Millis(pub u64);

impl Time {
    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    /// Nothing at all.
    pub const ZERO: Self = Self(0);

    /// Whole seconds.
    #[must_use]
    pub const fn secs(seconds: u64) -> Self {
        Self(seconds * 1000)
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<Millis> for Time {
    type Output = Self;
    fn add(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Millis> for Time {
    fn add_assign(&mut self, span: Millis) {
        *self = *self + span;
    }
}

impl Sub<Millis> for Time {
    type Output = Self;
    fn sub(self, span: Millis) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Millis {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}
