//! Renewals, many in one request.

use super::watchdog::many;
use super::world::*;
use crate::io::AcquireRequest;
use crate::time::Millis;

#[test]
fn r4_a_hundred_holds_are_one_call() {
    let mut w = World::new(1);
    many(&mut w, 250);
    w.live(10_000);
    assert_eq!(w.fresh(0), ["~100", "~100", "~50"]);
    w.live(30_000);
    assert_eq!(w.fresh(0).len(), 9);
    assert_eq!(w.losses(0), []);
}

#[test]
fn r4_a_batch_takes_along_what_is_due_soon() {
    let mut w = World::new(1);
    for lock in 0..10 {
        w.hold(0, AcquireRequest { name: name(&format!("lock{lock}")), ..ask(1) });
        w.live(100);
    }
    // The last one is due 900 ms after the first, within a thirtieth of the lease.
    w.fresh(0);
    w.live(9_000);
    assert_eq!(w.fresh(0), ["~10"]);
    // Due later than that, it has a batch of its own.
    let mut w = World::new(1);
    w.hold(0, ask(1));
    w.live(1_100);
    w.hold(0, AcquireRequest { name: name("m"), ..ask(1) });
    w.fresh(0);
    w.live(10_000);
    assert_eq!(w.fresh(0), ["~1", "~1"]);
}

#[test]
fn r4_of_very_many_a_few_batches_go_out_at_one_wake() {
    let mut w = World::new(1);
    for lock in 0..1_000 {
        let request = AcquireRequest { name: name(&format!("lock{lock}")), ..ask(1) };
        w.hold(0, request);
        if lock % 20 == 19 {
            w.live(2);
        }
    }
    // Ten of them each millisecond, for a tenth of a second: 500 within a six-hundredth of the lease.
    w.fresh(0);
    let mut wakes = Vec::new();
    let end = w.now + Millis(10_000);
    while let Some(at) = w.clients[0].engine.poll_timeout().filter(|at| *at < end) {
        w.pass(at.since(w.now).0);
        wakes.extend(Some(w.fresh(0)).filter(|calls| !calls.is_empty()));
        w.run();
    }
    assert_eq!(wakes, [vec!["~100"; 4], vec!["~100"; 4], vec!["~100"; 2]]);
    assert_eq!(w.losses(0), []);
}
