//! What a timer costs. The goal: 20 ns for insert and cancel of the newest timer among a million.

use std::hint::black_box;
use std::time::Duration;

use bandog_core::time::Time;
use bandog_core::wheel::Wheel;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

const MILLION: u64 = 1_000_000;

/// Timers at instants before `within`, in no order.
fn wheel(timers: u64, within: u64) -> Wheel<u64> {
    let mut wheel = Wheel::default();
    for item in 0..timers {
        wheel.insert(scattered(item, within), item);
    }
    wheel
}

fn scattered(item: u64, within: u64) -> Time {
    Time(item.wrapping_mul(0x9e37_79b9_7f4a_7c15) % within)
}

fn timers(c: &mut Criterion) {
    for (name, within) in [("one turn", 30_000), ("many turns", 3_600_000)] {
        let mut full = wheel(MILLION, within);
        let mut item = MILLION;
        c.bench_function(&format!("insert and cancel the newest of 10^6, {name}"), |b| {
            b.iter(|| {
                item += 1;
                let id = full.insert(scattered(item, within), item);
                full.cancel(black_box(id))
            });
        });
        c.bench_function(&format!("next_at of 10^6, {name}"), |b| b.iter(|| black_box(&full).next_at()));
        c.bench_function(&format!("pop and insert again, of 10^6, {name}"), |b| {
            let mut now = Time(0);
            b.iter(|| {
                let item = loop {
                    match full.pop(now) {
                        Some(item) => break item,
                        None => now = full.next_at().expect("a million timers"),
                    }
                };
                full.insert(Time(now.0 + 1 + scattered(item, within).0), item);
            });
        });
    }

    let mut one = wheel(1, 30_000);
    c.bench_function("insert and cancel the newest of 2", |b| {
        b.iter(|| {
            let id = one.insert(Time(3_000), 1);
            one.cancel(black_box(id))
        });
    });

    c.bench_function("10^5 inserts into a new wheel", |b| b.iter_with_large_drop(|| wheel(100_000, 30_000)));
    c.bench_function("10^5 pops at once after a suspend", |b| {
        let drain = |wheel: &mut Wheel<u64>| while wheel.pop(Time(MILLION)).is_some() {};
        b.iter_batched_ref(|| wheel(100_000, 30_000), drain, BatchSize::LargeInput);
    });

    // 10^5 holds with a renewal each 10 s and an expiry 30 s ahead: what the next second has for one batch.
    let mut holds = wheel(100_000, 10_000);
    for item in 0..100_000 {
        holds.insert(scattered(item, 30_000), item | 1 << 32);
    }
    c.bench_function("take_until, a batch of 100 renewals among 2 * 10^5", |b| {
        b.iter_batched_ref(
            || (holds.clone(), Vec::with_capacity(100)),
            |(holds, batch)| holds.take_until(Time(1_000), 100, |item| item >> 32 == 0, batch),
            BatchSize::LargeInput,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).without_plots();
    targets = timers
}
criterion_main!(benches);
