//! What may happen next in a random world.

use proptest::prelude::*;

use super::random::{CLIENTS, LONGEST};
use super::world::CALLER;
use crate::io::{Link, Wait, Wire};
use crate::time::Millis;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Acquire { owner: u64, lock: bool, wait: Wait, lease: Option<Millis> },
    Reenter(usize),
    Claim,
    Release(usize),
    ReleaseAgain(usize),
    Extend(usize, u64),
    Cancel(usize),
    Deliver(Wire),
    Execute(Wire),
    Reply(Wire),
    Cut { wire: Wire, executed: usize, late: bool },
    NotSent(Wire),
    Busy(Wire),
    NoScript,
    Haunt,
    Subscribe,
    Push,
    DropPush,
    Link(Link),
    OwnerGone(u64),
    Listeners(i64),
    Pass(u64),
    Run,
}

fn wire() -> impl Strategy<Value = Wire> {
    prop_oneof![Just(Wire::KEEPER), Just(CALLER)]
}

pub(super) fn step() -> impl Strategy<Value = (usize, Step)> {
    let wait = prop_oneof![Just(Wait::Try), Just(Wait::Forever), (50u64..5_000).prop_map(|ms| Wait::For(Millis(ms)))];
    let lease = prop_oneof![3 => Just(None), 1 => (100u64..LONGEST).prop_map(|ms| Some(Millis(ms)))];
    let step = prop_oneof![
        5 => (1u64..4, prop::bool::weighted(0.2), wait, lease)
            .prop_map(|(owner, lock, wait, lease)| Step::Acquire { owner, lock, wait, lease }),
        1 => (0usize..4).prop_map(Step::Reenter),
        6 => Just(Step::Claim),
        4 => (0usize..4).prop_map(Step::Release),
        1 => (0usize..4).prop_map(Step::ReleaseAgain),
        1 => (0usize..4, 100u64..LONGEST).prop_map(|(hold, lease)| Step::Extend(hold, lease)),
        2 => (0usize..4).prop_map(Step::Cancel),
        6 => wire().prop_map(Step::Deliver),
        4 => wire().prop_map(Step::Execute),
        4 => wire().prop_map(Step::Reply),
        3 => (wire(), 0usize..3, any::<bool>()).prop_map(|(wire, executed, late)| Step::Cut { wire, executed, late }),
        1 => wire().prop_map(Step::NotSent),
        1 => wire().prop_map(Step::Busy),
        1 => Just(Step::NoScript),
        2 => Just(Step::Haunt),
        3 => Just(Step::Subscribe),
        3 => Just(Step::Push),
        1 => Just(Step::DropPush),
        1 => prop_oneof![Just(Link::Requests), Just(Link::Messages)].prop_map(Step::Link),
        1 => (1u64..4).prop_map(Step::OwnerGone),
        1 => (0i64..5).prop_map(Step::Listeners),
        6 => prop_oneof![4 => 1u64..100, 3 => 100u64..1_500, 1 => 1_500u64..6_000].prop_map(Step::Pass),
        4 => Just(Step::Run),
    ];
    (0..CLIENTS, step)
}

/// Processes that want one lock, over a network that only takes its time.
pub(super) fn crowd() -> impl Strategy<Value = (usize, Step)> {
    let wait = prop_oneof![4 => Just(Wait::Forever), 1 => Just(Wait::Try), 1 => (1u64..200).prop_map(|ms| Wait::For(Millis(ms)))];
    let step = prop_oneof![
        4 => (1u64..3, wait).prop_map(|(owner, wait)| Step::Acquire { owner, lock: false, wait, lease: None }),
        4 => Just(Step::Claim),
        4 => Just(Step::Release(0)),
        1 => (0usize..2).prop_map(Step::Cancel),
        8 => wire().prop_map(Step::Execute),
        8 => wire().prop_map(Step::Reply),
        4 => Just(Step::Subscribe),
        6 => Just(Step::Push),
        1 => (0i64..3).prop_map(Step::Listeners),
        3 => prop_oneof![(0u64..4), (0u64..80), (800u64..1_200)].prop_map(Step::Pass),
        2 => Just(Step::Run),
    ];
    (0..2usize, step)
}
