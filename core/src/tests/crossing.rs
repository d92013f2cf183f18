//! What crosses on the way: two releases of one hold, echoes and outages, messages and those who leave,
//! grants that come too late.

use super::world::*;
use crate::error::Code;
use crate::io::{CallError, Outcome, Wire};
use crate::scripts::Script;
use crate::time::Millis;

#[test]
fn s5_two_releases_of_one_hold_are_both_good_though_one_frees_it_for_both() {
    let mut w = World::new(1);
    let (outer, inner) = (w.hold(0, ask(1)), w.hold(0, ask(1)));
    w.server.forgotten.insert(Script::Release);
    let (first, second) = (w.release(0, &inner), w.release(0, &outer));
    let (call, refused) = w.execute(0, CALLER);
    w.server.forgotten.insert(Script::Release);
    let (next, refused_too) = w.execute(0, CALLER);
    w.report(0, &call, refused);
    w.report(0, &next, refused_too);
    w.run();
    assert_eq!(w.done(0, first), Some(Outcome::Released { left: 0 }));
    assert_eq!(w.done(0, second), Some(Outcome::Released { left: 0 }));
    assert!(w.losses(0).is_empty());
    w.assert_clean();
}

#[test]
fn s5_a_release_that_a_busy_server_put_off_is_not_lost_to_the_one_behind_it() {
    let mut w = World::new(1);
    let (outer, inner) = (w.hold(0, ask(1)), w.hold(0, ask(1)));
    let (first, second) = (w.release(0, &inner), w.release(0, &outer));
    w.answer(0, CALLER, Err(CallError::Server("BUSY Redis is busy running a script.".into())));
    w.run();
    w.live(1_000);
    assert_eq!(w.done(0, first), Some(Outcome::Released { left: 0 }));
    assert_eq!(w.done(0, second), Some(Outcome::Released { left: 0 }));
    w.assert_clean();
}

#[test]
fn s4_an_echo_that_never_left_is_not_an_echo() {
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.cut_unnamed(0, CALLER, 0, true, true);
    w.cancel(0, op);
    w.run();
    w.fresh(0);
    let refuse = |w: &mut World| {
        for wire in [CALLER, Wire::KEEPER] {
            while w.in_flight(0, wire) > 0 {
                w.answer(0, wire, Err(CallError::NotSent(unreachable())));
            }
        }
    };
    for _ in 0..50 {
        w.pass(100);
        refuse(&mut w);
    }
    w.fresh(0);
    w.live(60_000);
    assert!(w.fresh(0).len() >= 3, "after 1 or 3 s, 10 s and the lease");
    w.assert_clean_at_last();
}

#[test]
fn s4_the_last_echo_of_a_long_lease_comes_when_that_lease_is_over() {
    let mut w = World::new(1);
    let mut request = ask(1);
    request.lease = Some(Millis(600_000));
    let op = w.acquire(0, request);
    w.cut_unnamed(0, CALLER, 0, true, true);
    w.cancel(0, op);
    w.live(599_000);
    w.fresh(0);
    w.live(2_000);
    assert_eq!(w.fresh(0).len(), 1);
    w.assert_clean_at_last();
}

#[test]
fn l2_a_message_that_had_to_wait_is_there_for_the_next_when_the_front_leaves() {
    let mut w = World::new(1);
    w.stranger(Some(29_000));
    let (front, next) = (w.acquire(0, ask(1)), w.acquire(0, ask(2)));
    w.run();
    for _ in 0..12 {
        w.message(0, &name("n"));
        w.run();
        w.pass(1);
        w.run();
    }
    w.delete();
    w.message(0, &name("n"));
    w.run();
    w.cancel(0, front);
    w.run();
    w.live(150);
    assert_eq!(w.done(0, next), Some(Outcome::Granted));
}

#[test]
fn s6_a_lease_shorter_than_the_way_is_refused_after_a_few_grants() {
    let mut w = World::new(1);
    let mut request = ask(1);
    request.lease = Some(Millis(10));
    let op = w.acquire(0, request);
    let mut error = None;
    for _ in 0..100 {
        w.pass(20);
        w.run();
        match w.done(0, op) {
            Some(Outcome::Granted) => drop(w.claim(0, op)),
            Some(Outcome::Failed(why)) => error = Some(why),
            _ => {}
        }
    }
    assert_eq!(error.expect("it ends").code(), Code::InvalidLease);
    assert!(w.fresh(0).len() <= 12);
}

#[test]
fn h1_too_few_replicas_have_a_code_of_their_own() {
    let mut w = World::new(1);
    w.server.refuses = Some((name("n"), "NOREPLICAS Not enough good replicas to write.".into()));
    let op = w.acquire(0, ask(1));
    w.run();
    assert_eq!(w.error(0, op).code(), Code::NotReplicated);
}

#[test]
fn a_re_entry_by_handle_is_about_the_lock_of_the_handle() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let mut request = ask(2);
    (request.name, request.reenter) = (name("another"), Some(held.hold));
    let op = w.acquire(0, request);
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert!(w.is_valid(0, &held));
}
