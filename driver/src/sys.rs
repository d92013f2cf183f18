//! The few system calls the driver makes itself.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::fork::Descriptor;

/// A connected, non-blocking socket.
#[derive(Debug)]
pub(crate) struct Socket(Descriptor);

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(Descriptor::new(fd))
    }

    /// As `read(2)`; `WouldBlock` when there is nothing.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        retry(|| {
            // SAFETY: the buffer is live and as long as stated.
            unsafe { libc::recv(self.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) }
        })
    }

    /// As `write(2)`, never raising SIGPIPE.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        let flags = libc::MSG_NOSIGNAL;
        // Elsewhere SO_NOSIGPIPE was set when the socket was made.
        #[cfg(not(target_os = "linux"))]
        let flags = 0;
        retry(|| {
            // SAFETY: the bytes are live and as many as stated.
            unsafe { libc::send(self.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) }
        })
    }

    /// Ends the connection and wakes whoever polls the socket. With `abrupt`, what the kernel has not
    /// sent yet is thrown away when the last user lets go of the socket.
    pub(crate) fn end(&self, abrupt: bool) {
        let fd = self.as_raw_fd();
        if abrupt {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            // SAFETY: the option's value is live and of the size stated.
            unsafe {
                libc::setsockopt(
                    fd,
                    libc::SOL_SOCKET,
                    libc::SO_LINGER,
                    (&raw const linger).cast(),
                    size_of::<libc::linger>() as libc::socklen_t,
                );
            }
        }
        // SAFETY: no memory is involved; a descriptor that is gone is refused by the kernel.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
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
        Ok(Self { read: Descriptor::new(own(fd)?) })
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
        let _ = retry(|| unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) });
    }

    /// Takes the pokes back that were not polled for.
    pub(crate) fn clear(&self) {
        let mut buffer = [0u8; 64];
        // SAFETY: the buffer is live and as long as stated.
        let _ = retry(|| unsafe { libc::read(self.read.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) });
    }
}

impl AsRawFd for Poke {
    fn as_raw_fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}

/// A timer on the clock of [`crate::clock`], armed by any thread, awaited by the keeper.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Alarm(Descriptor);

#[cfg(target_os = "linux")]
impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        Ok(Self(Descriptor::new(own(fd)?)))
    }

    /// Goes off at this instant; an instant that has passed goes off at once.
    pub(crate) fn set(&self, at: bandog_core::time::Time) {
        #[expect(clippy::cast_possible_wrap, reason = "milliseconds since boot are far below")]
        let value = libc::timespec {
            tv_sec: (at.0 / 1000).min(i32::MAX as u64) as libc::time_t,
            // Zero in both fields would disarm it.
            tv_nsec: (at.0 % 1000 * 1_000_000).max(1) as libc::c_long,
        };
        let spec = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // SAFETY: the pointers are to a live value and null, as the call allows.
        unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &raw const spec, std::ptr::null_mut());
        }
    }

    /// Takes the expirations back, so that the next one can be awaited.
    pub(crate) fn clear(&self) {
        let mut buffer = [0u8; 8];
        // SAFETY: the buffer is live and as long as stated.
        let _ = retry(|| unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) });
    }
}

#[cfg(target_os = "linux")]
impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// As `ppoll(2)`; `None` waits for ever.
#[cfg(target_os = "linux")]
pub(crate) fn ppoll(fds: &mut [libc::pollfd], millis: Option<u32>, mask: Option<&libc::sigset_t>) -> io::Result<()> {
    let spec = millis.map(|millis| libc::timespec {
        tv_sec: libc::time_t::from(millis / 1000),
        tv_nsec: libc::c_long::from(millis % 1000 * 1_000_000),
    });
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: each pointer is null, as the call allows, or to a live value; the slice has the stated length.
    let result = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, spec, mask) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The same without the kernel's help: a signal between the change of the mask and the poll is noticed
/// when the poll times out, which its callers let it do within a second.
#[cfg(not(target_os = "linux"))]
pub(crate) fn ppoll(fds: &mut [libc::pollfd], millis: Option<u32>, mask: Option<&libc::sigset_t>) -> io::Result<()> {
    let millis = millis.map_or(-1, |millis| millis as libc::c_int);
    let old = mask.map(|mask| set_mask(libc::SIG_SETMASK, mask));
    // SAFETY: the slice is live and has the stated length.
    let result = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
    let error = io::Error::last_os_error();
    if let Some(old) = old {
        set_mask(libc::SIG_SETMASK, &old);
    }
    if result < 0 { Err(error) } else { Ok(()) }
}

/// Changes this thread's signal mask; gives the old one.
pub(crate) fn set_mask(how: libc::c_int, mask: &libc::sigset_t) -> libc::sigset_t {
    let mut old = empty_mask();
    // SAFETY: both pointers are to live sets.
    unsafe { libc::pthread_sigmask(how, mask, &raw mut old) };
    old
}

/// Every signal, except those that a thread raises by its own fault.
pub(crate) fn full_mask() -> libc::sigset_t {
    let mut mask = empty_mask();
    // SAFETY: the pointer is to a live set.
    unsafe {
        libc::sigfillset(&raw mut mask);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(&raw mut mask, fault);
        }
    }
    mask
}

fn empty_mask() -> libc::sigset_t {
    let mut mask = std::mem::MaybeUninit::uninit();
    // SAFETY: the call initialises the set.
    unsafe {
        libc::sigemptyset(mask.as_mut_ptr());
        mask.assume_init()
    }
}

#[cfg(target_os = "linux")]
fn own(fd: RawFd) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave the descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
