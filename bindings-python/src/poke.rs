//! A descriptor that becomes readable when somebody pokes it: eventfd, elsewhere a socket pair.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Wakes an event loop from any thread, without Python.
pub(crate) struct Poke {
    read: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

#[cfg(target_os = "linux")]
impl Poke {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self { read: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    fn write_fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}

#[cfg(not(target_os = "linux"))]
impl Poke {
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = std::os::unix::net::UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        Ok(Self { read: read.into(), write: write.into() })
    }

    fn write_fd(&self) -> RawFd {
        self.write.as_raw_fd()
    }
}

impl Poke {
    /// Makes it readable. Never blocks: a full pipe is readable already.
    pub(crate) fn set(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: writes eight bytes from a live buffer to a descriptor that we own.
        unsafe { libc::write(self.write_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes it unreadable until the next poke.
    pub(crate) fn clear(&self) {
        let mut bytes = [0_u8; 64];
        // SAFETY: reads into a live buffer of that size from a descriptor that we own.
        while unsafe { libc::read(self.fd(), bytes.as_mut_ptr().cast(), bytes.len()) } == bytes.len() as isize {}
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}
