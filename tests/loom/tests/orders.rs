//! No wake is lost, and the lead never, whatever happens first.

use bandog_loom::scene::{Fate::*, Manner::*, run};

#[test]
fn one_reads_for_both() {
    run(2, true, &[&[(Answered, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn a_thread_comes_back_at_once() {
    run(2, true, &[&[(Answered, Stays), (Answered, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn one_gives_up() {
    run(2, true, &[&[(Answered, GivesUp)], &[(Answered, Stays)]]);
}

#[test]
fn both_give_up() {
    run(2, true, &[&[(Answered, GivesUp)], &[(Answered, GivesUp)]]);
}

#[test]
fn one_looks_after_a_signal() {
    run(2, true, &[&[(Answered, Looks)], &[(Answered, Stays)]]);
}

#[test]
fn a_leader_dies() {
    run(2, true, &[&[(Answered, Dies)], &[(Answered, Stays)]]);
}

#[test]
fn one_waits_for_its_turn() {
    run(2, true, &[&[(Busy, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn the_connection_comes_late() {
    run(2, false, &[&[(Answered, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn the_connection_breaks() {
    run(2, true, &[&[(Breaks, Stays)], &[(Answered, Stays)]]);
}
