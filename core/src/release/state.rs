//! The states of a release, and every arrow between them.

use crate::arrows::Arrow;

#[rustfmt::skip]
pub(crate) const ARROWS: &[Arrow] = &[
    ("new",      "began",        "sent"),
    ("sent",     "no script",    "sent"),     // again, with the text
    ("sent",     "failed",       "held off"), // the next send is timed; the first one comes at once
    ("held off", "again",        "sent"),
    ("sent",     "answered",     "ended"),
    ("sent",     "still stale",  "sent"),     // a connection became known that is to be killed yet
    ("sent",     "not fenced",   "resting"),  // an old connection may still run something: said again later
    ("resting",  "echo",         "sent"),     // after 1, 3, 10 s and L
    ("resting",  "over",         "ended"),    // closed
    ("sent",     "free at last", "ended"),    // the lease must have ended by now
    ("held off", "settled",      "ended"),    // another release of this hold was answered meanwhile
    ("sent",     "joined",       "ended"),    // called again after `release_unknown`: the new one goes on for both
    ("held off", "joined",       "ended"),
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum State {
    New,
    Sent,
    HeldOff,
    Resting,
    Ended,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Sent => "sent",
            Self::HeldOff => "held off",
            Self::Resting => "resting",
            Self::Ended => "ended",
        }
    }
}
