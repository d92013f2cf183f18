//! The states of an acquire, and every arrow between them.

use crate::arrows::Arrow;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum State {
    /// Nothing was done yet.
    New,
    /// Behind others of this process; nothing is sent.
    Queued,
    /// A try is out.
    Trying,
    /// A try failed for a reason that passes; the next one is timed.
    HeldOff,
    /// In front of the queue, waits for the subscription.
    Subscribing,
    /// In front of the queue, waits for a message or the end of the other's lease.
    Parked,
    /// Granted; the caller has not resumed yet.
    Granted,
    /// The grant was given back because the caller did not resume; passed over until it does.
    Passed,
    /// Over.
    Ended,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Queued => "queued",
            Self::Trying => "trying",
            Self::HeldOff => "held off",
            Self::Subscribing => "subscribing",
            Self::Parked => "parked",
            Self::Granted => "granted",
            Self::Passed => "passed",
            Self::Ended => "ended",
        }
    }
}

#[rustfmt::skip]
pub(crate) const ARROWS: &[Arrow] = &[
    ("new",         "first try",        "trying"),
    ("new",         "others wait",      "queued"),
    ("new",         "local re-entry",   "granted"),
    ("trying",      "granted",          "granted"),
    ("trying",      "busy",             "queued"),      // then what its place says, or a re-entry
    ("trying",      "no script",        "trying"),      // again, with the text
    ("trying",      "failed",           "held off"),
    ("trying",      "link down",        "queued"),
    ("trying",      "over",             "ended"),       // refused, lost, cancelled, out of time
    ("held off",    "again",            "trying"),
    ("held off",    "over",             "ended"),
    ("queued",      "woken meanwhile",  "trying"),      // a message came while the busy try was out (M43)
    ("queued",      "own hold",         "trying"),      // its owner has come to hold the lock by another wish
    ("queued",      "local re-entry",   "granted"),
    ("queued",      "to the front",     "subscribing"),
    ("queued",      "front and known",  "parked"),
    ("queued",      "front and free",   "trying"),
    ("queued",      "over",             "ended"),       // wait=0 and busy, cancelled, out of time
    ("subscribing", "woken",            "trying"),
    ("subscribing", "time",             "trying"),
    ("subscribing", "refused",          "parked"),
    ("subscribing", "others first",     "parked"),      // confirmed, but other processes go first (turns.rs)
    ("subscribing", "overtaken",        "queued"),      // one with an older place has turned again
    ("subscribing", "over",             "ended"),
    ("parked",      "woken",            "trying"),
    ("parked",      "time",             "trying"),
    ("parked",      "overtaken",        "queued"),
    ("parked",      "over",             "ended"),
    ("granted",     "claimed",          "ended"),
    ("granted",     "claimed too late", "queued"),
    ("granted",     "nobody claims",    "passed"),
    ("granted",     "over",             "ended"),       // cancelled, closed, lost meanwhile
    ("passed",      "host turned",      "queued"),
    ("passed",      "over",             "ended"),
];
