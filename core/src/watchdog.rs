//! The watchdog: renewals, and the timer of each hold (reliability L6).
//!
//! A watched hold is renewed every third of its lease, in batches filled up with what is due soon. A
//! renewal that fails makes the hold doubtful and is tried again, ever sooner than the deadline; no error
//! of one hold touches another. What becomes of a hold that is not renewed is told in `loss.rs`.

use crate::calls::{Answer, CallRecord, Purpose, Sending};
use crate::config::margin;
use crate::engine::{Engine, Timer};
use crate::event::{Event, LossReason};
use crate::hold::{Hold, Phase};
use crate::io::{HoldId, Wire};
use crate::owner::WireOwner;
use crate::refusal::Refusal;
use crate::scripts::{Ask, MAX_BATCH, Renewal, Reply, Verdict};
use crate::slab;
use crate::time::{Millis, Time};

/// So many batches go out together at most, unless more are due.
const BURST: usize = 4;

/// What the server's clock was last seen to be ahead of ours, as bounds: a reading lies somewhere between
/// the send and the receipt.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct ServerClock(Option<(i64, i64)>);

impl ServerClock {
    /// Takes a reading; how far the clock jumped since the last one beyond what the bounds of both
    /// explain.
    fn read(&mut self, server_us: u64, sent: Time, now: Time) -> i64 {
        let server = (server_us / 1000) as i64;
        let (low, high) = (server - now.0 as i64, server - sent.0 as i64);
        let jump = match self.0 {
            Some((_, old_high)) if low > old_high => low - old_high,
            Some((old_low, _)) if high < old_low => high - old_low,
            _ => 0,
        };
        self.0 = Some((low, high));
        jump
    }
}

impl Engine {
    /// Sets a hold's timer to what comes next: its renewal, its doubt, or its deadline.
    pub(crate) fn schedule(&mut self, now: Time, id: HoldId) {
        self.stop_hold_timer(id);
        let Some((at, timer)) = self.next_step(now, id) else { return };
        let timer = self.wheel.insert(at, timer);
        if let Some(hold) = self.holds.get_mut(id) {
            hold.timer = Some(timer);
        }
    }

    fn next_step(&self, now: Time, id: HoldId) -> Option<(Time, Timer)> {
        let hold = self.holds.get(id)?;
        let index = slab::index(id);
        let third = Millis(hold.lease.0 / 3);
        Some(match hold.phase {
            Phase::Live | Phase::Doubtful if hold.watched && !hold.renewing => {
                let at = if hold.failures == 0 { hold.sent + third } else { now + retry_pause(hold) };
                (at.min(hold.deadline()), Timer::Renew(index))
            }
            Phase::Live if hold.watched => ((hold.sent + third + third).min(hold.deadline()), Timer::Hold(index)),
            Phase::Live | Phase::Doubtful => (hold.deadline(), Timer::Hold(index)),
            // The margin of a lost hold belongs to nobody; after it the key is tidied up.
            Phase::Lost(LossReason::Expired | LossReason::MaxHold) if !hold.is_abandoned() => {
                (hold.sent + hold.lease, Timer::Hold(index))
            }
            Phase::Released if hold.unsettled.is_some() => {
                (hold.free_at.min(now + self.config.watchdog), Timer::Hold(index))
            }
            Phase::Asked | Phase::Lost(_) | Phase::Released => return None,
        })
    }

    pub(crate) fn stop_hold_timer(&mut self, id: HoldId) {
        if let Some(timer) = self.holds.get_mut(id).and_then(|hold| hold.timer.take()) {
            self.wheel.cancel(timer);
        }
    }

    pub(crate) fn on_renewal_due(&mut self, id: HoldId) {
        if let Some(hold) = self.holds.get_mut(id) {
            hold.timer = None;
            self.due.push(id);
        }
    }

    pub(crate) fn on_hold_timer(&mut self, now: Time, id: HoldId) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        hold.timer = None;
        match hold.phase {
            Phase::Live | Phase::Doubtful if now >= hold.deadline() => self.lose_if_due(now, id),
            Phase::Live | Phase::Doubtful => {
                self.doubt(id);
                self.schedule(now, id);
            }
            Phase::Lost(_) => {
                self.tidy(now, id);
                self.sweep(now, id);
            }
            Phase::Released => {
                hold.unsettled = None;
                self.sweep(now, id);
            }
            Phase::Asked => {}
        }
    }

    /// Sends the renewals that came due, each batch filled up with holds whose turn comes soon.
    pub(crate) fn renew_due(&mut self, now: Time) {
        if self.due.is_empty() {
            return;
        }
        let watchdog = self.config.watchdog.0;
        // Of very many, what is due in a moment: a few calls for one wake, not so many that the server's other
        // clients feel it.
        self.collect_due(now + Millis(watchdog / 600), (BURST * MAX_BATCH).saturating_sub(self.due.len()));
        self.collect_due(now + Millis(watchdog / 30), (MAX_BATCH - self.due.len() % MAX_BATCH) % MAX_BATCH);
        let due = core::mem::take(&mut self.due);
        let mut batch = Vec::with_capacity(due.len().min(MAX_BATCH));
        for id in due {
            if self.may_renew(now, id) {
                batch.push(id);
            }
            if batch.len() == MAX_BATCH {
                self.send_renewal(now, core::mem::take(&mut batch), false);
            }
        }
        if !batch.is_empty() {
            self.send_renewal(now, batch, false);
        }
    }

    fn collect_due(&mut self, until: Time, room: usize) {
        let mut more = Vec::new();
        self.wheel.take_until(until, room, |timer| matches!(timer, Timer::Renew(_)), &mut more);
        for timer in more {
            if let Timer::Renew(index) = timer {
                self.on_renewal_due(self.holds.id_at(index));
            }
        }
    }

    /// The link came back: nobody waits for its third of a lease to learn what became of its lock.
    pub(crate) fn renew_all(&mut self, now: Time) {
        for id in self.holds.ids() {
            let watched = self.holds.get(id).is_some_and(|hold| hold.watched && !hold.renewing);
            if watched && self.may_renew(now, id) {
                self.stop_hold_timer(id);
                self.due.push(id);
            }
        }
        self.renew_due(now);
    }

    fn may_renew(&mut self, now: Time, id: HoldId) -> bool {
        self.lose_if_due(now, id);
        let max_hold = self.config.max_hold;
        let Some(hold) = self.holds.get_mut(id) else { return false };
        if !hold.is_running() || !hold.watched || hold.renewing {
            return false;
        }
        hold.capped = max_hold.is_some_and(|most| now >= hold.since + most);
        if hold.capped || hold.is_abandoned() {
            hold.watched = false;
            self.schedule(now, id);
            return false;
        }
        true
    }

    fn send_renewal(&mut self, now: Time, ids: Vec<HoldId>, source: bool) {
        let watchdog = self.config.watchdog;
        let client = self.client;
        let mut batch = Vec::with_capacity(ids.len());
        let mut names = Vec::with_capacity(ids.len());
        let shortest = ids.iter().filter_map(|&id| Some(self.holds.get(id)?.lease)).fold(watchdog, Millis::min);
        // A connection that does not answer within a third of a lease is given up while another may
        // still be made before the deadline.
        let patience = Millis((shortest.0 / 3).max(20)).min(self.config.op_timeout);
        for id in ids {
            let Some(hold) = self.holds.get_mut(id) else { continue };
            let lease = hold.next_lease(now, watchdog, None);
            hold.renewing = true;
            hold.free_at = hold.free_at.max(now + lease);
            let owner = WireOwner { client, number: hold.number };
            names.push(Renewal { name: hold.name.clone(), owner, lease });
            batch.push((id, lease));
            // Until the answer is due that of the call is timer enough for all of them.
            if hold.timer.is_some() || self.next_step(now, id).is_some_and(|(at, _)| at <= now + patience) {
                self.schedule(now, id);
            }
        }
        let (ask, purpose) = (Ask::Renew(names), Purpose::Renew(batch));
        let (wire, hold, lease) = (Wire::KEEPER, None, Millis::ZERO);
        self.send(now, Sending { wire, hold, purpose, ask, source, lease, patience });
    }

    pub(crate) fn on_renewed(&mut self, now: Time, call: &CallRecord, batch: &[(HoldId, Millis)], answer: Answer) {
        for &(id, _) in batch {
            if let Some(hold) = self.holds.get_mut(id) {
                hold.renewing = false;
            }
        }
        match answer {
            Answer::Reply(Reply::Renewed { verdicts, server_us }) if verdicts.len() == batch.len() => {
                let jump = self.server_clock.read(server_us, call.sent, now);
                for (&(id, lease), verdict) in batch.iter().zip(verdicts) {
                    self.on_verdict(now, id, call.sent, lease, verdict);
                }
                self.on_jump(now, batch, jump);
            }
            Answer::Refused(Refusal::NoScript, _) if !call.source => {
                self.renewals_late(now, batch);
                let ids: Vec<HoldId> = batch.iter().map(|&(id, _)| id).filter(|&id| self.may_renew(now, id)).collect();
                if !ids.is_empty() {
                    self.send_renewal(now, ids, true);
                }
            }
            Answer::Refused(..) if batch.len() > 1 => {
                // Refused as a whole: once more at once, one by one, so that one bad key harms no other.
                self.renewals_late(now, batch);
                for &(id, _) in batch {
                    if self.may_renew(now, id) {
                        self.send_renewal(now, vec![id], call.source);
                    }
                }
            }
            Answer::Refused(_, text) => {
                for &(id, lease) in batch {
                    self.on_verdict(now, id, call.sent, lease, Verdict::Refused(text.clone()));
                }
            }
            Answer::Reply(_) | Answer::NotSent(_) | Answer::Unknown | Answer::Nonsense(_) => {
                for &(id, _) in batch {
                    self.renewal_failed(now, id);
                }
            }
        }
    }

    /// A renewal has no answer of use so far: each of its holds has a timer of its own again.
    pub(crate) fn renewals_late(&mut self, now: Time, batch: &[(HoldId, Millis)]) {
        for &(id, _) in batch {
            self.schedule(now, id);
        }
    }

    fn on_verdict(&mut self, now: Time, id: HoldId, sent: Time, lease: Millis, verdict: Verdict) {
        // A late reply revives nothing (S4).
        self.lose_if_due(now, id);
        let Some(hold) = self.holds.get_mut(id) else { return };
        if !hold.is_running() {
            return;
        }
        match verdict {
            Verdict::Renewed => {
                hold.confirm(sent, lease);
                hold.arrow("renewed", Phase::Live);
                if self.listening {
                    let (deadline, name) = (hold.deadline(), hold.name.clone());
                    self.event(Event::Renewed { name, hold: id, deadline });
                }
                self.schedule(now, id);
            }
            Verdict::NotOurs => self.lose(now, id, LossReason::Taken),
            Verdict::Refused(text) if Refusal::of(&text) == Refusal::WrongType => {
                self.lose(now, id, LossReason::Overwritten)
            }
            Verdict::Refused(text) => {
                // Said once: what is refused for good ends as "expired", and that alone explains nothing.
                if hold.phase == Phase::Live
                    && let refusal @ Refusal::Final(_) = Refusal::of(&text)
                {
                    let name = hold.name.clone();
                    let error = refusal.error(&name, &text);
                    let text = format!("the lock cannot be renewed: {}", error.message());
                    self.event(Event::Warning { name: Some(name), text });
                }
                self.renewal_failed(now, id);
            }
        }
    }

    fn renewal_failed(&mut self, now: Time, id: HoldId) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        if !hold.is_running() {
            return;
        }
        hold.failures = hold.failures.saturating_add(1);
        self.doubt(id);
        self.schedule(now, id);
    }

    /// A server clock that moved makes every deadline that rests on it doubtful (H3).
    fn on_jump(&mut self, now: Time, batch: &[(HoldId, Millis)], jump: i64) {
        let shortest = batch.iter().map(|&(_, lease)| lease).min().unwrap_or_default();
        if jump.unsigned_abs() <= margin(shortest).0 / 2 {
            return;
        }
        let text =
            format!("the server's clock jumped by {jump} ms: leases ended that much earlier or later than they should");
        self.event(Event::Warning { name: None, text });
        for &(id, _) in batch {
            self.doubt(id);
            self.schedule(now, id);
        }
    }
}

/// Between two tries of a renewal that fails: a sixtieth of the lease, doubling up to a sixth.
fn retry_pause(hold: &Hold) -> Millis {
    let (first, most) = ((hold.lease.0 / 60).max(5), (hold.lease.0 / 6).max(5));
    Millis((first << (hold.failures - 1).min(16)).min(most))
}
