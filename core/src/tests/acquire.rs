//! One acquire, from the wish to the claim.

use super::world::*;
use crate::config::Config;
use crate::error::{Code, Error};
use crate::io::{AcquireRequest, CallError, Claim, Outcome, Value, Wait, Wire};
use crate::scripts::Script;
use crate::time::Millis;

#[test]
pub(super) fn a_cycle_is_two_requests() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    assert_eq!((w.counts(), w.ttl()), (vec![1], 30_000));
    assert_eq!(held.owner, "01010101-0101-0101-0101-010101010101:1");
    assert_eq!(held.token, None);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    assert_eq!(w.sent(0), ["+1", "-0"]);
    assert_eq!(w.kinds(0), ["acquired", "released"]);
    w.assert_clean();
}

#[test]
fn a_number_is_drawn_anew_for_each_hold() {
    let mut w = World::new(1);
    let first = w.hold(0, ask(1));
    w.freed(0, &first);
    let second = w.hold(0, ask(1));
    assert_ne!(first.owner, second.owner);
    assert_ne!(first.hold, second.hold);
}

#[test]
fn d_counts_from_the_send_m21() {
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.pass(2_000);
    w.run();
    let held = w.take(0, op);
    let view = w.view(0, held.hold).unwrap();
    assert_eq!(view.remaining, Millis(30_000 - 3_000 - 2_000), "L - M from the send");
}

#[test]
pub(super) fn s6_a_grant_claimed_too_late_is_given_back_m26() {
    // The reply takes so long that less than half the lease is left.
    let mut w = World::new(1);
    let request = AcquireRequest { lease: Some(Millis(2_000)), ..ask(1) };
    let op = w.acquire(0, request);
    w.pass(900);
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert_eq!(w.claim(0, op), Claim::Again, "2000 - 200 - 900 is below half");
    w.deliver(0, CALLER);
    w.run();
    assert_eq!(w.sent(0), ["+1", "-0", "+1"]);
    let held = w.take(0, op);
    assert!(w.is_valid(0, &held));
    assert_eq!(w.counts(), [1]);
    assert_eq!(w.losses(0), [], "nobody held what nobody claimed");
}

#[test]
pub(super) fn s6_a_single_try_claimed_too_late_is_busy() {
    let mut w = World::new(1);
    let op = w.acquire(0, AcquireRequest { lease: Some(Millis(200)), wait: Wait::Try, ..ask(1) });
    w.run();
    w.pass(60);
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    w.now += Millis(50);
    assert_eq!(w.claim(0, op), Claim::Again);
    assert_eq!(w.done(0, op), Some(Outcome::Busy));
    assert_eq!(w.claim(0, op), Claim::Gone);
    w.live(30_000);
    w.assert_clean();
}

#[test]
pub(super) fn s6_a_grant_that_comes_after_its_lease_is_not_told_as_a_loss() {
    let mut w = World::new(1);
    let op = w.acquire(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    let (call, result) = w.execute(0, CALLER);
    w.pass(1_500);
    w.report(0, &call, result);
    w.live(1);
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert_eq!(w.claim(0, op), Claim::Again);
    assert_eq!(w.losses(0), []);
    w.run();
    let held = w.take(0, op);
    w.freed(0, &held);
    w.live(60_000);
    w.assert_clean();
}

#[test]
pub(super) fn an_unclaimed_grant_goes_back_and_its_waiter_is_passed_over() {
    let mut w = World::new(1);
    let holder = w.hold(0, ask(1));
    let [asleep, awake] = [2, 3].map(|owner| w.acquire(0, ask(owner)));
    w.run();
    w.freed(0, &holder);
    assert_eq!(w.done(0, asleep), Some(Outcome::Granted));
    w.live(1_000);
    let held = w.take(0, awake);
    assert_eq!(w.claim(0, asleep), Claim::Again, "its host has turned: it stands in front again");
    let third = w.acquire(0, ask(4));
    w.freed(0, &held);
    assert_eq!(w.done(0, third), None);
    let held = w.take(0, asleep);
    w.freed(0, &held);
    let held = w.take(0, third);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn a_grant_nobody_claims_leaves_by_the_keeper() {
    // The caller's own wire may be as stuck as its host.
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.run();
    w.pass(1_000);
    assert_eq!((w.in_flight(0, Wire::KEEPER), w.in_flight(0, CALLER)), (1, 0));
    w.run();
    assert!(w.is_free());
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert_eq!(w.claim(0, op), Claim::Again);
    w.run();
    w.take(0, op);
}

#[test]
fn a_short_lease_is_offered_for_a_third_of_it() {
    let mut w = World::new(1);
    let op = w.acquire(0, AcquireRequest { lease: Some(Millis(600)), ..ask(1) });
    w.run();
    w.live(200);
    assert!(w.is_free());
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert_eq!(w.claim(0, op), Claim::Again);
}

#[test]
pub(super) fn one_who_is_passed_over_still_runs_out_of_time() {
    let mut w = World::new(1);
    let op = w.acquire(0, AcquireRequest { wait: Wait::For(Millis(2_000)), ..ask(1) });
    w.run();
    w.live(3_000);
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert_eq!(w.done(0, op), Some(Outcome::Busy));
    assert_eq!(w.claim(0, op), Claim::Gone);
    w.live(30_000);
    w.assert_clean();
}

#[test]
fn one_whose_time_ended_while_its_grant_was_offered_is_busy_once_it_turns() {
    let mut w = World::new(1);
    let op = w.acquire(0, AcquireRequest { wait: Wait::For(Millis(500)), ..ask(1) });
    w.run();
    w.live(2_000);
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert_eq!(w.claim(0, op), Claim::Again);
    assert_eq!(w.done(0, op), Some(Outcome::Busy));
    w.run();
    w.assert_clean();
}

#[test]
pub(super) fn wait_zero_is_one_try() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    for _ in 0..3 {
        let op = w.acquire(1, AcquireRequest { wait: Wait::Try, ..ask(1) });
        w.run();
        assert_eq!(w.done(1, op), Some(Outcome::Busy));
    }
    assert_eq!(w.sent(1), ["+1", "+1", "+1"]);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
pub(super) fn l5_a_wait_is_total() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, AcquireRequest { wait: Wait::For(Millis(5_000)), ..ask(1) });
    w.live(4_999);
    assert_eq!(w.done(1, op), None);
    w.live(1);
    assert_eq!(w.done(1, op), Some(Outcome::Busy));
    w.run();
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
pub(super) fn f07_without_the_script_it_is_sent_as_text() {
    let mut w = World::new(1);
    w.server.forgotten = Script::ALL.into_iter().collect();
    let held = w.hold(0, ask(1));
    w.live(10_000);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    assert_eq!(w.sent(0), ["+1", "+1$", "~1", "~1$", "-0", "-0$"]);
    w.assert_clean();
}

#[test]
pub(super) fn what_the_server_refuses_is_told_by_its_code() {
    for (text, code) in [
        ("OOM command not allowed when used memory > 'maxmemory'.", Code::OutOfMemory),
        ("READONLY You can't write against a read only replica.", Code::ReadOnly),
        ("NOPERM this user has no permissions to run the 'evalsha' command", Code::PermissionDenied),
        ("WRONGTYPE the key holds a read-write lock, not a plain lock", Code::WrongType),
        ("ERR unknown command", Code::Protocol),
    ] {
        let mut w = World::new(1);
        let op = w.acquire(0, ask(1));
        w.answer(0, CALLER, Err(CallError::Server(text.into())));
        let error = w.error(0, op);
        assert_eq!((error.code(), error.name()), (code, Some(&name("n"))), "{text}");
        assert_eq!(w.sent(0), ["+1"], "a refused script did nothing");
        w.assert_clean();
    }
}

#[test]
pub(super) fn what_passes_is_tried_again() {
    for text in ["BUSY Redis is busy running a script.", "LOADING Redis is loading", "TRYAGAIN", "CLUSTERDOWN"] {
        let mut w = World::new(1);
        let op = w.acquire(0, ask(1));
        w.answer(0, CALLER, Err(CallError::Server(text.into())));
        w.answer(0, CALLER, Err(CallError::Server(text.into())));
        w.pass(40);
        w.run();
        let held = w.take(0, op);
        assert_eq!(w.sent(0), ["+1", "+1", "+1"]);
        w.freed(0, &held);
        w.assert_clean();
    }
}

#[test]
fn nonsense_is_a_protocol_error_and_is_undone() {
    for value in [Value::Nil, Value::Text(b"OK".to_vec()), Value::Int(-1), Value::List(Vec::new())] {
        let mut w = World::new(1);
        let op = w.acquire(0, ask(1));
        let (call, _) = w.execute(0, CALLER);
        w.report(0, &call, Ok(value));
        assert_eq!(w.error(0, op).code(), Code::Protocol);
        w.run();
        w.assert_clean();
    }
}

#[test]
fn s5_a_lost_reply_is_answered_by_sending_again_m09() {
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.cut(0, CALLER, 1, false);
    assert_eq!(w.counts(), [1]);
    w.run();
    let held = w.take(0, op);
    assert_eq!(w.counts(), [1], "a retried acquire counts once");
    assert_eq!(w.sent(0), ["+1", "+1*"], "at once, with the old connection killed");
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    w.assert_clean();
}

#[test]
fn s5_a_lost_request_is_sent_again() {
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.cut(0, CALLER, 0, true);
    w.run();
    let held = w.take(0, op);
    w.haunt();
    assert_eq!(w.counts(), [1]);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn nothing_reachable_at_first_fails_at_once() {
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
    let error = w.error(0, op);
    assert_eq!((error.code(), error.name()), (Code::Unreachable, Some(&name("n"))));
    w.assert_clean();

    let op = w.acquire(0, ask(1));
    let denied = Error::new(Code::PermissionDenied, "wrong password");
    w.answer(0, CALLER, Err(CallError::NotSent(denied)));
    assert_eq!(w.error(0, op).code(), Code::PermissionDenied);
    w.assert_clean();
}

#[test]
fn a_server_lost_later_is_tried_until_the_time_for_reaching_it_is_over() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.freed(0, &held);
    let (op, began) = (w.acquire(0, ask(1)), w.now);
    while w.clients[0].done.is_empty() {
        while w.in_flight(0, CALLER) > 0 {
            w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
        }
        w.pass(10);
    }
    assert_eq!(w.error(0, op).code(), Code::Unreachable);
    let took = w.now.since(began);
    assert!(took <= Millis(8_000) && took > Millis(7_000), "connect_timeout + op_timeout: {took}");
    assert!(w.sent(0).len() < 25, "with growing pauses: {}", w.sent(0).len());
    w.assert_clean();
}

#[test]
fn a_server_that_never_answers_is_told_as_unreachable() {
    let config = Config { op_timeout: Millis(500), connect_timeout: Millis(1_000), ..Config::default() };
    let mut w = World::with(1, config);
    let op = w.acquire(0, AcquireRequest { wait: Wait::Try, ..ask(1) });
    while w.clients[0].done.is_empty() {
        w.pass(100);
        if let Some(wire) = w.clients[0].severed.pop() {
            w.cut(0, wire, 0, true);
        }
    }
    assert_eq!(w.error(0, op).code(), Code::Unreachable);
    assert!(w.now.0 <= 1_000_000 + 1_600, "L5: {}", w.now.0);
    // What the dead server may still do is undone when it wakes.
    w.run();
    w.haunt();
    w.run();
    w.live(40_000);
    w.assert_clean();
}

#[test]
fn bad_leases_are_refused_before_any_request_f42() {
    let mut w = World::new(1);
    for lease in [0, 9, u64::MAX] {
        let op = w.acquire(0, AcquireRequest { lease: Some(Millis(lease)), ..ask(1) });
        assert_eq!(w.error(0, op).code(), Code::InvalidLease);
    }
    assert_eq!(w.sent(0), [""; 0]);
    w.assert_clean();
}
