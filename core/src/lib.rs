//! The sans-IO engine of Bandog: it decides about locks, and does nothing else.
//!
//! [`Engine`] is a plain struct without socket, clock, thread or randomness. A *host* lends it those:
//!
//! - It states **wishes** for the application: [`Engine::acquire`], [`Engine::release`], [`Engine::extend`],
//!   [`Engine::status`], [`Engine::force_release`], [`Engine::cancel`], [`Engine::close`]; and it says what
//!   the engine cannot see: [`Engine::owner_gone`], [`Engine::handle_dropped`].
//! - It makes **reports**: every call once to [`Engine::handle_reply`], preceded by
//!   [`Engine::handle_unfenced`] where the server would not kill a connection; what a subscription brought
//!   to [`Engine::handle_push`]; the keeper's two links to [`Engine::handle_link`]; and
//!   [`Engine::handle_timeout`] no later than [`Engine::poll_timeout`] says.
//! - After each of these, still under the same mutex, it **drains** [`Engine::poll`] until `None` and does
//!   what the [`io::Output`]s say.
//!
//! What the engine relies on:
//!
//! - *Time* is milliseconds of a clock that counts suspend, rounded down, the same for every call.
//! - *A wire* is a road in order: calls that name one wire reach the server in the order in which they came
//!   out. After [`io::Output::Sever`] its connection is closed and all its calls are reported; the next
//!   call finds a fresh one.
//! - *An unknown outcome is told as such.* [`io::CallError::Unknown`] as soon as one byte may have left,
//!   [`io::CallError::NotSent`] only if none did. `fences` of a call are killed in front of it.
//! - *A grant is an offer.* `Done(op, Granted)` wakes the caller; the code that resumes in it calls
//!   [`Engine::claim`]. `Again` means: wait for the next `Done`. Every other outcome is final.
//!
//! A host as small as it gets, whose server is a sheet of paper:
//!
//! ```
//! use bandog_core::config::Config;
//! use bandog_core::io::{AcquireRequest, Claim, OpId, Outcome, Output, Target, Value, Wait, Wire};
//! use bandog_core::name::Name;
//! use bandog_core::owner::{ClientId, LocalOwner};
//! use bandog_core::scripts::Ask;
//! use bandog_core::{Engine, time::Time};
//!
//! /// Does what the engine says until there is nothing more; tells what became of the wishes.
//! fn drain(engine: &mut Engine, now: Time, paper: &mut Vec<String>) -> Vec<(OpId, Outcome)> {
//!     let mut done = Vec::new();
//!     while let Some(output) = engine.poll() {
//!         match output {
//!             Output::Send(call) => {
//!                 // A real host writes EVALSHA with the keys and arguments of `call.request.write(..)`.
//!                 let value = match &call.request.ask {
//!                     Ask::Acquire { owner, count, .. } => {
//!                         paper.push(owner.to_string());
//!                         Value::Int(i64::from(*count))
//!                     }
//!                     Ask::Release { .. } => {
//!                         paper.clear();
//!                         Value::List(vec![Value::Int(0)])
//!                     }
//!                     other => unreachable!("not in this example: {other:?}"),
//!                 };
//!                 engine.handle_reply(now, call.id, Ok(value));
//!             }
//!             Output::Done(op, outcome) => done.push((op, outcome)),
//!             Output::Subscribe(_) | Output::Unsubscribe(_) | Output::Sever(_) | Output::Event(_) => {}
//!         }
//!     }
//!     done
//! }
//!
//! let mut engine = Engine::new(Config::default(), ClientId([7; 16]), 0);
//! let (mut paper, caller) = (Vec::new(), Wire(1));
//! let name = Name::new("order_lock")?;
//! let request = AcquireRequest {
//!     name, owner: LocalOwner(1), wire: caller, wait: Wait::Forever, lease: None, reenter: None,
//! };
//!
//! let op = engine.acquire(Time(0), request);
//! assert_eq!(drain(&mut engine, Time(0), &mut paper), [(op, Outcome::Granted)]);
//! let Claim::Held(held) = engine.claim(Time(1), op) else { panic!("nobody else is here") };
//! assert_eq!(paper, [held.owner.clone()]);
//! assert!(engine.check(Time(26_999), held.hold).is_ok(), "30 s less a margin, from the send");
//! assert_eq!(engine.poll_timeout(), Some(Time(10_000)), "by then it wants to renew");
//!
//! let op = engine.release(Time(2), Target::Level(held.hold, held.level), caller);
//! assert_eq!(drain(&mut engine, Time(2), &mut paper), [(op, Outcome::Released { left: 0 })]);
//! assert!(paper.is_empty() && engine.is_idle());
//! # Ok::<(), bandog_core::error::Error>(())
//! ```
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
mod text;
pub mod time;
mod waiters;
mod watchdog;
pub mod wheel;

pub use engine::Engine;
