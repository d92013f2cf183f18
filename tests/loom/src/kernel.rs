//! What plays the kernel: a socket with a server behind it, sleep, pokes and signals.

use std::collections::VecDeque;
use std::io;
use std::sync::PoisonError;

use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread::{self, ThreadId};

loom::lazy_static! {
    pub(crate) static ref KERNEL: Kernel = Kernel::default();
}

/// One for each order of events.
#[derive(Default)]
pub(crate) struct Kernel {
    state: Mutex<State>,
    /// Where the keeper and the server sleep, who are one thread here.
    keeper: Condvar,
    /// Where whoever polls the socket sleeps.
    reader: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    /// Not written yet, on their way to the server, on their way back.
    pub(crate) outbox: VecDeque<Call>,
    pub(crate) requests: VecDeque<Call>,
    pub(crate) replies: VecDeque<Call>,
    /// How many connections there were before.
    pub(crate) epoch: u64,
    /// The connection ended.
    pub(crate) broken: bool,
    /// The keeper is to look what there is to do.
    pub(crate) bell: bool,
    /// Callers that are done.
    pub(crate) gone: usize,
    poked: Vec<ThreadId>,
    signals: Vec<ThreadId>,
}

#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) wish: usize,
    /// The server does not live to answer it.
    pub(crate) breaks: bool,
}

impl Kernel {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }

    /// Has the keeper look what there is to do.
    pub(crate) fn ring(&self) {
        self.lock().bell = true;
        self.keeper.notify_one();
    }

    /// Sleeps until there is something for the keeper, or the server, to do.
    pub(crate) fn wait(&self, leads: bool) {
        let mut state = self.lock();
        while !state.bell && state.requests.is_empty() && !(leads && state.readable()) {
            state = self.keeper.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bell = false;
    }

    /// The server answers one request, or ends the connection instead.
    pub(crate) fn serve(&self) {
        let mut state = self.lock();
        if let Some(call) = state.requests.pop_front() {
            if call.breaks {
                state.broken = true;
                state.requests.clear();
            } else {
                state.replies.push_back(call);
            }
            self.reader.notify_all();
        }
    }

    /// Writes what waits, or leaves it to the reader while `at_once` are in flight.
    pub(crate) fn write(&self, state: &mut State, at_once: Option<usize>) {
        let flying = state.requests.len() + state.replies.len();
        if !state.broken && at_once.is_none_or(|at_once| flying < at_once) && !state.outbox.is_empty() {
            let State { outbox, requests, .. } = state;
            requests.append(outbox);
            self.keeper.notify_one();
        }
    }

    /// The calling thread gets a signal the next time it sleeps.
    pub(crate) fn signal(&self) {
        self.lock().signals.push(thread::current().id());
    }
}

impl State {
    pub(crate) fn readable(&self) -> bool {
        self.broken || !self.replies.is_empty()
    }

    fn take_signal(&mut self) -> bool {
        let me = thread::current().id();
        let before = self.signals.len();
        self.signals.retain(|id| *id != me);
        self.signals.len() < before
    }
}

pub(crate) mod sync {
    use std::sync::PoisonError;

    pub(crate) use loom::sync::Mutex;
    use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) mod sleep {
    use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;
    use crate::sys::Socket;

    pub(crate) const ROOMS: usize = 1;

    loom::lazy_static! {
        static ref ROOM: Room = Room::default();
    }

    /// A futex: the look at the count and the sleep are one step for whoever wakes.
    #[derive(Default)]
    pub(crate) struct Room {
        count: AtomicU32,
        queue: Mutex<u32>,
        beds: [Condvar; 2],
    }

    pub(crate) fn bed() -> (usize, u32) {
        let mut next = sync::lock(&ROOM.queue);
        *next += 1;
        (0, *next - 1)
    }

    pub(crate) fn room(at: usize) -> &'static Room {
        assert_eq!(at, 0);
        &ROOM
    }

    pub(crate) enum Slept {
        Woken,
        Interrupted,
        #[expect(dead_code, reason = "time stands still")]
        TimedOut,
    }

    pub(crate) struct End;

    impl End {
        pub(crate) fn after(_millis: u32) -> Self {
            Self
        }
    }

    impl Room {
        pub(crate) fn count(&self) -> u32 {
            self.count.load(SeqCst)
        }

        pub(crate) fn sleep(&self, count: u32, bed: u32, _end: Option<&End>) -> Slept {
            if KERNEL.lock().take_signal() {
                return Slept::Interrupted;
            }
            let queue = sync::lock(&self.queue);
            if self.count.load(SeqCst) == count {
                drop(self.beds[bed as usize].wait(queue));
            }
            Slept::Woken
        }

        pub(crate) fn wake(&self, beds: u32) {
            self.count.fetch_add(1, SeqCst);
            let _queue = sync::lock(&self.queue);
            for (at, bed) in self.beds.iter().enumerate() {
                if beds & 1 << at != 0 {
                    bed.notify_all();
                }
            }
        }
    }

    #[derive(Default)]
    pub(crate) struct Ready {
        pub(crate) poked: bool,
        pub(crate) readable: bool,
        pub(crate) writable: bool,
    }

    #[derive(Debug)]
    pub(crate) struct Poke(ThreadId);

    impl Poke {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(thread::current().id()))
        }

        pub(crate) fn poke(&self) {
            KERNEL.lock().poked.push(self.0);
            KERNEL.reader.notify_all();
        }

        pub(crate) fn wait(
            &self,
            socket: Option<(&Socket, bool)>,
            _millis: Option<u32>,
            _mask: Option<&libc::sigset_t>,
        ) -> io::Result<Ready> {
            let mut state = KERNEL.lock();
            loop {
                if state.take_signal() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let poked = state.poked.contains(&self.0);
                let readable = socket.is_some_and(|(socket, _)| socket.0 != state.epoch || state.readable());
                if poked || readable {
                    return Ok(Ready { poked, readable, writable: false });
                }
                state = KERNEL.reader.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }

        pub(crate) fn clear(&self) {
            KERNEL.lock().poked.retain(|id| *id != self.0);
        }
    }
}

pub(crate) mod sys {
    /// With the number of its connection.
    #[derive(Debug)]
    pub(crate) struct Socket(pub(crate) u64);

    impl Socket {
        pub(crate) fn is_carried(&self) -> bool {
            false
        }
    }

    pub(crate) fn set_mask(_how: libc::c_int, _mask: &libc::sigset_t) -> libc::sigset_t {
        full_mask()
    }

    pub(crate) fn full_mask() -> libc::sigset_t {
        let mut mask = std::mem::MaybeUninit::uninit();
        // SAFETY: the call initialises the set.
        unsafe {
            libc::sigfillset(mask.as_mut_ptr());
            mask.assume_init()
        }
    }
}

pub(crate) mod clock {
    /// Time stands still.
    pub(crate) fn now() -> bandog_core::time::Time {
        bandog_core::time::Time(0)
    }
}

pub(crate) mod fork {
    pub(crate) fn generation() -> u64 {
        0
    }
}

pub(crate) mod handle {
    use bandog_core::error::{Code, Error};

    pub(crate) fn forked() -> Error {
        Error::new(Code::ForkedHandle, "nothing forks here")
    }
}
