//! Requests to bytes and bytes to replies, by the codec of the `redis` crate. Only whole replies that keep
//! to the limits reach its parser.

use bandog_core::io::{Fence, Value};
use bandog_core::scripts::{Request, Script, Sink};
use bytes::{Buf, BytesMut};
use redis::{Cmd, PushKind, RedisWrite, ValueCodec};
use sha1_smol::Sha1;
use tokio_util::codec::Decoder as _;

use super::frame::{Scanner, Violation};

/// A read buffer larger than this is given back once it is empty.
const KEEP_BUFFER: usize = 64 << 10;

/// Writes requests.
pub(super) struct Encoder {
    /// Used again for each request: a fresh one costs six times as much.
    cmd: Cmd,
    parts: Parts,
    /// By script. Worked out for each connection, not once for the process: a lock held at a fork stays
    /// held in the child.
    digests: [String; Script::ALL.len()],
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            cmd: Cmd::with_capacity(16, 512),
            parts: Parts::default(),
            digests: Script::ALL.map(|script| Sha1::from(script.source()).digest().to_string()),
        }
    }

    /// `EVALSHA`, or `EVAL` where the request says that the server lacks the script.
    pub(super) fn request(&mut self, request: &Request, out: &mut Vec<u8>) {
        let parts = &mut self.parts;
        parts.clear();
        let script = request.write(parts);
        self.cmd.clear();
        if request.source {
            self.cmd.arg("EVAL").arg(script.source());
        } else {
            self.cmd.arg("EVALSHA").arg(&self.digests[script as usize]);
        }
        self.cmd.arg(parts.keys);
        let mut start = 0;
        for &end in &parts.ends {
            self.cmd.write_arg(&parts.bytes[start..end]);
            start = end;
        }
        self.cmd.write_packed_command(out);
    }

    /// Ends a connection, so that nothing it still carries is run later.
    pub(super) fn kill(&mut self, fence: &Fence, out: &mut Vec<u8>) {
        self.cmd.clear();
        self.cmd.arg("CLIENT").arg("KILL").arg("ID").arg(fence.id).arg("ADDR").arg(&fence.addr);
        self.cmd.write_packed_command(out);
    }

    /// A command of plain words.
    pub(super) fn words(&mut self, words: &[&str], out: &mut Vec<u8>) {
        self.cmd.clear();
        for word in words {
            self.cmd.arg(*word);
        }
        self.cmd.write_packed_command(out);
    }
}

/// The keys and arguments of one request, kept back because their number goes first.
#[derive(Default)]
struct Parts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    keys: usize,
}

impl Parts {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.keys = 0;
    }
}

impl Sink for Parts {
    fn key(&mut self, key: &[u8]) {
        debug_assert_eq!(self.keys, self.ends.len(), "keys go first");
        self.arg(key);
        self.keys += 1;
    }

    fn arg(&mut self, arg: &[u8]) {
        self.bytes.extend_from_slice(arg);
        self.ends.push(self.bytes.len());
    }
}

/// One thing the server said.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Frame {
    Value(Value),
    Map(Vec<(Value, Value)>),
    Error(String),
    Push(PushKind, Vec<Value>),
}

/// Reads replies.
#[derive(Default)]
pub(super) struct Decoder {
    buffer: BytesMut,
    scanner: Scanner,
    codec: ValueCodec,
}

impl Decoder {
    /// Takes in what came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The first byte not understood yet.
    pub(super) fn peek(&self) -> Option<u8> {
        self.buffer.first().copied()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// The next whole reply. After a violation there is no telling where another begins.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Violation> {
        let Some(length) = self.scanner.scan(&self.buffer)? else { return Ok(None) };
        let rest = self.buffer.len() - length;
        let frame = if self.buffer[0] == b'-' {
            // The parser refuses text that is not UTF-8; a server quotes whatever it was sent.
            let text = String::from_utf8_lossy(&self.buffer[1..length - 2]).into_owned();
            self.buffer.advance(length);
            Frame::Error(text)
        } else {
            match self.codec.decode(&mut self.buffer) {
                Ok(Some(value)) => understand(value)?,
                Ok(None) | Err(_) => return Err(Violation::Nonsense),
            }
        };
        if self.buffer.len() != rest {
            return Err(Violation::Nonsense);
        }
        if rest == 0 && self.buffer.capacity() > KEEP_BUFFER {
            self.buffer = BytesMut::new();
        }
        Ok(Some(frame))
    }
}

fn understand(value: redis::Value) -> Result<Frame, Violation> {
    Ok(match value {
        redis::Value::ServerError(error) => Frame::Error(text(&error)),
        redis::Value::Push { kind, data } => Frame::Push(kind, list(data)?),
        redis::Value::Map(pairs) => Frame::Map(
            pairs.into_iter().map(|(key, value)| Ok((plain(key)?, plain(value)?))).collect::<Result<_, _>>()?,
        ),
        redis::Value::Attribute { data, .. } => return understand(*data),
        other => Frame::Value(plain(other)?),
    })
}

fn list(values: Vec<redis::Value>) -> Result<Vec<Value>, Violation> {
    values.into_iter().map(plain).collect()
}

fn plain(value: redis::Value) -> Result<Value, Violation> {
    Ok(match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::Boolean(truth) => Value::Int(i64::from(truth)),
        redis::Value::Okay => Value::Text(b"OK".to_vec()),
        redis::Value::BulkString(bytes) => Value::Text(bytes),
        redis::Value::SimpleString(text) | redis::Value::VerbatimString { text, .. } => Value::Text(text.into_bytes()),
        redis::Value::Double(number) => Value::Text(number.to_string().into_bytes()),
        redis::Value::BigNumber(digits) => Value::Text(digits),
        // A script's verdict on one key of many.
        redis::Value::ServerError(error) => Value::Text(text(&error).into_bytes()),
        redis::Value::Array(values) | redis::Value::Set(values) => Value::List(list(values)?),
        redis::Value::Map(pairs) => Value::List(list(pairs.into_iter().flat_map(|(k, v)| [k, v]).collect())?),
        redis::Value::Attribute { data, .. } => plain(*data)?,
        _ => return Err(Violation::Nonsense),
    })
}

/// The error as the server wrote it.
fn text(error: &redis::ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}
