//! What passes between the engine and its host: ids, calls, replies, outcomes.

use crate::error::Error;
use crate::event::Event;
use crate::name::{Channel, Name};
use crate::owner::LocalOwner;
use crate::scripts::Request;
use crate::time::{Millis, Time};

/// One wish under way. Ids are never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// One request on its way to the server. Ids are never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// One hold of one lock. Ids are never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HoldId(pub u64);

/// One level of a hold: what one acquire added and one release takes away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LevelId(pub u32);

/// A road to the server, by the number its host gave it. Requests that name one wire must reach the
/// server in the order in which the engine made them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Wire(pub u32);

impl Wire {
    /// The keeper's own: renewals, and the tries of parked waiters.
    pub const KEEPER: Self = Self(0);
}

/// A connection that must not execute anything any more: `CLIENT KILL ID <id> ADDR <addr>`, both as the
/// server named them at the handshake.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fence {
    /// The connection's id.
    pub id: u64,
    /// The connection's address as the server sees it.
    pub addr: String,
}

/// A request to send now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// Comes back with the reply.
    pub id: CallId,
    /// Which way it goes.
    pub wire: Wire,
    /// What is asked. [`Request::write`] turns it into keys and arguments.
    pub request: Request,
    /// Connections to kill first, in the same write.
    pub fences: Vec<Fence>,
}

/// A server's value, as plain as it came.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// Nothing.
    Nil,
    /// An integer.
    Int(i64),
    /// A bulk, simple or verbatim string.
    Text(Vec<u8>),
    /// An array.
    List(Vec<Self>),
}

/// Why a call has no value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CallError {
    /// It never left: there was no connection, and none could be made.
    NotSent(Error),
    /// It may have run. The fence names the connection that carried it, where the handshake learned it.
    Unknown(Option<Fence>),
    /// The server refused it; the text of its error reply.
    Server(String),
}

/// How long an acquire may wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wait {
    /// One try.
    Try,
    /// This long in all.
    For(Millis),
    /// Until it is granted.
    Forever,
}

/// A wish to hold a lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AcquireRequest {
    /// Which lock.
    pub name: Name,
    /// For whom.
    pub owner: LocalOwner,
    /// The caller's own wire.
    pub wire: Wire,
    /// How long to wait.
    pub wait: Wait,
    /// A fixed lease, or the watchdog.
    pub lease: Option<Millis>,
    /// Adds a level to this very hold, whoever asks (`held.reenter()`).
    pub reenter: Option<HoldId>,
}

/// Which level a release or an extension is about.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// The level of a handle.
    Level(HoldId, LevelId),
    /// The caller's innermost level of a lock.
    Innermost { name: Name, owner: LocalOwner },
}

/// How a wish ended.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The lock is ours once [`crate::Engine::claim`] says so.
    Granted,
    /// Another holds it, and the wait is over.
    Busy,
    /// A level was released; this many levels are left.
    Released { left: u32 },
    /// The hold's lease was extended.
    Extended,
    /// A forced release: whether there was anything to delete.
    Forced(bool),
    /// What the server says of the lock: `None` free, else its time to live (`None` inside: no expiry).
    Status(Option<Option<Millis>>),
    /// It failed.
    Failed(Error),
}

/// A claimed grant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Claimed {
    /// The hold.
    pub hold: HoldId,
    /// The level this acquire added.
    pub level: LevelId,
    /// `<uuid>:<number>` as in the lock's hash.
    pub owner: String,
    /// The fencing token, for kinds that have one.
    pub token: Option<u64>,
}

/// The answer to a claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Claim {
    /// The caller holds the lock.
    Held(Claimed),
    /// The grant came too late to be of use and was given back; the wish goes on, wait for its next `Done`.
    Again,
    /// There is no such wish, or it ended meanwhile.
    Gone,
}

/// What a hold looks like at one instant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HoldView {
    /// Whether the hold is good at this very instant.
    pub valid: bool,
    /// Whether it was lost, and why.
    pub lost: Option<crate::event::LossReason>,
    /// How many levels it has.
    pub count: u32,
    /// How long it is valid yet without another renewal.
    pub remaining: Millis,
    /// The deadline D itself.
    pub deadline: Time,
}

/// One of the keeper's two connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Link {
    /// Carries [`Wire::KEEPER`].
    Requests,
    /// Carries subscriptions.
    Messages,
}

/// What the connection of subscriptions brought.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Push {
    /// The server confirmed a subscription.
    Subscribed(Channel),
    /// The server refused a subscription; the text of its error.
    Refused(Channel, String),
    /// A message on a channel.
    Message(Channel, Vec<u8>),
}

/// What the host must do now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output {
    /// Send this request; report with [`crate::Engine::handle_reply`].
    Send(Call),
    /// Subscribe; report with [`crate::Engine::handle_push`].
    Subscribe(Channel),
    /// Unsubscribe; nothing to report.
    Unsubscribe(Channel),
    /// Close this wire's connection, for a request on it got no reply in time; report every request
    /// under way on it. A fresh connection serves the wire from then on.
    Sever(Wire),
    /// A wish has an outcome.
    Done(OpId, Outcome),
    /// Something happened.
    Event(Event),
}
