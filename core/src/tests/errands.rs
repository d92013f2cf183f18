//! Extend, look, force.

use super::world::*;
use crate::error::Code;
use crate::event::LossReason;
use crate::io::{AcquireRequest, CallError, Claimed, OpId, Outcome, Wire};
use crate::scripts::Script;
use crate::time::Millis;

fn extend(w: &mut World, held: &Claimed, lease: u64) -> OpId {
    w.tell(0, |engine, now| engine.extend(now, held.hold, Millis(lease), CALLER))
}

#[test]
fn extend_is_at_least_that_from_now() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(10_000)), ..ask(1) });
    w.live(5_000);
    let op = extend(&mut w, &held, 20_000);
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Extended));
    assert_eq!(w.ttl(), 20_000);
    assert_eq!(w.view(0, held.hold).unwrap().remaining, Millis(18_000));
    let op = extend(&mut w, &held, 1_000);
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Extended));
    assert_eq!(w.ttl(), 20_000, "it never shortens");
    w.live(17_999);
    assert!(w.is_valid(0, &held));
    w.live(1);
    assert_eq!(w.losses(0), [LossReason::Expired]);
}

#[test]
fn extend_of_what_is_not_held_is_refused() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let op = extend(&mut w, &held, 1);
    assert_eq!(w.error(0, op).code(), Code::InvalidLease);
    w.delete();
    let op = extend(&mut w, &held, 1_000);
    w.run();
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    assert_eq!(w.losses(0), [LossReason::Taken]);
    let op = extend(&mut w, &held, 1_000);
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    let op = w.release(0, &held);
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    let op = extend(&mut w, &held, 1_000);
    assert_eq!(w.error(0, op).code(), Code::NotOwner);
    w.assert_clean();
}

#[test]
fn extend_of_an_overwritten_key_is_a_loss() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.overwrite();
    let op = extend(&mut w, &held, 1_000);
    w.run();
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    assert_eq!(w.losses(0), [LossReason::Overwritten]);
}

#[test]
fn extend_refused_is_told_and_loses_nothing() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.server.spoilt = Some((name("n"), "ERR The user executing the script can't run this command".into()));
    let op = extend(&mut w, &held, 1_000);
    w.run();
    assert_eq!(w.error(0, op).code(), Code::PermissionDenied);
    assert!(w.is_valid(0, &held));
}

#[test]
fn extend_is_said_again_until_its_time_is_over() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(60_000)), ..ask(1) });
    let op = extend(&mut w, &held, 100_000);
    w.cut(0, CALLER, 1, false);
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Extended));
    let op = extend(&mut w, &held, 200_000);
    for _ in 0..90 {
        while w.in_flight(0, CALLER) > 0 {
            w.answer(0, CALLER, Err(CallError::Unknown(None)));
        }
        w.pass(100);
    }
    assert_eq!(w.error(0, op).code(), Code::Unreachable);
    assert!(w.is_valid(0, &held));
    assert!(w.view(0, held.hold).unwrap().remaining < Millis(100_000));
}

#[test]
fn extend_of_a_hold_that_is_lost_meanwhile_says_so() {
    for answered in [false, true] {
        let mut w = World::new(1);
        let held = w.hold(0, AcquireRequest { lease: Some(Millis(2_000)), ..ask(1) });
        w.pass(1_500);
        let op = extend(&mut w, &held, 10_000);
        let (call, result) = w.execute(0, CALLER);
        w.pass(400);
        assert_eq!(w.losses(0), [LossReason::Expired]);
        if answered {
            w.report(0, &call, result);
        } else {
            w.report(0, &call, Err(CallError::NotSent(unreachable())));
        }
        assert_eq!(w.error(0, op).code(), Code::LockLost);
        assert!(!w.is_valid(0, &held), "S4");
        w.live(60_000);
        assert!(w.is_free(), "what it extended after all was tidied up");
    }
}

#[test]
fn extend_of_a_hold_that_is_released_meanwhile_says_so() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let op = extend(&mut w, &held, 10_000);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    assert_eq!(w.error(0, op).code(), Code::NotOwner);
    w.assert_clean();
}

#[test]
fn an_extension_that_never_ends_ends() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(5_000)), ..ask(1) });
    let op = extend(&mut w, &held, 10_000);
    w.pass(8_000);
    assert_eq!(w.error(0, op).code(), Code::LockLost, "worse than unreachable");
}

#[test]
fn status_says_what_the_server_says() {
    let mut w = World::new(1);
    let look = |w: &mut World| {
        let op = w.tell(0, |engine, now| engine.status(now, name("n"), CALLER));
        w.run();
        w.done(0, op).unwrap()
    };
    assert_eq!(look(&mut w), Outcome::Status(None));
    w.stranger(Some(1_234));
    assert_eq!(look(&mut w), Outcome::Status(Some(Some(Millis(1_234)))));
    w.stranger(None);
    assert_eq!(look(&mut w), Outcome::Status(Some(None)));
    w.overwrite();
    assert!(matches!(look(&mut w), Outcome::Failed(error) if error.code() == Code::WrongType));
    w.server.forgotten = [Script::Status].into();
    w.server.keys.clear();
    assert_eq!(look(&mut w), Outcome::Status(None));
    w.assert_clean();
}

#[test]
fn status_is_asked_again_and_gives_up() {
    let mut w = World::new(1);
    let op = w.tell(0, |engine, now| engine.status(now, name("n"), CALLER));
    w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
    assert_eq!(w.error(0, op).code(), Code::Unreachable, "nothing was ever reached");
    let held = w.hold(0, ask(1));
    let op = w.tell(0, |engine, now| engine.status(now, name("n"), CALLER));
    w.answer(0, CALLER, Err(CallError::Server("BUSY".into())));
    w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
    w.pass(100);
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Status(Some(Some(Millis(29_900))))));
    let op = w.tell(0, |engine, now| engine.status(now, name("n"), CALLER));
    w.pass(8_000);
    assert_eq!(w.error(0, op).code(), Code::Unreachable);
    let op = w.tell(0, |engine, now| engine.status(now, name("n"), CALLER));
    w.cancel(0, op);
    w.run();
    assert_eq!(w.done(0, op), None);
    w.freed(0, &held);
    w.live(1_000);
    w.assert_clean();
}

#[test]
fn force_deletes_whom_it_saw_and_tells_the_own_hold() {
    let mut w = World::new(2);
    let force = |w: &mut World| {
        let op = w.tell(0, |engine, now| engine.force_release(now, name("n"), CALLER));
        w.run();
        w.done(0, op).unwrap()
    };
    assert_eq!(force(&mut w), Outcome::Forced(false));
    let held = w.hold(0, ask(1));
    let waiting = w.acquire(1, ask(1));
    w.run();
    assert_eq!(force(&mut w), Outcome::Forced(true));
    assert_eq!(w.losses(0), [LossReason::Taken]);
    assert!(!w.is_valid(0, &held));
    let other = w.take(1, waiting);
    assert_eq!(force(&mut w), Outcome::Forced(true));
    w.live(10_000);
    assert_eq!(w.losses(1), [LossReason::Taken]);
    assert!(!w.is_valid(1, &other));
}

#[test]
fn force_said_twice_does_not_hit_the_next_holder() {
    let mut w = World::new(2);
    let _held = w.hold(1, ask(1));
    let op = w.tell(0, |engine, now| engine.force_release(now, name("n"), CALLER));
    w.deliver(0, CALLER);
    let (call, _) = w.execute(0, CALLER);
    let next = w.hold(1, ask(2));
    w.report(0, &call, Err(CallError::Unknown(None)));
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Forced(true)), "its first send did it");
    assert!(w.is_valid(1, &next) && w.counts() == [1]);
    assert_eq!(w.in_flight(1, Wire::KEEPER), 0);
}

#[test]
fn a_forced_wrong_type_is_left_alone() {
    let mut w = World::new(1);
    w.overwrite();
    let op = w.tell(0, |engine, now| engine.force_release(now, name("n"), CALLER));
    w.run();
    assert_eq!(w.error(0, op).code(), Code::WrongType);
    assert_eq!(w.server.keys.len(), 1);
}
