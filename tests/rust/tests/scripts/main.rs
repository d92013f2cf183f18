//! The five scripts on a real server: what they write is what Redisson writes (protocol 20.1), and no
//! fault leaves behind what the properties forbid. Test names begin with the property or fault they prove.

mod faults;
mod foreign;
mod rows;

use std::collections::BTreeMap;

use bandog_core::io::Value;
use bandog_core::name::Name;
use bandog_core::owner::{ClientId, HoldNumber, WireOwner};
use bandog_core::scripts::{Ask, Renewal, Reply, Request, Script, Sink};
use bandog_core::time::Millis;
use bandog_harness::Server;
use redis::{Connection, FromRedisValue, RedisError, cmd};

/// The lease of protocol 20.1, in ms.
const LEASE: u64 = 30_000;
/// What a lock without expiry gets from a waiter; different, to tell the two apart.
const HEAL: u64 = 20_000;

/// A server and an administrator's connection to it.
struct Rig {
    server: Server,
    admin: Connection,
}

impl Rig {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(args: &[&str]) -> Self {
        let server = Server::builder().args(args.iter().copied()).start();
        let admin = connect(&server);
        Self { server, admin }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Reply, String> {
        run(&mut self.admin, ask)
    }

    /// The reply, where an error is none of the expected answers.
    fn reply(&mut self, ask: &Ask) -> Reply {
        self.ask(ask).unwrap_or_else(|error| panic!("{ask:?}: {error}"))
    }

    /// A plain command of the administrator.
    fn redis<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.admin).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn hash(&mut self, key: &str) -> BTreeMap<String, String> {
        self.redis(&["HGETALL", key])
    }

    fn pttl(&mut self, key: &str) -> i64 {
        self.redis(&["PTTL", key])
    }

    fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.redis(&["KEYS", "*"]);
        keys.sort_unstable();
        keys
    }

    /// A plain lock with one owner of this count, and that time to live.
    fn given(&mut self, key: &str, owner: &WireOwner, count: u32, ttl: u64) {
        let _: i64 = self.redis(&["HSET", key, &owner.to_string(), &count.to_string()]);
        let _: i64 = self.redis(&["PEXPIRE", key, &ttl.to_string()]);
    }

    /// Exactly this owner with this count, a time to live just below `ttl`, and no other key on the server.
    fn expect_lock(&mut self, key: &str, owner: &WireOwner, count: u32, ttl: u64) {
        assert_eq!(self.hash(key), BTreeMap::from([(owner.to_string(), count.to_string())]));
        assert_eq!(self.keys(), [key]);
        let left = self.pttl(key);
        assert!(about(left, ttl), "{left} of {ttl} ms");
    }

    fn expect_nothing(&mut self) {
        assert_eq!(self.keys(), [] as [&str; 0]);
    }

    /// Messages that arrive on a channel while `act` runs.
    fn messages_during(&mut self, channel: &str, act: impl FnOnce(&mut Self)) -> Vec<String> {
        // RESP2, for `as_pubsub`.
        let mut listener = redis::Client::open(self.server.url()).unwrap().get_connection().unwrap();
        let mut subscription = listener.as_pubsub();
        subscription.subscribe(channel).unwrap();
        act(self);
        // A message of our own behind theirs: what came before it is all there is.
        let _: i64 = self.redis(&["PUBLISH", channel, "end"]);
        std::iter::repeat_with(|| {
            let message = subscription.get_message().unwrap();
            assert_eq!(message.get_channel_name(), channel);
            message.get_payload::<String>().unwrap()
        })
        .take_while(|text| text != "end")
        .collect()
    }
}

/// Whether a time to live was just set to `ttl`; with room for a slow machine.
fn about(left: i64, ttl: u64) -> bool {
    let ttl = i64::try_from(ttl).unwrap();
    (ttl - 5_000..=ttl).contains(&left)
}

/// RESP3, as the driver talks.
fn connect(server: &Server) -> Connection {
    redis::Client::open(format!("{}/?protocol=resp3", server.url())).unwrap().get_connection().unwrap()
}

/// As the driver does: the digest first, on NOSCRIPT the text. `Err` is the text of the server's error.
fn run(connection: &mut Connection, ask: &Ask) -> Result<Reply, String> {
    let send = |connection: &mut Connection, source| {
        let mut paper = Paper::default();
        let script = Request { ask: ask.clone(), source }.write(&mut paper);
        let mut command = cmd(if source { "EVAL" } else { "EVALSHA" });
        if source {
            command.arg(script.source())
        } else {
            command.arg(digest(script))
        };
        command.arg(paper.keys.len()).arg(&paper.keys).arg(&paper.args);
        command.query::<redis::Value>(connection).map_err(|error| error_text(&error))
    };
    let value = match send(connection, false) {
        Err(error) if error.starts_with("NOSCRIPT") => send(connection, true)?,
        other => other?,
    };
    Ok(ask.shape().decode(plain(value)).unwrap_or_else(|why| panic!("{ask:?}: {why}")))
}

#[derive(Default)]
struct Paper {
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Sink for Paper {
    fn key(&mut self, key: &[u8]) {
        self.keys.push(key.into());
    }

    fn arg(&mut self, arg: &[u8]) {
        self.args.push(arg.into());
    }
}

fn plain(value: redis::Value) -> Value {
    match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(text) => Value::Text(text),
        redis::Value::SimpleString(text) => Value::Text(text.into()),
        redis::Value::Array(list) => Value::List(list.into_iter().map(plain).collect()),
        other => panic!("no script of ours answers {other:?}"),
    }
}

/// The error as it stood on the wire.
fn error_text(error: &RedisError) -> String {
    format!("{} {}", error.code().unwrap_or("?"), error.detail().unwrap_or_default())
}

fn digest(script: Script) -> String {
    sha1_smol::Sha1::from(script.source()).digest().to_string()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Owners of two clients, told apart by a letter.
fn owner(letter: u8) -> WireOwner {
    WireOwner { client: ClientId([letter; 16]), number: HoldNumber(u64::from(letter)) }
}

fn acquire(key: &str, owner: WireOwner, count: u32, fresh: bool) -> Ask {
    Ask::Acquire { name: name(key), owner, lease: Millis(LEASE), count, fresh, heal: Millis(HEAL) }
}

fn release(key: &str, owner: WireOwner, count: u32) -> Ask {
    Ask::Release { name: name(key), owner, lease: Millis(LEASE), count }
}

fn renew(locks: &[(&str, WireOwner)]) -> Ask {
    let renewal = |&(key, owner): &(&str, WireOwner)| Renewal { name: name(key), owner, lease: Millis(LEASE) };
    Ask::Renew(locks.iter().map(renewal).collect())
}

fn force(key: &str, owners: &[&WireOwner]) -> Ask {
    Ask::Force { name: name(key), owners: owners.iter().map(|owner| owner.to_string().into_bytes()).collect() }
}

fn status(key: &str) -> Ask {
    Ask::Status { name: name(key) }
}
