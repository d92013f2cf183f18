//! Parks a thread until another unparks it, a socket is ready, or a signal comes.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use bandog_core::error::{Code, Error};

use crate::fork;
use crate::sleep::{Poke, Word};
use crate::sys::Socket;

const EMPTY: u32 = 0;
/// In `ppoll`.
const POLLING: u32 = 1;
/// In a futex: costs half as much, but watches no socket and lets no blocked signal through.
const SLEEPING: u32 = 2;
const NOTIFIED: u32 = 3;

/// One thread's place to sleep. An unpark that comes before the park ends it at once; nothing is written
/// to the kernel unless the thread sleeps.
#[derive(Debug)]
pub(crate) struct Parker {
    state: Word,
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
                    let parker = Arc::new(Self::new()?);
                    *mine = Some((generation, parker.clone()));
                    Ok(parker)
                }
            }
        })
        // The thread is ending: this park has a descriptor of its own.
        .unwrap_or_else(|_| Ok(Arc::new(Self::new()?)))
        .map_err(|error: io::Error| {
            Error::new(Code::Unreachable, format!("no descriptor to wait on ({error}): raise the limit of open files"))
        })
    }

    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { state: Word::new(EMPTY), poke: Poke::new()? })
    }

    pub(crate) fn unpark(&self) {
        match self.state.swap(NOTIFIED, SeqCst) {
            POLLING => self.poke.poke(),
            #[cfg(target_os = "linux")]
            SLEEPING => self.state.wake(),
            _ => {}
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
        let sleeps = cfg!(target_os = "linux") && socket.is_none() && mask.is_none();
        let parked = if sleeps { SLEEPING } else { POLLING };
        if self.state.compare_exchange(EMPTY, parked, SeqCst, SeqCst).is_err() {
            self.reset();
            return woken;
        }
        #[cfg(target_os = "linux")]
        if sleeps {
            woken.interrupted = self.state.sleep(SLEEPING, millis);
            self.reset();
            return woken;
        }
        // An unpark between the end of the wait and the reset may poke after the clear, and end one more
        // park early. What it was for is seen, for whoever parks looks again afterwards.
        let ended = self.poke.wait(socket, millis, mask);
        self.reset();
        match ended {
            Ok(ready) => {
                if ready.poked {
                    self.poke.clear();
                }
                woken.readable = ready.readable;
                woken.writable = ready.writable;
            }
            Err(error) => woken.interrupted = error.kind() == io::ErrorKind::Interrupted,
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
