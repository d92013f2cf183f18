//! The engine: wish, report, drain (design 2). SKELETON for the first hour; the real one replaces it.
use crate::config::Config;
use crate::error::Error;
use crate::io::*;
use crate::name::Name;
use crate::owner::{ClientId, LocalOwner};
use crate::time::{Millis, Time};

/// Everything about locks is decided here.
#[derive(Debug)]
pub struct Engine {}

#[allow(unused_variables, missing_docs, clippy::unimplemented)]
impl Engine {
    pub fn new(config: Config, client: ClientId, seed: u64) -> Self { unimplemented!() }
    // Wishes. Each returns an id whose `Output::Done` comes exactly once (for an acquire: once for each
    // time a claim answers `Again`, plus one), unless it is cancelled.
    pub fn acquire(&mut self, now: Time, request: AcquireRequest) -> OpId { unimplemented!() }
    pub fn release(&mut self, now: Time, target: Target, wire: Wire) -> OpId { unimplemented!() }
    pub fn extend(&mut self, now: Time, hold: HoldId, lease: Millis, wire: Wire) -> OpId { unimplemented!() }
    pub fn force_release(&mut self, now: Time, name: Name, wire: Wire) -> OpId { unimplemented!() }
    pub fn status(&mut self, now: Time, name: Name, wire: Wire) -> OpId { unimplemented!() }
    /// The caller of an acquire resumed and takes its grant.
    pub fn claim(&mut self, now: Time, op: OpId) -> Claim { unimplemented!() }
    /// The caller is gone. No `Done` follows; what the wish did or may do is undone. Any wish; a release goes on in the background.
    pub fn cancel(&mut self, now: Time, op: OpId) { unimplemented!() }
    /// The thread, task or scope ended.
    pub fn owner_gone(&mut self, now: Time, owner: LocalOwner) { unimplemented!() }
    /// No handle of this level is reachable any more.
    pub fn handle_dropped(&mut self, now: Time, hold: HoldId, level: LevelId) { unimplemented!() }
    /// Ends every wish with `closed`, releases every hold over `wire`. Drained when [`Engine::is_idle`].
    pub fn close(&mut self, now: Time, wire: Wire) { unimplemented!() }
    /// Whether events other than losses and warnings are wanted.
    pub fn set_listening(&mut self, listening: bool) { unimplemented!() }
    // Reports.
    pub fn handle_reply(&mut self, now: Time, call: CallId, result: Result<Value, CallError>) { unimplemented!() }
    /// The server refused a `CLIENT KILL` in front of this call. Comes before the call's reply.
    pub fn handle_unfenced(&mut self, now: Time, call: CallId) { unimplemented!() }
    pub fn handle_push(&mut self, now: Time, push: Push) { unimplemented!() }
    pub fn handle_link(&mut self, now: Time, link: Link, up: bool) { unimplemented!() }
    pub fn handle_timeout(&mut self, now: Time) { unimplemented!() }
    // What to do now.
    pub fn poll(&mut self) -> Option<Output> { unimplemented!() }
    pub fn poll_timeout(&self) -> Option<Time> { unimplemented!() }
    // Getters, no I/O.
    pub fn view(&self, now: Time, hold: HoldId) -> Option<HoldView> { unimplemented!() }
    /// `lock_lost` unless the hold is valid at this instant.
    pub fn check(&self, now: Time, hold: HoldId) -> Result<(), Error> { unimplemented!() }
    /// How many levels this owner has on this lock; 0 when it holds nothing valid.
    pub fn count(&self, now: Time, name: &Name, owner: LocalOwner) -> u32 { unimplemented!() }
    /// Nothing under way: no call without reply, no wish, no clean-up.
    pub fn is_idle(&self) -> bool { unimplemented!() }
    pub fn client_id(&self) -> ClientId { unimplemented!() }
    pub fn config(&self) -> &Config { unimplemented!() }
}
