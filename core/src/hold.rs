//! One hold: a number of this client on a server, from its first request to its last.

use crate::arrows::{self, Arrow};
use crate::config::margin;
use crate::event::LossReason;
use crate::io::{HoldView, LevelId, OpId};
use crate::name::Name;
use crate::owner::{HoldNumber, LocalOwner};
use crate::road::Road;
use crate::time::{Millis, Time};
use crate::wheel::TimerId;

// Lost and Released are final (S4). A released hold stays in the table until its release is settled.
#[rustfmt::skip]
pub(crate) const ARROWS: &[Arrow] = &[
    ("asked",    "granted",  "live"),
    ("asked",    "given up", "released"), // a release follows if anything was sent
    ("live",     "renewed",  "live"),     // a new deadline
    ("live",     "doubt",    "doubtful"), // a renewal failed or is late; told, still valid
    ("doubtful", "doubt",    "doubtful"), // told once
    ("doubtful", "renewed",  "live"),
    ("live",     "deadline", "lost"),     // expired, or max_hold
    ("doubtful", "deadline", "lost"),
    ("live",     "not ours", "lost"),     // taken, or overwritten
    ("doubtful", "not ours", "lost"),
    ("live",     "closed",   "lost"),     // the client closes; told before the release
    ("doubtful", "closed",   "lost"),
    ("live",     "released", "released"), // renewal ends before the first byte of the release
    ("doubtful", "released", "released"),
    ("lost",     "released", "released"),
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Phase {
    Asked,
    Live,
    Doubtful,
    Lost(LossReason),
    Released,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Live => "live",
            Self::Doubtful => "doubtful",
            Self::Lost(_) => "lost",
            Self::Released => "released",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Level {
    pub(crate) id: LevelId,
    /// A handle of this level is reachable.
    pub(crate) handle: bool,
    pub(crate) owner: LocalOwner,
}

/// The end of a list of holds.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Hold {
    pub(crate) name: Name,
    pub(crate) owner: LocalOwner,
    pub(crate) number: HoldNumber,
    pub(crate) levels: Vec<Level>,
    /// When the request was made that set the present lease.
    pub(crate) sent: Time,
    pub(crate) lease: Millis,
    /// The last instant at which the server may still keep it, whatever was answered.
    pub(crate) free_at: Time,
    pub(crate) since: Time,
    pub(crate) road: Road,
    pub(crate) timer: Option<TimerId>,
    pub(crate) phase: Phase,
    /// The count that the server has.
    pub(crate) server_count: u32,
    /// Levels asked for and not yet answered.
    pub(crate) asked: u32,
    pub(crate) next_level: u32,
    /// The wish that works on it: the acquire while it is asked for, the release once it is released.
    pub(crate) op: Option<OpId>,
    /// Levels whose release was never answered: releasing them again is allowed.
    #[expect(clippy::box_collection, reason = "rare: 8 bytes in each hold instead of 24")]
    pub(crate) unsettled: Option<Box<Vec<LevelId>>>,
    pub(crate) renewing: bool,
    pub(crate) watched: bool,
    pub(crate) owner_alive: bool,
    /// Its owner was told of the loss by a later acquire.
    pub(crate) dropped: bool,
    /// The watchdog ended its watch because of `max_hold`.
    pub(crate) capped: bool,
    /// The server said that nothing of it is left.
    pub(crate) gone: bool,
    /// Why it was lost before its outermost release began.
    pub(crate) lost_before: Option<LossReason>,
    pub(crate) failures: u8,
    pub(crate) named_next: u32,
    pub(crate) owned_next: u32,
    pub(crate) owned_prev: u32,
}

impl Hold {
    pub(crate) fn new(name: Name, owner: LocalOwner, number: HoldNumber, now: Time) -> Self {
        Self {
            name,
            owner,
            number,
            levels: Vec::new(),
            sent: now,
            lease: Millis::ZERO,
            free_at: now,
            since: now,
            road: Road::default(),
            timer: None,
            phase: Phase::Asked,
            server_count: 0,
            asked: 0,
            next_level: 0,
            op: None,
            unsettled: None,
            renewing: false,
            watched: false,
            owner_alive: true,
            dropped: false,
            capped: false,
            gone: false,
            lost_before: None,
            failures: 0,
            named_next: NONE,
            owned_next: NONE,
            owned_prev: NONE,
        }
    }

    pub(crate) fn arrow(&mut self, why: &'static str, to: Phase) {
        arrows::take(ARROWS, self.phase.name(), why, to.name());
        self.phase = to;
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Live | Phase::Doubtful)
    }

    /// D: from here on it is not valid any more.
    pub(crate) fn deadline(&self) -> Time {
        self.sent + self.lease.saturating_sub(margin(self.lease))
    }

    pub(crate) fn is_valid(&self, now: Time) -> bool {
        self.is_running() && now < self.deadline()
    }

    /// The server confirmed a lease that a request made at `sent` asked for.
    pub(crate) fn confirm(&mut self, sent: Time, lease: Millis) {
        let deadline = sent + lease.saturating_sub(margin(lease));
        // Replies of one road come in order, those of a renewal beside it may not: the later deadline
        // was granted by a later request and stands.
        if deadline >= self.deadline() || self.phase == Phase::Asked {
            (self.sent, self.lease) = (sent, lease);
        }
        self.failures = 0;
    }

    /// The lease that the next request of this hold sets: the watchdog's if watched, what was asked for if
    /// that is more, and what is left of the longest one so far (design 3).
    pub(crate) fn next_lease(&self, now: Time, watchdog: Millis, asked: Option<Millis>) -> Millis {
        let floor = if self.watched || asked.is_none() { watchdog } else { Millis::ZERO };
        let left = (self.sent + self.lease).since(now);
        floor.max(asked.unwrap_or_default()).max(left)
    }

    /// The count this hold should have: levels held and levels under way.
    pub(crate) fn wanted(&self) -> u32 {
        self.levels.len() as u32 + self.asked
    }

    pub(crate) fn add_level(&mut self, owner: LocalOwner) -> LevelId {
        let id = LevelId(self.next_level);
        self.next_level += 1;
        // Nearly always the only one: room for four would cost each hold a hundred bytes.
        self.levels.reserve_exact(1);
        self.levels.push(Level { id, handle: true, owner });
        id
    }

    /// The server has nothing of it, and nothing that still runs can bring it back.
    pub(crate) fn nothing_is_left(&self) -> bool {
        let disowned = matches!(self.phase, Phase::Lost(LossReason::Taken | LossReason::Overwritten));
        (self.gone || disowned) && !self.road.is_stale() && !self.road.is_unfenced()
    }

    /// Nobody is left who could release it (L9).
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.owner_alive && self.asked == 0 && self.levels.iter().all(|level| !level.handle)
    }

    /// Why it is not valid any more; only of use once it is not.
    pub(crate) fn why_lost(&self, now: Time) -> LossReason {
        match self.phase {
            Phase::Lost(why) => why,
            _ if now < self.deadline() => LossReason::Taken,
            _ if self.capped => LossReason::MaxHold,
            _ => LossReason::Expired,
        }
    }

    pub(crate) fn view(&self, now: Time) -> HoldView {
        let valid = self.is_valid(now);
        let lost = match self.phase {
            Phase::Lost(why) => Some(why),
            Phase::Live | Phase::Doubtful if !valid => Some(self.why_lost(now)),
            _ => None,
        };
        HoldView {
            valid,
            lost,
            count: self.levels.len() as u32,
            remaining: if valid { self.deadline().since(now) } else { Millis::ZERO },
            deadline: self.deadline(),
        }
    }
}
