//! What the engine costs beside the wire. The goal: 1 us for an acquire and its release.

use std::hint::black_box;
use std::time::Duration;

use bandog_core::Engine;
use bandog_core::config::Config;
use bandog_core::io::{AcquireRequest, Call, Claim, Claimed, Output, Target, Value, Wait, Wire};
use bandog_core::name::Name;
use bandog_core::owner::{ClientId, LocalOwner};
use bandog_core::scripts::Ask;
use bandog_core::time::{Millis, Time};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

const CALLER: Wire = Wire(1);

/// A server that answers at once, and always well.
fn reply(call: &Call) -> Value {
    match &call.request.ask {
        Ask::Acquire { count, .. } => Value::Int(i64::from(*count)),
        Ask::Release { .. } => Value::List(vec![Value::Int(0)]),
        Ask::Renew(renewals) => {
            let renewed = Value::Int(renewals.len() as i64);
            Value::List(vec![renewed, Value::Text(b"1764000000".to_vec()), Value::Text(b"0".to_vec())])
        }
        Ask::Force { .. } | Ask::Status { .. } => Value::Nil,
    }
}

fn serve(engine: &mut Engine, now: Time) -> usize {
    let mut calls = 0;
    while let Some(output) = engine.poll() {
        if let Output::Send(call) = output {
            let value = reply(&call);
            engine.handle_reply(now, call.id, Ok(value));
            calls += 1;
        }
    }
    calls
}

fn acquire(engine: &mut Engine, now: Time, name: &Name) -> Claimed {
    let request = AcquireRequest {
        name: name.clone(),
        owner: LocalOwner(1),
        wire: CALLER,
        wait: Wait::Forever,
        lease: None,
        reenter: None,
    };
    let op = engine.acquire(now, request);
    serve(engine, now);
    match engine.claim(now, op) {
        Claim::Held(claimed) => claimed,
        other => panic!("{other:?}"),
    }
}

fn release(engine: &mut Engine, now: Time, held: &Claimed) {
    engine.release(now, Target::Level(held.hold, held.level), CALLER);
    serve(engine, now);
}

fn holding(locks: u64) -> Engine {
    let mut engine = Engine::new(Config::default(), ClientId([7; 16]), 0);
    for lock in 0..locks {
        // Spread over the third of a lease, as they are in a process that runs for a while.
        acquire(&mut engine, Time(lock * 10_000 / locks), &Name::new(&format!("lock{lock}")).unwrap());
    }
    engine
}

fn pairs(c: &mut Criterion) {
    let name = Name::new("order_lock").unwrap();
    for held in [0, 100_000] {
        let mut engine = holding(held);
        let now = Time(9_999);
        c.bench_function(&format!("acquire and release beside {held} held locks"), |b| {
            b.iter(|| {
                let held = acquire(&mut engine, now, black_box(&name));
                release(&mut engine, now, &held);
            });
        });
    }
    let mut engine = holding(0);
    let outer = acquire(&mut engine, Time(0), &name);
    c.bench_function("re-enter and release an inner level", |b| {
        b.iter(|| {
            let inner = acquire(&mut engine, Time(0), black_box(&name));
            release(&mut engine, Time(0), &inner);
        });
    });
    release(&mut engine, Time(0), &outer);
    let local = Config { local_reentry: true, ..Config::default() };
    let mut engine = Engine::new(local, ClientId([7; 16]), 0);
    let _outer = acquire(&mut engine, Time(0), &name);
    c.bench_function("re-enter and release locally", |b| {
        b.iter(|| {
            let inner = acquire(&mut engine, Time(0), black_box(&name));
            release(&mut engine, Time(0), &inner);
        });
    });
}

fn renewals(c: &mut Criterion) {
    let engine = holding(100_000);
    c.bench_function("renew 10^5 held locks once", |b| {
        b.iter_batched_ref(
            || engine.clone(),
            |engine| {
                let mut calls = 0;
                while let Some(now) = engine.poll_timeout().filter(|now| *now <= Time(20_000) - Millis(1)) {
                    engine.handle_timeout(now);
                    calls += serve(engine, now);
                }
                assert!((1_000..1_100).contains(&calls), "{calls} calls");
            },
            BatchSize::LargeInput,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).without_plots();
    targets = pairs, renewals
}
criterion_main!(benches);
