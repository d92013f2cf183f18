//! What a forked child must know: that it is one, and which descriptors are its parent's.
//!
//! The child handler runs between `fork` and its return, where only async-signal-safe calls are allowed:
//! it bumps a number and closes descriptors. It never shuts a socket down: that would reach the parent's
//! connection. Everything else of the parent (mutexes, TLS states, the engine) is leaked, see `client.rs`.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Descriptors up to this number are closed in a child; higher ones stay open there, unused.
const DESCRIPTORS: usize = 1 << 16;

static GENERATION: AtomicU64 = AtomicU64::new(0);
static OPEN: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];

/// How many forks lie between the process that loaded this library and this one.
pub(crate) fn generation() -> u64 {
    GENERATION.load(SeqCst)
}

/// Makes sure that children notice. Called before the first descriptor is opened.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function that lives as long as the library and only makes
        // async-signal-safe calls.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, SeqCst);
    for (at, word) in OPEN.iter().enumerate() {
        let mut bits = word.swap(0, SeqCst);
        while bits != 0 {
            let fd = at * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: the bit says that this library opened the descriptor and has not closed it; its
            // owners notice the new generation and do not use or close it in this process.
            #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "below 65,536")]
            unsafe {
                libc::close(fd as RawFd);
            }
        }
    }
}

/// A descriptor that is noted for [`in_child`] while it is open. In a child it is closed already, and its
/// number may mean something else: nothing is done to it there.
#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: RawFd,
    generation: u64,
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let fd = fd.into_raw_fd();
        note(fd, true);
        Self { fd, generation: generation() }
    }

    fn is_forked(&self) -> bool {
        self.generation != generation()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        if self.is_forked() { -1 } else { self.fd }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if !self.is_forked() {
            note(self.fd, false);
            // SAFETY: taken over from an `OwnedFd` by this process and closed once, here.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
        }
    }
}

/// Notes that a descriptor is open and ours, or, before it is closed, that it is not any more.
fn note(fd: RawFd, open: bool) {
    if let Some((word, bit)) = place(fd) {
        if open {
            OPEN[word].fetch_or(bit, SeqCst);
        } else {
            OPEN[word].fetch_and(!bit, SeqCst);
        }
    }
}

fn place(fd: RawFd) -> Option<(usize, u64)> {
    let fd = usize::try_from(fd).ok().filter(|fd| *fd < DESCRIPTORS)?;
    Some((fd / 64, 1 << (fd % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_and_go() {
        note(65_535, true);
        assert_eq!(OPEN[1023].load(SeqCst) >> 63, 1);
        note(65_535, false);
        assert_eq!(OPEN[1023].load(SeqCst) >> 63, 0);
        note(1 << 20, true);
        note(-1, true);
    }
}
