//! Parks a thread until another unparks it, a socket is ready, or a signal comes.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use bandog_core::error::{Code, Error};

use crate::fork;
use crate::sleep::Poke;
#[cfg(target_os = "linux")]
use crate::sleep::{self, End, Slept};
use crate::sync::{AtomicU32, Ordering::SeqCst};
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
    state: AtomicU32,
    #[cfg(target_os = "linux")]
    room: usize,
    #[cfg(target_os = "linux")]
    bed: u32,
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
        #[cfg(target_os = "linux")]
        let (room, bed) = sleep::bed();
        Ok(Self {
            state: AtomicU32::new(EMPTY),
            #[cfg(target_os = "linux")]
            room,
            #[cfg(target_os = "linux")]
            bed,
            poke: Poke::new()?,
        })
    }

    pub(crate) fn unpark(&self) {
        match self.state.swap(NOTIFIED, SeqCst) {
            POLLING => self.poke.poke(),
            #[cfg(target_os = "linux")]
            SLEEPING => sleep::room(self.room).wake(1 << self.bed),
            _ => {}
        }
    }

    /// Unparks all of them, with few calls into the kernel.
    #[cfg(target_os = "linux")]
    pub(crate) fn unpark_all<'a>(parkers: impl Iterator<Item = &'a Self>) {
        let mut beds = [0; sleep::ROOMS];
        let mut rooms = 0u64;
        for parker in parkers {
            match parker.state.swap(NOTIFIED, SeqCst) {
                POLLING => parker.poke.poke(),
                SLEEPING => {
                    beds[parker.room] |= 1 << parker.bed;
                    rooms |= 1 << parker.room;
                }
                _ => {}
            }
        }
        while rooms != 0 {
            let room = rooms.trailing_zeros() as usize;
            sleep::room(room).wake(beds[room]);
            rooms &= rooms - 1;
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn unpark_all<'a>(parkers: impl Iterator<Item = &'a Self>) {
        parkers.for_each(Self::unpark);
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
            woken.interrupted = self.sleep(millis);
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

    /// Until the state changes; says whether a signal ended it.
    #[cfg(target_os = "linux")]
    fn sleep(&self, millis: Option<u32>) -> bool {
        let room = sleep::room(self.room);
        let end = millis.map(End::after);
        loop {
            let count = room.count();
            if self.state.load(SeqCst) != SLEEPING {
                return false;
            }
            match room.sleep(count, self.bed, end.as_ref()) {
                // Maybe it was for somebody else in the room.
                Slept::Woken => {}
                Slept::TimedOut => return false,
                Slept::Interrupted => return true,
            }
        }
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

    #[test]
    fn a_batch_is_woken_and_nobody_else() {
        let (tell, told) = std::sync::mpsc::channel();
        let threads: Vec<_> = (0..70)
            .map(|at| {
                let tell = tell.clone();
                std::thread::spawn(move || {
                    let parker = Parker::current().unwrap();
                    tell.send((at, parker.clone())).unwrap();
                    let start = Instant::now();
                    parker.park(None, Some(if at % 2 == 0 { 10_000 } else { 150 }), None);
                    start.elapsed()
                })
            })
            .collect();
        let parkers: Vec<_> = (0..70).map(|_| told.recv().unwrap()).collect();
        Parker::unpark_all(parkers.iter().filter(|(at, _)| at % 2 == 0).map(|(_, parker)| &**parker));
        for (at, thread) in threads.into_iter().enumerate() {
            let slept = thread.join().unwrap();
            assert!(if at % 2 == 0 { slept.as_secs() < 9 } else { slept.as_millis() >= 149 }, "{at}: {slept:?}");
        }
    }
}
