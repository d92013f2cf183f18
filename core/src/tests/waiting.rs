//! Waiting: who subscribes, who tries, how often.

use super::world::*;
use crate::event::Event;
use crate::io::{AcquireRequest, Link, Outcome, Push, Wait, Wire};
use crate::time::Millis;

#[test]
fn l2_two_tries_and_one_subscribe_then_one_try_per_message() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.run();
    assert_eq!(w.sent(1), ["+1", "+1"]);
    assert_eq!(w.clients[1].subscribes, [(name("n").channel(), true)]);
    assert_eq!(w.clients[1].sent[0].wire, CALLER);
    assert_eq!(w.clients[1].sent[1].wire, Wire::KEEPER, "a parked waiter is the keeper's");
    // Messages that bring nothing cost one try each.
    for tries in 3..6 {
        w.message(1, &name("n"));
        w.run();
        assert_eq!(w.sent(1).len(), tries);
    }
    w.freed(0, &held);
    let held = w.take(1, op);
    assert_eq!(w.sent(1).len(), 6);
    w.freed(1, &held);
    assert_eq!(w.clients[1].subscribes, [(name("n").channel(), true), (name("n").channel(), false)]);
    w.assert_clean();
}

#[test]
fn f23_a_flood_of_messages_costs_ten_tries_a_second() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.run();
    for _ in 0..1_000 {
        w.message(1, &name("n"));
        w.run();
        w.pass(1);
    }
    let tries = w.sent(1).len();
    assert!((12..=22).contains(&tries), "{tries}");
    // What is true is not lost among what is not: it waits for its turn.
    w.freed(0, &held);
    w.pass(100);
    w.run();
    let held = w.take(1, op);
    w.freed(1, &held);
    w.assert_clean();
}

#[test]
fn l2_without_messages_one_try_per_lease() {
    let mut w = World::new(2);
    let _held = w.hold(0, ask(1));
    for owner in 1..=20 {
        w.acquire(1, ask(owner));
    }
    w.run();
    let before = w.sent(1).len();
    w.live(300_000);
    let tries = w.sent(1).len() - before;
    assert!(tries <= 15, "at most one per process and lease of a holder that renews: {tries}");
}

#[test]
fn m27_subscribe_then_check() {
    // The lock is freed between the busy reply and the subscription: the check after it finds out.
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.deliver(1, CALLER);
    assert_eq!(w.in_flight(1, Wire::KEEPER), 0);
    let release = w.release(0, &held);
    w.deliver(0, CALLER);
    assert_eq!(w.done(0, release), Some(Outcome::Released { left: 0 }));
    w.carry();
    assert_eq!(w.clients[1].inbox.len(), 0, "nobody was subscribed");
    w.run();
    w.take(1, op);
}

#[test]
pub(super) fn m43_a_message_overtakes_the_busy_reply() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.deliver(1, CALLER);
    w.subscribe(1);
    w.push(1);
    let (call, busy) = w.execute(1, Wire::KEEPER);
    w.release(0, &held);
    w.deliver(0, CALLER);
    w.carry();
    w.push(1);
    w.report(1, &call, busy);
    assert_eq!(w.in_flight(1, Wire::KEEPER), 1, "busy means one more try, not a park");
    w.run();
    w.take(1, op);
}

#[test]
fn l3_a_lost_message_costs_the_rest_of_the_lease() {
    let mut w = World::new(2);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(7_000)), ..ask(1) });
    let op = w.acquire(1, ask(1));
    w.run();
    w.release(0, &held);
    w.deliver(0, CALLER);
    w.server.published.clear();
    w.live(6_990);
    assert_eq!(w.done(1, op), None);
    w.live(20);
    w.take(1, op);
}

#[test]
fn l3_a_foreign_lease_longer_than_ours_is_waited_for_and_not_cut_m41() {
    let mut w = World::new(1);
    w.stranger(Some(3_600_000));
    let op = w.acquire(0, ask(1));
    w.run();
    w.clients[0].sent.clear();
    w.live(299_000);
    assert_eq!(w.sent(0).len(), 9, "a look every L: {:?}", w.sent(0));
    assert_eq!(w.ttl(), 3_301_000);
    assert_eq!(w.done(0, op), None);
}

#[test]
fn l3_a_lock_without_expiry_is_given_one_and_told_m39() {
    let mut w = World::new(1);
    w.stranger(None);
    let op = w.acquire(0, ask(1));
    w.run();
    assert_eq!(w.ttl(), 30_000);
    let warned = |event: &Event| matches!(event, Event::Warning { name: Some(_), text } if text.contains("expiry"));
    assert!(w.clients[0].events.iter().any(warned));
    w.live(30_100);
    w.take(0, op);
}

#[test]
fn a_hundred_local_waiters_put_one_contender_on_the_wire() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let mut ops: Vec<_> = (1..=100).map(|owner| (owner, w.acquire(1, ask(owner)))).collect();
    w.run();
    assert_eq!(w.sent(1), ["+1", "+1"]);
    assert_eq!(w.clients[1].subscribes.len(), 1);
    w.freed(0, &held);
    // First come, first served; each handover is a release and a try.
    w.fresh(1);
    ops.reverse();
    while let Some((_, op)) = ops.pop() {
        let held = w.take(1, op);
        w.freed(1, &held);
    }
    let tries = w.fresh(1).iter().filter(|call| call.starts_with('+')).count();
    assert!(tries <= 99, "{tries} tries for 99 handovers");
    w.assert_clean();
}

#[test]
fn those_who_come_while_the_first_try_is_out_send_nothing() {
    let mut w = World::new(1);
    let ops: Vec<_> = (1..=5).map(|owner| w.acquire(0, ask(owner))).collect();
    assert_eq!(w.sent(0), ["+1"]);
    for op in ops {
        w.run();
        let held = w.take(0, op);
        w.freed(0, &held);
    }
    w.assert_clean();
}

#[test]
fn behind_a_single_try_the_first_who_waits_is_the_contender() {
    let mut w = World::new(2);
    let held = w.hold(1, ask(9));
    w.acquire(0, AcquireRequest { wait: Wait::Try, ..ask(1) });
    let ops: Vec<_> = (2..=9).map(|owner| w.acquire(0, ask(owner))).collect();
    assert_eq!(w.sent(0), ["+1", "+1"], "the single try, and one contender");
    w.run();
    w.freed(1, &held);
    for op in ops {
        let held = w.take(0, op);
        w.freed(0, &held);
    }
    w.assert_clean();
}

#[test]
fn wait_zero_may_pass_the_queue() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let waiting = w.acquire(1, ask(1));
    w.run();
    w.release(0, &held);
    w.deliver(0, CALLER);
    let single = w.acquire(1, AcquireRequest { wait: Wait::Try, ..ask(2) });
    w.deliver(1, CALLER);
    let held = w.take(1, single);
    w.run();
    assert_eq!(w.done(1, waiting), None);
    w.freed(1, &held);
    w.take(1, waiting);
}

#[test]
fn one_in_front_does_not_join_another_whose_try_is_out() {
    // Passed over, the first one turns while the second one's try is on its way.
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let [asleep, awake] = [2, 3].map(|owner| w.acquire(0, ask(owner)));
    w.run();
    w.freed(0, &held);
    w.pass(1_000);
    w.deliver(0, Wire::KEEPER);
    assert_eq!(w.in_flight(0, Wire::KEEPER), 1, "the second one's try");
    assert_eq!(w.done(0, asleep), Some(Outcome::Granted));
    w.claim(0, asleep);
    assert_eq!(w.in_flight(0, Wire::KEEPER), 1, "one contender");
    w.run();
    let held = w.take(0, awake);
    w.freed(0, &held);
    let held = w.take(0, asleep);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn one_who_turns_parks_in_front_of_those_behind() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let [asleep, awake] = [2, 3].map(|owner| w.acquire(0, ask(owner)));
    w.run();
    w.freed(0, &held);
    w.pass(1_000);
    w.deliver(0, Wire::KEEPER);
    // Another process is faster.
    w.clients[0].wires.clear();
    let stolen = w.hold(1, ask(1));
    let call = w.clients[0].sent.last().unwrap().clone();
    let busy = w.server.execute(w.now, &call.request).map_err(crate::io::CallError::Server);
    w.report(0, &call, busy);
    w.run();
    w.claim(0, asleep);
    w.run();
    w.freed(1, &stolen);
    assert_eq!(w.done(0, awake), None);
    assert_eq!(w.done(0, asleep), Some(Outcome::Granted));
    w.take(0, asleep);
}

#[test]
pub(super) fn f36_a_refused_subscription_is_told_and_waiting_goes_by_time() {
    let mut w = World::new(2);
    let _held = w.hold(0, AcquireRequest { lease: Some(Millis(5_000)), ..ask(1) });
    let op = w.acquire(1, ask(1));
    w.deliver(1, CALLER);
    let channel = name("n").channel();
    w.tell(1, |engine, now| engine.handle_push(now, Push::Refused(channel, "NOPERM".into())));
    assert!(w.kinds(1).contains(&"warning"));
    w.pass_calls(5_010);
    w.take(1, op);
}

#[test]
fn a_release_in_this_process_wakes_its_waiters_without_messages() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let op = w.acquire(0, ask(2));
    let channel = name("n").channel();
    w.tell(0, |engine, now| engine.handle_push(now, Push::Refused(channel, "NOPERM".into())));
    w.release(0, &held);
    w.deliver(0, CALLER);
    w.deliver(0, Wire::KEEPER);
    w.take(0, op);
}

#[test]
fn m28_a_fresh_subscription_checks_again() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let op = w.acquire(1, ask(1));
    w.run();
    w.link(1, Link::Messages, false);
    w.release(0, &held);
    w.deliver(0, CALLER);
    w.run();
    assert_eq!(w.done(1, op), None, "the message was lost with the link");
    w.link(1, Link::Messages, true);
    w.run();
    w.take(1, op);
}

#[test]
fn s6_a_long_wait_inside_one_process_is_told() {
    let mut w = World::new(1);
    let _held = w.hold(0, ask(1));
    w.acquire(0, ask(2));
    w.live(4_999);
    assert!(!w.kinds(0).contains(&"warning"));
    w.live(1);
    let told = |event: &Event| match event {
        Event::Warning { text, .. } => text.contains("owner 2 ") && text.contains("owner 1 "),
        _ => false,
    };
    assert!(w.clients[0].events.iter().any(told));
}

#[test]
fn a_wait_is_told_once() {
    let mut w = World::new(2);
    let _held = w.hold(0, ask(1));
    w.acquire(1, ask(1));
    w.live(100_000);
    assert_eq!(w.kinds(1), ["contended"]);
}
