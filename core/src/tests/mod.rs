//! The machines, proven in a world of numbers: one model server, wires under the test's control, time
//! that passes when told. Tests carry the ID of the property or planted bug that they are about.

mod acquire;
mod arrows;
mod batches;
mod cancel;
mod close;
mod crossing;
mod errands;
mod links;
mod local;
mod network;
mod random;
mod reentry;
mod release;
mod road;
mod server;
mod steps;
mod together;
mod turns;
mod waiting;
mod watchdog;
mod world;
