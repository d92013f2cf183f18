//! What the tests stand on.

pub mod proxy;
pub mod server;

pub use proxy::Proxy;
pub use server::Server;
