//! The sans-IO engine of Bandog.
#![forbid(unsafe_code)]

mod acquire;
mod arrows;
mod calls;
mod channels;
pub mod config;
pub mod engine;
mod errand;
pub mod error;
pub mod event;
mod holds;
pub mod io;
pub mod name;
pub mod owner;
mod refusal;
mod release;
mod road;
pub mod scripts;
mod slab;
pub mod time;
mod waiters;
mod watchdog;
pub mod wheel;

pub use engine::Engine;
