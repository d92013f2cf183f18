//! What is said before the first call. All of it goes out in one write; the answers come one by one:
//!
//! | state | answer | next |
//! |---|---|---|
//! | Hello | a server that is new enough | Info |
//! | Hello | too old, a sentinel, part of a cluster, an error, anything else | refused |
//! | Info | text: id and address are the fence | Select, or Ready for database 0 |
//! | Info | an error (the user may not): no fence | Select, or Ready for database 0 |
//! | Info | anything else | refused |
//! | Select | OK | Ready |
//! | Select | an error, anything else | refused |
//! | Ready | any | refused: nothing was asked |

use bandog_core::error::{Code, Error};
use bandog_core::io::{Fence, Value};
use bandog_core::owner::ClientId;
use zeroize::Zeroize;

use super::codec::Frame;
use super::frame::Violation;
use crate::server::Server;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Hello,
    Info,
    Select,
    Ready,
}

/// An answer, as far as the handshake tells them apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Server { product: String, version: String, mode: String },
    Text(String),
    Okay,
    Refused(String),
    Other,
}

/// Where the handshake stands and what it learned.
#[derive(Debug)]
pub(super) struct Handshake {
    state: State,
    db: u32,
    address: String,
    fence: Option<Fence>,
}

impl Handshake {
    /// Writes everything that is to be said, the password included.
    pub(super) fn begin(server: &Server, client: ClientId, out: &mut Vec<u8>) -> Self {
        let mut name = format!("bandog:{client}");
        name.truncate("bandog:".len() + 8);
        // Room for all of it, so that growing leaves no copy of the password behind.
        out.reserve(
            256 + server.user.as_ref().map_or(0, String::len)
                + server.password.as_ref().map_or(0, |p| p.expose().len()),
        );
        let mut hello: Vec<Vec<u8>> = vec![b"HELLO".into(), b"3".into()];
        if server.user.is_some() || server.password.is_some() {
            hello.push(b"AUTH".into());
            hello.push(server.user.as_deref().unwrap_or("default").into());
            hello.push(server.password.as_ref().map_or(&b""[..], |password| password.expose()).into());
        }
        hello.extend([b"SETNAME".to_vec(), name.into_bytes()]);
        pack(&mut hello, out);
        pack(&mut [b"CLIENT".to_vec(), b"INFO".to_vec()], out);
        if server.db != 0 {
            pack(&mut [b"SELECT".to_vec(), server.db.to_string().into_bytes()], out);
        }
        Self { state: State::Hello, db: server.db, address: server.to_string(), fence: None }
    }

    /// Takes one answer. An error ends the connection.
    pub(super) fn step(&mut self, answer: Answer) -> Result<(), Error> {
        self.state = match (self.state, answer) {
            (State::Hello, Answer::Server { product, version, mode }) => {
                self.judge(&product, &version, &mode)?;
                State::Info
            }
            (State::Hello, Answer::Refused(text)) => return Err(self.refused(&text)),
            (State::Info, Answer::Text(text)) => {
                self.fence = fence(&text);
                self.after_info()
            }
            (State::Info, Answer::Refused(_)) => self.after_info(),
            (State::Select, Answer::Okay) => State::Ready,
            (State::Select, Answer::Refused(text)) => return Err(self.no_database(&text)),
            (State::Hello, Answer::Text(_) | Answer::Okay | Answer::Other)
            | (State::Info, Answer::Server { .. } | Answer::Okay | Answer::Other)
            | (State::Select, Answer::Server { .. } | Answer::Text(_) | Answer::Other)
            | (State::Ready, _) => return Err(nonsense(&self.address)),
        };
        Ok(())
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    fn after_info(&self) -> State {
        if self.db == 0 { State::Ready } else { State::Select }
    }

    fn judge(&self, product: &str, version: &str, mode: &str) -> Result<(), Error> {
        if mode == "sentinel" {
            let why = format!("{} is a sentinel: give the address of the server it watches", self.address);
            return Err(Error::new(Code::Protocol, why));
        }
        if mode == "cluster" {
            let why = format!("{} is part of a cluster: clusters are not supported in this version", self.address);
            return Err(Error::new(Code::Protocol, why));
        }
        let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
        let found = (parts.next().flatten(), parts.next().flatten());
        let needed = if product == "valkey" { (7, 2) } else { (6, 2) };
        match found {
            (Some(major), Some(minor)) if (major, minor) >= needed => Ok(()),
            _ => Err(self.too_old(&clean(version))),
        }
    }

    fn too_old(&self, version: &str) -> Error {
        let found = if version.is_empty() { String::new() } else { format!(" (it says {version})") };
        let why =
            format!("the server at {} is too old{found}: bandog needs Redis >= 6.2 or Valkey >= 7.2", self.address);
        Error::new(Code::Protocol, why)
    }

    /// Old servers quote the command they do not know, password and all: of an error only its first word
    /// is ever repeated.
    fn refused(&self, text: &str) -> Error {
        let address = &self.address;
        let word = text.split(' ').next().unwrap_or_default();
        let (code, why) = match word {
            "WRONGPASS" => (Code::PermissionDenied, format!("{address} refuses this user name and password")),
            "NOAUTH" => (Code::PermissionDenied, format!("{address} wants a password: put it into the URL")),
            "NOPERM" => {
                (Code::PermissionDenied, format!("{address} does not let this user in: its ACL must allow +hello"))
            }
            "DENIED" => (
                Code::PermissionDenied,
                format!(
                    "{address} is in protected mode: it takes no connections from other machines without a password"
                ),
            ),
            "LOADING" => (Code::Unreachable, format!("{address} is still loading its data")),
            "MASTERDOWN" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" => {
                (Code::Unreachable, format!("{address} cannot serve at the moment ({word})"))
            }
            "NOPROTO" => return self.too_old(""),
            _ if text.starts_with("ERR max number of clients") => {
                (Code::Unreachable, format!("{address} has as many clients as it allows (maxclients)"))
            }
            _ if text.starts_with("ERR unknown command") => return self.too_old(""),
            "ERR" => (Code::Protocol, format!("{address} refuses HELLO 3: bandog needs Redis >= 6.2 or Valkey >= 7.2")),
            _ => return nonsense(address),
        };
        Error::new(code, why)
    }

    fn no_database(&self, text: &str) -> Error {
        let (address, db) = (&self.address, self.db);
        if text.starts_with("NOPERM") {
            let why = format!("{address} does not let this user choose database {db}: its ACL must allow +select");
            return Error::new(Code::PermissionDenied, why);
        }
        Error::new(Code::InvalidUrl, format!("{address} has no database {db}: check the number in the URL"))
    }
}

impl From<Frame> for Answer {
    fn from(frame: Frame) -> Self {
        match frame {
            Frame::Error(text) => Self::Refused(text),
            Frame::Value(Value::Text(bytes)) if bytes == b"OK" => Self::Okay,
            Frame::Value(Value::Text(bytes)) => Self::Text(String::from_utf8_lossy(&bytes).into_owned()),
            Frame::Map(pairs) => {
                let find = |wanted: &str| {
                    pairs.iter().find_map(|(key, value)| match (key, value) {
                        (Value::Text(key), Value::Text(text)) if key == wanted.as_bytes() => {
                            Some(String::from_utf8_lossy(text).into_owned())
                        }
                        _ => None,
                    })
                };
                match (find("server"), find("version")) {
                    (Some(product), Some(version)) => {
                        Self::Server { product, version, mode: find("mode").unwrap_or_default() }
                    }
                    _ => Self::Other,
                }
            }
            Frame::Value(_) | Frame::Push(..) => Self::Other,
        }
    }
}

/// What is said of a server that talks something else.
pub(super) fn nonsense(address: &str) -> Error {
    Error::new(Code::Protocol, format!("the server at {address} does not speak the Redis protocol: check the address"))
}

/// What is said of a server whose next byte, `first`, is none of the protocol's, or begins too much.
pub(super) fn explain(violation: Violation, address: &str, ready: bool, first: Option<u8>) -> Error {
    const TLS_ALERT: u8 = 0x15;
    match violation {
        Violation::Nonsense if !ready && first == Some(TLS_ALERT) => {
            Error::new(Code::Protocol, format!("the server at {address} speaks TLS: use rediss:// in the URL"))
        }
        Violation::Nonsense => nonsense(address),
        Violation::TooLarge => Error::new(
            Code::Protocol,
            format!("the server at {address} sent a reply far larger than any it was asked for: check the address"),
        ),
    }
}

/// `id=7 addr=10.0.0.1:5000 laddr=...`; the path of a Unix socket may hold spaces.
fn fence(info: &str) -> Option<Fence> {
    let id = info.strip_prefix("id=")?.split(' ').next()?.parse().ok()?;
    let (_, rest) = info.split_once(" addr=")?;
    let addr = rest.split_once(" laddr=").or_else(|| rest.split_once(' '))?.0;
    Some(Fence { id, addr: addr.to_owned() })
}

/// A few harmless characters of what a server said.
fn clean(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic()).take(20).collect()
}

/// The words are cleared: one may be the password.
fn pack(words: &mut [Vec<u8>], out: &mut Vec<u8>) {
    let mut packed = redis::pack_command(words);
    out.extend_from_slice(&packed);
    packed.zeroize();
    words.iter_mut().for_each(Zeroize::zeroize);
}
