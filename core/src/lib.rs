//! The sans-IO engine of Bandog.

#![forbid(unsafe_code)]

pub mod config;
pub mod engine;
pub mod error;
pub mod event;
pub mod io;
pub mod name;
pub mod owner;
pub mod scripts;
pub mod time;
pub mod wheel;

pub use engine::Engine;
