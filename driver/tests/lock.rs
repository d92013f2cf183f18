//! One lock from one process and several threads, on a real server.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandog::Code;
use bandog_harness::server::Server;
use common::{ask, client, client_with, millis, raw, until, wait};

#[test]
fn acquire_and_release_blocking() {
    let server = Server::start();
    let client = client(&server);
    let mut raw = raw(&server);
    let lock = client.lock("order_lock").unwrap();
    let held = lock.acquire_blocking().unwrap();
    held.check().unwrap();
    assert!(held.valid());
    assert_eq!((held.count(), lock.count()), (1, 1));
    assert_eq!(ask::<u32>(&mut raw, &["HGET", "order_lock", held.handle().owner()]), 1);
    let ttl: u64 = ask(&mut raw, &["PTTL", "order_lock"]);
    assert!((29_000..=30_000).contains(&ttl), "{ttl}");
    assert!(lock.locked_blocking().unwrap());
    held.release_blocking().unwrap();
    assert!(!ask::<bool>(&mut raw, &["EXISTS", "order_lock"]));
    assert!(!lock.locked_blocking().unwrap());
    assert_eq!(lock.count(), 0);
}

#[test]
fn acquire_and_release_async() {
    let server = Server::start();
    let client = client(&server);
    wait(async {
        let lock = client.lock("order_lock").unwrap();
        let held = lock.acquire().await.unwrap();
        let deeper = lock.acquire().await.unwrap();
        let deepest = held.reenter().await.unwrap();
        assert_eq!(held.count(), 3);
        assert!(client.lock("order_lock").unwrap().try_acquire().await.unwrap().is_none());
        held.extend(Duration::from_secs(60)).await.unwrap();
        assert!(held.remaining() > Duration::from_secs(50));
        deepest.release().await.unwrap();
        deeper.release().await.unwrap();
        assert!(held.valid());
        held.release().await.unwrap();
        assert!(!lock.locked().await.unwrap());
    });
}

#[test]
fn l2_a_waiter_is_woken_by_the_message() {
    let server = Server::start();
    let (one, two) = (client(&server), client(&server));
    let lock = one.lock("order_lock").unwrap();
    for asynchronous in [false, true] {
        let held = lock.acquire_blocking().unwrap();
        let other = two.lock("order_lock").unwrap();
        let waiter = thread::spawn(move || {
            let held = if asynchronous { wait(other.acquire()) } else { other.acquire_blocking() }.unwrap();
            let at = Instant::now();
            held.release_blocking().unwrap();
            at
        });
        thread::sleep(millis(300));
        assert!(!waiter.is_finished());
        let start = Instant::now();
        held.release_blocking().unwrap();
        let took = waiter.join().unwrap() - start;
        assert!(took < millis(100), "{took:?}");
    }
}

#[test]
fn the_watchdog_keeps_a_short_lease() {
    let server = Server::start();
    let client = client_with(&server, |options| options.watchdog(millis(600)));
    let mut raw = raw(&server);
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        let ttl: i64 = ask(&mut raw, &["PTTL", "order_lock"]);
        assert!(ttl > 250, "{ttl} ms left after {:?}", start.elapsed());
        assert!(held.valid());
        thread::sleep(millis(20));
    }
    held.release_blocking().unwrap();
}

#[test]
fn an_explicit_lease_ends_on_time_and_is_told() {
    let server = Server::start();
    let client = client(&server);
    let mut raw = raw(&server);
    let start = Instant::now();
    let held = client.lock("order_lock").unwrap().lease(millis(500)).acquire_blocking().unwrap();
    let why = wait(held.lost());
    let took = start.elapsed();
    assert_eq!(why, bandog::LossReason::Expired);
    assert!((millis(440)..millis(500)).contains(&took), "{took:?}");
    assert_eq!(held.check().unwrap_err().code(), Code::LockLost);
    assert!(until(millis(300), || !ask::<bool>(&mut raw, &["EXISTS", "order_lock"])));
    assert_eq!(held.release_blocking().unwrap_err().code(), Code::LockLost);
}

#[test]
fn release_by_one_who_holds_nothing() {
    use bandog::host::{self, Release, Signals, Wish};
    let server = Server::start();
    let client = client(&server);
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    let wish =
        Wish::Release(Release::Innermost { name: client.name("order_lock").unwrap(), owner: host::next_owner() });
    let error = host::block(&client, wish, Signals::Open, &mut || false).unwrap_err();
    assert_eq!(error.code(), Code::NotOwner);
    assert!(held.valid());
    held.release_blocking().unwrap();
}

#[test]
fn who_does_not_hold_the_lock_is_told_of_which_and_whose_it_speaks() {
    use bandog::host::{self, Release, Signals, Wish};
    let server = Server::start();
    let client = client(&server);
    let lock = client.lock("order_lock").unwrap();
    let handle = |held: &bandog::Hold| held.handle().clone();
    let run = |wish| host::block(&client, wish, Signals::Open, &mut || false).unwrap_err();
    let told = |error: bandog::Error, code: Code, owner: &str| {
        let (id, number) = owner.split_once(':').unwrap();
        let wording = format!(
            "attempt to unlock lock, not locked by current thread by node id: {id} thread-id: {number}: this hold was "
        );
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(error.name().unwrap().as_str(), "order_lock");
        assert_eq!(error.owner(), Some(owner));
        assert!(code == Code::LockLost || error.message().starts_with(&wording), "{error}");
        assert_eq!(error.message().matches("attempt to unlock").count(), 1, "{error}");
    };
    let held = lock.acquire_blocking().unwrap();
    let (gone, owner) = (handle(&held), held.handle().owner().to_owned());
    held.release_blocking().unwrap();
    told(gone.check(&client).unwrap_err(), Code::NotOwner, &owner);
    told(run(Wish::Release(Release::Handle(gone.clone()))), Code::NotOwner, &owner);
    told(run(Wish::Extend { handle: gone.clone(), lease: bandog::Millis(1000) }), Code::NotOwner, &owner);
    let name = gone.name().clone();
    let wait = host::Wait::Try;
    let again = Wish::Acquire { name, owner: host::next_owner(), wait, lease: None, reenter: Some(gone.clone()) };
    told(run(again), Code::NotOwner, &owner);
    let other = common::client(&server);
    told(gone.check(&other).unwrap_err(), Code::NotOwner, &owner);

    // The level is gone, the hold is not.
    let outer = lock.acquire_blocking().unwrap();
    let inner = outer.reenter_blocking().unwrap();
    let (gone, owner) = (handle(&inner), outer.handle().owner().to_owned());
    inner.release_blocking().unwrap();
    told(run(Wish::Release(Release::Handle(gone))), Code::NotOwner, &owner);
    lock.force_release_blocking().unwrap();
    let error = outer.check().unwrap_err();
    told(error, Code::LockLost, &owner);
    let error = outer.release_blocking().unwrap_err();
    assert!(error.message().contains("(taken)"), "{error}");
    told(error, Code::LockLost, &owner);
}

#[test]
fn a_deleted_key_is_told_at_the_next_renewal() {
    let server = Server::start();
    let client = client_with(&server, |options| options.watchdog(millis(900)));
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    let start = Instant::now();
    ask::<()>(&mut raw(&server), &["DEL", "order_lock"]);
    assert_eq!(wait(held.lost()), bandog::LossReason::Taken);
    assert!(start.elapsed() < millis(400), "{:?}", start.elapsed());
    assert!(!held.valid());
    // Told a second time to whoever asks late.
    assert_eq!(wait(held.lost()), bandog::LossReason::Taken);
}

#[test]
fn l5_a_wait_is_total() {
    let server = Server::start();
    let client = client(&server);
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    let lock = client.lock("order_lock").unwrap().wait(millis(300));
    for asynchronous in [false, true] {
        let start = Instant::now();
        let error = if asynchronous { wait(lock.acquire()) } else { lock.acquire_blocking() }.unwrap_err();
        let took = start.elapsed();
        assert_eq!(error.code(), Code::Timeout);
        assert!((millis(299)..millis(1000)).contains(&took), "{took:?}");
    }
    assert!(lock.try_acquire_blocking().unwrap().is_none());
    assert!(lock.try_acquire_for_blocking(millis(50)).unwrap().is_none());
    held.release_blocking().unwrap();
}

#[test]
fn a_dropped_hold_is_released_and_a_dropped_future_leaves_nothing() {
    let server = Server::start();
    let client = client(&server);
    let mut raw = raw(&server);
    let lock = client.lock("order_lock").unwrap();
    drop(lock.acquire_blocking().unwrap());
    assert!(until(millis(500), || !ask::<bool>(&mut raw, &["EXISTS", "order_lock"])));
    for steps in 0..4 {
        let mut future = Box::pin(lock.acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..steps {
            if future.as_mut().poll(&mut context).is_ready() {
                break;
            }
            thread::sleep(millis(1));
        }
        drop(future);
        let free = until(millis(500), || !ask::<bool>(&mut raw, &["EXISTS", "order_lock"]));
        assert!(free, "after {steps} steps");
    }
}

#[test]
fn threads_share_one_connection_and_exclude_each_other() {
    const THREADS: u32 = 24;
    const ROUNDS: u32 = 60;
    let server = Server::start();
    let client = client(&server);
    let inside: Arc<Vec<AtomicU32>> = Arc::new((0..4).map(|_| AtomicU32::new(0)).collect());
    let threads: Vec<_> = (0..THREADS)
        .map(|at| {
            let (client, inside) = (client.clone(), inside.clone());
            thread::spawn(move || {
                // Some names are fought over, some are not.
                let which = (at % 4) as usize;
                let name = if at % 2 == 0 { format!("shared:{which}") } else { format!("own:{at}") };
                let lock = client.lock(&name).unwrap();
                for _ in 0..ROUNDS {
                    let held = lock.acquire_blocking().unwrap();
                    if at % 2 == 0 {
                        assert_eq!(inside[which].fetch_add(1, Ordering::SeqCst), 0);
                        inside[which].fetch_sub(1, Ordering::SeqCst);
                    }
                    held.release_blocking().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let clients: String = ask(&mut raw(&server), &["CLIENT", "LIST"]);
    assert!(clients.lines().filter(|line| line.contains("name=bandog:")).count() <= 3, "{clients}");
}

#[test]
fn close_releases_what_is_held_and_ends_what_waits() {
    let server = Server::start();
    let client = client(&server);
    let mut raw = raw(&server);
    let held = client.lock("order_lock").unwrap().acquire_blocking().unwrap();
    let mut events = client.lock("order_lock").unwrap().events().unwrap();
    let waiter = {
        let lock = client.lock("order_lock").unwrap();
        thread::spawn(move || lock.acquire_blocking().unwrap_err().code())
    };
    thread::sleep(millis(100));
    let start = Instant::now();
    bandog::host::close(&client, millis(200));
    assert!(start.elapsed() < millis(150), "{:?}", start.elapsed());
    assert!(!ask::<bool>(&mut raw, &["EXISTS", "order_lock"]));
    assert_eq!(waiter.join().unwrap(), Code::Closed);
    assert!(client.is_closed() && !held.valid());
    assert_eq!(client.lock("order_lock").unwrap().acquire_blocking().unwrap_err().code(), Code::Closed);
    while events.next_blocking().is_some() {}
    bandog::host::close(&client, millis(200));
    assert!(until(millis(500), || {
        let clients: String = ask(&mut raw, &["CLIENT", "LIST"]);
        !clients.contains("name=bandog:")
    }));
}

#[test]
fn closing_within_a_section_is_told_and_the_end_of_a_program_is_not() {
    use bandog::host::{self, Filter};
    let server = Server::start();
    for told in [true, false] {
        let client = client(&server);
        let lock = client.lock("order_lock").unwrap();
        let held = lock.acquire_blocking().unwrap();
        let handle = held.handle().clone();
        let losses = host::listen(&client, Filter::Losses, 8, || {}).unwrap();
        let mut lost = Box::pin(held.lost());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(lost.as_mut().poll(&mut context).is_pending());
        if told {
            host::close_and_tell(&client, millis(200));
            assert_eq!(wait(lost), bandog::LossReason::Closed);
            let Some(bandog::Event::Lost { why, .. }) = losses.try_next() else { panic!("it is an event") };
            assert_eq!(why, bandog::LossReason::Closed);
            assert_eq!(handle.view(&client).unwrap().unwrap().lost, Some(bandog::LossReason::Closed));
            assert_eq!(wait(held.lost()), bandog::LossReason::Closed);
            let error = held.check().unwrap_err();
            assert_eq!((error.code(), error.owner()), (Code::LockLost, Some(handle.owner())));
        } else {
            host::close(&client, millis(200));
            assert!(lost.as_mut().poll(&mut context).is_pending());
            drop(lost);
            assert_eq!(handle.view(&client).unwrap(), None);
        }
        assert_eq!(losses.try_next(), None);
        assert!(!held.valid());
        assert!(!ask::<bool>(&mut raw(&server), &["EXISTS", "order_lock"]));
        let error = held.release_blocking().unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::Closed, "the client was closed: make a new one"));
        let error = client.lock("order_lock").unwrap().events().unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::Closed, "the client was closed: make a new one"));
    }
}
