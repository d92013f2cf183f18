//! The driver's own code of how threads share a wire (`driver/src/seats.rs` and what it stands on), run by
//! loom in every order of events up to a number of preemptions. The engine, the server and the kernel are
//! played (`world.rs`, `kernel.rs`); nothing here wakes by time, so a wake that is lost is a deadlock, which
//! loom finds.

mod kernel;
pub mod scene;
mod world;

#[expect(dead_code, reason = "only what threads use is tried here")]
#[path = "../../../driver/src/parker.rs"]
mod parker;
#[path = "../../../driver/src/seat.rs"]
mod seat;
#[expect(dead_code, reason = "only what threads use is tried here")]
#[path = "../../../driver/src/seats.rs"]
mod seats;
#[expect(unreachable_pub, reason = "public in the driver")]
#[path = "../../../driver/src/signals.rs"]
mod signals;
#[path = "../../../driver/src/visit.rs"]
mod visit;

// Under the names by which those files know them.
use kernel::{clock, fork, handle, sleep, sync, sys};
use world::{road, shared};
