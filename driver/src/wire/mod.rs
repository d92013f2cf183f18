//! One connection without its socket: calls in, bytes out; bytes in, replies and pushes out.
//!
//! The host moves the bytes. After `new` and after each `input`, `call` or `subscribe` it writes what
//! `output` shows and says with `wrote` how much went; after each `input` it takes what `poll` has until
//! there is no more. An error of `input` is final: close, and ask `abandon` what becomes of the calls.

mod codec;
mod frame;
mod handshake;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::{BTreeSet, VecDeque};

use bandog_core::error::{Code, Error};
use bandog_core::io::{Call, CallError, CallId, Fence, Push, Value};
use bandog_core::name::Channel;
use bandog_core::owner::ClientId;
use redis::PushKind;
use zeroize::Zeroize;

use self::codec::{Decoder, Encoder, Frame, kill, words};
use self::handshake::{Handshake, State, explain, nonsense};
use self::tls::Tls;
pub(crate) use self::tls::check_tls;
use crate::server::Server;

/// Output that went is cut off the front once there is this much of it, and more than what is left.
const CUT_AT: usize = 64 << 10;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Requests and their replies.
    Calls,
    /// Subscriptions and their messages.
    Messages,
}

/// What the server sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Incoming {
    /// The handshake is done: calls may be made.
    Ready,
    /// A call's reply.
    Reply { call: CallId, result: Result<Value, CallError> },
    /// The server refused to kill a connection that this call wanted dead. Comes before its reply.
    Unfenced(CallId),
    /// News of a subscription.
    Push(Push),
}

/// Whose reply comes next.
#[derive(PartialEq, Eq, Debug)]
enum Expected {
    Fence(CallId),
    /// With the place of its first byte in all the plain text of this connection.
    Call(CallId, u64),
    Subscribed(Channel),
    Unsubscribed(Channel),
    Pong,
}

/// A RESP3 connection.
pub(crate) struct Connection {
    role: Role,
    /// For messages.
    address: String,
    handshake: Handshake,
    encoder: Encoder,
    decoder: Decoder,
    tls: Option<Tls>,
    /// Plain text on its way out: the first `taken` bytes went, `before` bytes were here and are gone.
    out: Vec<u8>,
    taken: usize,
    before: u64,
    /// The plain text before this place may have left the process.
    left: u64,
    expected: VecDeque<Expected>,
    incoming: VecDeque<Incoming>,
    /// What we listen to; anything else is not for us.
    channels: BTreeSet<Channel>,
    /// Calls without reply.
    calls: usize,
    failed: Option<Error>,
}

impl Connection {
    /// Begins the handshake: there is output at once.
    ///
    /// # Errors
    /// TLS settings that cannot be used.
    pub(crate) fn new(server: &Server, role: Role, client: ClientId) -> Result<Self, Error> {
        let mut tls = server.tls.as_ref().map(|settings| Tls::new(settings, server)).transpose()?;
        let mut out = Vec::new();
        let handshake = Handshake::begin(server, client, &mut out);
        if let Some(tls) = &mut tls {
            tls.encrypt(b"");
        }
        Ok(Self {
            role,
            address: server.to_string(),
            handshake,
            encoder: Encoder::new(),
            decoder: Decoder::default(),
            tls,
            out,
            taken: 0,
            before: 0,
            left: 0,
            expected: VecDeque::new(),
            incoming: VecDeque::new(),
            channels: BTreeSet::new(),
            calls: 0,
            failed: None,
        })
    }

    /// Whether calls may be made.
    pub(crate) fn is_ready(&self) -> bool {
        self.handshake.state() == State::Ready
    }

    /// Encodes a call, the fences it wants in front of it.
    pub(crate) fn call(&mut self, call: Call) {
        debug_assert!(self.is_ready() && self.role == Role::Calls);
        for fence in &call.fences {
            kill(fence, &mut self.out);
            self.expected.push_back(Expected::Fence(call.id));
        }
        let place = self.before + self.out.len() as u64;
        self.encoder.request(&call.request, &mut self.out);
        self.expected.push_back(Expected::Call(call.id, place));
        self.calls += 1;
    }

    /// Asks for a channel's messages.
    pub(crate) fn subscribe(&mut self, channel: &Channel) {
        debug_assert!(self.is_ready() && self.role == Role::Messages);
        words(&["SUBSCRIBE", channel.as_str()], &mut self.out);
        self.expected.push_back(Expected::Subscribed(channel.clone()));
        self.channels.insert(channel.clone());
    }

    /// Asks for no more of them. None is reported from now on.
    pub(crate) fn unsubscribe(&mut self, channel: &Channel) {
        debug_assert!(self.is_ready() && self.role == Role::Messages);
        words(&["UNSUBSCRIBE", channel.as_str()], &mut self.out);
        self.expected.push_back(Expected::Unsubscribed(channel.clone()));
        self.channels.remove(channel.as_str());
    }

    /// Asks for a sign of life.
    pub(crate) fn ping(&mut self) {
        debug_assert!(self.is_ready());
        words(&["PING"], &mut self.out);
        self.expected.push_back(Expected::Pong);
    }

    /// The bytes to write next.
    pub(crate) fn output(&mut self) -> &[u8] {
        let Some(tls) = &mut self.tls else { return &self.out[self.taken..] };
        // A batch is encrypted when the one before it is gone: a call is then unknown only if bytes of its
        // own batch went.
        if tls.output().is_empty() {
            let batch = if tls.is_open() { self.out.len() } else { 0 };
            tls.encrypt(&self.out[..batch]);
            if batch > 0 {
                self.before += batch as u64;
                wipe(&mut self.out, self.handshake.state());
            }
        }
        tls.output()
    }

    /// So many of them were handed to the kernel, or may have been.
    pub(crate) fn wrote(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        if let Some(tls) = &mut self.tls {
            tls.wrote(count);
            self.left = self.before;
            return;
        }
        debug_assert!(self.taken + count <= self.out.len());
        self.taken += count;
        self.left = self.before + self.taken as u64;
        if self.taken >= self.out.len() {
            self.before = self.left;
            self.taken = 0;
            wipe(&mut self.out, self.handshake.state());
        } else if self.taken > CUT_AT && self.taken * 2 > self.out.len() {
            self.out.drain(..self.taken);
            self.before = self.left;
            self.taken = 0;
        }
    }

    /// Takes in what was read.
    ///
    /// # Errors
    /// The server refused us, or does not keep to the protocol: close the connection.
    pub(crate) fn input(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.understand(bytes).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// What came of it.
    pub(crate) fn poll(&mut self) -> Option<Incoming> {
        self.incoming.pop_front()
    }

    /// How many calls have no reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.calls
    }

    /// Whether the server owes an answer of any kind.
    pub(crate) fn is_owed(&self) -> bool {
        !self.expected.is_empty()
    }

    /// How to have this connection killed.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.handshake.fence().cloned()
    }

    /// Why the last `input` failed.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// The connection is closed: what is known of each call whose reply was not polled.
    pub(crate) fn abandon(self) -> Vec<(CallId, CallError)> {
        let fence = self.fence();
        let lost = Error::new(
            Code::Unreachable,
            format!("the connection to {} was lost before the request was sent", self.address),
        );
        let unpolled = self.incoming.iter().filter_map(|incoming| match incoming {
            Incoming::Reply { call, .. } => Some((*call, CallError::Unknown(fence.clone()))),
            Incoming::Ready | Incoming::Unfenced(_) | Incoming::Push(_) => None,
        });
        let unanswered = self.expected.iter().filter_map(|expected| match expected {
            Expected::Call(id, place) if self.left > *place => Some((*id, CallError::Unknown(fence.clone()))),
            Expected::Call(id, _) => Some((*id, CallError::NotSent(lost.clone()))),
            Expected::Fence(_) | Expected::Subscribed(_) | Expected::Unsubscribed(_) | Expected::Pong => None,
        });
        unpolled.chain(unanswered).collect()
    }

    fn understand(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.tls {
            Some(tls) => tls.decrypt(bytes, &self.address, |plain| self.decoder.push(plain))?,
            None => self.decoder.push(bytes),
        }
        while let Some(frame) = self
            .decoder
            .next()
            .map_err(|violation| explain(violation, &self.address, self.is_ready(), self.decoder.peek()))?
        {
            match frame {
                Frame::Push(kind, data) => self.push(&kind, data)?,
                frame if self.is_ready() => self.reply(frame)?,
                frame => {
                    self.handshake.step(frame.into())?;
                    if self.is_ready() {
                        self.incoming.push_back(Incoming::Ready);
                    }
                }
            }
        }
        Ok(())
    }

    fn reply(&mut self, frame: Frame) -> Result<(), Error> {
        let incoming = match (self.expected.pop_front(), frame) {
            (Some(Expected::Call(call, _)), Frame::Value(value)) => Incoming::Reply { call, result: Ok(value) },
            (Some(Expected::Call(call, _)), Frame::Error(text)) => {
                Incoming::Reply { call, result: Err(CallError::Server(text)) }
            }
            (Some(Expected::Fence(_)), Frame::Value(Value::Int(_))) => return Ok(()),
            (Some(Expected::Fence(call)), Frame::Error(_)) => Incoming::Unfenced(call),
            (Some(Expected::Subscribed(channel)), Frame::Error(text)) => Incoming::Push(Push::Refused(channel, text)),
            // Alive, whatever it says.
            (Some(Expected::Unsubscribed(_)), Frame::Error(_)) | (Some(Expected::Pong), _) => return Ok(()),
            (expected, _) => {
                // Still without a reply.
                if let Some(expected) = expected {
                    self.expected.push_front(expected);
                }
                return Err(nonsense(&self.address));
            }
        };
        if let Incoming::Reply { .. } = incoming {
            self.calls -= 1;
        }
        self.incoming.push_back(incoming);
        Ok(())
    }

    fn push(&mut self, kind: &PushKind, mut data: Vec<Value>) -> Result<(), Error> {
        let Some(Value::Text(channel)) = data.first() else { return Ok(()) };
        let names = |expected: &Channel| expected.as_str().as_bytes() == channel.as_slice();
        match (kind, self.expected.front()) {
            (PushKind::Message | PushKind::SMessage, _) => {
                let known = std::str::from_utf8(channel).ok().and_then(|channel| self.channels.get(channel));
                if let (Some(known), Some(Value::Text(_))) = (known, data.get(1))
                    && let Value::Text(payload) = data.swap_remove(1)
                {
                    self.incoming.push_back(Incoming::Push(Push::Message(known.clone(), payload)));
                }
            }
            (PushKind::Subscribe, Some(Expected::Subscribed(expected))) if names(expected) => {
                self.incoming.push_back(Incoming::Push(Push::Subscribed(expected.clone())));
                self.expected.pop_front();
            }
            (PushKind::Subscribe, _) => return Err(nonsense(&self.address)),
            (PushKind::Unsubscribe, Some(Expected::Unsubscribed(expected))) if names(expected) => {
                self.expected.pop_front();
            }
            // Not for us: a server may end subscriptions by itself, and pushes of new kinds may come.
            _ => {}
        }
        Ok(())
    }
}

/// Empties the output. The first to go held the password.
fn wipe(out: &mut Vec<u8>, state: State) {
    match state {
        State::Ready => out.clear(),
        State::Hello | State::Info | State::Select => out.zeroize(),
    }
}
