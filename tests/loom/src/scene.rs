//! Two callers and the keeper on one wire: what each does, and what must hold in the end.

use std::sync::Arc;

use loom::model::Builder;
use loom::thread;

use crate::kernel::KERNEL;
use crate::parker::Parker;
use crate::seat::Seat;
use crate::seats::{Next, Role, Tally};
use crate::shared::Shared;
use crate::signals::{Patience, Signals};
use crate::visit::Visit;

pub use crate::world::shared::{Fate, Start};

/// What becomes of the thread that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Nothing: it waits for the outcome.
    Stays,
    /// A signal comes as soon as it sleeps. It looks, and waits on.
    Looks,
    /// A signal comes as soon as it sleeps, and it gives up.
    GivesUp,
    /// It takes the lead, and ends without having read.
    Dies,
}

/// One caller's wishes, one after the other, on one thread.
pub type Caller = &'static [(Fate, Manner)];

/// Tries every order of events with at most so many preemptions.
pub fn run(preemptions: usize, start: Start, callers: &'static [Caller]) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let shared = Arc::new(Shared::new(start));
        let threads: Vec<_> = callers
            .iter()
            .map(|caller| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let parker = Arc::new(Parker::new().unwrap());
                    for (fate, manner) in *caller {
                        call(&shared, &parker, *fate, *manner);
                    }
                    KERNEL.lock().gone += 1;
                    KERNEL.ring();
                })
            })
            .collect();
        shared.keep(callers.len());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let seats = &shared.roads[0].seats;
        assert!(seats.keeper_leads(|| shared.roads[0].tally()).is_none(), "nothing is due");
        let due = || Tally { posted: 1, answered: 0 };
        assert!(matches!(seats.attend(due), Next::Keeper), "somebody still has a place: {seats:?}");
    });
}

fn call(shared: &Shared, parker: &Arc<Parker>, fate: Fate, manner: Manner) {
    let seat = Arc::new(Seat::new(parker.clone()));
    let guard = if manner == Manner::Looks { Signals::Guarded } else { Signals::Open }.guard();
    let mut visit = Visit::new(shared, &seat);
    let wish = shared.wish(fate, seat.clone());
    visit.sent();
    let seats = &shared.roads[0].seats;
    match manner {
        Manner::Dies => {
            if matches!(seats.sit(&seat, u64::MAX), Role::Follow) {
                seats.rise(&seat);
            }
        }
        Manner::Stays => assert!(visit.wait(&guard, &mut Patience::endless(), &mut || false).unwrap().is_some()),
        Manner::Looks | Manner::GivesUp => {
            KERNEL.signal();
            let outcome = visit.wait(&guard, &mut Patience::new(), &mut || manner == Manner::GivesUp).unwrap();
            assert!(outcome.is_some() || manner == Manner::GivesUp);
            if outcome.is_none() {
                visit.leave();
                shared.cancel(wish);
            }
        }
    }
}
