use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::*;

fn socket() -> Arc<Socket> {
    Arc::new(Socket::new(UnixStream::pair().unwrap().0.into()).unwrap())
}

fn seat() -> Arc<Seat> {
    Arc::new(Seat::new(Parker::current().unwrap()))
}

const DUE: fn() -> Tally = || Tally { posted: 2, answered: 0 };
const NOTHING: fn() -> Tally = || Tally { posted: 2, answered: 2 };

#[test]
fn the_lead_goes_to_a_follower_then_to_the_keeper_then_to_nobody() {
    let seats = Seats::new(Readers::Threads);
    let (one, two) = (seat(), seat());
    assert!(matches!(seats.came_up(socket(), NOTHING), Next::Nobody));
    seats.enter();
    seats.enter();
    assert!(matches!(seats.sit(&one, 1), Role::Lead(_)));
    assert!(matches!(seats.sit(&two, 2), Role::Follow));
    assert!(matches!(seats.leave(&one, DUE), Next::Caller(_)));
    seats.rise(&two);
    assert!(matches!(seats.sit(&two, 2), Role::Lead(_)));
    assert!(seats.keeper_leads(DUE).is_none());
    assert!(matches!(seats.leave(&two, DUE), Next::Keeper));
    assert!(seats.keeper_leads(DUE).is_some());
    assert!(seats.keeper_leads(NOTHING).is_none(), "it lets go");
    assert!(matches!(seats.attend(DUE), Next::Keeper), "and is called again");
}

#[test]
fn a_caller_takes_the_lead_from_the_keeper_but_not_from_a_caller() {
    let seats = Seats::new(Readers::Threads);
    let (one, two) = (seat(), seat());
    assert!(matches!(seats.came_up(socket(), DUE), Next::Keeper));
    seats.enter();
    assert!(matches!(seats.sit(&one, 1), Role::Lead(_)));
    assert!(seats.keeper_leads(DUE).is_none());
    seats.enter();
    assert!(matches!(seats.sit(&two, 1), Role::Follow));
    assert!(matches!(seats.attend(DUE), Next::Nobody), "one leads");
}

#[test]
fn a_free_lead_is_left_to_whoever_is_about_to_sit() {
    let seats = Seats::new(Readers::Threads);
    let (one, two, three) = (seat(), seat(), seat());
    let _ = seats.came_up(socket(), NOTHING);
    (0..3).for_each(|_| seats.enter());
    assert!(matches!(seats.sit(&one, 1), Role::Lead(_)));
    assert!(matches!(seats.sit(&two, 1), Role::Follow));
    two.put(bandog_core::io::Outcome::Extended);
    assert!(matches!(seats.leave(&one, DUE), Next::Nobody), "one has its outcome, one runs");
    assert!(matches!(seats.leave(&three, DUE), Next::Nobody), "the other will run");
    seats.rise(&two);
    assert!(matches!(seats.leave(&two, DUE), Next::Keeper), "the last one looks");
}

#[test]
fn a_loop_leads_once_it_watches_the_socket() {
    let seats = Seats::new(Readers::Loop);
    let (first, second) = (socket(), socket());
    assert!(matches!(seats.came_up(first.clone(), NOTHING), Next::Keeper), "somebody notices the end at least");
    assert!(seats.keeper_leads(NOTHING).is_some());
    assert!(seats.take(&first));
    assert!(seats.keeper_leads(DUE).is_none());
    assert!(matches!(seats.leader(), Next::Loop));
    seats.went_down();
    assert!(!seats.take(&first), "it is gone");
    assert!(matches!(seats.came_up(second.clone(), DUE), Next::Keeper), "until the loop comes");
    assert!(!seats.take(&first), "another one is there");
    assert!(seats.take(&second));
}

#[test]
fn without_a_connection_all_follow() {
    let seats = Seats::new(Readers::Threads);
    let one = seat();
    seats.enter();
    assert!(matches!(seats.sit(&one, 1), Role::Follow));
    assert!(matches!(seats.came_up(socket(), DUE), Next::Caller(_)), "it leads as soon as there is one");
    seats.went_down();
    seats.rise(&one);
    assert!(matches!(seats.sit(&one, 1), Role::Follow));
}

/// Threads come and go, the keeper looks in: while a reply is due and nobody leads, somebody runs.
#[test]
fn the_invariant_holds_under_threads() {
    let seats = Arc::new(Seats::new(Readers::Threads));
    let answered = Arc::new(AtomicU64::new(0));
    let posted = Arc::new(AtomicU64::new(0));
    let tally = {
        let (answered, posted) = (answered.clone(), posted.clone());
        move || Tally { answered: answered.load(SeqCst), posted: posted.load(SeqCst) }
    };
    let _ = seats.came_up(socket(), &tally);
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (seats, answered, posted, tally) = (seats.clone(), answered.clone(), posted.clone(), tally.clone());
            std::thread::spawn(move || {
                let parker = Parker::current().unwrap();
                for _ in 0..2000 {
                    let seat = Arc::new(Seat::new(parker.clone()));
                    seats.enter();
                    let until = posted.fetch_add(1, SeqCst) + 1;
                    while answered.load(SeqCst) < until {
                        match seats.sit(&seat, until) {
                            // Everything that is out is answered at once.
                            Role::Lead(_) => drop(answered.fetch_max(posted.load(SeqCst), SeqCst)),
                            Role::Follow => {
                                // Not told of its reply, as one that has to wait for its lock.
                                parker.park(None, Some(1), None);
                                seats.rise(&seat);
                            }
                        }
                    }
                    if let Next::Caller(parker) = seats.leave(&seat, &tally) {
                        parker.unpark();
                    }
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    let inner = lock(&seats.inner);
    assert!(
        inner.running == 0 && inner.followers.is_empty() && matches!(inner.leader, Leader::Nobody | Leader::Keeper)
    );
}
