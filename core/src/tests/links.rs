//! The server away: while trying, while waiting, for a while or for ever.

use super::world::*;
use crate::error::Code;
use crate::io::{AcquireRequest, CallError, Link, Outcome, Wait, Wire};
use crate::time::Millis;

/// A waiter of client 1 behind a holder of client 0, then both of client 1's links go down.
fn cut_off(request: AcquireRequest) -> (World, crate::io::Claimed, crate::io::OpId) {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, request);
    w.run();
    for link in [Link::Requests, Link::Messages] {
        w.link(1, link, false);
    }
    (w, held, op)
}

/// Time passes with client 1 cut off from the server.
fn away(w: &mut World, span: u64) {
    for _ in 0..span / 100 {
        w.pass(100);
        for wire in [Wire::KEEPER, CALLER] {
            while w.in_flight(1, wire) > 0 {
                w.answer(1, wire, Err(CallError::NotSent(unreachable())));
            }
            while w.in_flight(0, wire) > 0 {
                w.deliver(0, wire);
            }
        }
    }
}

#[test]
pub(super) fn a_wait_outlasts_its_server() {
    let (mut w, held, op) = cut_off(AcquireRequest { wait: Wait::For(Millis(100_000)), ..ask(1) });
    away(&mut w, 80_000);
    assert_eq!(w.done(1, op), None);
    w.freed(0, &held);
    w.link(1, Link::Requests, true);
    w.run();
    w.take(1, op);
}

#[test]
fn a_wait_that_ends_without_a_server_says_so() {
    let (mut w, _held, op) = cut_off(AcquireRequest { wait: Wait::For(Millis(40_000)), ..ask(1) });
    away(&mut w, 39_900);
    assert_eq!(w.done(1, op), None);
    away(&mut w, 200);
    assert_eq!(w.error(1, op).code(), Code::Unreachable);
}

#[test]
fn a_wait_without_end_ends_some_time_after_its_server() {
    let (mut w, _held, op) = cut_off(ask(1));
    let behind = w.acquire(1, ask(2));
    away(&mut w, 29_900);
    assert_eq!((w.done(1, op), w.done(1, behind)), (None, None));
    away(&mut w, 200);
    assert_eq!(w.error(1, op).code(), Code::Unreachable);
    assert_eq!(w.error(1, behind).code(), Code::Unreachable);
}

#[test]
fn a_link_that_comes_back_starts_the_clock_anew() {
    let (mut w, held, op) = cut_off(ask(1));
    for _ in 0..5 {
        away(&mut w, 20_000);
        w.link(1, Link::Requests, true);
        w.run();
        w.link(1, Link::Requests, false);
    }
    assert_eq!(w.done(1, op), None);
    w.link(1, Link::Requests, true);
    w.link(1, Link::Messages, true);
    w.run();
    w.freed(0, &held);
    w.take(1, op);
}

#[test]
fn a_waiter_cut_off_is_quiet() {
    let (mut w, _held, _op) = cut_off(AcquireRequest { wait: Wait::For(Millis(1_000_000)), ..ask(1) });
    w.fresh(1);
    away(&mut w, 300_000);
    assert!(w.fresh(1).len() <= 11, "the link's return wakes it, not a timer");
}

#[test]
fn a_link_that_comes_back_wakes_one_contender_of_each_name() {
    let (mut w, held, op) = cut_off(ask(1));
    for owner in 2..50 {
        w.acquire(1, ask(owner));
    }
    away(&mut w, 1_000);
    w.freed(0, &held);
    w.fresh(1);
    w.link(1, Link::Requests, true);
    assert_eq!(w.fresh(1), ["+1"]);
    w.run();
    w.take(1, op);
}

#[test]
fn a_wait_never_told_that_the_lock_is_busy_gives_up_with_the_connection() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(9));
    w.freed(0, &held);
    let op = w.acquire(0, ask(1));
    for _ in 0..90 {
        while w.in_flight(0, CALLER) > 0 {
            w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
        }
        w.pass(100);
    }
    assert_eq!(w.error(0, op).code(), Code::Unreachable);
    w.assert_clean();
}

#[test]
fn those_behind_a_contender_that_gives_up_go_on() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(9));
    w.freed(0, &held);
    let [first, second] = [1, 2].map(|owner| w.acquire(0, ask(owner)));
    w.answer(0, CALLER, Err(CallError::Server("OOM no".into())));
    assert_eq!(w.error(0, first).code(), Code::OutOfMemory);
    w.run();
    w.take(0, second);
}

#[test]
fn link_events_are_told_when_they_change() {
    let mut w = World::new(1);
    w.link(0, Link::Requests, true);
    w.link(0, Link::Requests, false);
    w.link(0, Link::Requests, false);
    w.link(0, Link::Requests, true);
    w.link(0, Link::Requests, true);
    assert_eq!(w.kinds(0), ["link_down", "link_up"]);
}

#[test]
pub(super) fn a_channel_nobody_wants_any_more_is_not_asked_for_again() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.deliver(1, CALLER);
    w.cancel(1, op);
    w.link(1, Link::Messages, false);
    w.clients[1].subscribes.clear();
    w.link(1, Link::Messages, true);
    assert_eq!(w.clients[1].subscribes, []);
    w.freed(0, &held);
    w.run();
    w.assert_clean();
}

#[test]
pub(super) fn wait_again_right_behind_the_last_waiter() {
    // SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE: only the last confirmation means that messages come.
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let first = w.acquire(1, ask(1));
    w.deliver(1, CALLER);
    w.cancel(1, first);
    let second = w.acquire(1, ask(1));
    w.deliver(1, CALLER);
    assert_eq!(w.clients[1].subscribes.len(), 3);
    w.fresh(1);
    w.subscribe(1);
    w.push(1);
    assert_eq!(w.fresh(1), [""; 0]);
    w.run();
    w.freed(0, &held);
    assert_eq!(w.done(1, second), Some(Outcome::Granted));
}

#[test]
pub(super) fn whatever_became_of_a_subscription_it_is_asked_for_again_with_the_link() {
    let channel = name("n").channel();
    for refused in [false, true] {
        let mut w = World::new(2);
        let held = w.hold(0, ask(1));
        let op = w.acquire(1, ask(1));
        w.deliver(1, CALLER);
        if refused {
            let push = crate::io::Push::Refused(channel.clone(), "NOPERM".into());
            w.tell(1, |engine, now| engine.handle_push(now, push));
        }
        w.link(1, Link::Messages, false);
        w.clients[1].subscribes.clear();
        w.link(1, Link::Messages, true);
        assert_eq!(w.clients[1].subscribes, [(channel.clone(), true)]);
        // A host that says so twice has made a new connection.
        w.link(1, Link::Messages, true);
        assert_eq!(w.clients[1].subscribes.len(), 2);
        w.run();
        w.freed(0, &held);
        w.take(1, op);
    }
}
