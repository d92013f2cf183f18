//! One caller at the wire of threads: it waits for its outcome, and reads the wire for all while it leads.

use std::sync::Arc;

use bandog_core::error::Error;
use bandog_core::io::Outcome;

use crate::fork;
use crate::handle::forked;
use crate::parker::Woken;
use crate::road::{Flow, Road};
use crate::seat::Seat;
use crate::seats::Role;
use crate::shared::Shared;
use crate::signals::{Guard, Patience};

/// One caller at the wire of threads.
pub(crate) struct Visit<'a> {
    shared: &'a Shared,
    road: &'a Road,
    seat: &'a Arc<Seat>,
    /// Its first request is answered once so many calls of the wire are.
    until: u64,
    running: bool,
}

impl<'a> Visit<'a> {
    /// Enters before anything is sent, so that the keeper does not take the lead for it.
    pub(crate) fn new(shared: &'a Shared, seat: &'a Arc<Seat>) -> Self {
        let road = &shared.roads[Shared::THREADS.0 as usize];
        road.seats.enter();
        Self { shared, road, seat, until: 0, running: true }
    }

    pub(crate) fn sent(&mut self) {
        self.until = self.road.tally().posted;
    }

    /// Waits for the outcome; `None` when `interrupt` said so.
    pub(crate) fn wait(
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
            return parker.park(None, patience.millis(), guard.mask());
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
                let woken = parker.park(None, patience.millis(), guard.mask());
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
                let woken = parker.park(Some((&socket, clogged)), patience.millis(), guard.mask());
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

    pub(crate) fn leave(&mut self) {
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
