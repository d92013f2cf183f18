//! `local_reentry`: levels that the server never hears of.

use super::reentry::nested;
use super::world::*;
use crate::config::Config;
use crate::error::Code;
use crate::event::LossReason;
use crate::io::{AcquireRequest, CallError, Claim, Outcome, Target};
use crate::owner::LocalOwner;
use crate::time::Millis;

fn world() -> World {
    World::with(1, Config { local_reentry: true, ..Config::default() })
}

fn lasting(ms: u64) -> AcquireRequest {
    AcquireRequest { lease: Some(Millis(ms)), ..ask(1) }
}

#[test]
pub(super) fn local_reentry_sends_nothing() {
    let mut w = world();
    let levels = nested(&mut w, 3);
    assert_eq!((w.counts(), w.sent(0)), (vec![1], vec!["+1".to_owned()]));
    assert_eq!(w.freed(0, &levels[1]), Outcome::Released { left: 2 });
    // A level that asks for more time goes to the server.
    let longer = w.hold(0, AcquireRequest { lease: Some(Millis(60_000)), ..ask(1) });
    assert_eq!((w.counts(), w.ttl()), (vec![3], 60_000));
    assert_eq!(w.freed(0, &longer), Outcome::Released { left: 2 });
    assert_eq!(w.freed(0, &levels[2]), Outcome::Released { left: 1 });
    assert_eq!(w.freed(0, &levels[0]), Outcome::Released { left: 0 });
    assert_eq!(w.sent(0), ["+1", "+3", "-2", "-1", "-0"]);
    w.assert_clean();
}

#[test]
fn a_local_reentry_that_is_cancelled_sends_nothing() {
    let mut w = world();
    let held = w.hold(0, ask(1));
    let op = w.acquire(0, ask(1));
    w.cancel(0, op);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    assert_eq!(w.sent(0), ["+1", "-0"]);
    w.assert_clean();
}

#[test]
fn a_level_that_asks_for_more_time_goes_to_the_server() {
    // The lease of the hold, how old it is, that of the level; whether it is entered here.
    for (hold, age, level, here) in [
        (None, 20_000, None, true),
        (Some(20_000), 0, None, false),
        (Some(20_000), 0, Some(20_000), true),
        (Some(20_000), 1, Some(20_000), false),
        // 18 s it is good for, 9 of them are over: 10 s give 9.
        (Some(20_000), 9_000, Some(10_000), true),
        (Some(20_000), 9_001, Some(10_000), false),
        (None, 5_000, Some(20_000), true),
        (None, 5_000, Some(40_000), false),
    ] {
        let mut w = world();
        w.hold(0, AcquireRequest { lease: hold.map(Millis), ..ask(1) });
        w.pass(age);
        w.clients[0].wires.clear();
        w.fresh(0);
        let op = w.acquire(0, AcquireRequest { lease: level.map(Millis), ..ask(1) });
        assert_eq!(w.fresh(0).is_empty(), here, "{hold:?} {age} {level:?}");
        assert_eq!(w.done(0, op).is_some(), here);
    }
}

#[test]
fn the_longest_lease_holds_for_levels_that_were_entered_here() {
    let mut w = world();
    let outer = w.hold(0, lasting(20_000));
    let long = w.hold(0, lasting(60_000));
    let local = w.hold(0, lasting(50_000));
    assert_eq!((w.fresh(0), w.counts()), (vec!["+1".to_owned(), "+2".to_owned()], vec![2]));
    // Whatever goes first, what the server has not counted is not taken away from it.
    assert_eq!(w.freed(0, &long), Outcome::Released { left: 2 });
    assert_eq!((w.fresh(0), w.counts()), (vec![], vec![2]));
    assert_eq!(w.freed(0, &outer), Outcome::Released { left: 1 });
    assert_eq!((w.fresh(0), w.counts()), (vec!["-1".to_owned()], vec![1]));
    w.live(53_999);
    assert!(w.is_valid(0, &local));
    assert_eq!(w.freed(0, &local), Outcome::Released { left: 0 });
    w.assert_clean();
}

#[test]
fn a_level_asked_of_the_server_counts_those_entered_here() {
    let mut w = world();
    let levels = [ask(1), ask(1), lasting(40_000)].map(|request| w.hold(0, request));
    assert_eq!((w.fresh(0), w.counts()), (vec!["+1".to_owned(), "+3".to_owned()], vec![3]));
    for (held, left) in levels.iter().zip([2, 1, 0]) {
        assert_eq!(w.freed(0, held), Outcome::Released { left });
    }
    assert_eq!(w.fresh(0), ["-2", "-1", "-0"]);
    w.assert_clean();
}

#[test]
fn only_a_valid_hold_is_entered() {
    // Doubtful is valid.
    let mut w = world();
    let held = w.hold(0, ask(1));
    w.pass(10_000);
    w.cut(0, crate::io::Wire::KEEPER, 0, false);
    assert!(w.kinds(0).contains(&"doubtful"));
    let inner = w.hold(0, ask(1));
    w.freed(0, &inner);
    w.freed(0, &held);
    w.assert_clean();

    // Past its deadline, though no timer has fired.
    let mut w = world();
    w.hold(0, ask(1));
    w.now += Millis(27_000);
    let op = w.acquire(0, ask(1));
    assert_eq!(w.error(0, op).code(), Code::LockLost);

    // Granted here, and past it when the caller resumes.
    let mut w = world();
    w.hold(0, ask(1));
    w.now += Millis(26_999);
    let op = w.acquire(0, ask(1));
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    w.now += Millis(1);
    assert_eq!(w.claim(0, op), Claim::Again);
    assert_eq!(w.error(0, op).code(), Code::LockLost);

    // Taken away: found out by the next renewal, and told by every level.
    let mut w = world();
    let levels = [ask(1), ask(1)].map(|request| w.hold(0, request));
    w.delete();
    w.live(10_000);
    assert_eq!(w.losses(0), [LossReason::Taken]);
    for held in &levels {
        let op = w.release(0, held);
        assert_eq!(w.error(0, op).code(), Code::LockLost);
    }
    w.assert_clean();
}

#[test]
fn a_level_entered_here_is_released_by_whoever_has_its_handle() {
    let mut w = world();
    let held = w.hold(0, ask(1));
    let op = w.acquire(0, AcquireRequest { reenter: Some(held.hold), ..ask(2) });
    let inner = w.take(0, op);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 1 });
    assert_eq!(w.fresh(0), ["+1"]);
    let mine = Target::Innermost { name: name("n"), owner: LocalOwner(2) };
    let op = w.tell(0, |engine, now| engine.release(now, mine, CALLER));
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Released { left: 0 }));
    assert_eq!(w.view(0, inner.hold), None);
    w.assert_clean();
}

#[test]
fn a_level_entered_here_that_nobody_claims_is_taken_back_here() {
    let mut w = world();
    let held = w.hold(0, ask(1));
    let op = w.acquire(0, ask(1));
    w.live(1_000);
    assert_eq!(w.view(0, held.hold).unwrap().count, 1);
    assert_eq!(w.fresh(0), ["+1"]);
    // Its host turns after all.
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert_eq!(w.claim(0, op), Claim::Again);
    let inner = w.take(0, op);
    w.freed(0, &inner);
    w.freed(0, &held);
    assert_eq!(w.fresh(0), ["-0"]);
    w.assert_clean();
}

#[test]
fn beside_a_request_without_an_answer_a_release_goes_to_the_server() {
    // Until it is answered nobody knows what the server has counted.
    let mut w = world();
    let outer = w.hold(0, ask(1));
    let inner = w.hold(0, ask(1));
    let longer = w.acquire(0, lasting(60_000));
    let release = w.release(0, &inner);
    w.answer(0, CALLER, Err(CallError::Unknown(None)));
    w.run();
    assert_eq!(w.done(0, release), Some(Outcome::Released { left: 1 }));
    let longer = w.take(0, longer);
    assert_eq!(w.counts(), [2]);
    w.freed(0, &longer);
    w.freed(0, &outer);
    assert!(w.is_free());
}
