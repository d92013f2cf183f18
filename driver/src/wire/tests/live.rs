//! A real server, a blocking socket, and forty lines in between.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bandog_harness::Server as Redis;

use super::*;
use crate::server::Address;

pub(super) trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection and its socket.
pub(super) struct Pump {
    pub(super) connection: Connection,
    stream: Box<dyn Stream>,
}

impl Pump {
    pub(super) fn new(server: &Server, role: Role) -> Result<Self, Error> {
        let limit = Some(Duration::from_secs(10));
        let stream: Box<dyn Stream> = match &server.address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).unwrap();
                stream.set_read_timeout(limit).unwrap();
                Box::new(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(limit).unwrap();
                Box::new(stream)
            }
        };
        let mut pump = Self { connection: Connection::new(server, role, CLIENT)?, stream };
        assert_eq!(pump.next()?, Incoming::Ready);
        Ok(pump)
    }

    /// Moves bytes until something comes of it.
    pub(super) fn next(&mut self) -> Result<Incoming, Error> {
        let mut bytes = [0; 4096];
        loop {
            loop {
                let count = self.stream.write(self.connection.output()).unwrap_or(0);
                if count == 0 {
                    break;
                }
                self.connection.wrote(count);
            }
            if let Some(incoming) = self.connection.poll() {
                return Ok(incoming);
            }
            match self.stream.read(&mut bytes) {
                Ok(count @ 1..) => self.connection.input(&bytes[..count])?,
                Ok(0) => return Err(Error::new(Code::Unreachable, "closed")),
                Err(error) => return Err(Error::new(Code::Unreachable, error.to_string())),
            }
        }
    }

    pub(super) fn ask(&mut self, call: Call) -> Result<Value, CallError> {
        self.connection.call(call);
        match self.next() {
            Ok(Incoming::Reply { result, .. }) => result,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn scripts_run_over_tcp_and_unix_sockets() {
    let redis = Redis::start();
    for url in [redis.url(), format!("unix://{}", redis.socket().display())] {
        let mut pump = Pump::new(&server(&url), Role::Calls).unwrap();
        let own = pump.connection.fence().unwrap();
        assert!(own.id > 0 && own.addr.contains(':'));
        if url.starts_with("redis") {
            let missing = pump.ask(acquire(1, "live", false)).unwrap_err();
            assert!(matches!(missing, CallError::Server(text) if text.starts_with("NOSCRIPT ")));
        }
        pump.ask(acquire(2, "live", true)).unwrap();
        pump.ask(acquire(3, "live", false)).unwrap();
        for _ in 0..100 {
            pump.connection.call(acquire(4, "live", false));
        }
        assert_eq!(pump.connection.in_flight(), 100);
        for _ in 0..100 {
            assert!(matches!(pump.next(), Ok(Incoming::Reply { call: CallId(4), result: Ok(_) })));
        }
    }
}

#[test]
fn a_fence_kills_the_connection_it_names() {
    let redis = Redis::start();
    let mut old = Pump::new(&server(&redis.url()), Role::Calls).unwrap();
    let mut new = Pump::new(&server(&redis.url()), Role::Calls).unwrap();
    let mut fenced = acquire(1, "live", true);
    fenced.fences = vec![old.connection.fence().unwrap()];
    new.ask(fenced.clone()).unwrap();
    new.ask(fenced).unwrap();
    old.connection.call(call(2));
    assert_eq!(old.next().unwrap_err().code(), Code::Unreachable);
}

#[test]
fn f37_passwords_users_and_databases() {
    let redis = Redis::builder().password(MARKER).start();
    let port = redis.port();
    let open = |login: &str, db: &str| Pump::new(&server(&format!("redis://{login}127.0.0.1:{port}{db}")), Role::Calls);
    let mut pump = open(&format!(":{MARKER}@"), "/3").unwrap();
    pump.ask(acquire(1, "live", true)).unwrap();
    assert_eq!(code(&open("", "").err().unwrap()), Code::PermissionDenied);
    assert_eq!(code(&open("nobody:m4rkerPassw0rd@", "").err().unwrap()), Code::PermissionDenied);
    assert_eq!(code(&open(&format!(":{MARKER}x@"), "").err().unwrap()), Code::PermissionDenied);
    assert_eq!(code(&open(&format!(":{MARKER}@"), "/99").err().unwrap()), Code::InvalidUrl);
    let socket = redis.socket();
    let url = format!("unix://{}?db=3&password={MARKER}", socket.display());
    let mut pump = Pump::new(&server(&url), Role::Calls).unwrap();
    assert!(matches!(pump.ask(acquire(1, "live", false)), Ok(Value::List(_) | Value::Int(_))));
}

#[test]
fn f36_users_who_may_do_little() {
    let rule = |name: &str, rest: &str| {
        let rule = format!("--user {name} on >{MARKER} resetchannels -@all {rest}");
        rule.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let args = [rule("full", "+@all ~* &*"), rule("bare", "+hello +eval +subscribe ~none"), rule("gone", "off")];
    let redis = Redis::builder().args(args.concat()).start();
    let url = |user: &str| format!("redis://{user}:{MARKER}@127.0.0.1:{}", redis.port());
    let mut full = Pump::new(&server(&url("full")), Role::Calls).unwrap();
    full.ask(acquire(1, "live", true)).unwrap();

    let mut bare = Pump::new(&server(&url("bare")), Role::Calls).unwrap();
    assert_eq!(bare.connection.fence(), None, "no client|info");
    let mut fenced = acquire(1, "live", true);
    fenced.fences = vec![full.connection.fence().unwrap()];
    bare.connection.call(fenced);
    assert_eq!(bare.next(), Ok(Incoming::Unfenced(CallId(1))));
    let refused = bare.next().unwrap();
    let noperm = |text: &str| text.starts_with("NOPERM");
    assert!(
        matches!(&refused, Incoming::Reply { result: Err(CallError::Server(text)), .. } if noperm(text)),
        "{refused:?}"
    );

    let channel = Name::new("live").unwrap().channel();
    let mut deaf = Pump::new(&server(&url("bare")), Role::Messages).unwrap();
    deaf.connection.subscribe(&channel);
    assert!(matches!(deaf.next(), Ok(Incoming::Push(Push::Refused(_, text))) if noperm(&text)));
    assert_eq!(code(&Pump::new(&server(&url("gone")), Role::Calls).err().unwrap()), Code::PermissionDenied);
}

#[test]
fn messages_arrive() {
    let redis = Redis::start();
    let channel = Name::new("live").unwrap().channel();
    let mut ear = Pump::new(&server(&redis.url()), Role::Messages).unwrap();
    ear.connection.subscribe(&channel);
    assert_eq!(ear.next(), Ok(Incoming::Push(Push::Subscribed(channel.clone()))));

    let mut mouth = Pump::new(&server(&redis.url()), Role::Calls).unwrap();
    let mut acquired = acquire(1, "live", true);
    mouth.ask(acquired.clone()).unwrap();
    let Ask::Acquire { name, owner, lease, .. } = acquired.request.ask else { unreachable!() };
    acquired.request.ask = Ask::Release { name, owner, lease, count: 0 };
    mouth.ask(acquired).unwrap();
    assert!(matches!(ear.next(), Ok(Incoming::Push(Push::Message(from, _))) if from == channel));
    ear.connection.unsubscribe(&channel);
    ear.connection.subscribe(&channel);
    assert_eq!(ear.next(), Ok(Incoming::Push(Push::Subscribed(channel))));
}
