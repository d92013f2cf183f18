//! The scripts: our text, Redisson's data (design 4, protocol section 4). Each file below names its KEYS
//! and ARGV at its top; this module is the only place that writes them and reads the replies.

mod refusal;
mod reply;
#[cfg(test)]
mod tests;
mod write;

pub use refusal::refusal;
pub use reply::Shape;

use crate::name::Name;
use crate::owner::WireOwner;
use crate::time::Millis;

/// The most holds that one renewal names.
pub const MAX_BATCH: usize = 100;

/// A script by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Script {
    /// `acquire.lua`
    Acquire,
    /// `release.lua`
    Release,
    /// `renew.lua`
    Renew,
    /// `force.lua`
    Force,
    /// `status.lua`
    Status,
}

impl Script {
    /// Every script.
    pub const ALL: [Self; 5] = [Self::Acquire, Self::Release, Self::Renew, Self::Force, Self::Status];

    /// The text that the server runs.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::Acquire => concat!(include_str!("shape.lua"), include_str!("acquire.lua")),
            Self::Release => include_str!("release.lua"),
            Self::Renew => include_str!("renew.lua"),
            Self::Force => concat!(include_str!("shape.lua"), include_str!("force.lua")),
            Self::Status => concat!(include_str!("shape.lua"), include_str!("status.lua")),
        }
    }
}

/// One hold of a renewal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Renewal {
    /// The lock.
    pub name: Name,
    /// Whose field must be there.
    pub owner: WireOwner,
    /// The time to live to set.
    pub lease: Millis,
}

/// What a request asks for.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ask {
    /// Reach this count. `fresh` takes a free lock; else the owner's field must be there already.
    Acquire { name: Name, owner: WireOwner, lease: Millis, count: u32, fresh: bool, heal: Millis },
    /// Go down to this count; at zero the hold ends and waiters are told.
    Release { name: Name, owner: WireOwner, lease: Millis, count: u32 },
    /// Set the time to live of each hold that is still ours.
    Renew(Vec<Renewal>),
    /// Delete these owners; with none given, name the owners there are.
    Force { name: Name, owners: Vec<Vec<u8>> },
    /// Whether the lock is held, and for how long yet.
    Status { name: Name },
}

/// A request, ready to be written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// What is asked.
    pub ask: Ask,
    /// Send the text (`EVAL`) instead of its digest (`EVALSHA`): the server did not know the digest.
    pub source: bool,
}

/// Takes the keys and arguments of a request, keys first.
pub trait Sink {
    /// One key.
    fn key(&mut self, key: &[u8]);
    /// One argument.
    fn arg(&mut self, arg: &[u8]);
}

/// A reply, understood.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    /// The owner's field has this count now.
    Granted { count: u32 },
    /// Another holds the lock for so long; `healed` when its key had no expiry and was given one.
    Busy { ttl: Millis, healed: bool },
    /// The owner's field is not there.
    NotOurs,
    /// The lock is free; so many subscribers were told.
    Freed { told: u32 },
    /// This many levels are left.
    Still { count: u32 },
    /// One verdict for each renewal, and the server's clock in microseconds.
    Renewed { verdicts: Vec<Verdict>, server_us: u64 },
    /// The owners that hold the lock.
    Owners(Vec<Vec<u8>>),
    /// How many owners were deleted.
    Forced(u32),
    /// `None` free, else the time to live (`None` inside: no expiry).
    Status(Option<Option<Millis>>),
}

/// What became of one hold of a renewal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Its lease was set.
    Renewed,
    /// It is not ours.
    NotOurs,
    /// The server refused; the text of its error.
    Refused(String),
}
