//! Parks a thread until another unparks it, a socket is ready, or a signal comes.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use bandog_core::error::{Code, Error};

use crate::fork;
use crate::sys::{Poke, Socket, ppoll};

const EMPTY: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

/// One thread's place to sleep. An unpark that comes before the park ends it at once; nothing is written
/// to the kernel unless the thread sleeps.
#[derive(Debug)]
pub(crate) struct Parker {
    state: AtomicU8,
    poke: Poke,
}

/// Why a park ended. Parks may end for no reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Woken {
    /// The socket can be read, or its connection ended.
    pub(crate) readable: bool,
    /// The socket can be written.
    pub(crate) writable: bool,
    /// A signal handler ran.
    pub(crate) interrupted: bool,
}

impl Parker {
    /// The calling thread's.
    pub(crate) fn current() -> Result<Arc<Self>, Error> {
        thread_local! {
            static MINE: RefCell<Option<(u64, Arc<Parker>)>> = const { RefCell::new(None) };
        }
        let generation = fork::generation();
        MINE.try_with(|mine| {
            let mut mine = mine.borrow_mut();
            match &*mine {
                // A child's first thread inherits one whose descriptor is closed.
                Some((made, parker)) if *made == generation => Ok(parker.clone()),
                _ => {
                    let parker = Arc::new(Self { state: AtomicU8::new(EMPTY), poke: Poke::new()? });
                    *mine = Some((generation, parker.clone()));
                    Ok(parker)
                }
            }
        })
        // The thread is ending: this park has a descriptor of its own.
        .unwrap_or_else(|_| Ok(Arc::new(Self { state: AtomicU8::new(EMPTY), poke: Poke::new()? })))
        .map_err(|error: io::Error| {
            Error::new(Code::Unreachable, format!("no descriptor to wait on ({error}): raise the limit of open files"))
        })
    }

    pub(crate) fn unpark(&self) {
        if self.state.swap(NOTIFIED, SeqCst) == PARKED {
            self.poke.poke();
        }
    }

    /// Forgets an unpark: its reason was seen.
    pub(crate) fn reset(&self) {
        // Not a store: reading what the other thread wrote makes visible what it did before.
        self.state.swap(EMPTY, SeqCst);
    }

    /// Sleeps until unparked, the socket is ready, a signal comes or `millis` passed. `write`: also when
    /// the socket can be written.
    pub(crate) fn park(
        &self,
        socket: Option<(&Socket, bool)>,
        millis: Option<u32>,
        mask: Option<&libc::sigset_t>,
    ) -> Woken {
        let mut woken = Woken::default();
        if self.state.compare_exchange(EMPTY, PARKED, SeqCst, SeqCst).is_err() {
            self.reset();
            return woken;
        }
        let mut fds = [
            libc::pollfd { fd: self.poke.as_raw_fd(), events: libc::POLLIN, revents: 0 },
            libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 },
        ];
        if let Some((socket, write)) = socket {
            fds[1].fd = socket.as_raw_fd();
            if write {
                fds[1].events |= libc::POLLOUT;
            }
        }
        let watched = if socket.is_some() { 2 } else { 1 };
        match ppoll(&mut fds[..watched], millis, mask) {
            Ok(()) => {
                woken.readable = fds[1].revents & !libc::POLLOUT != 0;
                woken.writable = fds[1].revents & libc::POLLOUT != 0;
            }
            Err(error) => woken.interrupted = error.kind() == io::ErrorKind::Interrupted,
        }
        // An unpark between the poll and this line may poke after the clear: one more park ends early. What
        // it was for is seen, for whoever parks looks again afterwards.
        self.reset();
        if fds[0].revents != 0 {
            self.poke.clear();
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn an_unpark_before_the_park_is_not_lost() {
        let parker = Parker::current().unwrap();
        parker.unpark();
        let start = Instant::now();
        parker.park(None, Some(5000), None);
        assert!(start.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn an_unpark_ends_the_park() {
        let parker = Parker::current().unwrap();
        let other = parker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            other.unpark();
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(25) {
            parker.park(None, Some(5000), None);
        }
        assert!(start.elapsed() < Duration::from_secs(1));
        thread.join().unwrap();
    }
}
