//! Servers that lie (X3): every lie ends in `protocol`, none in memory.

use std::time::Instant;

use super::*;
use crate::wire::frame::{MAX_ARRAY, MAX_BULK, MAX_DEPTH, MAX_FRAME, MAX_LINE};

fn refused(bytes: &[u8]) -> Error {
    let mut connection = ready(Role::Calls);
    connection.call(call(1));
    written(&mut connection);
    let error = connection.input(bytes).unwrap_err();
    assert_eq!(code(&error), Code::Protocol, "{error}");
    assert!(error.message().contains("host.test:6379") && error.message().contains("check the address"), "{error}");
    assert_eq!(connection.input(b":1\r\n").unwrap_err(), error, "an error is final");
    assert_eq!(connection.failure(), Some(&error));
    assert_eq!(connection.poll(), None);
    assert_eq!(connection.in_flight(), 1);
    assert_eq!(connection.abandon(), [(CallId(1), CallError::Unknown(Some(fence())))], "no call is lost");
    error
}

#[test]
fn junk_is_refused_at_its_first_byte() {
    for junk in ["H", "HTTP/1.1 400 Bad Request\r\n", "\0", "\r\n", "SSH-2.0-OpenSSH", "{", "5\r\n", "\u{e9}"] {
        refused(junk.as_bytes());
    }
}

#[test]
fn malformed_replies_are_refused() {
    for bad in [
        "$x\r\n",
        "$-2\r\n",
        "$+1\r\n",
        "$ 1\r\n",
        "$\r\n",
        "*1x\r\n",
        "*-2\r\n",
        "~-1\r\n",
        ">-1\r\n",
        "%-1\r\n",
        "=-1\r\n",
        "$1\r\nab\r\n",
        "$1\r\na\n\n",
        ":x\r\n",
        ":9223372036854775808\r\n",
        ",x\r\n",
        "#x\r\n",
        "=2\r\nab\r\n",
        "*?\r\n",
        "$?\r\n",
        "*1\r\nx",
        "*2\r\n:1\r\n;",
        ">1\r\n:1\r\n",
        "*1\r\n>1\r\n+a\r\n",
        "%1\r\n+a\r\n+b\r\n",
    ] {
        refused(bad.as_bytes());
    }
}

#[test]
fn declared_lengths_beyond_the_limits_are_refused_at_once() {
    let over = |kind: char, limit: usize| refused(format!("{kind}{}\r\n", limit + 1).as_bytes());
    for kind in ['$', '!', '='] {
        over(kind, MAX_BULK);
    }
    for kind in ['*', '~', '>'] {
        over(kind, MAX_ARRAY);
    }
    over('%', MAX_ARRAY / 2);
    over('|', MAX_ARRAY / 2 - 1);
    for huge in ["2147483648", "9223372036854775807", "18446744073709551616", &"9".repeat(1000)] {
        refused(format!("${huge}\r\n").as_bytes());
        refused(format!("*{huge}\r\n").as_bytes());
        refused(format!("%{huge}\r\n").as_bytes());
    }
    refused("*1\r\n".repeat(MAX_DEPTH + 1).as_bytes());
    refused(&[b"+", &vec![b'a'; MAX_LINE][..]].concat());
    refused(&[b":", &vec![b'1'; MAX_LINE][..]].concat());
    let bulk = [format!("${MAX_BULK}\r\n").as_bytes(), &vec![b'a'; MAX_BULK], b"\r\n"].concat();
    refused(&[b"*3\r\n", &bulk[..], &bulk].concat());
    let wide = format!("*{MAX_ARRAY}\r\n");
    refused(format!("{wide}{}", format!("{wide}{}", "_\r\n".repeat(MAX_ARRAY)).repeat(20)).as_bytes());
}

#[test]
fn replies_at_the_limits_are_taken() {
    let accepted = |bytes: &[u8]| {
        let mut connection = ready(Role::Calls);
        connection.call(call(1));
        connection.input(bytes).unwrap();
        assert!(matches!(connection.poll(), Some(Incoming::Reply { result: Ok(_), .. })));
        assert!(connection.decoder.capacity() <= 64 << 10, "a large buffer is given back");
    };
    accepted(&[format!("${MAX_BULK}\r\n").as_bytes(), &vec![b'a'; MAX_BULK], b"\r\n"].concat());
    accepted(format!("*{MAX_ARRAY}\r\n{}", ":1\r\n".repeat(MAX_ARRAY)).as_bytes());
    accepted(format!("{}:1\r\n", "*1\r\n".repeat(MAX_DEPTH)).as_bytes());
    accepted(format!("+{}\r\n", "a".repeat(MAX_LINE - 3)).as_bytes());
}

#[test]
fn promises_allocate_nothing() {
    for promise in
        [format!("${MAX_BULK}\r\n"), format!("*{MAX_ARRAY}\r\n").repeat(MAX_DEPTH), format!("%{}\r\n", MAX_ARRAY / 2)]
    {
        let mut connection = ready(Role::Calls);
        connection.call(call(1));
        connection.input(promise.as_bytes()).unwrap();
        assert!(connection.decoder.capacity() < 2048, "{}", connection.decoder.capacity());
    }
}

#[test]
fn a_trickle_costs_no_more_than_a_flood() {
    let bulk = [format!("*3\r\n${MAX_BULK}\r\n").as_bytes(), &vec![b'\n'; MAX_BULK], b"\r\n"].concat();
    let line = [b"+", &vec![b'\n'; MAX_LINE - 3][..], b"\r\n:1\r\n"].concat();
    let bytes = [bulk, line].concat();
    assert!(bytes.len() < MAX_FRAME);
    let mut connection = ready(Role::Calls);
    connection.call(call(1));
    let start = Instant::now();
    for byte in bytes.chunks(1) {
        connection.input(byte).unwrap();
    }
    assert!(matches!(connection.poll(), Some(Incoming::Reply { .. })));
    // Reading everything again for each byte would take minutes.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[test]
fn what_nobody_asked_for_is_refused() {
    for (role, bytes) in [(Role::Calls, ":1\r\n"), (Role::Calls, "-ERR x\r\n"), (Role::Messages, "+PONG\r\n")] {
        let mut connection = ready(role);
        assert_eq!(code(&connection.input(bytes.as_bytes()).unwrap_err()), Code::Protocol);
    }
    refused(b"%1\r\n+a\r\n:1\r\n");
    let mut connection = ready(Role::Calls);
    let mut fenced = call(1);
    fenced.fences = vec![fence()];
    connection.call(fenced);
    assert_eq!(code(&connection.input(b"+OK\r\n").unwrap_err()), Code::Protocol);
}

#[test]
fn floods_of_messages_for_others_leave_nothing() {
    for role in [Role::Calls, Role::Messages] {
        let mut connection = ready(role);
        for _ in 0..10_000 {
            connection.input(b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\ny\r\n").unwrap();
        }
        assert_eq!(connection.poll(), None);
    }
}
