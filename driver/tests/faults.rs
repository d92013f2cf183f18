//! Connections that break, servers that are not there, processes that fork.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use bandog::{Client, Code, Event, Options};
use bandog_harness::server::Server;
use common::{ask, client, client_with, millis, raw, until, wait};

fn kill_all(raw: &mut redis::Connection) {
    ask::<u32>(raw, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    ask::<u32>(raw, &["CLIENT", "KILL", "TYPE", "pubsub"]);
}

#[test]
fn f04_killed_connections_go_unnoticed() {
    let server = Server::start();
    let client = client_with(&server, |options| options.watchdog(millis(900)));
    let mut raw = raw(&server);
    let lock = client.lock("order_lock").unwrap();
    let held = lock.acquire_blocking().unwrap();
    let other = client.lock("order_lock").unwrap();
    let waiter = thread::spawn(move || other.acquire_blocking().unwrap().release_blocking());
    for _ in 0..10 {
        thread::sleep(millis(150));
        kill_all(&mut raw);
    }
    assert!(held.valid());
    let start = Instant::now();
    held.release_blocking().unwrap();
    waiter.join().unwrap().unwrap();
    assert!(start.elapsed() < millis(900), "{:?}", start.elapsed());
    for _ in 0..20 {
        kill_all(&mut raw);
        let start = Instant::now();
        lock.acquire_blocking().unwrap().release_blocking().unwrap();
        assert!(start.elapsed() < millis(300), "{:?}", start.elapsed());
        kill_all(&mut raw);
        wait(async { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    assert!(!ask::<bool>(&mut raw, &["EXISTS", "order_lock"]));
}

#[test]
fn f44_a_hold_outlives_a_server_that_takes_no_more_connections() {
    let server = Server::start();
    let mut raw = raw(&server);
    // The first renewal comes after ten seconds: the link for it is there long before.
    let client = client_with(&server, |options| options.watchdog(Duration::from_secs(30)));
    let slow = client.lock("slow").unwrap().acquire_blocking().unwrap();
    let links = |raw: &mut redis::Connection| ask::<String>(raw, &["CLIENT", "LIST"]).matches("name=bandog").count();
    assert!(until(Duration::from_secs(5), || links(&mut raw) == 2), "the callers' and the keeper's");
    slow.release_blocking().unwrap();

    let client = client_with(&server, |options| options.watchdog(millis(600)));
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    assert!(until(Duration::from_secs(5), || links(&mut raw) == 4));
    ask::<String>(&mut raw, &["CONFIG", "SET", "maxclients", "1"]);
    thread::sleep(millis(1800));
    held.check().unwrap();
    held.release_blocking().unwrap();
}

#[test]
fn f01_a_server_that_stops_answering_costs_the_hold_at_its_deadline() {
    let server = Server::start();
    let client = client_with(&server, |options| options.watchdog(millis(1000)).op_timeout(millis(300)));
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    let listener = bandog::host::listen(&client, bandog::host::Filter::Losses, 8, || {}).unwrap();
    server.pause();
    let start = Instant::now();
    assert!(until(Duration::from_secs(3), || !held.valid()));
    let invalid = start.elapsed();
    assert!(until(millis(20), || matches!(listener.try_next(), Some(Event::Lost { .. }))));
    assert!(invalid < millis(1000), "{invalid:?}");
    // No word from the server within `op_timeout`: nobody knows.
    let other = client.lock("order_lock").unwrap();
    let start = Instant::now();
    assert_eq!(held.release_blocking().unwrap_err().code(), Code::ReleaseUnknown);
    assert!(start.elapsed() < millis(400), "{:?}", start.elapsed());
    server.resume();
    other.acquire_blocking().unwrap().release_blocking().unwrap();
}

#[test]
fn an_unreachable_server_is_a_typed_error() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = Options::new(&format!("redis://:hunter2@127.0.0.1:{port}")).unwrap();
    let client = Client::new(options.connect_timeout(millis(500)).op_timeout(millis(300))).unwrap();
    let lock = client.lock("order_lock").unwrap();
    let start = Instant::now();
    let error = lock.try_acquire_blocking().unwrap_err();
    assert_eq!(error.code(), Code::Unreachable, "{error}");
    assert!(!format!("{error} {error:?} {client:?}").contains("hunter2"));
    assert_eq!(wait(lock.try_acquire()).unwrap_err().code(), Code::Unreachable);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options::new(&format!("redis://127.0.0.1:{}", silent.local_addr().unwrap().port())).unwrap();
    let client = Client::new(options.connect_timeout(millis(400)).op_timeout(millis(300))).unwrap();
    let start = Instant::now();
    let error = client.lock("order_lock").unwrap().try_acquire_blocking().unwrap_err();
    assert_eq!(error.code(), Code::Unreachable, "{error}");
    assert!(start.elapsed() < millis(900), "{:?}", start.elapsed());
    let start = Instant::now();
    bandog::host::close(&client, millis(200));
    assert!(start.elapsed() < millis(500), "{:?}", start.elapsed());
}

#[test]
fn f37_a_wrong_password_is_a_typed_error() {
    let server = Server::builder().password("secret1").start();
    let url = format!("redis://:wrong1@127.0.0.1:{}", server.port());
    let client = Client::new(Options::new(&url).unwrap()).unwrap();
    let error = client.lock("order_lock").unwrap().try_acquire_blocking().unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied, "{error}");
    assert!(!format!("{error} {error:?}").contains("wrong1"));
}

#[test]
fn an_interrupted_wait_leaves_nothing() {
    use bandog::host::{self, Settled, Signals, Wait, Wish};
    let server = Server::start();
    let client = client(&server);
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    let wish = Wish::Acquire {
        name: client.name("order_lock").unwrap(),
        owner: host::next_owner(),
        wait: Wait::Forever,
        lease: None,
        reenter: None,
    };
    let mut looks = 0;
    let settled = host::block(&client, wish, Signals::Guarded, &mut || {
        looks += 1;
        // The host may come back here while it is asked.
        let lock = client.lock("other").unwrap();
        lock.acquire_blocking().unwrap().release_blocking().unwrap();
        true
    });
    assert!(matches!(settled, Ok(None::<Settled>)));
    assert_eq!(looks, 1);
    held.release_blocking().unwrap();
    thread::sleep(millis(50));
    assert!(!ask::<bool>(&mut raw(&server), &["EXISTS", "order_lock"]));
}

#[test]
fn a_client_closed_before_its_first_use_refuses() {
    let server = Server::start();
    let client = client(&server);
    bandog::host::close(&client, millis(200));
    assert!(client.is_closed());
    let lock = client.lock("order_lock").unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let late = client.clone();
    thread::spawn(move || {
        let _ = tell.send(lock.try_acquire_blocking().map(drop).map_err(|error| error.code()));
        let lock = late.lock("order_lock").unwrap();
        let _ = tell.send(wait(lock.acquire()).map(drop).map_err(|error| error.code()));
    });
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(Duration::from_secs(2)), Ok(Err(Code::Closed)));
    }
}

#[test]
fn a_child_that_gives_its_parents_wait_up_touches_nothing_of_it() {
    use bandog::host::{self, Signals, Wait, Wish};
    let server = Server::start();
    let client = client(&server);
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    let wish = Wish::Acquire {
        name: client.name("order_lock").unwrap(),
        owner: host::next_owner(),
        wait: Wait::Forever,
        lease: None,
        reenter: None,
    };
    let mut child = -1;
    let settled = host::block(&client, wish, Signals::Open, &mut || {
        // SAFETY: the child calls nothing but this library and ends without unwinding.
        child = unsafe { libc::fork() };
        true
    });
    if child == 0 {
        let forked = settled.is_err_and(|error| error.code() == Code::ForkedHandle);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!forked)) };
    }
    assert!(matches!(settled, Ok(None)));
    let mut status = 0;
    // SAFETY: the status is live.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    held.release_blocking().unwrap();
}

/// Runs in the child; its exit code says what went wrong.
fn in_child(client: &Client, lock: &bandog::Lock, held: &bandog::Hold) -> i32 {
    if held.check().map_err(|error| error.code()) != Err(Code::ForkedHandle) {
        return 1;
    }
    match lock.try_acquire_blocking() {
        Ok(None) => {}
        _ => return 2,
    }
    let Ok(other) = client.lock("child").and_then(|lock| lock.acquire_blocking()) else { return 3 };
    if other.check().is_err() || other.release_blocking().is_err() {
        return 4;
    }
    0
}

#[test]
fn f29_a_forked_child_starts_anew_and_the_parent_goes_on() {
    let server = Server::start();
    let client = client_with(&server, |options| options.watchdog(millis(900)));
    let lock = client.lock("order_lock").unwrap();
    let held = lock.acquire_blocking().unwrap();
    let id = client.id();
    for _ in 0..5 {
        // SAFETY: the child calls nothing but this library and ends without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_child(&client, &lock, &held)));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code.unwrap_or(9)) };
        }
        let mut status = 0;
        // SAFETY: the status is live.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(libc::WIFEXITED(status), "{status}");
        assert_eq!(libc::WEXITSTATUS(status), 0);
        assert!(held.valid());
        thread::sleep(millis(250));
    }
    assert_eq!(client.id(), id);
    held.release_blocking().unwrap();
    lock.acquire_blocking().unwrap().release_blocking().unwrap();
}

#[test]
fn r1_nothing_is_left_of_closed_clients() {
    let server = Server::start();
    for _ in 0..20 {
        let client = client(&server);
        client.lock("order_lock").unwrap().acquire_blocking().unwrap().release_blocking().unwrap();
        bandog::host::close(&client, millis(200));
    }
    let client = client(&server);
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    std::mem::forget(held.handle().clone());
    drop(held);
    drop(client);
    let mut raw = raw(&server);
    assert!(until(Duration::from_secs(2), || {
        let clients: String = ask(&mut raw, &["CLIENT", "LIST"]);
        !clients.contains("name=bandog:") && !ask::<bool>(&mut raw, &["EXISTS", "order_lock"])
    }));
}
