//! What the tests stand on.

pub mod server;

pub use server::Server;
