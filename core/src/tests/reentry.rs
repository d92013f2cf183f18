//! Levels: absolute counts, deadlines, handles.

use super::world::*;
use crate::config::Config;
use crate::error::Code;
use crate::event::LossReason;
use crate::io::{AcquireRequest, Claim, Claimed, Outcome, Target, Wire};
use crate::owner::LocalOwner;
use crate::scripts::Script;
use crate::time::Millis;

pub(super) fn nested(w: &mut World, levels: usize) -> Vec<Claimed> {
    (0..levels).map(|_| w.hold(0, ask(1))).collect()
}

#[test]
fn s7_counts_are_those_of_redisson_m10() {
    let mut w = World::new(1);
    let levels = nested(&mut w, 3);
    assert_eq!(w.counts(), [3]);
    assert_eq!(w.clients[0].engine.count(w.now, &name("n"), LocalOwner(1)), 3);
    assert_eq!(w.freed(0, &levels[1]), Outcome::Released { left: 2 });
    assert_eq!(w.counts(), [2]);
    assert_eq!(w.freed(0, &levels[2]), Outcome::Released { left: 1 });
    assert!(w.is_valid(0, &levels[0]));
    assert_eq!(w.freed(0, &levels[0]), Outcome::Released { left: 0 });
    assert_eq!(w.sent(0), ["+1", "+2", "+3", "-2", "-1", "-0"]);
    w.assert_clean();
}

#[test]
fn s5_every_reply_lost_and_the_counts_are_right_m09() {
    let mut w = World::new(1);
    let mut levels = Vec::new();
    for count in 1..=3 {
        let op = w.acquire(0, ask(1));
        w.cut(0, CALLER, 1, false);
        w.run();
        levels.push(w.take(0, op));
        assert_eq!(w.counts(), [count]);
    }
    while let Some(level) = levels.pop() {
        let op = w.release(0, &level);
        w.cut(0, CALLER, 1, false);
        w.run();
        assert_eq!(w.done(0, op), Some(Outcome::Released { left: levels.len() as u32 }));
        assert_eq!(w.counts(), Vec::from_iter((!levels.is_empty()).then_some(levels.len() as u32)));
    }
    w.assert_clean();
}

#[test]
fn s5_the_outermost_release_removes_whatever_is_there_m40() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    // A re-entry is executed, its reply lost, its caller gone, its clean-up lost as well.
    let op = w.acquire(0, ask(1));
    let _ = w.execute(0, CALLER);
    w.cancel(0, op);
    assert_eq!(w.counts(), [2]);
    w.cut(0, CALLER, 0, false);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    assert!(w.is_free());
}

#[test]
pub(super) fn a_reentry_never_takes_the_lock_anew() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.delete();
    let op = w.acquire(0, ask(1));
    w.run();
    let error = w.error(0, op);
    assert_eq!(error.code(), Code::LockLost);
    assert!(error.to_string().contains("attempt to unlock lock, not locked by current thread by node id: 01010101"));
    assert_eq!(w.losses(0), [LossReason::Taken]);
    assert!(!w.is_valid(0, &held));
    assert!(w.is_free());
    let op = w.release(0, &held);
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    assert_eq!(w.sent(0), ["+1", "+2"], "what the server disowned is not released");
    w.assert_clean();
}

#[test]
fn a_reentry_that_meets_another_value_is_lost() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.overwrite();
    let op = w.acquire(0, ask(1));
    w.run();
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    assert_eq!(w.losses(0), [LossReason::Overwritten]);
    assert!(!w.is_valid(0, &held));
}

#[test]
fn s4_a_reentry_answered_after_the_deadline_revives_nothing() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(2_000)), ..ask(1) });
    w.pass(1_000);
    let op = w.acquire(0, AcquireRequest { lease: Some(Millis(2_000)), ..ask(1) });
    let (call, result) = w.execute(0, CALLER);
    w.pass(900);
    assert_eq!(w.losses(0), [LossReason::Expired]);
    w.report(0, &call, result);
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    assert!(!w.is_valid(0, &held));
    assert_eq!(w.fresh(0), ["+1", "+2"], "nothing is sent in the margin");
    w.live(60_000);
    assert_eq!(w.fresh(0), ["-0"], "one tidy release after it");
}

#[test]
fn s4_a_reentry_claimed_after_the_deadline_gives_no_margin_away() {
    let mut w = World::new(1);
    let _held = w.hold(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    w.pass(890);
    let op = w.acquire(0, AcquireRequest { lease: Some(Millis(100)), ..ask(1) });
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    w.now += Millis(100);
    assert_eq!(w.claim(0, op), Claim::Again);
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    assert_eq!(w.sent(0), ["+1", "+2"]);
    assert_eq!(w.losses(0), [LossReason::Expired]);
}

#[test]
fn a_lost_hold_is_told_once_by_the_next_acquire() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.delete();
    w.live(10_000);
    assert_eq!(w.losses(0), [LossReason::Taken]);
    let op = w.acquire(0, ask(1));
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    let fresh = w.hold(0, ask(1));
    assert_ne!(fresh.hold, held.hold);
    let op = w.release(0, &held);
    assert_eq!(w.error(0, op).code(), Code::LockLost, "the old handle says so still");
    assert_eq!(w.freed(0, &fresh), Outcome::Released { left: 0 });
    w.assert_clean();
}

#[test]
fn the_longest_lease_stands() {
    let mut w = World::new(1);
    let _outer = w.hold(0, AcquireRequest { lease: Some(Millis(20_000)), ..ask(1) });
    let inner = w.hold(0, AcquireRequest { lease: Some(Millis(5_000)), ..ask(1) });
    assert_eq!(w.ttl(), 20_000);
    assert_eq!(w.freed(0, &inner), Outcome::Released { left: 1 });
    assert_eq!(w.ttl(), 20_000);
    // Joined by a watched level, a fixed hold is watched.
    let _watched = w.hold(0, ask(1));
    assert_eq!(w.ttl(), 30_000);
    w.live(100_000);
    assert!(w.ttl() >= 15_000);
}

#[test]
fn s1_a_shorter_lease_behind_a_longer_one_cuts_nothing() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(10_000)), ..ask(1) });
    let long = w.acquire(0, AcquireRequest { lease: Some(Millis(60_000)), ..ask(1) });
    let short = w.acquire(0, AcquireRequest { lease: Some(Millis(5_000)), ..ask(1) });
    w.run();
    w.take(0, long);
    w.take(0, short);
    assert_eq!(w.ttl(), 60_000);
    // And behind an extension.
    let extend = w.tell(0, |engine, now| engine.extend(now, held.hold, Millis(90_000), CALLER));
    let op = w.acquire(0, AcquireRequest { lease: Some(Millis(5_000)), ..ask(1) });
    w.run();
    assert_eq!(w.done(0, extend), Some(Outcome::Extended));
    w.take(0, op);
    assert_eq!(w.ttl(), 90_000);
    let remaining = w.view(0, held.hold).unwrap().remaining;
    assert!(remaining < Millis(w.ttl()), "D lies before the end of the key: {remaining}");
}

#[test]
fn s1_a_fixed_lease_behind_a_watched_one_cuts_nothing() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(5_000)), ..ask(1) });
    let watched = w.acquire(0, ask(1));
    let fixed = w.acquire(0, AcquireRequest { lease: Some(Millis(5_000)), ..ask(1) });
    w.run();
    w.take(0, watched);
    w.take(0, fixed);
    assert!(w.view(0, held.hold).unwrap().remaining < Millis(w.ttl()));
}

#[test]
fn s1_a_fixed_lease_cuts_nothing_of_what_the_watchdog_set_last() {
    let mut w = World::with(1, Config { max_hold: Some(Millis(25_000)), ..Config::default() });
    let held = w.hold(0, ask(1));
    w.live(30_000);
    w.hold(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    assert!(w.view(0, held.hold).unwrap().remaining < Millis(w.ttl()));
}

#[test]
fn by_its_handle_another_owner_adds_a_level() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let level = w.hold(0, AcquireRequest { reenter: Some(held.hold), ..ask(2) });
    assert_eq!((level.hold, w.counts()), (held.hold, vec![2]));
    // Now it is the other owner's as well: it re-enters, and its innermost level is its own.
    let again = w.hold(0, ask(2));
    assert_eq!((again.hold, w.counts()), (held.hold, vec![3]));
    let target = Target::Innermost { name: name("n"), owner: LocalOwner(2) };
    for left in [2, 1] {
        let op = w.tell(0, |engine, now| engine.release(now, target.clone(), CALLER));
        w.run();
        assert_eq!(w.done(0, op), Some(Outcome::Released { left }));
    }
    let op = w.tell(0, |engine, now| engine.release(now, target, CALLER));
    assert_eq!(w.error(0, op).code(), Code::NotOwner);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    let op = w.acquire(0, AcquireRequest { reenter: Some(held.hold), ..ask(2) });
    assert_eq!(w.error(0, op).code(), Code::NotOwner, "a released hold is not re-entered");
    w.assert_clean();
}

#[test]
fn s4_a_reentry_that_is_tried_again_after_the_deadline_sends_nothing() {
    let mut w = World::new(1);
    let _held = w.hold(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    w.pass(880);
    let op = w.acquire(0, ask(1));
    w.cut(0, CALLER, 0, false);
    w.cut(0, CALLER, 0, false);
    w.fresh(0);
    w.pass(100);
    assert_eq!(w.fresh(0), [""; 0], "in the margin");
    assert_eq!(w.error(0, op).code(), Code::LockLost);
}

#[test]
fn a_reentry_without_its_script_counts_once_m34() {
    let mut w = World::new(1);
    let _held = w.hold(0, ask(1));
    w.server.forgotten = Script::ALL.into_iter().collect();
    let _inner = w.hold(0, ask(1));
    assert_eq!(w.counts(), [2]);
    assert_eq!(w.sent(0), ["+1", "+2", "+2$"]);
    assert_eq!(w.in_flight(0, Wire::KEEPER), 0);
}
