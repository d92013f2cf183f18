//! Cancelled acquires leave nothing behind, wherever they were.

use super::world::*;
use crate::io::{AcquireRequest, CallError, Claim, Outcome};
use crate::scripts::Script;
use crate::time::Millis;

/// Cancels in the present state, then lets everything come to rest with another holding the lock or not.
fn cancel(mut w: World, op: crate::io::OpId) {
    w.clients[0].done.clear();
    w.cancel(0, op);
    assert_eq!(w.claim(0, op), Claim::Gone);
    w.live(40_000);
    while !w.ghosts.is_empty() {
        w.haunt();
    }
    w.live(40_000);
    assert!(w.clients[0].done.iter().all(|(of, _)| *of != op), "no Done follows");
    w.assert_clean();
}

#[test]
fn s4_a_cancelled_try_is_released_right_behind_m25() {
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.cancel(0, op);
    assert_eq!(w.sent(0), ["+1", "-0"], "down the same wire, without waiting");
    assert_eq!(w.in_flight(0, CALLER), 2);
    w.run();
    assert_eq!(w.clients[0].done, []);
    assert_eq!(w.kinds(0), [""; 0], "nobody knew of it");
    w.assert_clean();
}

#[test]
pub(super) fn r1_cancelled_in_every_state() {
    // Trying: all that may happen to the two requests.
    for (executed, late) in [(0, false), (0, true), (1, false), (1, true), (2, false)] {
        let mut w = World::new(1);
        let op = w.acquire(0, ask(1));
        w.cancel(0, op);
        w.cut(0, CALLER, executed, late);
        cancel(w, op);
    }
    // Held off after a reply was lost.
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.cut(0, CALLER, 1, false);
    w.cut(0, CALLER, 0, true);
    assert_eq!(w.in_flight(0, CALLER), 0);
    cancel(w, op);
    // Held off, nothing sent.
    let mut w = World::new(1);
    let held = w.hold(0, ask(9));
    w.freed(0, &held);
    let op = w.acquire(0, ask(1));
    w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
    w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
    w.fresh(0);
    w.cancel(0, op);
    assert_eq!(w.fresh(0), [""; 0]);
    cancel(w, op);
    // Granted, not claimed.
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.run();
    assert_eq!(w.counts(), [1]);
    cancel(w, op);
    // Passed over.
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.run();
    w.live(1_000);
    cancel(w, op);
}

#[test]
pub(super) fn r1_cancelled_while_waiting() {
    let waiting = || {
        let mut w = World::new(2);
        w.hold(1, AcquireRequest { lease: Some(Millis(5_000)), ..ask(1) });
        let op = w.acquire(0, ask(1));
        w.deliver(0, CALLER);
        (w, op)
    };
    let end = |mut w: World, op| {
        w.cancel(0, op);
        w.live(4_000);
        assert_eq!(w.sent(0).iter().filter(|call| call.starts_with('+')).count(), w.sent(0).len(), "nothing to undo");
        assert!(w.clients[0].engine.queues.is_empty() && w.clients[0].engine.channels.is_empty());
        assert_eq!(w.clients[0].engine.wheel.len(), 0);
        assert_eq!(w.clients[0].engine.holds.len(), 0);
    };
    let (w, op) = waiting();
    end(w, op); // subscribing
    let (mut w, op) = waiting();
    w.run();
    end(w, op); // parked
    let (mut w, op) = waiting();
    let behind = w.acquire(0, ask(2));
    w.cancel(0, behind);
    end(w, op); // queued
}

#[test]
fn a_cancelled_contender_makes_room_for_the_next() {
    let mut w = World::new(2);
    let held = w.hold(1, ask(1));
    let [first, second] = [1, 2].map(|owner| w.acquire(0, ask(owner)));
    w.run();
    w.cancel(0, first);
    w.run();
    w.freed(1, &held);
    let held = w.take(0, second);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn a_cancelled_contender_whose_try_is_out_makes_room_for_the_next() {
    let mut w = World::new(1);
    let [first, second] = [1, 2].map(|owner| w.acquire(0, ask(owner)));
    w.cancel(0, first);
    w.run();
    let held = w.take(0, second);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn a_cancelled_grant_goes_to_the_next() {
    let mut w = World::new(1);
    let [first, second] = [1, 2].map(|owner| w.acquire(0, ask(owner)));
    w.deliver(0, CALLER);
    assert_eq!(w.done(0, first), Some(Outcome::Granted));
    w.cancel(0, first);
    w.run();
    let held = w.take(0, second);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn without_its_script_a_cancelled_acquire_is_not_sent_again() {
    let mut w = World::new(1);
    w.server.forgotten = [Script::Acquire].into();
    let op = w.acquire(0, ask(1));
    w.cancel(0, op);
    w.run();
    assert_eq!(w.sent(0), ["+1", "-0"]);
    w.assert_clean();
}

#[test]
fn s5_a_cancelled_reentry_leaves_the_count_as_it_was() {
    for (executed, late) in [(0, false), (0, true), (1, false), (1, true), (2, false)] {
        let mut w = World::new(1);
        let held = w.hold(0, ask(1));
        let op = w.acquire(0, ask(1));
        w.cancel(0, op);
        assert_eq!(w.sent(0), ["+1", "+2", "-1"]);
        w.cut(0, CALLER, executed, late);
        w.run();
        w.haunt();
        w.haunt();
        w.live(100);
        assert_eq!(w.counts(), [1], "{executed} {late}");
        assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
        w.assert_clean();
    }
}

#[test]
fn a_cancelled_reentry_whose_outer_level_was_released_frees_the_lock() {
    for granted in [false, true] {
        let mut w = World::new(1);
        let held = w.hold(0, ask(1));
        let op = w.acquire(0, ask(1));
        let release = w.release(0, &held);
        if granted {
            w.run();
        }
        w.cancel(0, op);
        w.run();
        assert_eq!(w.done(0, release), Some(Outcome::Released { left: 1 }));
        w.live(1_000);
        w.assert_clean();
    }
}

#[test]
fn s4_cancelling_the_reentry_of_a_lost_hold_gives_no_margin_away() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    let op = w.acquire(0, ask(1));
    let _ = w.execute(0, CALLER);
    w.pass(950);
    w.fresh(0);
    w.cancel(0, op);
    assert_eq!(w.fresh(0), [""; 0], "the hold was lost at D: nothing before D + M");
    assert!(!w.is_valid(0, &held));
}
