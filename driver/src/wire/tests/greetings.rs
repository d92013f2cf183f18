//! The handshake: every arrow, every refusal, and no password in any text.

use super::*;
use crate::wire::handshake::Answer;

fn answers() -> [Answer; 5] {
    let new = Answer::Server { product: "redis".into(), version: "7.0.15".into(), mode: "standalone".into() };
    [
        new,
        Answer::Text("id=7 addr=10.0.0.1:5000 laddr=x".into()),
        Answer::Okay,
        Answer::Refused("ERR no".into()),
        Answer::Other,
    ]
}

fn at(state: State, url: &str) -> Handshake {
    let mut handshake = Handshake::begin(&server(url), CLIENT, &mut Vec::new());
    let [hello, info, okay, ..] = answers();
    for (next, answer) in [(State::Info, hello), (State::Select, info), (State::Ready, okay)] {
        if handshake.state() == state {
            break;
        }
        handshake.step(answer).unwrap();
        assert!(handshake.state() == next || handshake.state() == State::Ready);
    }
    assert_eq!(handshake.state(), state);
    handshake
}

#[test]
fn every_arrow_is_taken() {
    let (none, some) = ("redis://host.test", "redis://host.test/3");
    let refused = None;
    // By answer: Server, Text, Okay, Refused, Other.
    let table = [
        (none, State::Hello, [Some(State::Info), refused, refused, refused, refused]),
        (none, State::Info, [refused, Some(State::Ready), refused, Some(State::Ready), refused]),
        (some, State::Info, [refused, Some(State::Select), refused, Some(State::Select), refused]),
        (some, State::Select, [refused, refused, Some(State::Ready), refused, refused]),
        (none, State::Ready, [refused; 5]),
    ];
    for (url, state, row) in table {
        for (answer, next) in answers().into_iter().zip(row) {
            let mut handshake = at(state, url);
            let taken = handshake.step(answer.clone());
            assert_eq!(taken.ok().map(|()| handshake.state()), next, "{state:?} {answer:?}");
        }
    }
    assert_eq!(at(State::Ready, none).fence(), Some(&fence()));
}

#[test]
fn everything_is_said_in_one_write() {
    let said = |url: &str| {
        let mut connection = Connection::new(&server(url), Role::Calls, CLIENT).unwrap();
        String::from_utf8(written(&mut connection)).unwrap()
    };
    let info = "*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n";
    let hello = "*4\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$7\r\nSETNAME\r\n$15\r\nbandog:28282828\r\n";
    assert_eq!(said("redis://host.test"), format!("{hello}{info}"));
    let hello = "*7\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$3\r\nabc\r\n$7\r\nSETNAME\r\n$15\r\nbandog:28282828\r\n";
    assert_eq!(said("redis://:abc@host.test/12"), format!("{hello}{info}*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n"));
    assert!(said("redis://me@host.test").contains("AUTH\r\n$2\r\nme\r\n$0\r\n\r\n"));
}

#[test]
fn old_servers_are_told_apart() {
    let judged = |product: &str, version: &str| {
        let answer = Answer::Server { product: product.into(), version: version.into(), mode: "standalone".into() };
        at(State::Hello, "redis://host.test").step(answer)
    };
    for (product, version) in [
        ("redis", "6.2.0"),
        ("redis", "7.0.15"),
        ("redis", "255.255.255"),
        ("valkey", "7.2.5"),
        ("valkey", "8.1.0"),
        ("other", "6.2"),
    ] {
        judged(product, version).unwrap();
    }
    for (product, version) in
        [("redis", "6.0.20"), ("redis", "5.0.14"), ("valkey", "7.0.1"), ("redis", ""), ("redis", "new"), ("redis", "7")]
    {
        let error = judged(product, version).unwrap_err();
        assert_eq!(code(&error), Code::Protocol);
        assert!(error.message().contains("needs Redis >= 6.2 or Valkey >= 7.2"), "{error}");
    }
    let sentinel = Answer::Server { product: "redis".into(), version: "7.0.0".into(), mode: "sentinel".into() };
    assert!(at(State::Hello, "redis://host.test").step(sentinel).unwrap_err().message().contains("sentinel"));
    let cluster = Answer::Server { product: "redis".into(), version: "7.0.0".into(), mode: "cluster".into() };
    assert!(at(State::Hello, "redis://host.test").step(cluster).unwrap_err().message().contains("cluster"));
}

#[test]
fn f37_refusals_are_typed_and_quote_nothing() {
    let url = format!("redis://me:{MARKER}@host.test/3");
    let echo = format!("ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `me`, `{MARKER}`, ");
    let table = [
        ("WRONGPASS invalid username-password pair or user is disabled.", Code::PermissionDenied),
        ("NOAUTH HELLO must be called with the client already authenticated", Code::PermissionDenied),
        ("NOPERM this user has no permissions to run the 'hello' command", Code::PermissionDenied),
        ("DENIED Redis is running in protected mode", Code::PermissionDenied),
        ("LOADING Redis is loading the dataset in memory", Code::Unreachable),
        ("MASTERDOWN Link with MASTER is down", Code::Unreachable),
        ("ERR max number of clients reached", Code::Unreachable),
        ("NOPROTO unsupported protocol version", Code::Protocol),
        ("ERR something else", Code::Protocol),
        (MARKER, Code::Protocol),
        (&echo, Code::Protocol),
    ];
    for (text, expected) in table {
        let mut connection = Connection::new(&server(&url), Role::Calls, CLIENT).unwrap();
        let error = connection.input(format!("-{text}\r\n").as_bytes()).unwrap_err();
        assert_eq!(code(&error), expected, "{text}");
        assert!(error.message().contains("host.test:6379"), "{error}");
    }
    for (text, expected) in [("ERR DB index is out of range", Code::InvalidUrl), ("NOPERM no", Code::PermissionDenied)]
    {
        let mut connection = Connection::new(&server(&url), Role::Calls, CLIENT).unwrap();
        let talk = [HELLO, INFO, format!("-{text}\r\n").as_bytes()].concat();
        assert_eq!(code(&connection.input(&talk).unwrap_err()), expected);
        assert!(!connection.is_ready());
    }
}

#[test]
fn f36_no_client_info_means_no_fence() {
    let mut connection = Connection::new(&server("redis://host.test"), Role::Calls, CLIENT).unwrap();
    connection.input(HELLO).unwrap();
    assert!(!connection.is_ready());
    connection.input(b"-NOPERM no client|info\r\n").unwrap();
    assert_eq!(connection.fence(), None);
    connection.call(call(1));
    written(&mut connection);
    assert_eq!(connection.abandon(), [(CallId(1), CallError::Unknown(None))]);
}

#[test]
fn addresses_of_unix_sockets_may_hold_spaces() {
    let info = |text: &str| {
        let mut connection = Connection::new(&server("redis://host.test"), Role::Calls, CLIENT).unwrap();
        connection.input(HELLO).unwrap();
        connection.input(format!("${}\r\n{text}\r\n", text.len()).as_bytes()).unwrap();
        connection.fence().map(|fence| (fence.id, fence.addr))
    };
    assert_eq!(info("id=3 addr=/a b/redis.sock:0 laddr=/a b/redis.sock:0 fd=8"), Some((3, "/a b/redis.sock:0".into())));
    assert_eq!(info("id=3 addr=[::1]:50 fd=8"), Some((3, "[::1]:50".into())));
    for odd in ["", "id=x addr=y z", "addr=1:1 id=3", "id=3 addr=", "id=3"] {
        assert_eq!(info(odd), None, "{odd}");
    }
}

#[test]
fn the_greeting_is_cleared_once_it_went() {
    let mut connection =
        Connection::new(&server(&format!("redis://:{MARKER}@host.test")), Role::Calls, CLIENT).unwrap();
    let length = connection.output().len();
    assert!(connection.output().windows(MARKER.len()).any(|word| word == MARKER.as_bytes()));
    connection.wrote(length);
    assert!(connection.out.is_empty());
}

#[test]
fn a_tls_alert_is_recognised() {
    let mut connection = Connection::new(&server("redis://host.test"), Role::Calls, CLIENT).unwrap();
    let error = connection.input(b"\x15\x03\x03\x00\x02\x02\x46").unwrap_err();
    assert_eq!(code(&error), Code::Protocol);
    assert!(error.message().contains("rediss://"), "{error}");
}
