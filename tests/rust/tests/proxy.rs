//! The fault proxy is what other tests trust, so it is tested itself: with an echo, and with a real server.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bandog_harness::{Proxy, Server};

const SOON: Duration = Duration::from_secs(5);
const NEVER: Duration = Duration::from_millis(80);

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Sends everything back; the far end of tests that are about bytes.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind(at(0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut from, mut to) = stream.map(|stream| (stream.try_clone().unwrap(), stream)).unwrap();
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

struct Client(TcpStream);

impl Client {
    fn new(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(at(proxy.port())).unwrap())
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    fn call(&mut self, words: &[&str]) {
        let args: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        self.send(&format!("*{}\r\n{args}", words.len()));
    }

    fn read(&mut self, n: usize) -> String {
        self.0.set_read_timeout(Some(SOON)).unwrap();
        let mut bytes = vec![0; n];
        self.0.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn hears(&mut self, text: &str) {
        assert_eq!(self.read(text.len()), text);
    }

    fn hears_nothing(&mut self) {
        self.0.set_read_timeout(Some(NEVER)).unwrap();
        let heard = self.0.read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(heard, Err(ErrorKind::WouldBlock));
    }

    fn end(&mut self) -> Result<usize, ErrorKind> {
        self.0.set_read_timeout(Some(SOON)).unwrap();
        self.0.read(&mut [0; 1]).map_err(|error| error.kind())
    }

    fn is_closed(&mut self) {
        assert_eq!(self.end(), Ok(0));
    }

    fn is_reset(&mut self) {
        assert_eq!(self.end(), Err(ErrorKind::ConnectionReset));
    }
}

/// Asks the server itself, past the proxy.
fn ask(server: &Server, words: &[&str], answer: &str) {
    let until = Instant::now() + SOON;
    loop {
        let mut direct = Client(TcpStream::connect(at(server.port())).unwrap());
        direct.call(words);
        let mut bytes = [0; 64];
        let heard = direct.0.read(&mut bytes).map(|n| String::from_utf8_lossy(&bytes[..n]).into_owned()).unwrap();
        if heard == answer {
            return;
        }
        assert!(Instant::now() < until, "{words:?}: {heard:?}, not {answer:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn with_redis() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::start(at(server.port())).unwrap();
    (server, proxy)
}

#[test]
fn bytes_pass_both_ways_and_ends_too() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut client = Client::new(&proxy);
    client.send("not resp at all");
    client.hears("not resp at all");
    client.0.shutdown(Shutdown::Write).unwrap();
    client.is_closed();
    assert_eq!(proxy.count("connections").unwrap(), 1);
    assert_eq!((proxy.count("up").unwrap(), proxy.count("down").unwrap()), (15, 15));
}

#[test]
fn a_stall_keeps_the_bytes_and_resume_delivers_them() {
    let proxy = Proxy::start(echo()).unwrap();
    let (mut stalled, mut other) = (Client::new(&proxy), Client::new(&proxy));
    for order in ["stall up on 1", "stall down on 1", "stall both on 1"] {
        proxy.tell(order).unwrap();
        stalled.send("+1\r\n");
        stalled.hears_nothing();
        other.send("+2\r\n");
        other.hears("+2\r\n");
        proxy.tell("resume on 1").unwrap();
        stalled.hears("+1\r\n");
    }
}

#[test]
fn a_delay_is_a_delay_and_not_a_queue() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut client = Client::new(&proxy);
    proxy.tell("delay up 60").unwrap();
    proxy.tell("delay down 60").unwrap();
    let start = Instant::now();
    for n in 0..4 {
        client.send(&format!("+{n}\r\n"));
    }
    client.hears("+0\r\n+1\r\n+2\r\n+3\r\n");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(120) && took < Duration::from_millis(400), "{took:?}");
}

#[test]
fn a_trickle_counts_bytes_by_the_second() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut client = Client::new(&proxy);
    proxy.tell("trickle down 100").unwrap();
    let start = Instant::now();
    client.send("+0123456789abcdef\r\n");
    client.hears("+0123456789abcdef\r\n");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(150) && took < Duration::from_millis(800), "{took:?}");
}

#[test]
fn a_cut_comes_after_so_many_bytes() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut client = Client::new(&proxy);
    proxy.tell("cut down 7").unwrap();
    client.send("+one\r\n+two\r\n");
    client.hears("+one\r\n+");
    client.is_closed();
    proxy.tell("cut up 2 on next").unwrap();
    let mut client = Client::new(&proxy);
    client.send("+one\r\n");
    client.is_closed();
    assert_eq!(proxy.count("up").unwrap(), 12 + 2);
}

#[test]
fn a_half_close_leaves_the_other_half() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut client = Client::new(&proxy);
    client.send("+1\r\n");
    client.hears("+1\r\n");
    proxy.tell("halfclose down").unwrap();
    client.is_closed();
    client.send("+2\r\n");
    let until = Instant::now() + SOON;
    while proxy.count("up").unwrap() < 8 {
        assert!(Instant::now() < until);
    }
}

#[test]
fn new_connections_can_be_refused_or_never_answered() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut old = Client::new(&proxy);
    proxy.tell("refuse").unwrap();
    let refused = TcpStream::connect(at(proxy.port())).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
    old.send("+old\r\n");
    old.hears("+old\r\n");
    proxy.tell("accept").unwrap();
    proxy.tell("silence").unwrap();
    let mut silent = Client::new(&proxy);
    silent.send("+1\r\n");
    silent.hears_nothing();
    proxy.tell("pass").unwrap();
    let mut client = Client::new(&proxy);
    client.send("+1\r\n");
    client.hears("+1\r\n");
}

#[test]
fn a_reset_is_a_reset_and_orders_are_checked() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut client = Client::new(&proxy);
    client.send("+1\r\n");
    client.hears("+1\r\n");
    proxy.tell("reset").unwrap();
    client.is_reset();
    assert_eq!(proxy.count("open").unwrap(), 0);
    assert!(proxy.tell("explode").is_err());
    assert!(proxy.tell("cut up 0").is_err());
}

#[test]
fn f17_a_reply_is_lost_after_the_request_was_executed() {
    let (server, proxy) = with_redis();
    for (then, value) in [("reset", "1"), ("silent", "2")] {
        let mut client = Client::new(&proxy);
        client.call(&["PING"]);
        client.hears("+PONG\r\n");
        proxy.tell(&format!("swallow 1 {then}")).unwrap();
        client.call(&["INCR", "key"]);
        if then == "reset" {
            client.is_reset()
        } else {
            client.hears_nothing()
        }
        ask(&server, &["GET", "key"], &format!("$1\r\n{value}\r\n"));
    }
}

#[test]
fn f17_only_the_chosen_reply_is_lost() {
    let (server, proxy) = with_redis();
    let mut client = Client::new(&proxy);
    proxy.tell("lose INCR reset").unwrap();
    client.call(&["HELLO", "3"]);
    client.call(&["SUBSCRIBE", "c"]);
    client.call(&["SET", "key", "4"]);
    while client.read(1) != "+" {}
    client.hears("OK\r\n");
    client.call(&["INCR", "key"]);
    client.is_reset();
    ask(&server, &["GET", "key"], "$1\r\n5\r\n");
}

#[test]
fn f18_a_request_is_lost_before_it_is_executed() {
    let (server, proxy) = with_redis();
    for then in ["reset", "silent"] {
        let mut client = Client::new(&proxy);
        proxy.tell(&format!("drop INCR {then}")).unwrap();
        client.call(&["INCR", "key"]);
        if then == "reset" { client.is_reset() } else { client.hears_nothing() }
    }
    ask(&server, &["EXISTS", "key"], ":0\r\n");
}

#[test]
fn a_cut_after_replies_delivers_them() {
    let (_server, proxy) = with_redis();
    let mut client = Client::new(&proxy);
    proxy.tell("cut replies 2 on next").unwrap();
    client.call(&["ECHO", "a"]);
    client.hears("$1\r\na\r\n");
    let mut next = Client::new(&proxy);
    next.send("*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$1\r\nb\r\n*1\r\n$4\r\nPING\r\n");
    next.hears("+PONG\r\n$1\r\nb\r\n");
    assert!(matches!(next.end(), Ok(0) | Err(ErrorKind::ConnectionReset)));
    client.call(&["PING"]);
    client.hears("+PONG\r\n");
}

#[test]
fn a_held_request_is_executed_late_although_its_client_is_gone() {
    let (server, proxy) = with_redis();
    let mut client = Client::new(&proxy);
    proxy.tell("hold SET").unwrap();
    client.call(&["INCR", "before"]);
    client.hears(":1\r\n");
    client.call(&["SET", "key", "late"]);
    client.call(&["INCR", "behind"]);
    client.hears_nothing();
    drop(client);
    let mut other = Client::new(&proxy);
    other.call(&["EXISTS", "key", "behind"]);
    other.hears(":0\r\n");
    assert!(proxy.tell("state").unwrap().contains(r#""id":1,"client_gone":true,"held":1"#));
    assert_eq!(proxy.tell("release").unwrap(), "1");
    ask(&server, &["GET", "key"], "$4\r\nlate\r\n");
    ask(&server, &["GET", "behind"], "$1\r\n1\r\n");
    let until = Instant::now() + SOON;
    while proxy.count("open").unwrap() > 1 {
        assert!(Instant::now() < until, "the link of a gone client stays open");
    }
}

#[test]
fn a_killed_link_takes_its_held_request_along() {
    let (server, proxy) = with_redis();
    let mut client = Client::new(&proxy);
    client.call(&["CLIENT", "ID"]);
    client.hears(":");
    let id: String = std::iter::from_fn(|| Some(client.read(1)).filter(|byte| byte != "\r")).collect();
    client.hears("\n");
    proxy.tell("hold SET on 1").unwrap();
    client.call(&["SET", "key", "late"]);
    client.hears_nothing();
    ask(&server, &["CLIENT", "KILL", "ID", &id], ":1\r\n");
    client.is_closed();
    proxy.tell("release").unwrap();
    ask(&server, &["EXISTS", "key"], ":0\r\n");
}

#[test]
fn f22_a_message_is_lost() {
    let (server, proxy) = with_redis();
    let mut client = Client::new(&proxy);
    client.call(&["HELLO", "3"]);
    client.call(&["SUBSCRIBE", "news"]);
    let mut heard = String::new();
    while !heard.ends_with("$4\r\nnews\r\n:1\r\n") {
        heard += &client.read(1);
    }
    proxy.tell("mute first").unwrap();
    ask(&server, &["PUBLISH", "news", "first"], ":1\r\n");
    ask(&server, &["PUBLISH", "news", "again"], ":1\r\n");
    client.hears(">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nagain\r\n");
}

#[test]
fn requests_are_counted_by_name_also_of_links_that_are_gone() {
    let (_server, proxy) = with_redis();
    for _ in 0..2 {
        let mut client = Client::new(&proxy);
        client.call(&["get", "a"]);
        client.hears("$-1\r\n");
        client.call(&["EVALSHA", "abc0", "0"]);
        client.hears("-NOSCRIPT");
    }
    assert_eq!(proxy.count("GET").unwrap(), 2);
    assert_eq!(proxy.count("abc0").unwrap(), 2);
    assert_eq!(proxy.count("replies").unwrap(), 4);
    let state = proxy.tell("state").unwrap();
    assert!(state.contains(r#""commands":{"EVALSHA":2,"GET":2},"scripts":{"abc0":2}"#), "{state}");
}
