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
mod hold;
mod holds;
pub mod io;
mod loss;
pub mod name;
pub mod owner;
mod refusal;
mod release;
mod road;
pub mod scripts;
mod slab;
#[cfg(test)]
mod tests;
pub mod time;
mod waiters;
mod watchdog;
pub mod wheel;

pub use engine::Engine;
