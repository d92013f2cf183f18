//! Callers that block: each states its wish, writes it, and waits; one of those whose replies are due reads
//! for all of them (`seats.rs`).

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use bandog_core::error::Error;
use bandog_core::io::Outcome;
use bandog_core::time::Time;

use crate::clock;
use crate::fork;
use crate::handle::forked;
use crate::host::{Settled, Wish};
use crate::parker::{Parker, Woken};
use crate::road::{Flow, Road};
use crate::seats::Role;
use crate::shared::Shared;
use crate::sys;
use crate::turn::settled;
use crate::waiter::{Seat, Waiter};

/// What a blocking call does about signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signals {
    /// Nothing. A signal that comes between the last look at `interrupt` and the park is noticed within a
    /// second.
    Open,
    /// Blocks them in this thread except while it is parked, so that a signal always ends the park and
    /// none is missed. For the main thread of a process whose runtime handles signals there.
    Guarded,
}

/// Signals blocked from the first park on, until this is dropped.
pub(crate) struct Guard {
    wanted: bool,
    old: OnceCell<libc::sigset_t>,
}

/// How long a caller parks until it looks at `interrupt` again.
pub(crate) struct Patience {
    every: u32,
    /// Set at the first park: most calls end without one.
    since: Option<Time>,
}

/// How long closing waits for the keeper's thread beyond the time given.
const JOIN: Duration = Duration::from_secs(1);

pub(crate) fn block(
    shared: &Arc<Shared>,
    wish: Wish,
    signals: Signals,
    interrupt: &mut dyn FnMut() -> bool,
) -> Result<Option<Settled>, Error> {
    let seat = Arc::new(Seat::new(Parker::current()?));
    let guard = signals.guard();
    let mut visit = Visit::new(shared, &seat);
    let op = shared.wish(wish, Shared::THREADS, |_| Waiter::Seat(seat.clone()))?;
    visit.sent();
    let mut patience = Patience::new();
    loop {
        match visit.wait(&guard, &mut patience, interrupt) {
            Ok(Some(Outcome::Granted)) => match shared.claim(op) {
                Ok(Some(handle)) => return Ok(Some(Settled::Held(handle))),
                Ok(None) => {}
                Err(error) => return Err(error),
            },
            Ok(Some(outcome)) => return settled(outcome).map(Some),
            Ok(None) => {
                visit.leave();
                shared.cancel(op);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn close(shared: &Arc<Shared>, within: Duration, tell: bool) {
    if !shared.keeper.is_started() {
        return shared.abandon();
    }
    if shared.keeper.has_ended() {
        return;
    }
    if let Ok(parker) = Parker::current()
        && !shared.keeper.is_current()
    {
        let seat = Arc::new(Seat::new(parker));
        let mut visit = Visit::new(shared, &seat);
        shared.shut(tell, Waiter::Seat(seat.clone()));
        visit.sent();
        let millis = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        let end = clock::now().0.saturating_add(millis.into());
        let mut patience = Patience { every: millis.max(1), since: None };
        let mut over = || clock::now().0 >= end;
        // The keeper may have ended meanwhile: it tells whoever waits then.
        let _ = visit.wait(&Signals::Open.guard(), &mut patience, &mut over);
    } else {
        shared.shut(tell, Waiter::Nobody);
    }
    shared.keeper.stop(false);
    shared.keeper.join(JOIN);
}

/// One caller at the wire of threads.
struct Visit<'a> {
    shared: &'a Shared,
    road: &'a Road,
    seat: &'a Arc<Seat>,
    /// Its first request is answered once so many calls of the wire are.
    until: u64,
    running: bool,
}

impl<'a> Visit<'a> {
    /// Enters before anything is sent, so that the keeper does not take the lead for it.
    fn new(shared: &'a Shared, seat: &'a Arc<Seat>) -> Self {
        let road = &shared.roads[Shared::THREADS.0 as usize];
        road.seats.enter();
        Self { shared, road, seat, until: 0, running: true }
    }

    fn sent(&mut self) {
        self.until = self.road.tally().posted;
    }

    /// Waits for the outcome; `None` when `interrupt` said so.
    fn wait(
        &mut self,
        guard: &Guard,
        patience: &mut Patience,
        interrupt: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Outcome>, Error> {
        loop {
            if let Some(outcome) = self.seat.take() {
                return Ok(Some(outcome));
            }
            let woken = self.park(guard, patience);
            if self.seat.is_ready() || !patience.is_over(woken) {
                continue;
            }
            // What is called now may take long, and may come here again on this very thread.
            self.leave();
            let over = guard.open(&mut *interrupt);
            // First of all: a child that came out of that must not even give up what its parent waits for.
            if self.shared.generation != fork::generation() {
                return Err(forked());
            }
            if over {
                return Ok(None);
            }
        }
    }

    /// Sleeps until something happened. Whoever waits for a reply of this wire leads or follows; who waits
    /// for its turn at a lock does neither, for its retries are the keeper's.
    fn park(&mut self, guard: &Guard, patience: &mut Patience) -> Woken {
        let parker = &self.seat.parker;
        if self.road.tally().answered >= self.until {
            self.leave();
            if guard.shut() {
                return Woken { interrupted: true, ..Woken::default() };
            }
            return parker.park(None, Some(patience.millis()), guard.mask());
        }
        if !self.running {
            self.road.seats.enter();
            self.running = true;
        }
        match self.road.seats.sit(self.seat, self.until) {
            Role::Follow if guard.shut() => {
                self.road.seats.rise(self.seat);
                Woken { interrupted: true, ..Woken::default() }
            }
            Role::Follow => {
                let woken = parker.park(None, Some(patience.millis()), guard.mask());
                self.road.seats.rise(self.seat);
                woken
            }
            Role::Lead(socket) => {
                let clogged = self.road.is_clogged();
                if !clogged {
                    // The usual case: the reply comes before anything else can happen.
                    match self.shared.pump(self.road, self.road.reader(), Some(&socket)) {
                        Flow::Empty => {}
                        Flow::Interrupted => return Woken { interrupted: true, ..Woken::default() },
                        _ => return Woken::default(),
                    }
                }
                if guard.shut() {
                    return Woken { interrupted: true, ..Woken::default() };
                }
                let woken = parker.park(Some((&socket, clogged)), Some(patience.millis()), guard.mask());
                drop(socket);
                if woken.writable {
                    self.shared.flush(self.road, true);
                }
                if woken.readable {
                    self.shared.pump(self.road, self.road.reader(), None);
                }
                woken
            }
        }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.running) {
            self.shared.pass(self.road, self.road.seats.leave(self.seat, || self.road.tally()));
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        // In a child all this is the parent's, and its mutexes may be locked for ever.
        if self.shared.generation == fork::generation() {
            self.leave();
            self.seat.parker.reset();
        }
    }
}

impl Signals {
    pub(crate) fn guard(self) -> Guard {
        Guard { wanted: self == Self::Guarded, old: OnceCell::new() }
    }
}

impl Guard {
    /// Blocks signals, if that is wanted and not done yet: only whoever parks pays for it. When it says so,
    /// `interrupt` is to be looked at once more, for a signal that came before this.
    pub(crate) fn shut(&self) -> bool {
        let now = self.wanted && self.old.get().is_none();
        if now {
            let _ = self.old.set(sys::set_mask(libc::SIG_BLOCK, &sys::full_mask()));
        }
        now
    }

    /// The mask to park with.
    pub(crate) fn mask(&self) -> Option<&libc::sigset_t> {
        self.old.get()
    }

    /// Calls the host back with its own mask.
    pub(crate) fn open(&self, call: &mut dyn FnMut() -> bool) -> bool {
        let Some(old) = self.old.get() else { return call() };
        let _shut = Guard { wanted: true, old: OnceCell::from(sys::set_mask(libc::SIG_SETMASK, old)) };
        call()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(old) = self.old.get() {
            sys::set_mask(libc::SIG_SETMASK, old);
        }
    }
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { every: 1000, since: None }
    }

    /// How long to park at most.
    pub(crate) fn millis(&mut self) -> u32 {
        let now = clock::now();
        let passed = now.since(*self.since.get_or_insert(now)).0;
        self.every.saturating_sub(u32::try_from(passed).unwrap_or(u32::MAX)).max(1)
    }

    /// Whether it is time to look at `interrupt`.
    pub(crate) fn is_over(&mut self, woken: Woken) -> bool {
        let now = clock::now();
        let over = woken.interrupted || now.since(*self.since.get_or_insert(now)).0 >= self.every.into();
        if over {
            self.since = Some(now);
        }
        over
    }
}
