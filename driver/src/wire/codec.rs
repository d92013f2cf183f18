//! Requests to bytes, and bytes to replies by the parser of the `redis` crate: only whole replies that keep
//! to the limits reach it.

use bandog_core::io::{Fence, Value};
use bandog_core::scripts::{Request, Script, Sink};
use bytes::{Buf, BytesMut};
use redis::{PushKind, ValueCodec};
use sha1_smol::Sha1;
use tokio_util::codec::Decoder as _;

use super::frame::{Scanner, Violation};

/// A read buffer larger than this is given back once it is empty.
const KEEP_BUFFER: usize = 64 << 10;

/// Writes requests.
pub(super) struct Encoder {
    parts: Parts,
    /// `EVALSHA` and the digest, by script. Worked out for each connection, not once for the process: a lock
    /// held at a fork stays held in the child.
    starts: [Vec<u8>; Script::ALL.len()],
}

impl Encoder {
    pub(super) fn new() -> Self {
        let starts = Script::ALL.map(|script| {
            let mut start = Vec::new();
            bulk(&mut start, b"EVALSHA");
            bulk(&mut start, Sha1::from(script.source()).digest().to_string().as_bytes());
            start
        });
        Self { parts: Parts::default(), starts }
    }

    /// `EVALSHA`, or `EVAL` where the request says that the server lacks the script.
    pub(super) fn request(&mut self, request: &Request, out: &mut Vec<u8>) {
        let parts = &mut self.parts;
        parts.clear();
        let script = request.write(parts);
        line(out, b'*', parts.count + 3);
        if request.source {
            bulk(out, b"EVAL");
            bulk(out, script.source().as_bytes());
        } else {
            out.extend_from_slice(&self.starts[script as usize]);
        }
        let mut room = [0; 20];
        let first = digits(parts.keys, &mut room);
        bulk(out, &room[first..]);
        out.extend_from_slice(&parts.bytes);
    }
}

/// Ends a connection, so that nothing it still carries is run later.
pub(super) fn kill(fence: &Fence, out: &mut Vec<u8>) {
    words(&["CLIENT", "KILL", "ID", &fence.id.to_string(), "ADDR", &fence.addr], out);
}

/// A command of plain words.
pub(super) fn words(words: &[&str], out: &mut Vec<u8>) {
    line(out, b'*', words.len());
    words.iter().for_each(|word| bulk(out, word.as_bytes()));
}

fn bulk(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b'$', text.len());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// The line that says how long a text is, or how many will follow.
fn line(out: &mut Vec<u8>, kind: u8, number: usize) {
    // In one piece: there are two dozen of them in every pair.
    let mut room = [0; 23];
    room[21..].copy_from_slice(b"\r\n");
    let first = digits(number, &mut room[1..21]);
    room[first] = kind;
    out.extend_from_slice(&room[first..]);
}

/// Writes a number at the end of `room`; says where it begins.
fn digits(mut number: usize, room: &mut [u8]) -> usize {
    let mut first = room.len();
    loop {
        first -= 1;
        room[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return first;
        }
    }
}

/// The keys and arguments of one request, kept back because their number goes first.
#[derive(Default)]
struct Parts {
    bytes: Vec<u8>,
    count: usize,
    keys: usize,
}

impl Parts {
    fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.keys = 0;
    }
}

impl Sink for Parts {
    fn key(&mut self, key: &[u8]) {
        debug_assert_eq!(self.keys, self.count, "keys go first");
        self.arg(key);
        self.keys += 1;
    }

    fn arg(&mut self, arg: &[u8]) {
        bulk(&mut self.bytes, arg);
        self.count += 1;
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
        } else if let Some(value) = number_of(&self.buffer[..length]) {
            self.buffer.advance(length);
            Frame::Value(value)
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

/// A number, or a list of one: every reply of an undisturbed pair, and a fraction of the parser's work.
fn number_of(frame: &[u8]) -> Option<Value> {
    let (item, listed) = frame.strip_prefix(b"*1\r\n").map_or((frame, false), |item| (item, true));
    let digits = item.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    // Signs and what might overflow are left to the parser.
    if !(1..=18).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = Value::Int(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')));
    Some(if listed { Value::List(vec![number]) } else { number })
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
