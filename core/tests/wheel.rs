//! The timing wheel against an ordered map, and what it promises in so many words.

use std::collections::BTreeMap;

use bandog_core::time::{Millis, Time};
use bandog_core::wheel::{TimerId, Wheel};
use proptest::collection::vec;
use proptest::prelude::*;

const TURN: u64 = 4096 * 8;

/// Items by instant, then by insertion. Each item is its own serial number.
#[derive(Default)]
struct Model {
    due: BTreeMap<(Time, u32), TimerId>,
    ids: Vec<(TimerId, Time)>,
}

#[derive(Clone, Debug)]
enum Step {
    Insert { ahead: i64 },
    Cancel { which: prop::sample::Index },
    Pass { by: u64 },
    Take { ahead: u64, limit: usize, modulus: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let turns = (0..5u64, -9..9i64).prop_map(|(turns, off)| (turns * TURN) as i64 + off);
    let ahead = prop_oneof![4 => 0..40i64, 2 => -100..0i64, 4 => 0..TURN as i64, 3 => turns, 1 => 0..1i64 << 40];
    let by = prop_oneof![3 => 0..20u64, 3 => 0..2000u64, 1 => 0..3 * TURN, 1 => 0..1u64 << 36];
    prop_oneof![
        6 => ahead.prop_map(|ahead| Step::Insert { ahead }),
        3 => any::<prop::sample::Index>().prop_map(|which| Step::Cancel { which }),
        2 => by.prop_map(|by| Step::Pass { by }),
        1 => (0..=TURN, 0..6usize, 1..4u32).prop_map(|(ahead, limit, modulus)| Step::Take { ahead, limit, modulus }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_an_ordered_map(start in prop_oneof![Just(0), 0..1u64 << 40], steps in vec(step(), 1..120)) {
        let mut now = Time(start);
        let mut wheel = Wheel::default();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Insert { ahead } => {
                    let at = Time(now.0.saturating_add_signed(ahead));
                    let item = model.ids.len() as u32;
                    let id = wheel.insert(at, item);
                    prop_assert!(model.ids.iter().all(|&(other, _)| other != id), "an id was given twice");
                    model.due.insert((at, item), id);
                    model.ids.push((id, at));
                }
                Step::Cancel { which } if !model.ids.is_empty() => {
                    let item = which.index(model.ids.len());
                    let (id, at) = model.ids[item];
                    let there = model.due.remove(&(at, item as u32)).map(|_| item as u32);
                    prop_assert_eq!(wheel.cancel(id), there);
                }
                Step::Cancel { .. } => {}
                Step::Pass { by } => {
                    now += Millis(by);
                    while let Some((&(at, item), _)) = model.due.first_key_value().filter(|((at, _), _)| *at <= now) {
                        prop_assert_eq!(wheel.pop(now), Some(item));
                        model.due.remove(&(at, item));
                    }
                    prop_assert_eq!(wheel.pop(now), None);
                    prop_assert!(wheel.next_at().is_none_or(|next| next > now), "would wake again at once");
                    // Nothing was cancelled since the bounds were corrected.
                    prop_assert_eq!(wheel.next_at().is_some(), !model.due.is_empty());
                }
                Step::Take { ahead, limit, modulus } => {
                    let until = now + Millis(ahead);
                    let mut taken = vec![];
                    wheel.take_until(until, limit, |item| item % modulus == 0, &mut taken);
                    let wanted = |&&(at, item): &&(Time, u32)| at <= until && item % modulus == 0;
                    let there = model.due.keys().filter(wanted).count();
                    prop_assert_eq!(taken.len(), there.min(limit));
                    for item in taken {
                        let (_, at) = model.ids[item as usize];
                        prop_assert!(at <= until && item % modulus == 0);
                        prop_assert!(model.due.remove(&(at, item)).is_some(), "taken twice, or not there");
                    }
                }
            }
            prop_assert_eq!(wheel.len(), model.due.len());
            let earliest = model.due.first_key_value().map(|((at, _), _)| *at);
            prop_assert_eq!(wheel.next_at().is_some(), earliest.is_some());
            prop_assert!(wheel.next_at() <= earliest, "would wake late");
        }
    }
}

/// Sleeps until `next_at`, pops, and so on: instants of the wakes and of the items, until the wheel is empty.
fn run(wheel: &mut Wheel<u64>) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut wakes, mut popped) = (vec![], vec![]);
    while let Some(now) = wheel.next_at() {
        wakes.push(now.0);
        popped.extend(std::iter::from_fn(|| wheel.pop(now)).map(|item| (now.0, item)));
    }
    (wakes, popped)
}

/// M35.
#[test]
fn entries_beyond_a_turn_are_neither_dropped_nor_delayed() {
    let mut wheel = Wheel::default();
    let mut instants: Vec<_> = (0..200).flat_map(|n| [n * TURN + 4, n * TURN / 7 + 3]).collect();
    for &at in &instants {
        wheel.insert(Time(at), at);
    }
    instants.sort_unstable();
    let (_, popped) = run(&mut wheel);
    assert_eq!(popped, instants.into_iter().map(|at| (at, at)).collect::<Vec<_>>());
}

#[test]
fn one_wake_per_instant_however_far() {
    let mut wheel = Wheel::default();
    let instants = [5, 7, 8, TURN + 5, 3 * TURN + 6, 1 << 50];
    for at in instants {
        wheel.insert(Time(at), at);
        wheel.insert(Time(at), at);
    }
    let (wakes, popped) = run(&mut wheel);
    assert_eq!(wakes, instants);
    assert_eq!(popped.len(), 2 * instants.len());
}

#[test]
fn a_suspend_of_hours_yields_everything_in_order() {
    let mut wheel = Wheel::default();
    for at in [9_000_000, 40_000, 9_000, 8_999, 9_000 + TURN, 9_000] {
        wheel.insert(Time(at), at);
    }
    let later = Time(8 * 3_600_000);
    let popped: Vec<_> = std::iter::from_fn(|| wheel.pop(later)).collect();
    assert_eq!(popped, [8_999, 9_000, 9_000, 40_000, 9_000 + TURN, 9_000_000]);
    assert!(wheel.is_empty());
}

#[test]
fn an_idle_wheel_never_wakes() {
    let mut wheel = Wheel::default();
    assert_eq!(wheel.next_at(), None);
    let ids: Vec<_> = (0..1000).map(|n| wheel.insert(Time(n * 37), n)).collect();
    for id in ids {
        assert!(wheel.cancel(id).is_some());
    }
    assert_eq!(wheel.next_at(), None);
    assert_eq!(wheel.pop(Time(u64::MAX)), None);
}

#[test]
fn cancelled_timers_cost_no_wake_unless_they_share_a_slot() {
    let mut wheel = Wheel::default();
    wheel.insert(Time(10_000), 1);
    for at in (0..9_000).step_by(3) {
        let id = wheel.insert(Time(at), 0);
        wheel.cancel(id);
    }
    assert_eq!(wheel.next_at(), Some(Time(10_000)));

    let neighbour = wheel.insert(Time(9_999 - TURN / 8), 0);
    wheel.insert(Time(9_999 - TURN / 8 + 1), 2);
    wheel.cancel(neighbour);
    let (wakes, popped) = run(&mut wheel);
    assert_eq!(popped, [(9_999 - TURN / 8 + 1, 2), (10_000, 1)]);
    assert!(wakes.len() <= 3, "{wakes:?}");
}

#[test]
fn a_stale_id_cancels_nothing() {
    let mut wheel = Wheel::default();
    let popped = wheel.insert(Time(1), 'a');
    assert_eq!(wheel.pop(Time(1)), Some('a'));
    assert_eq!(wheel.cancel(popped), None);
    let cancelled = wheel.insert(Time(2), 'b');
    assert_eq!(wheel.cancel(cancelled), Some('b'));
    let there = wheel.insert(Time(3), 'c');
    assert_eq!((wheel.cancel(popped), wheel.cancel(cancelled)), (None, None));
    assert_eq!(wheel.cancel(there), Some('c'));
}

#[test]
fn a_batch_takes_what_is_due_soon_and_leaves_no_wake_for_it() {
    let mut wheel = Wheel::default();
    for at in [100, 101, 300, 900, 1_000, 300 + TURN] {
        wheel.insert(Time(at), at);
    }
    let mut batch = vec![];
    wheel.take_until(Time(900), 10, |&at| at != 101, &mut batch);
    assert_eq!(batch, [100, 300, 900]);
    assert_eq!(wheel.next_at(), Some(Time(101)));
    wheel.take_until(Time(u64::MAX), 2, |_| true, &mut batch);
    assert_eq!(batch.len(), 5);
    assert_eq!(wheel.len(), 1);
}

#[test]
fn a_batch_reaches_into_the_last_slot() {
    let mut wheel = Wheel::default();
    wheel.insert(Time(15), 15);
    wheel.insert(Time(16), 16);
    let mut batch = vec![];
    wheel.take_until(Time(16), 10, |_| true, &mut batch);
    assert_eq!(batch, [15, 16]);
    assert_eq!(wheel.next_at(), None);
}

#[test]
fn the_ends_of_time() {
    let mut wheel = Wheel::default();
    wheel.insert(Time(u64::MAX), 2);
    wheel.insert(Time(0), 1);
    assert_eq!(wheel.pop(Time(u64::MAX - 1)), Some(1));
    assert_eq!(wheel.pop(Time(u64::MAX - 1)), None);
    assert_eq!(wheel.next_at(), Some(Time(u64::MAX)));
    assert_eq!(wheel.pop(Time(u64::MAX)), Some(2));
    assert_eq!(wheel.next_at(), None);
}
