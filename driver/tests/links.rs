//! Links that could not be opened, that went away unused, and that died without a word.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use bandog::{Client, Options};
use bandog_harness::server::Server;
use common::{ask, client_with, millis, raw, until};

/// Somebody else holds the lock, for so many milliseconds.
fn taken(raw: &mut redis::Connection, key: &str, millis: &str) {
    ask::<u32>(raw, &["HSET", key, "28a24051-6e84-4f1c-b23c-6a3a0f4a1f0e:1", "1"]);
    ask::<u32>(raw, &["PEXPIRE", key, millis]);
}

fn links(raw: &mut redis::Connection) -> usize {
    ask::<String>(raw, &["CLIENT", "LIST"]).matches("name=bandog").count()
}

#[test]
fn a_waiter_outlives_a_server_that_took_no_more_connections_for_a_while() {
    let server = Server::start();
    let mut raw = raw(&server);
    taken(&mut raw, "order_lock", "3000");
    // Room for this one, the callers' and that of messages; none for the keeper's requests.
    ask::<String>(&mut raw, &["CONFIG", "SET", "maxclients", "3"]);
    let client = client_with(&server, |options| options.unreachable_after(millis(1500)));
    let lock = client.lock("order_lock").unwrap();
    let waiter = thread::spawn(move || lock.acquire_blocking()?.release_blocking());
    thread::sleep(millis(400));
    ask::<String>(&mut raw, &["CONFIG", "SET", "maxclients", "1000"]);
    assert!(until(Duration::from_secs(2), || links(&mut raw) == 3), "the keeper's is tried again");
    waiter.join().unwrap().unwrap();
}

#[test]
fn a_link_that_went_away_unused_is_back_with_the_next_grant() {
    let server = Server::start();
    let mut raw = raw(&server);
    let client = client_with(&server, |options| options.watchdog(Duration::from_secs(30)));
    let lock = client.lock("order_lock").unwrap();
    let held = lock.acquire_blocking().unwrap();
    assert!(until(Duration::from_secs(2), || links(&mut raw) == 2));
    held.release_blocking().unwrap();
    // What that was timed is over.
    thread::sleep(millis(100));
    ask::<u32>(&mut raw, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    thread::sleep(millis(300));
    assert_eq!(links(&mut raw), 0, "an idle client stays away");
    let held = lock.acquire_blocking().unwrap();
    assert!(until(Duration::from_secs(2), || links(&mut raw) == 2), "long before the first renewal");
    held.release_blocking().unwrap();
}

/// Forwards to that port. Connections that ever subscribed and are there while `frozen` are dead from then
/// on, as if a firewall had forgotten them: nothing goes through and nobody is told.
fn forwarder(to: u16, frozen: &Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let frozen = frozen.clone();
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.unwrap();
            let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (subscribed, dead) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (back, forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            for (mut from, mut into, up) in [(forth, far, true), (back, near, false)] {
                let (subscribed, dead, frozen) = (subscribed.clone(), dead.clone(), frozen.clone());
                thread::spawn(move || {
                    let mut buffer = [0; 1 << 16];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        if up && buffer[..count].windows(9).any(|word| word == b"SUBSCRIBE") {
                            subscribed.store(true, SeqCst);
                        }
                        if subscribed.load(SeqCst) && frozen.load(SeqCst) {
                            dead.store(true, SeqCst);
                        }
                        if !dead.load(SeqCst) && into.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    port
}

/// How long it takes until a waiter has a lock that somebody gave back. `trouble` comes before that.
fn hand_over(client: &Client, raw: &mut redis::Connection, key: &str, trouble: impl FnOnce()) -> Duration {
    taken(raw, key, "600000");
    let lock = client.lock(key).unwrap();
    let waiter = thread::spawn(move || {
        let held = lock.acquire_blocking().unwrap();
        let at = Instant::now();
        held.release_blocking().unwrap();
        at
    });
    thread::sleep(millis(300));
    trouble();
    ask::<u32>(raw, &["DEL", key]);
    let freed = Instant::now();
    ask::<u32>(raw, &["PUBLISH", &format!("redisson_lock__channel:{{{key}}}"), "0"]);
    waiter.join().unwrap().duration_since(freed)
}

#[test]
fn messages_that_stop_without_a_word_are_missed_soon() {
    let server = Server::start();
    let mut raw = raw(&server);
    let frozen = Arc::new(AtomicBool::new(false));
    let port = forwarder(server.port(), &frozen);
    let options = Options::new(&format!("redis://127.0.0.1:{port}")).unwrap();
    let client = Client::new(options.watchdog(Duration::from_secs(6)).op_timeout(millis(300))).unwrap();
    let mut hand_over = |key: &str, trouble: &dyn Fn()| hand_over(&client, &mut raw, key, trouble);
    let fast = hand_over("lock0", &|| {});
    assert!(fast < millis(500), "{fast:?}");
    // While it waits: the next sign of life is missing. That, and no whole lease.
    frozen.store(false, SeqCst);
    let freeze = || frozen.store(true, SeqCst);
    let thaw = frozen.clone();
    thread::spawn(move || {
        thread::sleep(millis(1000));
        thaw.store(false, SeqCst);
    });
    let missed = hand_over("lock1", &freeze);
    assert!(missed < millis(3500), "{missed:?}");
    let fast = hand_over("lock2", &|| {});
    assert!(fast < millis(500), "{fast:?}");
    // Before it waits: the subscription is not answered.
    freeze();
    let thaw = frozen.clone();
    thread::spawn(move || {
        thread::sleep(millis(200));
        thaw.store(false, SeqCst);
    });
    let late = hand_over("lock3", &|| {});
    assert!(late < millis(900), "{late:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_looks_after_links_on_which_nothing_is_asked() {
    let server = Server::start();
    let client = client_with(&server, |options| options);
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    // Established, and with that timer running.
    let (established, keepalive, peer) = ("01", "02:", format!(":{:04X}", server.port()));
    let sockets = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let ours: Vec<_> = rows.filter(|row| row[2].ends_with(&peer) && row[3] == established).collect();
        (ours.len(), ours.iter().filter(|row| row[5].starts_with(keepalive)).count())
    };
    assert!(until(Duration::from_secs(2), || sockets() == (2, 2)), "{:?}", sockets());
    held.release_blocking().unwrap();
}
