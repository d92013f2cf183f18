//! What an engine is told once, at its start.

use crate::error::{Code, Error};
use crate::time::Millis;

/// The shortest lease a server can be trusted with: below it the round trip eats the whole of it.
pub const MIN_LEASE: Millis = Millis(10);

/// The longest lease, wait and option: about 285 years, so that no sum of two overflows what a
/// server keeps and every value is exact in a double.
pub const MAX_SPAN: Millis = Millis((1 << 53) / 1000);

/// The settings of one engine. Durations are milliseconds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// The lease of a watched hold; it is renewed every third of this. Default 30 s.
    pub watchdog: Millis,
    /// How long one request may stay without a reply. Default 3 s.
    pub op_timeout: Millis,
    /// How long it may take to reach the server. Default 5 s.
    pub connect_timeout: Millis,
    /// How long a wait without an end goes on while no server can be reached. Default 30 s.
    pub unreachable_after: Millis,
    /// After how long the watchdog stops renewing a hold, counted from its grant. Default: never.
    pub max_hold: Option<Millis>,
    /// Whether a re-entry may be answered from the hold table. Default no.
    pub local_reentry: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watchdog: Millis::secs(30),
            op_timeout: Millis::secs(3),
            connect_timeout: Millis::secs(5),
            unreachable_after: Millis::secs(30),
            max_hold: None,
            local_reentry: false,
        }
    }
}

impl Config {
    /// Refuses what no engine can work with.
    ///
    /// # Errors
    /// `invalid_lease` for the watchdog, `invalid_option` for the other spans.
    pub fn check(&self) -> Result<(), Error> {
        check_lease(self.watchdog)?;
        for (what, span) in [
            ("op_timeout", Some(self.op_timeout)),
            ("connect_timeout", Some(self.connect_timeout)),
            ("unreachable_after", Some(self.unreachable_after)),
            ("max_hold", self.max_hold),
        ] {
            if span.is_some_and(|span| span == Millis::ZERO || span > MAX_SPAN) {
                return Err(Error::new(
                    Code::InvalidOption,
                    format!("{what} must be above zero and at most {MAX_SPAN}"),
                ));
            }
        }
        Ok(())
    }
}

/// Refuses a lease that no server could keep.
///
/// # Errors
/// `invalid_lease` below [`MIN_LEASE`] and above [`MAX_SPAN`].
pub fn check_lease(lease: Millis) -> Result<(), Error> {
    if lease < MIN_LEASE || lease > MAX_SPAN {
        return Err(Error::new(
            Code::InvalidLease,
            format!("the lease of {lease} is out of range: give {MIN_LEASE} to {MAX_SPAN}, or none for the watchdog"),
        ));
    }
    Ok(())
}

/// The margin M kept between "you must stop" and "another may start": a tenth of the lease, at least
/// 50 ms, never above a third of it (reliability A).
#[must_use]
pub fn margin(lease: Millis) -> Millis {
    Millis((lease.0 / 10).max(50).min(lease.0 / 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_a_tenth_within_its_bounds() {
        assert_eq!(margin(Millis::secs(30)), Millis(3000));
        assert_eq!(margin(Millis(600)), Millis(60));
        assert_eq!(margin(Millis(300)), Millis(50));
        assert_eq!(margin(Millis(90)), Millis(30));
        assert_eq!(margin(Millis(10)), Millis(3));
    }

    #[test]
    fn f42_leases_out_of_range_are_refused() {
        for bad in [0, 1, 9, MAX_SPAN.0 + 1, 1 << 53, u64::MAX] {
            assert_eq!(check_lease(Millis(bad)).unwrap_err().code(), Code::InvalidLease);
        }
        for good in [10, 600, 1 << 31, 1 << 32, MAX_SPAN.0] {
            check_lease(Millis(good)).unwrap();
        }
    }
}
