//! Distributed locks on Redis that Python, Node, Rust and Java programs take turns on.
//!
//! ```no_run
//! # async fn run() -> Result<(), bandog::Error> {
//! let client = bandog::Client::new(bandog::Options::new("redis://127.0.0.1:6379")?)?;
//! let lock = client.lock("order_lock")?;
//! let held = lock.acquire().await?; // waits without polling, renewed in the background
//! held.check()?; // before each effect that needs the lock
//! held.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Every method that does I/O has a `_blocking` twin that serves the socket on the calling thread.
//! [`host`] is what the bindings of other languages stand on.
//!
//! A panic inside the engine unwinds through the call that met it; the mutex around the engine is then
//! taken over as it is, for what it guards is plain data and each hold keeps its own deadline.

mod blocking;
mod carried;
mod client;
mod clock;
mod events;
mod fork;
mod handle;
mod hold;
pub mod host;
mod keeper;
mod listen;
mod lock;
mod loop_wire;
mod mailbox;
mod options;
mod parker;
mod pending;
mod road;
mod runtime;
mod seat;
mod seats;
mod secret;
mod server;
mod shared;
mod signals;
mod sleep;
mod sync;
mod sys;
mod terms;
mod turn;
mod visit;
mod waiter;
mod wire;

pub use bandog_core::error::{Code, Error};
pub use bandog_core::event::{Event, LossReason};
pub use bandog_core::io::HoldView;
pub use bandog_core::name::Name;
pub use bandog_core::owner::ClientId;
pub use bandog_core::time::{Millis, Time};

pub use client::Client;
pub use events::Events;
pub use hold::Hold;
pub use lock::Lock;
pub use options::Options;
pub use terms::Terms;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
