//! The clock that also counts while the machine sleeps.

use bandog_core::time::Time;

#[cfg(target_os = "linux")]
const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
// On Apple systems CLOCK_MONOTONIC counts sleep, unlike CLOCK_UPTIME_RAW.
#[cfg(not(target_os = "linux"))]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// This instant, rounded down to a millisecond.
pub(crate) fn now() -> Time {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec, and the clock exists on every system we build for.
    let result = unsafe { libc::clock_gettime(CLOCK, &raw mut spec) };
    debug_assert_eq!(result, 0, "the clock exists");
    #[expect(clippy::cast_sign_loss, reason = "both are never negative")]
    Time(spec.tv_sec as u64 * 1000 + spec.tv_nsec as u64 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_forward_in_milliseconds() {
        let start = now();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let span = now().since(start).0;
        assert!((19..2000).contains(&span), "{span}");
    }
}
