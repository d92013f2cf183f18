//! No wake is lost, and the lead never, whatever happens first.

use bandog_loom::scene::{Fate::*, Manner::*, Start::*, run};

#[test]
fn one_reads_for_both() {
    run(2, Up, &[&[(Answered, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn a_thread_comes_back_at_once() {
    run(2, Up, &[&[(Answered, Stays), (Answered, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn one_gives_up() {
    run(2, Up, &[&[(Answered, GivesUp)], &[(Answered, Stays)]]);
}

#[test]
fn both_give_up() {
    run(2, Up, &[&[(Answered, GivesUp)], &[(Answered, GivesUp)]]);
}

#[test]
fn one_looks_after_a_signal() {
    run(2, Up, &[&[(Answered, Looks)], &[(Answered, Stays)]]);
}

#[test]
fn a_leader_dies() {
    run(2, Up, &[&[(Answered, Dies)], &[(Answered, Stays)]]);
}

#[test]
fn one_waits_for_its_turn() {
    run(2, Up, &[&[(Busy, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn the_connection_comes_late() {
    run(2, Late, &[&[(Answered, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn the_connection_is_refused() {
    run(2, Refused, &[&[(Answered, Stays)], &[(Answered, Stays)]]);
}

#[test]
fn the_connection_breaks() {
    run(2, Up, &[&[(Breaks, Stays)], &[(Answered, Stays)]]);
}
