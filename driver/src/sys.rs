//! The few system calls the driver makes itself.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::carried::Pipe;
use crate::fork::Descriptor;

/// How long [`Socket::receive`] waits, in microseconds: many times a reply's usual way, and short enough
/// for whatever else its caller should notice.
const RECEIVE_MICROS: libc::suseconds_t = 5000;

/// A connected socket. Everything but [`Socket::receive`] returns at once.
#[derive(Debug)]
pub(crate) struct Socket(End);

#[derive(Debug)]
enum End {
    Kernel(Descriptor),
    /// The host has the socket.
    Host(Arc<Pipe>),
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let span = libc::timeval { tv_sec: 0, tv_usec: RECEIVE_MICROS };
        set_option(fd.as_raw_fd(), libc::SO_RCVTIMEO, &span)?;
        #[cfg(not(target_os = "linux"))]
        set_option(fd.as_raw_fd(), libc::SO_NOSIGPIPE, &1)?;
        // SAFETY: no memory is involved.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        // SAFETY: as above.
        if flags < 0 || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(End::Kernel(Descriptor::new(fd))))
    }

    pub(crate) fn carried(pipe: Arc<Pipe>) -> Self {
        Self(End::Host(pipe))
    }

    /// Where its bytes wait, if the host carries them. Nobody can poll it then.
    pub(crate) fn pipe(&self) -> Option<&Arc<Pipe>> {
        match &self.0 {
            End::Kernel(_) => None,
            End::Host(pipe) => Some(pipe),
        }
    }

    /// Whether the host carries its bytes.
    pub(crate) fn is_carried(&self) -> bool {
        self.pipe().is_some()
    }

    /// As `read(2)`; `WouldBlock` when there is nothing.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if let End::Host(pipe) = &self.0 {
            return pipe.read(buffer);
        }
        retry(|| {
            // SAFETY: the buffer is live and as long as stated.
            unsafe { libc::recv(self.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) }
        })
    }

    /// Waits a little for something to read: one system call where a poll and a read are two. `WouldBlock`
    /// when nothing came, `Interrupted` when a signal did.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer is live and as long as stated.
        let count = unsafe { libc::recv(self.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// As `write(2)`, never raising SIGPIPE; `WouldBlock` when the kernel takes no more.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        if let End::Host(pipe) = &self.0 {
            return pipe.write(bytes);
        }
        #[cfg(target_os = "linux")]
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        #[cfg(not(target_os = "linux"))]
        let flags = libc::MSG_DONTWAIT;
        retry(|| {
            // SAFETY: the bytes are live and as many as stated.
            unsafe { libc::send(self.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) }
        })
    }

    /// Ends the connection and wakes whoever polls the socket. With `abrupt`, what the kernel has not
    /// sent yet is thrown away when the last user lets go of the socket.
    pub(crate) fn end(&self, abrupt: bool) {
        if let End::Host(pipe) = &self.0 {
            return pipe.end(abrupt);
        }
        let fd = self.as_raw_fd();
        if abrupt {
            // Refused only for a connection that is gone.
            let _ = set_option(fd, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
        }
        // SAFETY: no memory is involved; a descriptor that is gone is refused by the kernel.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match &self.0 {
            End::Kernel(fd) => fd.as_raw_fd(),
            End::Host(_) => -1,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let End::Host(pipe) = &self.0 {
            pipe.end(true);
        }
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
pub(crate) fn own(fd: RawFd) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave the descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has the kernel find out that a connection on which nothing is asked leads nowhere any more.
pub(crate) fn keep_alive(socket: &impl AsRawFd) -> io::Result<()> {
    /// Seconds of silence, seconds between probes, probes.
    const HABITS: [libc::c_int; 3] = [15, 5, 3];
    #[cfg(target_os = "linux")]
    const IDLE: libc::c_int = libc::TCP_KEEPIDLE;
    #[cfg(not(target_os = "linux"))]
    const IDLE: libc::c_int = libc::TCP_KEEPALIVE;
    let fd = socket.as_raw_fd();
    set_option(fd, libc::SO_KEEPALIVE, &1)?;
    let options = [IDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT];
    options.iter().zip(&HABITS).try_for_each(|(option, value)| set_option_of(fd, libc::IPPROTO_TCP, *option, value))
}

fn set_option<T>(fd: RawFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_option_of(fd, libc::SOL_SOCKET, option, value)
}

fn set_option_of<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is live and of the size stated.
    let result = unsafe { libc::setsockopt(fd, level, option, std::ptr::from_ref(value).cast(), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
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
