//! Requests under way: sent on a road, timed, answered once.

use crate::engine::{Engine, Timer};
use crate::error::Error;
use crate::io::{Call, CallError, CallId, Fence, HoldId, OpId, Output, Value, Wire};
use crate::refusal::Refusal;
use crate::scripts::{Ask, Reply, Request, Shape};
use crate::slab;
use crate::time::{Millis, Time};
use crate::wheel::TimerId;

/// A request about to be sent.
pub(crate) struct Sending {
    pub(crate) wire: Wire,
    pub(crate) hold: Option<HoldId>,
    pub(crate) purpose: Purpose,
    pub(crate) ask: Ask,
    pub(crate) source: bool,
    pub(crate) lease: Millis,
    pub(crate) patience: Millis,
}

/// A request under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CallRecord {
    pub(crate) purpose: Purpose,
    pub(crate) shape: Shape,
    pub(crate) source: bool,
    pub(crate) wire: Wire,
    pub(crate) sent: Time,
    pub(crate) lease: Millis,
    /// The hold whose road it takes.
    pub(crate) hold: Option<HoldId>,
    fences: Vec<Fence>,
    /// The server would not kill them.
    pub(crate) refused: bool,
    pub(crate) timer: Option<TimerId>,
}

/// Whom a reply concerns.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Purpose {
    Wish(OpId),
    /// The holds named in a renewal, with the lease asked for each.
    Renew(Vec<(HoldId, Millis)>),
}

/// A reply as the machines see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Answer {
    Reply(Reply),
    Refused(Refusal, String),
    NotSent(Error),
    Unknown,
    Nonsense(String),
}

impl Engine {
    /// Sends a request, on the road of `hold` if it belongs to one. `lease` is what it asks for, `patience`
    /// how long it may stay without a reply.
    pub(crate) fn send(&mut self, now: Time, sending: Sending) -> CallId {
        let Sending { wire, hold, purpose, ask, source, lease, patience } = sending;
        let (wire, fences) = match hold.and_then(|id| self.holds.get_mut(id)) {
            Some(hold) => hold.road.take(wire),
            None => (wire, Vec::new()),
        };
        let shape = ask.shape();
        let timer = None;
        let fenced = fences.clone();
        let record =
            CallRecord { purpose, shape, source, wire, sent: now, lease, hold, fences: fenced, refused: false, timer };
        let id = self.calls.insert(record);
        self.time_call(id, now + patience);
        self.out.push_back(Output::Send(Call { id, wire, request: Request { ask, source }, fences }));
        id
    }

    fn time_call(&mut self, id: CallId, at: Time) {
        let timer = self.wheel.insert(at, Timer::Call(slab::index(id)));
        if let Some(record) = self.calls.get_mut(id) {
            record.timer = Some(timer);
        }
    }

    /// A request got no reply in time. Its connection is given up; the host then reports it, and all
    /// others on that wire, as unknown.
    pub(crate) fn on_silent(&mut self, now: Time, call: CallId) {
        let Some(record) = self.calls.get(call) else { return };
        self.out.push_back(Output::Sever(record.wire));
        if let Purpose::Renew(batch) = &record.purpose {
            self.renewals_late(now, &batch.clone());
        }
        // Should the report not come, the order is given again.
        self.time_call(call, now + self.config.op_timeout);
    }

    /// Reads a reply, and tells the road of its hold what became of the request.
    pub(crate) fn note_road(&mut self, record: &CallRecord, result: Result<Value, CallError>) -> Answer {
        let road = record.hold.and_then(|id| self.holds.get_mut(id)).map(|hold| &mut hold.road);
        match result {
            Err(CallError::NotSent(error)) => {
                if let Some(road) = road {
                    road.not_sent(record.fences.clone());
                }
                Answer::NotSent(error)
            }
            Err(CallError::Unknown(own)) => {
                if let Some(road) = road {
                    road.unknown(record.fences.clone(), own);
                }
                Answer::Unknown
            }
            Err(CallError::Server(text)) => {
                let refusal = Refusal::of(&text);
                match road {
                    // A server that is busy refuses the killing too: that is for the next request.
                    Some(road) if refusal == Refusal::Passing => road.not_sent(record.fences.clone()),
                    Some(road) => road.answered(record.refused),
                    None => {}
                }
                Answer::Refused(refusal, text)
            }
            Ok(value) => {
                if let Some(road) = road {
                    road.answered(record.refused);
                }
                record.shape.decode(value).map_or_else(Answer::Nonsense, Answer::Reply)
            }
        }
    }
}

/// The pause before try number `attempt` of something that failed: none, then 40 ms doubling to 500.
pub(crate) fn backoff(attempt: u8) -> Millis {
    if attempt <= 1 { Millis::ZERO } else { Millis((10u64 << attempt.min(6)).min(500)) }
}
