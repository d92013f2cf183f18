//! A JS socket carries the bytes of a wire, where nothing else watches descriptors for us.

use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};

use bandog::host::{Carried, LoopWire, Place};
use napi::{Env, Result};
use napi_derive::napi;

use crate::client::ClientState;
use crate::looped::Loop;
use crate::raw::{self, Callback};
use crate::words::Words;

/// What the JS socket of one connection tells us. It has the bytes as they go over the network: TLS is done here.
#[napi]
pub struct Carrier {
    looped: Weak<Loop>,
    client: Weak<ClientState>,
    carried: Carried,
}

#[napi]
impl Carrier {
    /// There is a connection.
    #[napi]
    pub fn opened(&self) {
        self.carried.opened();
    }

    /// Bytes came.
    #[napi]
    pub fn received(&self, bytes: &[u8]) {
        self.carried.received(bytes);
        self.heard();
    }

    /// What was given to the socket has been sent.
    #[napi]
    pub fn drained(&self) {
        self.carried.set_full(false);
        self.heard();
    }

    /// There is no connection, or none any more. Without a code: the server ended it.
    #[napi]
    pub fn lost(&self, code: Option<String>, message: Option<String>) {
        self.carried.lost(code.map(|code| failure(&code, message.unwrap_or_default())));
        self.heard();
    }

    fn heard(&self) {
        if let (Some(looped), Some(client)) = (self.looped.upgrade(), self.client.upgrade()) {
            looped.heard(&client);
        }
    }
}

/// The connections of one wire, one after another.
pub(crate) struct Conveyor(RefCell<Option<Rc<Served>>>);

/// A connection and the functions that lib/carrier.cjs gave for it.
struct Served {
    carried: Carried,
    /// `send(bytes)`; `false` when the socket has more than it can send now.
    send: Callback,
    /// `end(abrupt)`.
    end: Callback,
}

impl Conveyor {
    pub(crate) fn new() -> Self {
        Self(RefCell::default())
    }

    /// Connections come and go: ends the one that is over, and makes the one that is asked for.
    pub(crate) fn mend(&self, driver: &LoopWire, looped: &Rc<Loop>, client: &Rc<ClientState>) {
        let served = self.0.borrow().clone();
        if let Some(served) = served {
            let Some(abrupt) = served.carried.ended() else { return self.send(driver, looped.env) };
            self.0.take();
            looped.words.end(&served.end, abrupt);
        }
        let Some(carried) = driver.carried().filter(|carried| carried.ended().is_none()) else { return };
        match dial(&looped.words, looped, client, &carried) {
            Ok(served) => *self.0.borrow_mut() = Some(Rc::new(served)),
            Err(error) => carried.lost(Some(io::Error::other(error.reason.clone()))),
        }
    }

    /// Gives the socket what is to be sent, all of this turn in one piece.
    pub(crate) fn send(&self, driver: &LoopWire, env: Env) {
        let Some(served) = self.0.borrow().clone() else { return };
        loop {
            let bytes = served.carried.take();
            if bytes.is_empty() {
                return;
            }
            // Fails only where JS cannot run any more.
            if !served.send(env, &bytes).unwrap_or(false) {
                return served.carried.set_full(true);
            }
            if !driver.is_clogged() {
                return;
            }
            driver.flush();
        }
    }

    /// Whether anything is to be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|served| served.carried.has_output())
    }

    /// The wire is of no use any more.
    pub(crate) fn close(&self, words: &Words) {
        if let Some(served) = self.0.take() {
            words.end(&served.end, true);
        }
    }
}

impl Served {
    fn send(&self, env: Env, bytes: &[u8]) -> Result<bool> {
        let more = raw::call(env, self.send.value()?, &[raw::buffer(env, bytes)?])?;
        raw::boolean(env, more)
    }
}

fn dial(words: &Words, looped: &Rc<Loop>, client: &Rc<ClientState>, carried: &Carried) -> Result<Served> {
    let env = looped.env;
    let carrier = Carrier { looped: Rc::downgrade(looped), client: Rc::downgrade(client), carried: carried.clone() };
    let carrier = raw::value(env, carrier)?;
    let made = match carried.place() {
        Place::Tcp(host, port) => words.dial(&[carrier, raw::value(env, host.as_str())?, raw::value(env, *port)?])?,
        Place::Unix(path) => words.dial(&[carrier, raw::value(env, path.to_string_lossy().as_ref())?])?,
    };
    let [send, end] = raw::properties(env, made, [c"send", c"end"])?;
    Ok(Served { carried: carried.clone(), send: Callback::keep(env, send)?, end: Callback::keep(env, end)? })
}

/// What the driver makes of an error of Node's, so that it reads the same over every transport.
fn failure(code: &str, message: String) -> io::Error {
    let known = [
        ("EACCES", libc::EACCES),
        ("ECONNREFUSED", libc::ECONNREFUSED),
        ("ECONNRESET", libc::ECONNRESET),
        ("EHOSTUNREACH", libc::EHOSTUNREACH),
        ("EMFILE", libc::EMFILE),
        ("ENETUNREACH", libc::ENETUNREACH),
        ("ENOENT", libc::ENOENT),
        ("ETIMEDOUT", libc::ETIMEDOUT),
    ];
    match known.iter().find(|(name, _)| *name == code) {
        Some((_, number)) => io::Error::from_raw_os_error(*number),
        None => io::Error::other(if message.is_empty() { code.to_owned() } else { message }),
    }
}
