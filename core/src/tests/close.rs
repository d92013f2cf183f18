//! Closing the client, whatever is under way.

use super::world::*;
use crate::error::Code;
use crate::event::LossReason;
use crate::io::{AcquireRequest, Link, Outcome, Wire};
use crate::time::Millis;

#[test]
fn closing_releases_everything_and_refuses_everything() {
    let mut w = World::new(2);
    let held = w.hold(0, ask(1));
    let _inner = w.hold(0, ask(1));
    let other = w.hold(0, AcquireRequest { name: name("m"), ..ask(1) });
    let waiting = w.acquire(0, ask(2));
    let elsewhere = w.acquire(1, ask(1));
    w.run();
    let releasing = w.release(0, &other);
    w.tell(0, |engine, now| engine.close(now, CALLER));
    assert_eq!(w.error(0, waiting).code(), Code::Closed);
    assert!(!w.clients[0].engine.is_idle());
    let late = w.acquire(0, ask(3));
    assert_eq!(w.error(0, late).code(), Code::Closed);
    let late = w.tell(0, |engine, now| engine.status(now, name("n"), CALLER));
    assert_eq!(w.error(0, late).code(), Code::Closed);
    w.run();
    assert_eq!(w.done(0, releasing), Some(Outcome::Released { left: 0 }));
    assert!(w.clients[0].engine.is_idle());
    let taken = w.take(1, elsewhere);
    w.freed(1, &taken);
    let op = w.release(0, &held);
    assert_eq!(w.error(0, op).code(), Code::NotOwner);
    w.live(30_000);
    w.assert_clean();
}

#[test]
pub(super) fn closing_within_a_section_is_a_loss_told_before_the_release() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let inner = w.hold(0, ask(1));
    let doubtful = w.hold(0, AcquireRequest { name: name("d"), ..ask(1) });
    w.tell(0, |engine, _| engine.doubt(doubtful.hold));
    let over = w.hold(0, AcquireRequest { name: name("m"), ..ask(1) });
    let _releasing = w.release(0, &over);
    w.fresh(0);
    let seen = w.kinds(0).len();
    w.tell(0, |engine, now| engine.lose_all(now));
    assert_eq!(w.kinds(0)[seen..], ["lost", "lost"]);
    assert_eq!(w.fresh(0), [""; 0], "told first");
    w.tell(0, |engine, now| engine.close(now, CALLER));
    assert_eq!(w.fresh(0), ["-0", "-0"]);
    for settled in [false, true] {
        if settled {
            w.run();
        }
        for held in [&held, &inner, &doubtful] {
            let engine = &w.clients[0].engine;
            let view = engine.view(w.now, held.hold).unwrap();
            assert_eq!((view.valid, view.lost, view.count), (false, Some(LossReason::Closed), 0));
            let error = engine.check(w.now, held.hold).unwrap_err();
            assert_eq!(error.code(), Code::LockLost);
            assert!(error.message().contains("(closed)"), "{error}");
        }
        assert_eq!(w.clients[0].engine.view(w.now, over.hold), None, "released, not lost");
    }
    w.live(30_000);
    w.assert_clean();
}

#[test]
fn closing_leaves_nothing_of_a_lost_hold() {
    let mut w = World::new(1);
    let _held = w.hold(0, AcquireRequest { lease: Some(Millis(1_000)), ..ask(1) });
    let _gone = w.hold(0, AcquireRequest { name: name("m"), ..ask(1) });
    w.server.keys.remove(&name("m"));
    w.live(10_900);
    let _late = w.hold(0, AcquireRequest { name: name("k"), lease: Some(Millis(1_000)), ..ask(1) });
    w.pass(920);
    w.tell(0, |engine, now| engine.close(now, CALLER));
    w.run();
    w.assert_clean();
}
#[test]
fn l4_closed_in_the_middle_of_everything() {
    let mut w = World::new(2);
    w.hold(1, AcquireRequest { name: name("busy"), lease: Some(Millis(1_000)), ..ask(1) });
    let mut ops = vec![w.acquire(0, ask(1)), w.acquire(0, AcquireRequest { name: name("busy"), ..ask(1) })];
    w.hold(0, AcquireRequest { name: name("held"), ..ask(1) });
    ops.push(w.acquire(0, AcquireRequest { name: name("held"), ..ask(1) }));
    ops.push(w.tell(0, |engine, now| engine.status(now, name("n"), CALLER)));
    ops.push(w.tell(0, |engine, now| engine.force_release(now, name("x"), CALLER)));
    w.link(0, Link::Requests, false);
    w.tell(0, |engine, now| engine.close(now, CALLER));
    for op in ops {
        let told: Vec<_> = std::iter::from_fn(|| w.done(0, op)).collect();
        assert!(matches!(told.last(), Some(Outcome::Failed(_))), "{told:?}");
    }
    w.run();
    assert_eq!(w.in_flight(0, Wire::KEEPER), 0);
    w.live(10_000);
    w.assert_clean_at_last();
}
