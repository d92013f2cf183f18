//! Processes that take turns: who released lets those go first who were waiting.

use std::collections::BTreeMap;

use super::world::*;
use crate::io::{AcquireRequest, Call, Claimed, Link, OpId, Outcome, Output, Target, Value, Wait, Wire};
use crate::scripts::Ask;
use crate::time::Millis;

/// Two processes: the first one held the lock, the second one waits and is told of the release.
fn told() -> (World, OpId) {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let waits = w.acquire(1, ask(1));
    w.run();
    w.release(0, &held);
    w.deliver(0, CALLER);
    w.clients[0].sent.clear();
    (w, waits)
}

#[test]
pub(super) fn who_released_lets_the_others_go_first() {
    let (mut w, waits) = told();
    let again = w.acquire(0, ask(1));
    assert_eq!(w.fresh(0), [""; 0], "though the lock is free");
    w.run();
    let held = w.take(1, waits);
    assert_eq!(w.fresh(0), [""; 0], "subscribed, and parked");
    // The next message is for it, and it does not wait longer than for that.
    w.freed(1, &held);
    assert_eq!(w.fresh(0), ["+1"]);
    let held = w.take(0, again);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
pub(super) fn two_others_go_first_each_in_its_turn() {
    let mut w = World::new(3);
    let held = w.hold(0, ask(1));
    let waits = [1, 2].map(|at| w.acquire(at, ask(1)));
    w.run();
    w.freed(0, &held);
    let again = w.acquire(0, ask(1));
    w.run();
    // Those two have not released it before: they race.
    let (first, second) = if w.clients[1].done.is_empty() { (2, 1) } else { (1, 2) };
    let held = w.take(first, waits[first - 1]);
    w.fresh(0);
    w.freed(first, &held);
    let back = w.acquire(first, ask(1));
    w.run();
    assert_eq!(w.fresh(0), [""; 0], "one of the two is still to come");
    let held = w.take(second, waits[second - 1]);
    w.freed(second, &held);
    let held = w.take(0, again);
    w.freed(0, &held);
    let held = w.take(first, back);
    w.freed(first, &held);
    w.assert_clean();
}

#[test]
fn whoever_releases_alone_waits_for_nobody() {
    let mut w = World::new(2);
    for _ in 0..3 {
        let held = w.hold(0, ask(1));
        w.freed(0, &held);
    }
    assert_eq!(w.sent(0), ["+1", "-0", "+1", "-0", "+1", "-0"]);
    assert_eq!((w.clients[0].subscribes.len(), w.clients[0].engine.wheel.len()), (0, 0));
    // It waited once: its own subscription is nobody either.
    let held = w.hold(1, ask(1));
    let op = w.acquire(0, ask(1));
    w.run();
    w.freed(1, &held);
    let held = w.take(0, op);
    w.fresh(0);
    w.freed(0, &held);
    let held = w.hold(0, ask(1));
    w.freed(0, &held);
    assert_eq!(w.fresh(0), ["-0", "+1", "-0"]);
    w.assert_clean();
}

#[test]
pub(super) fn nobody_waits_long_for_those_who_do_not_come() {
    // One of them is gone when the message comes.
    let (mut w, waits) = told();
    let again = w.acquire(0, ask(1));
    w.cancel(1, waits);
    w.run();
    w.live(1);
    assert_eq!(w.done(0, again), None);
    w.live(1);
    let held = w.take(0, again);
    // However many they are.
    w.server.listeners = 1_000;
    w.freed(0, &held);
    let again = w.acquire(0, ask(1));
    w.run();
    w.live(63);
    assert_eq!(w.done(0, again), None);
    w.live(1);
    let held = w.take(0, again);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
pub(super) fn a_grant_that_nobody_wanted_any_more_is_a_release_like_any() {
    for others in [0, 1] {
        let (mut w, waits) = told();
        let [first, second] = [1, 2].map(|owner| w.acquire(0, ask(owner)));
        w.cancel(1, waits);
        while w.subscribe(0) || w.subscribe(1) || w.push(0) {}
        w.pass(2);
        // Its patience is over and its try on the way when it is cancelled.
        w.server.listeners = others;
        w.cancel(0, first);
        w.deliver(0, Wire::KEEPER);
        w.deliver(0, Wire::KEEPER);
        assert_eq!(w.in_flight(0, Wire::KEEPER), 1, "the second one's try");
        w.run();
        let held = w.take(0, second);
        w.freed(0, &held);
        w.assert_clean();
    }
}

#[test]
fn those_who_only_listen_are_found_out() {
    let mut w = World::new(2);
    w.server.listeners = 2;
    let pause = |w: &mut World| {
        let op = w.acquire(0, ask(1));
        let before = w.now;
        while w.done(0, op).is_none() {
            w.live(1);
        }
        let pause = w.now.since(before).0;
        let crate::io::Claim::Held(held) = w.claim(0, op) else { panic!("it was granted") };
        w.freed(0, &held);
        pause
    };
    let pauses: Vec<u64> = (0..100).map(|_| pause(&mut w)).collect();
    assert_eq!(pauses[..6], [1, 4, 4, 4, 1, 1], "the first release tells of them; three times they do not come");
    assert!(pauses.iter().sum::<u64>() < 120, "one of them is expected again now and then: {pauses:?}");
    // Somebody else who does come is still let go first.
    let held = w.hold(0, ask(1));
    let waits = w.acquire(1, ask(1));
    w.run();
    w.freed(0, &held);
    let again = w.acquire(0, ask(1));
    w.run();
    let held = w.take(1, waits);
    w.freed(1, &held);
    w.live(8);
    let held = w.take(0, again);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn whoever_has_little_time_gives_little_away() {
    for (wait, pause) in [(Wait::Try, 0), (Wait::For(Millis(3)), 0), (Wait::For(Millis(4)), 1), (Wait::Forever, 2)] {
        let (mut w, _) = told();
        w.acquire(0, AcquireRequest { wait, ..ask(1) });
        if pause > 0 {
            w.pass(pause - 1);
            assert_eq!(w.fresh(0), [""; 0], "{wait:?}");
            w.pass(1);
        }
        assert_eq!(w.fresh(0), ["+1"], "{wait:?}");
    }
}

#[test]
fn the_message_may_come_before_the_answer_to_the_release() {
    // The process has waiters of its own, so its message comes back to it.
    for first in ["message", "answer"] {
        let mut w = World::new(2);
        let held = w.hold(0, ask(1));
        let next = w.acquire(0, ask(2));
        w.run();
        let other = w.acquire(1, ask(1));
        w.run();
        w.release(0, &held);
        let (call, freed) = w.execute(0, CALLER);
        w.fresh(0);
        if first == "message" {
            w.carry();
            w.push(0);
            assert_eq!(w.fresh(0), [""; 0], "the answer will say whose turn it is");
            w.report(0, &call, freed);
        } else {
            w.report(0, &call, freed);
            w.carry();
            w.push(0);
        }
        assert_eq!(w.fresh(0), [""; 0], "another process goes first");
        w.run();
        let held = w.take(1, other);
        w.freed(1, &held);
        let held = w.take(0, next);
        w.freed(0, &held);
        w.assert_clean();
    }
}

#[test]
fn an_answer_that_never_comes_keeps_nobody() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let next = w.acquire(0, ask(2));
    w.run();
    w.release(0, &held);
    w.execute_only(0, CALLER);
    w.carry();
    w.push(0);
    w.pass(7);
    assert_eq!(w.in_flight(0, Wire::KEEPER), 0);
    w.pass(1);
    w.deliver(0, Wire::KEEPER);
    let held = w.take(0, next);
    w.run();
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn a_crowd_in_one_process_does_not_keep_the_others_out() {
    let mut w = World::new(2);
    let mut waiting: BTreeMap<(usize, u64), OpId> =
        (1..=8).map(|owner| ((0, owner), w.acquire(0, ask(owner)))).collect();
    waiting.insert((1, 1), w.acquire(1, ask(1)));
    w.run();
    let mut order = Vec::new();
    for _ in 0..64 {
        let (&(at, owner), &op) = waiting.iter().find(|((at, _), op)| granted(&w, *at, **op)).expect("no pause");
        let held = w.take(at, op);
        w.live(20);
        w.freed(at, &held);
        waiting.insert((at, owner), w.acquire(at, ask(owner)));
        w.run();
        order.push((at, owner));
    }
    // From the second one on they alternate; in the crowd it goes round.
    let others = order[4..].iter().filter(|(at, _)| *at == 1).count();
    assert_eq!(others, 30, "{order:?}");
    let crowd: Vec<u64> = order[4..].iter().filter(|(at, _)| *at == 0).map(|(_, owner)| *owner).collect();
    assert!(crowd.windows(9).all(|round| round[0] == round[8]), "{crowd:?}");
}

fn granted(w: &World, at: usize, op: OpId) -> bool {
    w.clients[at].done.iter().any(|(of, outcome)| *of == op && *outcome == Outcome::Granted)
}

#[test]
fn eight_processes_take_turns_without_a_pause() {
    let mut w = World::new(8);
    let mut waiting: Vec<OpId> = (0..8).map(|at| w.acquire(at, ask(1))).collect();
    w.run();
    let mut order = Vec::new();
    for _ in 0..80 {
        let at = (0..8).find(|&at| granted(&w, at, waiting[at])).expect("the lock never stands idle");
        let held: Claimed = w.take(at, waiting[at]);
        w.live(20);
        w.freed(at, &held);
        waiting[at] = w.acquire(at, ask(1));
        w.run();
        order.push(at);
        if order.len() == 16 {
            (0..8).for_each(|at| drop(w.fresh(at)));
        }
    }
    assert!(order[8..].windows(9).all(|round| round[0] == round[8]), "{order:?}");
    let sent: usize = (0..8).map(|at| w.fresh(at).len()).sum();
    assert_eq!(sent, 64 * 6, "a release, and the tries of the five next in turn");
    let subscribes: usize = w.clients.iter().map(|client| client.subscribes.len()).sum();
    assert_eq!(subscribes, 8, "each subscribes once");
}

#[test]
fn m43_a_message_overtakes_the_busy_reply_of_one_who_is_in_no_queue() {
    // Its process is still subscribed when it comes, and it lets nobody go first any more.
    let mut w = World::new(2);
    let held = w.hold(1, ask(1));
    let op = w.acquire(0, ask(1));
    w.run();
    w.freed(1, &held);
    let other = w.acquire(1, ask(1));
    let held = w.take(0, op);
    w.run();
    w.freed(0, &held);
    let held = w.take(1, other);
    w.live(10);
    let op = w.acquire(0, ask(1));
    let (call, busy) = w.execute(0, CALLER);
    w.release(1, &held);
    w.deliver(1, CALLER);
    w.carry();
    w.push(0);
    w.report(0, &call, busy);
    assert_eq!(w.in_flight(0, Wire::KEEPER), 1, "busy means one more try, not a park");
    w.run();
    let held = w.take(0, op);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn a_subscription_stays_for_a_second() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.run();
    w.freed(0, &held);
    let held = w.take(1, op);
    w.live(999);
    assert_eq!(w.clients[1].subscribes.len(), 1);
    w.live(1);
    assert_eq!(w.clients[1].subscribes.len(), 2);
    w.freed(1, &held);
    w.assert_clean();

    // Closing ends its stay.
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.run();
    w.freed(0, &held);
    w.take(1, op);
    w.tell(1, |engine, now| engine.close(now, CALLER));
    w.run();
    w.assert_clean();

    // A link that went down meanwhile is used again.
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.run();
    w.freed(0, &held);
    let held = w.take(1, op);
    w.link(1, Link::Messages, false);
    let next = w.acquire(1, ask(2));
    w.link(1, Link::Messages, true);
    w.run();
    w.freed(1, &held);
    let held = w.take(1, next);
    w.freed(1, &held);
    w.assert_clean();
}

#[test]
fn the_next_try_is_sent_before_the_caller_is_told() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.acquire(0, ask(2));
    w.run();
    let release = w.tell(0, |engine, now| engine.release(now, Target::Level(held.hold, held.level), CALLER));
    let (call, freed) = w.execute(0, CALLER);
    assert_eq!(freed, Ok(Value::List(vec![Value::Int(1)])), "its own process is told");
    let (now, engine) = (w.now, &mut w.clients[0].engine);
    engine.handle_reply(now, call.id, freed);
    let outputs: Vec<Output> = std::iter::from_fn(|| engine.poll()).collect();
    let place = |find: fn(&Output) -> bool| outputs.iter().position(find).expect("it is there");
    let sent = place(
        |output| matches!(output, Output::Send(Call { request, .. }) if matches!(request.ask, Ask::Acquire { .. })),
    );
    let done = place(|output| matches!(output, Output::Done(_, Outcome::Released { left: 0 })));
    assert!(sent < done, "{release:?}: {outputs:?}");
}
