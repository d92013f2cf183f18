//! URLs: what they mean, and that no error tells what they said.

use std::time::Duration;

use super::*;
use crate::options::Options;

/// User, password, database.
type Login = (Option<&'static str>, Option<&'static str>, u32);

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.into(), port }
}

#[test]
fn urls_say_where_and_who() {
    let none: Login = (None, None, 0);
    let table: &[(&str, Address, Login)] = &[
        ("redis://localhost", tcp("localhost", 6379), none),
        ("redis://", tcp("127.0.0.1", 6379), none),
        ("redis:///2", tcp("127.0.0.1", 6379), (None, None, 2)),
        ("  redis://cache.example.com:7000/15\n", tcp("cache.example.com", 7000), (None, None, 15)),
        ("REDIS://h:1/?db=4", tcp("h", 1), (None, None, 4)),
        ("valkey://10.1.2.3:6380/", tcp("10.1.2.3", 6380), none),
        ("rediss://[::1]:6390/1", tcp("::1", 6390), (None, None, 1)),
        ("redis://[2001:db8::7]", tcp("2001:db8::7", 6379), none),
        ("redis://:pw@h", tcp("h", 6379), (None, Some("pw"), 0)),
        ("redis://me:p%40s%2Fs:w%25@h:1", tcp("h", 1), (Some("me"), Some("p@s/s:w%"), 0)),
        ("redis://me:a@b@h", tcp("h", 6379), (Some("me"), Some("a@b"), 0)),
        ("redis://me@h", tcp("h", 6379), (Some("me"), None, 0)),
        ("unix:///run/redis.sock", Address::Unix("/run/redis.sock".into()), none),
        ("unix://me:pw@/a%20b/s?db=3", Address::Unix("/a b/s".into()), (Some("me"), Some("pw"), 3)),
        ("redis+unix:///s?password=pw&user=me&db=3", Address::Unix("/s".into()), (Some("me"), Some("pw"), 3)),
    ];
    for (url, address, (user, password, db)) in table {
        let server = Server::parse(url).unwrap();
        assert_eq!(server.address, *address, "{url}");
        assert_eq!(server.user.as_deref(), *user, "{url}");
        assert_eq!(server.password.as_ref().map(Secret::expose), password.map(str::as_bytes), "{url}");
        assert_eq!(server.db, *db, "{url}");
        assert_eq!(server.tls.is_some(), url.starts_with("rediss"), "{url}");
    }
    assert_eq!(Server::parse("rediss://[::1]:6390/1").unwrap().to_string(), "[::1]:6390");
    assert_eq!(Server::parse("redis://h").unwrap().to_string(), "h:6379");
}

#[test]
fn x6_bad_urls_are_refused_without_a_word_of_theirs() {
    let table = [
        "",
        "m4rker",
        "m4rker.host:6379",
        "redis:m4rker",
        "http://m4rker",
        "memory://m4rker",
        "redis://h/m4rker",
        "redis+sentinel://:m4rker@h1,h2/name",
        "redis+cluster://:m4rker@h1:1,h2:2",
        "redis://h:m4rker",
        "redis://h:0/m4rker",
        "redis://h:65536/m4rker",
        "redis://:m4r/ker@h",
        "redis://me:m4r/ker@h",
        "redis://me:1/m4rker@h",
        "redis://:m4r?ker@h",
        "redis://:m4r#ker@h",
        "redis://:m4r%ker@h",
        "redis://:m4r%fFker@h",
        "redis://:m4r ker@h",
        "redis://:m4r\tker@h",
        "redis://h/-1?m4rker",
        "redis://h?m4rker",
        "redis://h?m4rker=1",
        "redis://h?password=m4rker",
        "redis://h?db=m4rker",
        "redis://[m4rker]",
        "redis://[::1",
        "redis://[::1]m4rker",
        "redis://m4rker,h2",
        "redis://m4rk\u{e9}r",
        "redis://h/1/m4rker",
        "unix://",
        "unix:///",
        "unix://m4rker",
        "unix://m4rker/run/redis.sock",
        "unix:///m4rker%00",
        "unix:///s?insecure=m4rker",
        "rediss://:m4rker@h/#insecure",
    ];
    for url in table.into_iter().chain([&*format!("unix:///m4rker{}", "x".repeat(200))]) {
        let error = Options::new(url).map(|_| ()).expect_err(url);
        assert_eq!(error.code(), Code::InvalidUrl, "{url}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("m4r") && !shown.contains("ker@"), "{shown}");
    }
    for later in ["redis+sentinel://a,b/c", "redis+cluster://a", "memory://"] {
        assert!(Server::parse(later).unwrap_err().message().contains("not supported yet in this version"));
    }
}

#[test]
fn x6_settings_show_no_secret() {
    for url in ["redis://me:m4rker@h", "unix:///s?password=m4rker"] {
        let options = Options::new(url).unwrap().tls_client_certificate("chain", "m4rker");
        let server = options.server();
        let shown = format!("{options:?} {options:#?} {server:?} {server} {:?}", server.password);
        assert!(!shown.contains("m4rker"), "{shown}");
        assert_eq!(server.password.unwrap().to_string(), "(secret)");
        // A derived Debug would show bytes as numbers.
        assert!(!shown.contains("109, 52"), "{shown}");
    }
}

#[test]
fn f42_spans_are_checked_and_rounded_up() {
    let options = || Options::new("redis://h").unwrap();
    let refused = |options: Options| options.check().unwrap_err().code();
    assert_eq!(options().watchdog(Duration::from_micros(10_001)).config().watchdog.0, 11);
    options().watchdog(Duration::from_millis(10)).op_timeout(Duration::from_nanos(1)).check().unwrap();
    assert_eq!(refused(options().watchdog(Duration::ZERO)), Code::InvalidLease);
    assert_eq!(refused(options().watchdog(Duration::MAX)), Code::InvalidLease);
    assert_eq!(refused(options().op_timeout(Duration::ZERO)), Code::InvalidOption);
    assert_eq!(refused(options().connect_timeout(Duration::MAX)), Code::InvalidOption);
    assert_eq!(refused(options().unreachable_after(Duration::ZERO)), Code::InvalidOption);
    assert_eq!(refused(options().max_hold(Duration::ZERO)), Code::InvalidOption);
    assert_eq!(refused(options().name_prefix("p".repeat(512))), Code::InvalidOption);
    let all = options().max_hold(Duration::from_secs(60)).local_reentry(true).name_prefix("app:");
    all.check().unwrap();
    assert!(all.config().local_reentry && all.prefix() == "app:");
}
