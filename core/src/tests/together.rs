//! Two wishes for one hold at once: twin acquires of one owner, a re-entry and the release of the outer level.

use super::world::*;
use crate::config::Config;
use crate::error::Code;
use crate::io::{AcquireRequest, CallError, Claim, Outcome, Wait};
use crate::time::Millis;

#[test]
pub(super) fn two_acquires_of_one_owner_at_once_reenter_locally_too() {
    let mut w = World::with(1, Config { local_reentry: true, ..Config::default() });
    let [first, second] = [1, 1].map(|owner| w.acquire(0, ask(owner)));
    w.run();
    let outer = w.take(0, first);
    let inner = w.take(0, second);
    assert_eq!((inner.hold, w.sent(0)), (outer.hold, vec!["+1".to_owned()]));
    w.freed(0, &inner);
    w.freed(0, &outer);
    w.assert_clean();
}

#[test]
pub(super) fn two_acquires_of_one_owner_at_once_share_the_hold() {
    let mut w = World::new(1);
    let [first, second, stranger] = [1, 1, 2].map(|owner| w.acquire(0, ask(owner)));
    w.run();
    let outer = w.take(0, first);
    w.run();
    let inner = w.take(0, second);
    assert_eq!((inner.hold, w.counts()), (outer.hold, vec![2]));
    w.freed(0, &inner);
    w.freed(0, &outer);
    let held = w.take(0, stranger);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
pub(super) fn the_second_acquire_of_an_owner_reenters_wherever_it_was() {
    // The first one is granted and not claimed when the second comes.
    let mut w = World::new(1);
    let first = w.acquire(0, ask(1));
    w.run();
    let second = w.acquire(0, ask(1));
    w.run();
    let outer = w.take(0, first);
    w.run();
    let inner = w.take(0, second);
    assert_eq!((inner.hold, w.counts()), (outer.hold, vec![2]));
    w.freed(0, &inner);
    w.freed(0, &outer);
    w.assert_clean();

    // The same, before the server has confirmed its subscription.
    let mut w = World::new(1);
    let first = w.acquire(0, ask(1));
    w.run();
    let second = w.acquire(0, ask(1));
    let outer = w.take(0, first);
    w.run();
    let inner = w.take(0, second);
    assert_eq!((inner.hold, w.counts()), (outer.hold, vec![2]));
    w.freed(0, &outer);
    w.freed(0, &inner);
    w.assert_clean();

    // The second one is out before the first one is claimed: its own try is busy, then it re-enters.
    let mut w = World::new(1);
    let first = w.acquire(0, ask(1));
    let second = w.acquire(0, AcquireRequest { wait: Wait::Try, ..ask(1) });
    w.deliver(0, CALLER);
    let outer = w.take(0, first);
    w.run();
    let inner = w.take(0, second);
    assert_eq!((inner.hold, w.counts()), (outer.hold, vec![2]));
    w.freed(0, &outer);
    w.freed(0, &inner);
    w.assert_clean();

    // The second one was passed over.
    let mut w = World::new(1);
    let [first, second] = [1, 1].map(|owner| w.acquire(0, ask(owner)));
    w.run();
    w.live(2_500);
    assert_eq!(w.done(0, first), Some(Outcome::Granted));
    assert_eq!(w.claim(0, first), Claim::Again);
    w.run();
    let outer = w.take(0, first);
    w.run();
    assert_eq!(w.done(0, second), Some(Outcome::Granted));
    assert_eq!(w.claim(0, second), Claim::Again);
    w.run();
    let inner = w.take(0, second);
    assert_eq!((inner.hold, w.counts()), (outer.hold, vec![2]));
}

#[test]
fn a_reentry_joined_with_the_release_of_the_outer_level() {
    // All orders of the two, then the re-entry is claimed: the lock stays held by one level.
    for lost in [None, Some(0), Some(1), Some(2)] {
        let mut w = World::new(1);
        let held = w.hold(0, ask(1));
        let inner = w.acquire(0, ask(1));
        let outer = w.release(0, &held);
        if let Some(executed) = lost {
            w.cut(0, CALLER, executed, true);
        }
        w.run();
        w.haunt();
        assert_eq!(w.done(0, outer), Some(Outcome::Released { left: 1 }));
        let inner = w.take(0, inner);
        assert_eq!((w.counts(), w.is_valid(0, &inner)), (vec![1], true), "{lost:?}");
        assert_eq!(w.freed(0, &inner), Outcome::Released { left: 0 });
        w.assert_clean();
    }
}

#[test]
fn a_reentry_that_fails_after_the_outer_level_was_released_frees_the_lock() {
    for text in ["OOM command not allowed", "LOADING"] {
        let mut w = World::new(1);
        let held = w.hold(0, ask(1));
        let inner = w.acquire(0, AcquireRequest { wait: Wait::For(Millis(1_000)), ..ask(1) });
        let outer = w.release(0, &held);
        w.answer(0, CALLER, Err(CallError::Server(text.into())));
        w.deliver(0, CALLER);
        assert_eq!(w.done(0, outer), Some(Outcome::Released { left: 1 }));
        w.server.refuses = Some((name("n"), text.into()));
        if text == "LOADING" {
            w.live(1_000);
        }
        w.server.refuses = None;
        assert!(matches!(w.done(0, inner), Some(Outcome::Failed(_))));
        w.live(5_000);
        w.assert_clean();
    }
}

#[test]
fn a_reentry_passed_over_looks_again_at_what_it_may_enter() {
    let passed = |w: &mut World| {
        let held = w.hold(0, ask(1));
        let op = w.acquire(0, ask(1));
        w.run();
        assert_eq!(w.done(0, op), Some(Outcome::Granted));
        w.live(1_000);
        assert_eq!(w.counts(), [1], "only its level went back");
        (held, op)
    };
    // The hold is still there.
    let mut w = World::new(1);
    let (held, op) = passed(&mut w);
    assert_eq!(w.claim(0, op), Claim::Again);
    w.run();
    let inner = w.take(0, op);
    assert_eq!((inner.hold, w.counts()), (held.hold, vec![2]));

    // It was released meanwhile: the wish is a fresh one.
    let mut w = World::new(1);
    let (held, op) = passed(&mut w);
    w.freed(0, &held);
    assert_eq!(w.claim(0, op), Claim::Again);
    w.run();
    let fresh = w.take(0, op);
    assert_ne!(fresh.hold, held.hold);
    w.freed(0, &fresh);
    w.assert_clean();

    // It was lost meanwhile: that is told.
    let mut w = World::new(1);
    let (_, op) = passed(&mut w);
    w.delete();
    w.live(10_000);
    assert_eq!(w.claim(0, op), Claim::Again);
    assert_eq!(w.error(0, op).code(), Code::LockLost);

    // Nobody ever turns, and it is cancelled.
    let mut w = World::new(1);
    let (held, op) = passed(&mut w);
    w.cancel(0, op);
    w.freed(0, &held);
    w.assert_clean();
}

#[test]
fn a_reentry_passed_over_after_its_outer_level_went_frees_the_lock() {
    let mut w = World::new(1);
    let held = w.hold(0, ask(1));
    let op = w.acquire(0, ask(1));
    w.run();
    assert_eq!(w.freed(0, &held), Outcome::Released { left: 1 });
    w.live(1_000);
    assert!(w.is_free(), "nobody claims the only level");
    assert_eq!(w.done(0, op), Some(Outcome::Granted));
    assert_eq!(w.claim(0, op), Claim::Again);
    w.run();
    let held = w.take(0, op);
    w.freed(0, &held);
    w.assert_clean();
}
