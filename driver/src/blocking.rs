//! Callers that block: each states its wish, writes it, and waits; one of those whose replies are due reads
//! for all of them (`seats.rs`).

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bandog_core::error::Error;
use bandog_core::io::{OpId, Outcome};

use crate::clock;
use crate::fork;
use crate::host::{Settled, Wish};
use crate::parker::Parker;
use crate::seat::Seat;
use crate::shared::Shared;
use crate::signals::{Patience, Signals};
use crate::turn::{Stated, settled};
use crate::visit::Visit;
use crate::waiter::Waiter;

/// How long closing waits for the keeper's thread beyond the time given.
const JOIN: Duration = Duration::from_secs(1);

/// Without an `interrupt` it is never `None`.
pub(crate) fn block(
    shared: &Arc<Shared>,
    wish: Wish,
    signals: Signals,
    mut interrupt: Option<&mut dyn FnMut() -> bool>,
) -> Result<Option<Settled>, Error> {
    let seat = Arc::new(Seat::new(Parker::current()?));
    let guard = signals.guard();
    let mut visit = Visit::new(shared, &seat);
    let op = match shared.wish(wish, Shared::THREADS, |_| Waiter::Seat(seat.clone()))? {
        Stated::Waiting(op) => op,
        Stated::Ended(result) => return result.map(Some),
    };
    visit.sent();
    let mut patience = if interrupt.is_some() { Patience::new() } else { Patience::endless() };
    let mut interrupt = || {
        let Some(interrupt) = &mut interrupt else { return false };
        // The host's code may unwind: then its caller is gone, too.
        let gone = Gone { shared, op };
        let over = interrupt();
        mem::forget(gone);
        over
    };
    loop {
        match visit.wait(&guard, &mut patience, &mut interrupt) {
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

/// Gives a wish up.
struct Gone<'a> {
    shared: &'a Shared,
    op: OpId,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if self.shared.generation == fork::generation() {
            self.shared.cancel(self.op);
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
        let mut patience = Patience::of(millis);
        let mut over = || clock::now().0 >= end;
        // The keeper may have ended meanwhile: it tells whoever waits then.
        let _ = visit.wait(&Signals::Open.guard(), &mut patience, &mut over);
    } else {
        shared.shut(tell, Waiter::Nobody);
    }
    shared.keeper.stop(false);
    shared.keeper.join(JOIN);
}
