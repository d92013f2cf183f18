//! What the Rust API offers beyond acquire and release, on a real server.

mod common;

use std::time::Duration;

use bandog::{Code, LossReason, Terms};
use bandog_harness::server::Server;
use common::{ask, client, client_with, millis, raw, wait};

#[test]
fn a_lock_says_what_it_is_and_releases_its_innermost_level() {
    let server = Server::start();
    let client = client(&server);
    let (lock, other) = (client.lock("order_lock").unwrap(), client.lock("order_lock").unwrap());
    assert_eq!(lock.remaining_blocking().unwrap(), None);
    ask::<()>(&mut raw(&server), &["HSET", "for_ever", "28a24051-6e84-4f1c-b23c-6a3a0f4a1f0e:1", "1"]);
    assert_eq!(client.lock("for_ever").unwrap().remaining_blocking().unwrap(), Some(Duration::MAX));
    let outer = lock.acquire_blocking().unwrap();
    let inner = lock.acquire_blocking().unwrap();
    assert!(lock.held() && !other.held());
    let left = wait(other.remaining()).unwrap().unwrap();
    assert!((millis(29_000)..=millis(30_000)).contains(&left), "{left:?}");
    assert_eq!(wait(other.release()).unwrap_err().code(), Code::NotOwner);
    assert_eq!(lock.count(), 2);
    wait(lock.release()).unwrap();
    assert_eq!(lock.count(), 1);
    assert_eq!(inner.release_blocking().unwrap_err().code(), Code::NotOwner, "it went already");
    lock.release_blocking().unwrap();
    assert!(!lock.held() && !outer.valid());
    drop(outer);
    assert_eq!(lock.release_blocking().unwrap_err().code(), Code::NotOwner);
    assert!(!wait(lock.locked()).unwrap());
}

#[test]
fn terms_of_one_acquire_go_before_those_of_the_lock() {
    let server = Server::start();
    let client = client(&server);
    let mut raw = raw(&server);
    let lock = client.lock("order_lock").unwrap().wait(millis(50)).lease(Duration::from_secs(100));
    let pttl = |raw: &mut redis::Connection| ask::<u64>(raw, &["PTTL", "order_lock"]);
    let held = lock.acquire_with_blocking(Terms::new().lease(Duration::from_secs(5))).unwrap();
    assert!((4_000..=5_000).contains(&pttl(&mut raw)));
    held.release_blocking().unwrap();
    let held = wait(lock.try_acquire_with(Terms::new())).unwrap().unwrap();
    assert!((99_000..=100_000).contains(&pttl(&mut raw)));
    let other = client.lock("order_lock").unwrap();
    assert!(other.try_acquire_with_blocking(Terms::new().wait(millis(20))).unwrap().is_none());
    assert_eq!(wait(other.acquire_with(Terms::new().wait(millis(20)))).unwrap_err().code(), Code::Timeout);
    let waiting = std::thread::spawn(move || {
        let other = other.wait(millis(1));
        other.acquire_with_blocking(Terms::new().forever()).map(drop)
    });
    std::thread::sleep(millis(100));
    held.release_blocking().unwrap();
    waiting.join().unwrap().unwrap();
    let error = lock.acquire_with_blocking(Terms::new().lease(millis(1))).unwrap_err();
    assert_eq!(error.code(), Code::InvalidLease);
}

#[test]
fn a_hold_says_what_it_is_and_reenters_with_a_lease() {
    let server = Server::start();
    let client = client_with(&server, |options| options.name_prefix("app:"));
    let mut raw = raw(&server);
    let lock = client.lock("order_lock").unwrap();
    let held = lock.acquire_blocking().unwrap();
    assert_eq!((held.name().as_str(), held.token(), held.loss()), ("app:order_lock", None, None));
    assert_eq!(ask::<u32>(&mut raw, &["HGET", "app:order_lock", held.owner()]), 1);
    let deeper = held.reenter_with_blocking(Terms::new().lease(Duration::from_secs(90))).unwrap();
    let deepest = wait(held.reenter_with(Terms::new())).unwrap();
    assert_eq!((held.count(), deepest.owner()), (3, held.owner()));
    assert!(held.remaining() > Duration::from_secs(70), "{:?}", held.remaining());
    drop((deeper, deepest));
    lock.force_release_blocking().unwrap();
    assert!(held.is_lost());
    assert_eq!(held.loss(), Some(LossReason::Taken));
}

#[test]
fn a_client_tells_of_all_its_locks() {
    let server = Server::start();
    let client = client(&server);
    let mut events = client.events().unwrap();
    for name in ["a", "b"] {
        client.lock(name).unwrap().acquire_blocking().unwrap().release_blocking().unwrap();
    }
    bandog::host::close(&client, millis(200));
    let mut seen = Vec::new();
    while let Some(event) = events.next_blocking() {
        seen.extend(event.name().map(|name| format!("{} {name}", event.kind())));
    }
    assert_eq!(seen, ["acquired a", "released a", "acquired b", "released b"]);
}
