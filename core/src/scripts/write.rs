//! Requests, written as keys and arguments. Twice per lock cycle: no allocation, numbers and short texts
//! are made on the stack.

use super::{Ask, MAX_BATCH, Request, Script, Sink};
use crate::name::{MAX_NAME_BYTES, Name};
use crate::text::Text;

/// Sharded publishing is for clusters; everywhere else Redisson uses this (protocol 2.1).
const PUBLISH: &[u8] = b"PUBLISH";

impl Ask {
    /// The script that answers it.
    #[must_use]
    pub const fn script(&self) -> Script {
        match self {
            Self::Acquire { .. } => Script::Acquire,
            Self::Release { .. } => Script::Release,
            Self::Renew(_) => Script::Renew,
            Self::Force { .. } => Script::Force,
            Self::Status { .. } => Script::Status,
        }
    }
}

impl Request {
    /// Gives the sink the keys, then the arguments, and says which script they are for.
    pub fn write(&self, sink: &mut impl Sink) -> Script {
        match &self.ask {
            Ask::Acquire { name, owner, lease, count, fresh, heal } => {
                sink.key(name.as_str().as_bytes());
                number(sink, lease.0);
                sink.arg(owner.text().bytes());
                number(sink, u64::from(*count));
                sink.arg(if *fresh { b"1" } else { b"0" });
                number(sink, heal.0);
            }
            Ask::Release { name, owner, lease, count } => {
                sink.key(name.as_str().as_bytes());
                channel(sink, name);
                sink.arg(owner.text().bytes());
                number(sink, u64::from(*count));
                number(sink, lease.0);
                sink.arg(PUBLISH);
            }
            Ask::Renew(renewals) => {
                debug_assert!((1..=MAX_BATCH).contains(&renewals.len()), "{} renewals in one call", renewals.len());
                for renewal in renewals {
                    sink.key(renewal.name.as_str().as_bytes());
                }
                for renewal in renewals {
                    sink.arg(renewal.owner.text().bytes());
                }
                // Nearly always the watchdog's: said once, for each argument costs the server.
                let single = renewals.iter().all(|renewal| renewal.lease == renewals[0].lease);
                for renewal in renewals.iter().take(if single { 1 } else { renewals.len() }) {
                    number(sink, renewal.lease.0);
                }
            }
            Ask::Force { name, owners } => {
                debug_assert!(owners.len() <= MAX_BATCH, "{} owners in one call", owners.len());
                sink.key(name.as_str().as_bytes());
                channel(sink, name);
                sink.arg(PUBLISH);
                for owner in owners {
                    sink.arg(owner);
                }
            }
            Ask::Status { name } => sink.key(name.as_str().as_bytes()),
        }
        self.ask.script()
    }
}

fn number(sink: &mut impl Sink, value: u64) {
    let mut text = Text::<20>::new();
    text.number(value);
    sink.arg(text.bytes());
}

fn channel(sink: &mut impl Sink, name: &Name) {
    let mut text = Text::<{ MAX_NAME_BYTES + 32 }>::new();
    for part in name.channel_parts() {
        text.push(part.as_bytes());
    }
    sink.key(text.bytes());
}
