//! How a thread sleeps in the kernel, and how another wakes it. `tests/loom` puts its own in this module's
//! place.

#[cfg(target_os = "linux")]
mod room;

use std::io;
use std::os::fd::AsRawFd;

use crate::fork::Descriptor;
use crate::sys::{self, Socket};

#[cfg(target_os = "linux")]
pub(crate) use self::room::{End, ROOMS, Slept, bed, room};

/// What ended a [`Poke::wait`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) poked: bool,
    /// The socket can be read, or its connection ended.
    pub(crate) readable: bool,
    /// The socket can be written.
    pub(crate) writable: bool,
}

/// Wakes one thread out of `ppoll`.
#[derive(Debug)]
pub(crate) struct Poke {
    read: Descriptor,
    #[cfg(not(target_os = "linux"))]
    write: Descriptor,
}

impl Poke {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        Ok(Self { read: Descriptor::new(sys::own(fd)?) })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = io::pipe()?;
        for fd in [read.as_raw_fd(), write.as_raw_fd()] {
            // SAFETY: no memory is involved.
            unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
        }
        Ok(Self { read: Descriptor::new(read.into()), write: Descriptor::new(write.into()) })
    }

    pub(crate) fn poke(&self) {
        #[cfg(target_os = "linux")]
        let fd = self.read.as_raw_fd();
        #[cfg(not(target_os = "linux"))]
        let fd = self.write.as_raw_fd();
        let one = 1u64.to_ne_bytes();
        // A full counter or pipe wakes as well as a fresh one: the result does not matter.
        // SAFETY: the bytes are live and as many as stated.
        let _ = sys::retry(|| unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) });
    }

    /// Sleeps until poked, until the socket can be read or, if that is wanted too, written, until a signal
    /// comes (an error) or `millis` passed.
    pub(crate) fn wait(
        &self,
        socket: Option<(&Socket, bool)>,
        millis: Option<u32>,
        mask: Option<&libc::sigset_t>,
    ) -> io::Result<Ready> {
        let mut fds = [
            libc::pollfd { fd: self.read.as_raw_fd(), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 },
        ];
        if let Some((socket, write)) = socket {
            fds[1].fd = socket.as_raw_fd();
            if write {
                fds[1].events |= libc::POLLOUT;
            }
        }
        let watched = if socket.is_some() { 2 } else { 1 };
        ppoll(&mut fds[..watched], millis, mask)?;
        Ok(Ready {
            poked: fds[0].revents != 0,
            readable: fds[1].revents & !libc::POLLOUT != 0,
            writable: fds[1].revents & libc::POLLOUT != 0,
        })
    }

    /// Takes the pokes back that were not polled for.
    pub(crate) fn clear(&self) {
        let mut buffer = [0u8; 64];
        // SAFETY: the buffer is live and as long as stated.
        let _ = sys::retry(|| unsafe { libc::read(self.read.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) });
    }
}

/// As `ppoll(2)`; `None` waits for ever.
#[cfg(target_os = "linux")]
fn ppoll(fds: &mut [libc::pollfd], millis: Option<u32>, mask: Option<&libc::sigset_t>) -> io::Result<()> {
    let spec = millis.map(timespec);
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: each pointer is null, as the call allows, or to a live value; the slice has the stated length.
    let result = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, spec, mask) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The same without the kernel's help: a signal between the change of the mask and the poll is noticed
/// when the poll times out, which its callers let it do within a second.
#[cfg(not(target_os = "linux"))]
fn ppoll(fds: &mut [libc::pollfd], millis: Option<u32>, mask: Option<&libc::sigset_t>) -> io::Result<()> {
    let millis = millis.map_or(-1, |millis| millis as libc::c_int);
    let old = mask.map(|mask| sys::set_mask(libc::SIG_SETMASK, mask));
    // SAFETY: the slice is live and has the stated length.
    let result = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
    let error = io::Error::last_os_error();
    if let Some(old) = old {
        sys::set_mask(libc::SIG_SETMASK, &old);
    }
    if result < 0 { Err(error) } else { Ok(()) }
}

#[cfg(target_os = "linux")]
fn timespec(millis: u32) -> libc::timespec {
    libc::timespec { tv_sec: libc::time_t::from(millis / 1000), tv_nsec: libc::c_long::from(millis % 1000 * 1_000_000) }
}
