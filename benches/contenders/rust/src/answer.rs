//! What a contender is given and what it answers, and how it measures itself.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub const LEASE: Duration = Duration::from_secs(30);

/// The measures of a scenario; each has some of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Given {
    pub name: String,
    pub pairs: usize,
    pub rounds: usize,
    pub inflight: usize,
    pub tasks: usize,
    pub locks: usize,
    pub hold_ms: u64,
    pub lease_ms: u64,
    pub seconds: f64,
    pub start_at: f64,
}

impl Given {
    pub fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    pub fn warm_up(&self) -> usize {
        (self.pairs / 10).max(self.pairs.min(200))
    }

    pub fn warm_rounds(&self) -> usize {
        (self.rounds / 10).max(3)
    }
}

#[derive(Debug, Default, Serialize)]
pub struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquired: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait_ms: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<bool>,
}

/// An answer, or why there can be none.
pub type Outcome = Result<Answer, String>;

impl Answer {
    pub fn unsupported(why: String) -> Self {
        Self { unsupported: Some(why), ..Self::default() }
    }

    pub fn times(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |index: usize| Some(took[index].as_secs_f64() * 1e6);
        Self { p50_us: at(took.len() / 2), p99_us: at(took.len() * 99 / 100), ..Self::default() }
    }

    pub fn with_cpu(mut self, spent: Duration, pairs: usize) -> Self {
        self.cpu_us = Some(spent.as_secs_f64() * 1e6 / pairs as f64);
        self
    }

    pub fn rate(pairs: u64, span: Duration) -> Self {
        Self { pairs_per_s: Some(pairs as f64 / span.as_secs_f64()), ..Self::default() }
    }

    pub fn done() -> Self {
        Self { done: Some(true), ..Self::default() }
    }
}

/// One of `tasks` contenders: what it got within the window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    pub acquired: u64,
    pub longest: f64,
    pub held: f64,
}

impl Share {
    /// Asked and began to hold at these times of the wall clock. Whether that was within the window.
    pub fn add(&mut self, asked: f64, began: f64, end: f64) -> bool {
        self.longest = self.longest.max(began.min(end) - asked);
        self.acquired += u64::from(began < end);
        began < end
    }

    /// Held since then. Timers overshoot, tokio's by a millisecond: how long it was is told, too.
    pub fn held(&mut self, began: f64, end: f64) {
        self.held += wall().min(end) - began;
    }
}

pub fn shares(shares: &[Share], late: f64) -> Answer {
    Answer {
        acquired: Some(shares.iter().map(|share| share.acquired).collect()),
        longest_wait_ms: Some(shares.iter().map(|share| share.longest * 1000.0).collect()),
        held_ms: Some(shares.iter().map(|share| share.held * 1000.0).collect()),
        late_ms: Some(late * 1000.0),
        ..Answer::default()
    }
}

/// Seconds of the wall clock.
pub fn wall() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

pub fn until(wall_time: f64) -> Duration {
    Duration::from_secs_f64((wall_time - wall()).max(0.0))
}

/// How long the waiter of a handoff waits: never the same, so that a poller does not fall into step.
pub fn parked_for(round: usize) -> Duration {
    Duration::from_millis(20 + (round as u64 * 61) % 100)
}

/// What this process has used of a core.
pub fn cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live value, and zeros are one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let span = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    span(usage.ru_utime) + span(usage.ru_stime)
}

pub fn resident_bytes() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a Linux");
    let pages: i64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number of pages");
    pages * 4096
}

pub fn timed(what: impl FnOnce()) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}
