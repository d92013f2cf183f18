//! What an engine tells whoever listens.

use core::fmt;

use crate::io::{HoldId, OpId};
use crate::name::Name;
use crate::owner::HoldNumber;
use crate::time::{Millis, Time};

/// Why a hold was lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LossReason {
    /// Its deadline passed without a renewal that could be confirmed.
    Expired,
    /// The server says that the lock is not ours: deleted, forced, or taken by another.
    Taken,
    /// Another value stands at the lock's key.
    Overwritten,
    /// `max_hold` passed and the last lease ran out.
    MaxHold,
    /// The client was closed while it was held.
    Closed,
}

impl LossReason {
    /// The stable text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::Overwritten => "overwritten",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that happened. Everything but `Lost` and `Warning` is only made while somebody listens.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A hold was granted and claimed, or a level was added to it.
    Acquired { name: Name, hold: HoldId, number: HoldNumber, count: u32 },
    /// A wait began: the lock is held by another.
    Contended { name: Name, op: OpId, ttl: Option<Millis> },
    /// A renewal was confirmed.
    Renewed { name: Name, hold: HoldId, deadline: Time },
    /// A renewal failed or is late. The hold is still valid until its deadline.
    Doubtful { name: Name, hold: HoldId, deadline: Time },
    /// The hold is over although nobody released it.
    Lost { name: Name, hold: HoldId, why: LossReason },
    /// A release was confirmed.
    Released { name: Name, hold: HoldId, count: u32 },
    /// The connection that carries renewals and messages came up or went down.
    Link { up: bool },
    /// Something an operator should know: a lock key without an expiry was given one, a server clock
    /// jumped, a subscription was refused, a wait inside one process takes long.
    Warning { name: Option<Name>, text: String },
}

impl Event {
    /// The stable name of the kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Acquired { .. } => "acquired",
            Self::Contended { .. } => "contended",
            Self::Renewed { .. } => "renewed",
            Self::Doubtful { .. } => "doubtful",
            Self::Lost { .. } => "lost",
            Self::Released { .. } => "released",
            Self::Link { up: true } => "link_up",
            Self::Link { up: false } => "link_down",
            Self::Warning { .. } => "warning",
        }
    }

    /// The lock it is about, if about one.
    #[must_use]
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::Acquired { name, .. }
            | Self::Contended { name, .. }
            | Self::Renewed { name, .. }
            | Self::Doubtful { name, .. }
            | Self::Lost { name, .. }
            | Self::Released { name, .. } => Some(name),
            Self::Warning { name, .. } => name.as_ref(),
            Self::Link { .. } => None,
        }
    }
}
