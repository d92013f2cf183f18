//! Renewal, doubt, loss.

use super::world::*;
use crate::config::Config;
use crate::error::Code;
use crate::event::{Event, LossReason};
use crate::io::{AcquireRequest, CallError, Link, Outcome, Wire};
use crate::owner::LocalOwner;
use crate::scripts::Ask;
use crate::time::Millis;

pub(super) fn many(w: &mut World, locks: usize) {
    for lock in 0..locks {
        w.hold(0, AcquireRequest { name: name(&format!("lock{lock}")), ..ask(1) });
    }
    w.fresh(0);
}

#[test]
fn l6_a_watched_hold_is_renewed_every_third() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.live(300_000);
    assert_eq!(w.fresh(0).len(), 1 + 30);
    assert!(w.is_valid(0, &held));
    w.pass(9_999);
    assert_eq!(w.ttl(), 20_001);
    assert_eq!(w.losses(0), []);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn an_explicit_lease_is_not_renewed_and_ends_on_time() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(2_000)), ..ask(1) });
    w.live(1_799);
    assert!(w.is_valid(0, &held));
    assert_eq!(w.losses(0), []);
    w.live(1);
    assert!(!w.is_valid(0, &held));
    assert_eq!(w.losses(0), [LossReason::Expired]);
    assert_eq!(w.sent(0), ["+1"]);
    assert!(!w.kinds(0).contains(&"doubtful"), "only watched holds are in doubt");
}

#[test]
fn l7_valid_ends_at_d_whether_or_not_a_timer_fired() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.now += Millis(26_999);
    assert!(w.is_valid(0, &held));
    w.now += Millis(1);
    assert!(!w.is_valid(0, &held));
    assert_eq!(w.view(0, held.hold).unwrap().lost, Some(LossReason::Expired));
    let error = w.clients[0].engine.check(w.now, held.hold).unwrap_err();
    assert_eq!(error.code(), Code::LockLost);
    assert_eq!(w.clients[0].engine.count(w.now, &name("n"), LocalOwner(1)), 0);
}

#[test]
pub(super) fn l6_one_refused_key_harms_no_other() {
    let mut w = World::new(1);
    many(&mut w, 100);
    w.server.spoilt = Some((name("lock7"), "ERR The user executing the script can't access this key".into()));
    w.live(10_000);
    assert_eq!(w.kinds(0).iter().filter(|kind| **kind == "renewed").count(), 99);
    assert_eq!(w.kinds(0).iter().filter(|kind| **kind == "doubtful").count(), 1);
    assert_eq!(w.losses(0), [], "refused is not lost");
    w.live(16_999);
    assert_eq!(w.losses(0), []);
    w.live(1);
    assert_eq!(w.losses(0), [LossReason::Expired], "at D");
    w.live(100_000);
    assert_eq!(w.losses(0).len(), 1);
}

#[test]
fn f40_a_deleted_and_an_overwritten_key_are_told_at_the_next_renewal() {
    let mut w = World::new(1);
    many(&mut w, 100);
    w.server.keys.remove(&name("lock3"));
    w.server.keys.insert(name("lock5"), super::server::Kept::Foreign);
    w.live(10_000);
    assert_eq!(w.losses(0), [LossReason::Taken, LossReason::Overwritten]);
    w.live(100_000);
    assert_eq!(w.losses(0).len(), 2);
}

#[test]
fn l6_a_batch_refused_as_a_whole_goes_out_one_by_one() {
    let mut w = World::new(1);
    many(&mut w, 20);
    w.server.refuses = Some((name("lock7"), "CROSSSLOT Keys in request don't hash to the same slot".into()));
    w.live(10_000);
    let sent = w.fresh(0);
    assert_eq!((sent[0].as_str(), sent.len()), ("~20", 21));
    assert_eq!(w.kinds(0).iter().filter(|kind| **kind == "renewed").count(), 19);
    w.live(17_000);
    assert_eq!(w.losses(0), [LossReason::Expired]);
}

#[test]
fn m38_no_error_stops_the_watchdog() {
    for error in [
        CallError::Server("BUSY Redis is busy".into()),
        CallError::Server("LOADING".into()),
        CallError::Server("READONLY You can't write against a read only replica.".into()),
        CallError::Server("MOVED 1 127.0.0.1:1".into()),
        CallError::Server("NOSCRIPT".into()),
        CallError::Server("ERR whatever".into()),
        CallError::Unknown(None),
        CallError::NotSent(unreachable()),
    ] {
        let mut w = World::new(1);
        let held = w.hold(0, ask(1));
        for _ in 0..16 {
            w.pass(1_000);
            while w.in_flight(0, Wire::KEEPER) > 0 {
                w.answer(0, Wire::KEEPER, Err(error.clone()));
            }
        }
        assert!(w.fresh(0).len() >= 4, "{error:?}");
        w.live(5_100);
        assert!(w.is_valid(0, &held), "{error:?}");
        assert!(w.ttl() > 24_000);
        assert_eq!(w.losses(0), []);
        let kinds = w.kinds(0);
        assert_eq!(kinds.iter().filter(|kind| **kind == "doubtful").count(), 1, "told once: {kinds:?}");
    }
}

#[test]
fn nonsense_to_a_renewal_is_a_failure_like_any() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.pass(10_000);
    w.answer(0, Wire::KEEPER, Ok(crate::io::Value::Nil));
    w.live(1_000);
    assert!(w.is_valid(0, &held) && w.ttl() > 29_000);
}

#[test]
fn doubt_comes_before_loss() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let mut seen = Vec::new();
    for _ in 0..30_000 {
        w.pass(1);
        if w.in_flight(0, Wire::KEEPER) > 0 && w.clients[0].severed.pop().is_some() {
            w.cut(0, Wire::KEEPER, 0, false);
        }
        for event in w.clients[0].events.drain(..) {
            seen.push((event.kind(), w.now.0 - 1_000_000));
        }
    }
    let told: Vec<_> = seen.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(told, ["acquired", "doubtful", "lost"]);
    assert!(seen[1].1 <= 20_000, "by 2L/3: {seen:?}");
    assert_eq!(seen[2].1, 27_000, "at D exactly");
    assert!(!w.is_valid(0, &held));
}

#[test]
fn a_silent_renewal_is_doubted_at_two_thirds() {
    // A server whose answer takes longer than anybody waits, on a link that cannot be given up.
    let mut w = World::with(1, Config { op_timeout: Millis(60_000), ..Config::default() });
    let _held = w.hold(0, AcquireRequest { lease: None, ..ask(1) });
    w.pass(19_999);
    assert!(!w.kinds(0).contains(&"doubtful"));
    w.pass(1);
    assert!(w.kinds(0).contains(&"doubtful"));
}

#[test]
fn d_counts_from_the_send_of_a_renewal_m21() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.pass(10_000);
    let (call, result) = w.execute(0, Wire::KEEPER);
    w.pass(2_000);
    w.report(0, &call, result);
    assert_eq!(w.view(0, held.hold).unwrap().remaining, Millis(27_000 - 2_000));
}

#[test]
fn s4_a_late_renewal_revives_nothing_m23() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.pass(10_000);
    let (call, result) = w.execute(0, Wire::KEEPER);
    w.pass(17_000);
    assert_eq!(w.losses(0), [LossReason::Expired]);
    w.report(0, &call, result);
    assert!(!w.is_valid(0, &held));
    assert_eq!(w.losses(0).len(), 1);
}

#[test]
fn s4_a_loss_at_d_sends_nothing_until_the_margin_is_over() {
    let mut w = World::new(1);
    let _held = w.hold(0, AcquireRequest { lease: Some(Millis(10_000)), ..ask(1) });
    w.fresh(0);
    w.pass(9_999);
    assert_eq!(w.losses(0), [LossReason::Expired]);
    assert_eq!(w.fresh(0), [""; 0]);
    w.pass(1);
    assert_eq!(w.fresh(0), ["-0"]);
    w.live(100_000);
    assert_eq!(w.fresh(0), [""; 0], "one tidy release");
    let op = w.acquire(0, ask(1));
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    w.live(1);
    assert_eq!(w.fresh(0), [""; 0], "it was tidied up already");
    w.assert_clean_at_last();
}

#[test]
fn a_lost_hold_that_is_released_in_the_margin_is_tidied_up_then() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(10_000)), ..ask(1) });
    w.pass(9_500);
    w.fresh(0);
    let op = w.release(0, &held);
    w.run();
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    w.live(10_000);
    assert_eq!(w.fresh(0), ["-0"]);
    w.assert_clean();
}

#[test]
fn the_next_acquire_in_the_margin_drops_the_lost_hold_with_one_release() {
    let mut w = World::new(1);
    let held = w.hold(0, AcquireRequest { lease: Some(Millis(10_000)), ..ask(1) });
    w.pass(9_500);
    w.fresh(0);
    let op = w.acquire(0, ask(1));
    assert_eq!(w.error(0, op).code(), Code::LockLost);
    w.live(10_000);
    assert_eq!(w.fresh(0), ["-0"]);
    w.tell(0, |engine, now| engine.handle_dropped(now, held.hold, held.level));
    w.assert_clean();
}

#[test]
fn max_hold_ends_the_watch() {
    let mut w = World::with(1, Config { max_hold: Some(Millis(60_000)), ..Config::default() });
    let held = w.hold(0, ask(1));
    w.live(60_000);
    assert!(w.is_valid(0, &held));
    w.live(27_000);
    assert_eq!(w.losses(0), [LossReason::MaxHold]);
    let op = w.release(0, &held);
    w.run();
    let error = w.error(0, op);
    assert!(error.code() == Code::LockLost && error.message().contains("(max_hold)"), "{error}");
    // A lease of its own is not the watchdog's to end.
    let _fixed = w.hold(0, AcquireRequest { lease: Some(Millis(100_000)), ..ask(1) });
    w.live(100_000);
    assert_eq!(w.losses(0), [LossReason::MaxHold, LossReason::Expired]);
}

#[test]
fn l9_a_hold_without_owner_and_handle_is_left_alone() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.tell(0, |engine, now| engine.handle_dropped(now, held.hold, held.level));
    w.live(60_000);
    assert!(w.is_valid(0, &held), "a discarded handle alone is no abandonment");
    w.tell(0, |engine, now| engine.owner_gone(now, LocalOwner(1)));
    w.fresh(0);
    w.live(30_000);
    assert!(w.is_free());
    w.live(30_000);
    assert_eq!(w.fresh(0), [""; 0], "nothing is sent");
    w.assert_clean();
}

#[test]
fn l9_a_handle_keeps_the_hold_of_an_ended_thread() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.tell(0, |engine, now| engine.owner_gone(now, LocalOwner(1)));
    w.live(100_000);
    assert!(w.is_valid(0, &held));
    // Abandoned while a renewal is out: the next one is not sent.
    w.pass(10_000);
    assert_eq!(w.in_flight(0, Wire::KEEPER), 1);
    w.tell(0, |engine, now| engine.handle_dropped(now, held.hold, held.level));
    w.live(40_000);
    assert!(w.is_free());
    w.assert_clean();
}

#[test]
fn a_lost_hold_is_forgotten_with_its_last_handle() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.delete();
    w.live(10_000);
    w.tell(0, |engine, now| engine.owner_gone(now, LocalOwner(1)));
    assert!(w.view(0, held.hold).is_some());
    w.tell(0, |engine, now| engine.handle_dropped(now, held.hold, held.level));
    w.assert_clean();
}

#[test]
fn link_up_renews_all_at_once() {
    let mut w = World::new(1);
    many(&mut w, 150);
    w.live(1_000);
    w.link(0, Link::Requests, false);
    w.server.keys.clear();
    w.fresh(0);
    w.link(0, Link::Requests, true);
    assert_eq!(w.fresh(0), ["~100", "~50"]);
    w.run();
    assert_eq!(w.losses(0).len(), 150, "F02: told at once after the reconnect");
}

#[test]
fn f40_a_cut_ttl_is_put_back_and_a_longer_one_is_kept() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    w.set_expiry(None);
    w.live(10_000);
    assert_eq!(w.ttl(), 30_000);
    let year = w.now + Millis::secs(365 * 86_400);
    w.set_expiry(Some(year));
    w.live(10_000);
    assert!(w.ttl() > 1_000_000, "a renewal never shortens");
    assert!(w.is_valid(0, &held));
}

#[test]
fn h3_a_jump_of_the_servers_clock_makes_holds_doubtful() {
    for ahead in [3_600_000, -3_600_000, 1_600] {
        let mut w = World::new(1);
        let _held = w.hold(0, ask(1));
        w.live(10_000);
        assert!(!w.kinds(0).contains(&"doubtful"));
        w.server.ahead = ahead;
        w.live(10_000);
        assert!(w.kinds(0).contains(&"doubtful"), "{ahead}");
        let named = |event: &Event| match event {
            Event::Warning { text, .. } => text.contains(&ahead.to_string()),
            _ => false,
        };
        assert!(w.clients[0].events.iter().any(named), "{ahead}: {:?}", w.clients[0].events);
        w.live(10_000);
        assert_eq!(w.kinds(0).last(), Some(&"renewed"), "and good again");
    }
}

#[test]
fn h3_what_the_round_trips_explain_is_no_jump() {
    let mut w = World::new(1);
    let _held = w.hold(0, ask(1));
    for (delay, ahead) in [(0, 0), (2_900, 0), (0, 0), (2_500, 900), (0, 900), (0, -500)] {
        w.server.ahead = ahead;
        w.pass(10_000);
        while w.in_flight(0, Wire::KEEPER) > 0 {
            let (call, result) = w.execute(0, Wire::KEEPER);
            w.now += Millis(delay);
            w.report(0, &call, result);
        }
    }
    assert!(!w.kinds(0).contains(&"warning"), "{:?}", w.clients[0].events);
}

#[test]
fn a_renewal_asks_for_what_is_left_of_the_longest_lease() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let op = w.tell(0, |engine, now| engine.extend(now, held.hold, Millis(100_000), CALLER));
    w.run();
    assert_eq!(w.done(0, op), Some(Outcome::Extended));
    assert_eq!(w.ttl(), 100_000);
    w.live(95_000);
    let lease = |call: &crate::io::Call| match &call.request.ask {
        Ask::Renew(renewals) => renewals[0].lease.0,
        _ => 0,
    };
    let asked: Vec<_> = w.clients[0].sent.iter().map(lease).skip(2).collect();
    assert!(asked.iter().all(|&lease| lease >= 30_000), "{asked:?}");
    assert!(asked.windows(2).all(|pair| pair[1] <= pair[0]), "{asked:?}");
    assert!(w.ttl() <= 30_000 && w.ttl() >= 20_000);
}

#[test]
pub(super) fn a_doubtful_hold_is_released_or_lost_like_any_other() {
    let doubtful = || {
        let mut w = World::new(1);
        let held = w.hold(0, ask(1));
        w.pass(10_000);
        w.answer(0, Wire::KEEPER, Err(CallError::Unknown(None)));
        assert!(w.is_valid(0, &held) && w.kinds(0).contains(&"doubtful"));
        (w, held)
    };
    let (mut w, held) = doubtful();
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 0 });
    w.assert_clean();
    let (mut w, held) = doubtful();
    w.delete();
    w.live(1_000);
    assert!(!w.is_valid(0, &held));
    assert_eq!(w.losses(0), [LossReason::Taken]);
}
