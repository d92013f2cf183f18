//! Releases: the result table of design 3 row by row, and what goes on behind a result.

use super::world::*;
use crate::error::{Code, Error};
use crate::event::LossReason;
use crate::io::{AcquireRequest, CallError, Claimed, OpId, Outcome, Target, Wire};
use crate::owner::LocalOwner;
use crate::time::Millis;

fn code(outcome: Option<Outcome>) -> Option<Code> {
    match outcome {
        Some(Outcome::Failed(error)) => Some(error.code()),
        _ => None,
    }
}

fn held() -> (World, Claimed) {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    (w, held)
}

#[test]
fn row_1_valid_and_freed_is_released() {
    let (mut w, held) = held();
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    // However late the answer comes, and whatever became of an earlier send.
    for lost in [false, true] {
        let held = w.hold(0, ask(1));
        let op = w.release(0, &held);
        if lost {
            w.cut(0, CALLER, 0, false);
        }
        w.pass(2_900);
        w.run();
        assert_eq!(w.done(0, op), Some(Outcome::Released { left: 0 }));
    }
    w.assert_clean();
}

#[test]
fn row_1_valid_and_still_n_is_released() {
    let (mut w, outer) = held();
    let inner = w.hold(0, ask(1));
    let op = w.release(0, &inner);
    w.cut(0, CALLER, 1, false);
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Released { left: 1 }));
    assert_eq!(w.freed(0, &outer), Outcome::Released { left: 0 });
    w.assert_clean();
}

#[test]
fn row_2_valid_and_not_ours_after_a_lost_reply_is_released() {
    let (mut w, held) = held();
    let op = w.release(0, &held);
    w.cut(0, CALLER, 1, false);
    w.run();
    assert_eq!(w.sent(0), ["+1", "-0", "-0*"]);
    assert_eq!(w.done(0, op), Some(Outcome::Released { left: 0 }));
    assert_eq!(w.losses(0), []);
    w.assert_clean();
}

#[test]
fn row_3_valid_and_not_ours_is_lost_m11() {
    let (mut w, held) = held();
    w.delete();
    let op = w.release(0, &held);
    w.run();
    let error = w.error(0, op);
    assert_eq!(error.code(), Code::LockLost);
    assert!(error.message().contains("(taken)"), "{error}");
    w.assert_clean();

    // So is an inner level's; the hold is known to be lost from then on, and that is told.
    let outer = w.hold(0, ask(1));
    let inner = w.hold(0, ask(1));
    w.delete();
    let op = w.release(0, &inner);
    w.run();
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    assert!(!w.is_valid(0, &outer));
    assert_eq!(w.losses(0), [LossReason::Taken]);
    let op = w.release(0, &outer);
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    w.assert_clean();
}

#[test]
fn row_3_not_ours_and_past_d_by_then_is_expired() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    let op = w.release(0, &held);
    w.pass(1_500);
    w.run();
    let error = w.error(0, op);
    assert_eq!(error.code(), Code::LockLost);
    assert!(error.message().contains("(expired)"), "{error}");
    w.assert_clean();
}

#[test]
fn row_4_lost_or_past_d_is_lost_whatever_the_answer() {
    // Past D, the key still there.
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    w.now += Millis(950);
    let op = w.release(0, &held);
    w.run();
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    assert_eq!(w.losses(0), [LossReason::Expired]);
    assert_eq!(w.kinds(0), ["acquired", "lost"], "no release is told of what was lost");
    assert!(w.is_free(), "it is freed all the same");
    w.assert_clean();

    // Lost and told before.
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    w.pass(920);
    let op = w.release(0, &held);
    w.cut(0, CALLER, 1, false);
    w.run();
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    w.assert_clean();
}

#[test]
fn row_5_no_answer_in_time_is_unknown_and_the_keeper_goes_on() {
    let (mut w, held) = held();
    w.pass(1_000);
    let op = w.release(0, &held);
    assert!(w.view(0, held.hold).is_none(), "L4: it is not valid from the release on");
    let mut cuts = 0;
    while w.clients[0].done.is_empty() {
        for wire in [CALLER, Wire::KEEPER] {
            if w.in_flight(0, wire) > 0 {
                w.cut(0, wire, 0, false);
                cuts += 1;
            }
        }
        w.pass(10);
    }
    let error = w.error(0, op);
    assert_eq!(error.code(), Code::ReleaseUnknown);
    assert_eq!(w.now.0, 1_000_000 + 4_000, "op_timeout");
    assert_eq!(error.free_at_latest(), Some(Millis(26_000)), "the lease set at the grant");
    assert!(error.owner().is_some_and(|owner| owner.ends_with(":1")));
    assert!((5..15).contains(&cuts), "with growing pauses: {cuts}");
    assert_eq!(w.counts(), [1]);
    w.live(500);
    assert!(w.is_free(), "the keeper went on");
    w.live(30_000);
    w.assert_clean();
}

#[test]
pub(super) fn row_5_nobody_answers_until_it_must_be_free() {
    let (mut w, held) = held();
    let op = w.release(0, &held);
    for _ in 0..4_000 {
        for wire in [CALLER, Wire::KEEPER] {
            while w.in_flight(0, wire) > 0 {
                w.answer(0, wire, Err(CallError::NotSent(unreachable())));
            }
        }
        w.pass(10);
    }
    assert_eq!(code(w.done(0, op)), Some(Code::ReleaseUnknown));
    w.pass(30_000);
    w.assert_clean();
}

#[test]
fn free_at_latest_counts_the_lease_that_an_inner_release_set() {
    let (mut w, outer) = held();
    let inner = w.hold(0, ask(1));
    w.pass(5_000);
    w.freed(0, &inner);
    assert_eq!(w.ttl(), 30_000);
    let op = w.release(0, &outer);
    w.pass(3_000);
    let error = w.error(0, op);
    assert_eq!(error.code(), Code::ReleaseUnknown);
    assert_eq!(error.free_at_latest(), Some(Millis(27_000)));
}

/// Gives up on a release whose connection is silent.
fn unknown(w: &mut World, held: &Claimed) -> OpId {
    let op = w.release(0, held);
    w.pass(3_000);
    assert_eq!(code(w.done(0, op)), Some(Code::ReleaseUnknown));
    assert_eq!(w.clients[0].severed, [CALLER]);
    op
}

#[test]
pub(super) fn after_an_unknown_release_calling_again_is_allowed() {
    // While the keeper still tries.
    for held_off in [false, true] {
        let (mut w, held) = held();
        unknown(&mut w, &held);
        if held_off {
            w.cut(0, CALLER, 0, false);
            w.cut(0, Wire::KEEPER, 0, false);
        }
        let again = w.release(0, &held);
        w.cut(0, CALLER, 1, false);
        w.run();
        assert_eq!(w.done(0, again), Some(Outcome::Released { left: 0 }));
        w.fresh(0);
        w.live(40_000);
        assert_eq!(w.fresh(0), [""; 0], "nothing is sent once it was answered");
        w.assert_clean();
    }
}

#[test]
fn after_an_unknown_release_that_the_keeper_settled_calling_again_says_so() {
    let (mut w, held) = held();
    unknown(&mut w, &held);
    w.cut(0, CALLER, 0, false);
    w.run();
    assert!(w.is_free());
    w.fresh(0);
    let again = w.release(0, &held);
    assert_eq!(w.done(0, again), Some(Outcome::Released { left: 0 }));
    assert_eq!(w.fresh(0), [""; 0], "it is known already");
    let again = w.release(0, &held);
    assert_eq!(code(w.done(0, again)), Some(Code::NotOwner), "once");
    w.live(40_000);
    w.assert_clean();
}

#[test]
fn a_release_that_never_left_is_not_unknown_when_it_is_called_again() {
    let (mut w, held) = held();
    w.delete();
    let op = w.release(0, &held);
    while w.now.0 < 1_004_000 {
        for wire in [CALLER, Wire::KEEPER] {
            while w.in_flight(0, wire) > 0 {
                w.answer(0, wire, Err(CallError::NotSent(unreachable())));
            }
        }
        w.pass(100);
    }
    assert_eq!(code(w.done(0, op)), Some(Code::ReleaseUnknown));
    while w.in_flight(0, Wire::KEEPER) > 0 {
        w.answer(0, Wire::KEEPER, Err(CallError::NotSent(unreachable())));
    }
    let again = w.release(0, &held);
    w.run();
    assert_eq!(code(w.done(0, again)), Some(Code::LockLost), "ours cannot have done it");
    w.live(40_000);
    w.assert_clean();
}

#[test]
fn an_unknown_inner_release_of_a_hold_that_is_lost_then_is_forgotten_too() {
    let (mut w, outer) = held();
    let inner = w.hold(0, ask(1));
    unknown(&mut w, &inner);
    w.pass(24_000);
    assert!(!w.is_valid(0, &outer));
    w.cut(0, CALLER, 0, false);
    w.live(10_000);
    let op = w.release(0, &outer);
    w.run();
    assert_eq!(code(w.done(0, op)), Some(Code::LockLost));
    w.live(30_000);
    w.assert_clean();
}

#[test]
fn an_unknown_release_is_not_remembered_for_ever() {
    let (mut w, held) = held();
    unknown(&mut w, &held);
    w.cut(0, CALLER, 0, false);
    w.live(40_000);
    let again = w.release(0, &held);
    assert_eq!(code(w.done(0, again)), Some(Code::NotOwner));
    w.assert_clean();
}

#[test]
pub(super) fn an_inner_release_without_answer_ends_with_the_outer_one() {
    let (mut w, outer) = held();
    let inner = w.hold(0, ask(1));
    let first = w.release(0, &inner);
    w.cut(0, CALLER, 0, false);
    w.cut(0, CALLER, 0, false);
    // Its next send is timed; the outer release is faster.
    assert_eq!(w.in_flight(0, CALLER), 0);
    assert_eq!(w.freed(0, &outer), Outcome::Released { left: 0 });
    w.fresh(0);
    w.live(100);
    assert_eq!(w.fresh(0), [""; 0], "nothing is sent after the release was answered");
    assert_eq!(w.done(0, first), Some(Outcome::Released { left: 0 }));
    w.live(30_000);
    w.assert_clean();
}

#[test]
fn an_inner_release_in_the_background_ends_with_the_outer_one() {
    let (mut w, outer) = held();
    let inner = w.hold(0, ask(1));
    unknown(&mut w, &inner);
    // It is held off when the outer release is answered.
    w.cut(0, CALLER, 0, false);
    w.cut(0, Wire::KEEPER, 0, false);
    assert_eq!(w.in_flight(0, Wire::KEEPER), 0);
    assert_eq!(w.freed(0, &outer), Outcome::Released { left: 0 });
    w.fresh(0);
    w.live(1_000);
    assert_eq!(w.fresh(0), [""; 0]);
    let again = w.release(0, &inner);
    assert_eq!(w.done(0, again), Some(Outcome::Released { left: 0 }));
    w.live(30_000);
    w.assert_clean();
}

#[test]
fn what_a_release_is_refused_for_is_told_and_is_no_event() {
    let (mut w, held) = held();
    let op = w.release(0, &held);
    w.answer(0, CALLER, Err(CallError::Server("NOPERM no".into())));
    assert_eq!(code(w.done(0, op)), Some(Code::PermissionDenied));
    assert_eq!(w.kinds(0), ["acquired"]);
    w.live(40_000);
    w.assert_clean();
}

#[test]
fn an_inner_release_that_is_refused_leaves_the_count_to_the_next_one() {
    let (mut w, outer) = held();
    let middle = w.hold(0, ask(1));
    let inner = w.hold(0, ask(1));
    let op = w.release(0, &inner);
    w.answer(0, CALLER, Err(CallError::Server("NOPERM no".into())));
    assert_eq!(code(w.done(0, op)), Some(Code::PermissionDenied));
    assert_eq!(w.freed(0, &middle), Outcome::Released { left: 1 });
    assert_eq!(w.counts(), [1]);
    assert_eq!(w.freed(0, &outer), Outcome::Released { left: 0 });
    w.assert_clean();
}

#[test]
fn what_passes_is_said_again() {
    let (mut w, held) = held();
    let op = w.release(0, &held);
    for _ in 0..3 {
        w.answer(0, CALLER, Err(CallError::Server("BUSY Redis is busy".into())));
        w.pass(80);
    }
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Released { left: 0 }));
    w.assert_clean();
}

#[test]
fn a_release_that_never_left_is_not_unknown() {
    let (mut w, held) = held();
    w.delete();
    let op = w.release(0, &held);
    w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
    w.run();
    assert_eq!(w.error(0, op).code(), Code::LockLost, "ours cannot have done it");
    w.assert_clean();
}

#[test]
fn another_value_at_the_key_is_a_loss() {
    let (mut w, held) = held();
    w.overwrite();
    let op = w.release(0, &held);
    w.run();
    let error: Error = w.error(0, op);
    assert_eq!(error.code(), Code::LockLost);
    assert!(error.message().contains("(overwritten)"));
    w.server.keys.clear();
    w.assert_clean();
}

#[test]
fn nonsense_is_a_protocol_error() {
    let (mut w, held) = held();
    let op = w.release(0, &held);
    w.answer(0, CALLER, Ok(crate::io::Value::Nil));
    assert_eq!(w.error(0, op).code(), Code::Protocol);
    w.live(40_000);
    w.assert_clean();
}

#[test]
fn s7_who_holds_nothing_changes_nothing() {
    let (mut w, held) = held();
    for target in [
        Target::Innermost { name: name("n"), owner: LocalOwner(2) },
        Target::Innermost { name: name("m"), owner: LocalOwner(1) },
    ] {
        let op = w.tell(0, |engine, now| engine.release(now, target, CALLER));
        let error = w.error(0, op);
        assert_eq!(error.code(), Code::NotOwner);
        let text = error.message();
        assert!(
            text.starts_with("attempt to unlock lock, not locked by current thread by node id: 01010101-"),
            "{text}"
        );
        assert!(text.contains(": keep the handle"), "{text}");
        assert!(error.name().is_some() && error.owner().unwrap().starts_with("01010101-"));
    }
    assert_eq!(w.sent(0), ["+1"]);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    let op = w.release(0, &held);
    assert_eq!(w.error(0, op).code(), Code::NotOwner);
    w.assert_clean();
}

#[test]
fn a_cancelled_release_goes_on_without_its_caller() {
    let (mut w, held) = held();
    let op = w.release(0, &held);
    w.cancel(0, op);
    w.cut(0, CALLER, 0, false);
    w.run();
    assert!(w.is_free());
    assert_eq!(w.done(0, op), None);
    w.assert_clean();
}

#[test]
fn m24_renewal_ends_before_the_first_byte_of_the_release() {
    let (mut w, held) = held();
    w.release(0, &held);
    w.fresh(0);
    w.link(0, crate::io::Link::Requests, false);
    w.link(0, crate::io::Link::Requests, true);
    w.pass(2_000);
    assert_eq!(w.fresh(0), [""; 0]);
}
