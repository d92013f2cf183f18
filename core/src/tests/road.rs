//! One road per hold, and the fence (design 3).

use super::world::*;
use crate::io::{CallError, Outcome, Wire};

#[test]
fn m44_a_release_behind_a_lost_acquire_kills_the_old_connection() {
    let mut w = World::new(1);
    let op = w.acquire(0, ask(1));
    w.cut(0, CALLER, 0, true);
    w.cut(0, CALLER, 0, true);
    w.cancel(0, op);
    let last = w.clients[0].sent.last().unwrap();
    assert_eq!(last.fences.len(), 2, "both connections that may still execute it");
    w.run();
    w.haunt();
    w.haunt();
    w.assert_clean();
}

#[test]
fn requests_without_reply_keep_the_next_on_their_wire() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let _reentry = w.acquire(0, ask(1));
    let target = crate::io::Target::Level(held.hold, held.level);
    w.tell(0, |engine, now| engine.release(now, target, Wire(2)));
    assert_eq!(w.in_flight(0, CALLER), 2, "in order, whoever asks");
    assert_eq!(w.in_flight(0, Wire(2)), 0);
}

#[test]
fn a_fence_that_never_left_is_sent_with_the_next() {
    let mut w = World::new(1);
    let _op = w.acquire(0, ask(1));
    w.cut(0, CALLER, 0, true);
    assert_eq!(w.fresh(0), ["+1", "+1*"]);
    w.answer(0, CALLER, Err(CallError::NotSent(unreachable())));
    w.pass(100);
    assert_eq!(w.fresh(0), ["+1*"]);
}

#[test]
pub(super) fn renewals_need_no_fence() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.pass(10_000);
    w.cut(0, Wire::KEEPER, 1, true);
    w.pass(1_000);
    w.run();
    w.freed(0, &held);
    assert_eq!(w.sent(0), ["+1", "~1", "~1", "-0"]);
    w.assert_clean();
}

/// How a hold ends whose acquire lies in a connection that could not be killed.
fn echoes(w: &mut World) -> Vec<(u64, String)> {
    w.fresh(0);
    let (began, mut seen) = (w.now, Vec::new());
    for _ in 0..600 {
        w.pass(100);
        for call in w.fresh(0) {
            seen.push((w.now.since(began).0, call));
        }
        w.run();
    }
    seen
}

fn unfenced(refused: bool) -> World {
    let mut w = World::new(1);
    w.server.keeps_connections = refused;
    let op = w.acquire(0, ask(1));
    w.cut_unnamed(0, CALLER, 0, true, !refused);
    w.run();
    let held = w.take(0, op);
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    w
}

#[test]
pub(super) fn s4_where_the_fence_is_refused_the_release_is_said_again() {
    for refused in [true, false] {
        let mut w = unfenced(refused);
        assert!(w.clients[0].engine.is_idle(), "echoes are nobody's business");
        let seen = echoes(&mut w);
        let at: Vec<u64> = seen.iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [1_000, 3_000, 10_000, 30_000]);
        assert!(seen.iter().all(|(_, call)| call == "-0"), "{seen:?}");
        w.assert_clean();
    }
}

#[test]
fn s4_an_echo_removes_what_was_executed_late() {
    let mut w = unfenced(true);
    w.live(1_500);
    w.haunt();
    assert_eq!(w.counts(), [1], "the phantom");
    w.live(1_500);
    assert!(w.is_free());
    w.live(30_000);
    w.assert_clean();
}

#[test]
fn an_echo_that_fails_does_not_end_the_others() {
    let mut w = unfenced(true);
    w.pass(1_000);
    w.cut(0, Wire::KEEPER, 0, false);
    w.run();
    w.live(1_500);
    w.haunt();
    assert_eq!(w.counts(), [1]);
    w.live(500);
    assert!(w.is_free());
    w.live(40_000);
    w.assert_clean();
}

#[test]
pub(super) fn closing_ends_the_echoes() {
    let mut w = unfenced(true);
    w.tell(0, |engine, now| engine.close(now, CALLER));
    w.live(2_000);
    assert_eq!(w.clients[0].engine.ops.len(), 0);
    w.assert_clean();
}

#[test]
fn a_lost_hold_with_an_unfenced_acquire_is_released_all_the_same() {
    // The server disowned it; the old connection may still take it anew.
    let mut w = World::new(1);
    w.server.keeps_connections = true;
    let op = w.acquire(0, ask(1));
    w.cut(0, CALLER, 0, true);
    w.run();
    let held = w.take(0, op);
    w.delete();
    w.live(10_000);
    let op = w.release(0, &held);
    w.run();
    assert_eq!(w.error(0, op).code(), crate::error::Code::LockLost);
    w.haunt();
    assert_eq!(w.counts(), [1]);
    w.live(1_000);
    assert!(w.is_free());
    w.live(40_000);
    w.assert_clean();
}

#[test]
pub(super) fn a_connection_reported_lost_behind_the_release_is_killed() {
    // The host opened a new connection for the release before it knew what became of the acquire.
    for answered in [false, true] {
        let mut w = World::new(1);
        let op = w.acquire(0, ask(1));
        let id = w.connection(0, CALLER);
        let lost = w.clients[0].wires.get_mut(&CALLER).unwrap().pop_front().unwrap();
        w.ghosts.push_back((id, lost.clone()));
        w.cancel(0, op);
        let unknown = Err(CallError::Unknown(Some(crate::io::Fence { id, addr: "a".into() })));
        if answered {
            w.deliver(0, CALLER);
            w.report(0, &lost, unknown);
        } else {
            w.report(0, &lost, unknown);
            w.deliver(0, CALLER);
        }
        assert_eq!(w.sent(0), ["+1", "-0", "-0*"]);
        w.run();
        w.haunt();
        w.assert_clean();
    }
}

#[test]
fn a_silent_wire_is_given_up() {
    let mut w = World::new(1);
    let _op = w.acquire(0, ask(1));
    w.pass(2_999);
    assert_eq!(w.clients[0].severed, []);
    w.pass(1);
    assert_eq!(w.clients[0].severed, [CALLER]);
    // The order is given again if the host does not report.
    w.pass(3_000);
    assert_eq!(w.clients[0].severed, [CALLER, CALLER]);
}

#[test]
pub(super) fn a_silent_renewal_is_given_up_early_enough_for_another() {
    let mut w = World::with(
        1,
        crate::config::Config { watchdog: crate::time::Millis(3_000), ..crate::config::Config::default() },
    );
    let held = w.hold(0, ask(1));
    w.pass(1_000);
    w.pass(1_000);
    assert_eq!(w.clients[0].severed, [Wire::KEEPER]);
    w.cut(0, Wire::KEEPER, 0, false);
    w.live(100);
    assert!(w.is_valid(0, &held) && w.ttl() >= 2_900);
}

#[test]
fn a_busy_server_kills_nothing_and_is_told_again() {
    let mut w = World::new(1);
    let _op = w.acquire(0, ask(1));
    w.cut(0, CALLER, 0, true);
    assert_eq!(w.fresh(0), ["+1", "+1*"]);
    let call = w.clients[0].wires[&CALLER][0].id;
    w.tell(0, |engine, now| engine.handle_unfenced(now, call));
    w.answer(0, CALLER, Err(CallError::Server("BUSY Redis is busy".into())));
    w.pass(100);
    assert_eq!(w.fresh(0), ["+1*"], "with the fence");
}

#[test]
fn s1_a_try_that_is_executed_late_cuts_no_lease() {
    let mut w = World::new(1);
    w.server.keeps_connections = true;
    let short = crate::io::AcquireRequest { lease: Some(crate::time::Millis(1_000)), ..ask(1) };
    let op = w.acquire(0, short);
    w.cut(0, CALLER, 0, true);
    w.run();
    let held = w.take(0, op);
    w.hold(0, ask(1));
    w.haunt();
    assert!(w.view(0, held.hold).unwrap().remaining < crate::time::Millis(w.ttl()));
}
