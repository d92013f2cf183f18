//! A futex for up to 32 threads. Threads that watch no socket sleep here; any number of those in one room
//! are woken by one system call, after which the kernel looks once who runs next, not once for each.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// A bit each: the kernel takes a mask of whom to wake.
const BEDS: u32 = 32;
pub(crate) const ROOMS: usize = 64;

/// How often somebody in it was woken.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Room(AtomicU32);

static HOTEL: [Room; ROOMS] = [const { Room(AtomicU32::new(0)) }; ROOMS];

/// A room and a bed in it for one thread: neighbours are those that came one after the other. With more
/// threads than beds some share one, and are woken for each other.
pub(crate) fn bed() -> (usize, u32) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Relaxed);
    ((next / BEDS) as usize % ROOMS, next % BEDS)
}

pub(crate) fn room(at: usize) -> &'static Room {
    &HOTEL[at]
}

/// What ended a [`Room::sleep`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slept {
    /// Perhaps a wake.
    Woken,
    Interrupted,
    TimedOut,
}

/// When a sleep ends at the latest.
pub(crate) struct End(libc::timespec);

impl End {
    pub(crate) fn after(millis: u32) -> Self {
        let mut end = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live timespec. This clock is the one that the call means.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut end) };
        let nanos = end.tv_nsec + libc::c_long::from(millis % 1000 * 1_000_000);
        end.tv_sec += libc::time_t::from(millis / 1000) + nanos / 1_000_000_000;
        end.tv_nsec = nanos % 1_000_000_000;
        Self(end)
    }
}

impl Room {
    /// To be taken before the look whether to sleep at all.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(SeqCst)
    }

    /// Sleeps, if nobody here was woken since the count was taken.
    pub(crate) fn sleep(&self, count: u32, bed: u32, end: Option<&End>) -> Slept {
        let end = end.map_or(std::ptr::null(), |end| &raw const end.0);
        let wait = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let null = std::ptr::null::<u32>();
        // SAFETY: the word is live, the time is live or null, as the call allows.
        let result = unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), wait, count, end, null, 1u32 << bed) };
        if result == 0 {
            return Slept::Woken;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => Slept::Interrupted,
            Some(libc::ETIMEDOUT) => Slept::TimedOut,
            _ => Slept::Woken,
        }
    }

    /// Wakes those in these beds.
    pub(crate) fn wake(&self, beds: u32) {
        self.0.fetch_add(1, SeqCst);
        let wake = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let null = std::ptr::null::<u32>();
        // SAFETY: the word is live; nothing is read or written.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), wake, i32::MAX, null, null, beds) };
    }
}
