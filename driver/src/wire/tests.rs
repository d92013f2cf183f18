//! Canned servers: what the connection makes of given bytes.

mod calls;
mod greetings;
mod hostile;
mod live;
mod replies;
mod secure;

use bandog_core::error::Code;
use bandog_core::io::{Call, CallId, Fence, Wire};
use bandog_core::name::Name;
use bandog_core::owner::{ClientId, HoldNumber, WireOwner};
use bandog_core::scripts::{Ask, Request};
use bandog_core::time::Millis;

use super::*;

pub(super) const CLIENT: ClientId = ClientId([0x28; 16]);
pub(super) const MARKER: &str = "m4rkerPassw0rd";

pub(super) const HELLO: &[u8] =
    b"%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n\
    $2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
pub(super) const INFO: &[u8] = b"=47\r\ntxt:id=7 addr=10.0.0.1:5000 laddr=10.0.0.2:6379\r\n";

pub(super) fn server(url: &str) -> Server {
    Server::parse(url).unwrap()
}

/// A connection that was greeted, with nothing left to write.
pub(super) fn ready(role: Role) -> Connection {
    let mut connection = Connection::new(&server("redis://host.test"), role, CLIENT).unwrap();
    written(&mut connection);
    connection.input(HELLO).unwrap();
    connection.input(INFO).unwrap();
    assert_eq!(incoming(&mut connection), [Incoming::Ready]);
    connection
}

pub(super) fn incoming(connection: &mut Connection) -> Vec<Incoming> {
    std::iter::from_fn(|| connection.poll()).collect()
}

/// Takes all output as if a socket had.
pub(super) fn written(connection: &mut Connection) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let some = connection.output().to_vec();
        if some.is_empty() {
            return all;
        }
        connection.wrote(some.len());
        all.extend(some);
    }
}

pub(super) fn call(id: u64) -> Call {
    let ask = Ask::Status { name: Name::new("order_lock").unwrap() };
    Call { id: CallId(id), wire: Wire::KEEPER, request: Request { ask, source: false }, fences: Vec::new() }
}

pub(super) fn acquire(id: u64, name: &str, source: bool) -> Call {
    let ask = Ask::Acquire {
        name: Name::new(name).unwrap(),
        owner: WireOwner { client: CLIENT, number: HoldNumber(1) },
        lease: Millis(30_000),
        count: 1,
        fresh: true,
        heal: Millis(30_000),
    };
    Call { id: CallId(id), wire: Wire::KEEPER, request: Request { ask, source }, fences: Vec::new() }
}

pub(super) fn fence() -> Fence {
    Fence { id: 7, addr: "10.0.0.1:5000".into() }
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

pub(super) fn reply(id: u64, value: Value) -> Incoming {
    Incoming::Reply { call: CallId(id), result: Ok(value) }
}

/// The code of a failure whose text must hold none of our secrets.
pub(super) fn code(error: &Error) -> Code {
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(MARKER) && !shown.contains(&MARKER[2..8]), "{shown}");
    error.code()
}
