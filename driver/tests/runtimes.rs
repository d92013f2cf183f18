//! Futures in several tokio runtimes: each has a connection of its own, which ends with it.

mod common;

use std::sync::mpsc;
use std::time::Duration;

use bandog::{Client, Code, Lock};
use bandog_harness::server::Server;
use common::{ask, client, client_with, millis, raw, until};
use tokio::runtime::{Builder, Runtime};

const SOON: Duration = Duration::from_secs(1);

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn many() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn pair(lock: &Lock) {
    lock.acquire().await.unwrap().release().await.unwrap();
}

fn links(raw: &mut redis::Connection) -> usize {
    ask::<String>(raw, &["CLIENT", "LIST"]).matches("name=bandog").count()
}

#[test]
fn each_runtime_has_a_connection_of_its_own_until_it_ends() {
    let server = Server::start();
    let (client, mut raw) = (client(&server), raw(&server));
    let lock = client.lock("order_lock").unwrap();
    let first = single();
    // Held, so that the keeper has a connection, too.
    let held = first.block_on(client.lock("held").unwrap().acquire()).unwrap();
    assert!(until(SOON, || links(&mut raw) == 2), "{}", links(&mut raw));
    let others = [many(), single()];
    for (at, runtime) in others.iter().enumerate() {
        for _ in 0..3 {
            runtime.block_on(pair(&lock));
            first.block_on(pair(&lock));
        }
        assert_eq!(links(&mut raw), 3 + at);
    }
    drop(others);
    assert!(until(SOON, || links(&mut raw) == 2), "{}", links(&mut raw));
    first.block_on(pair(&lock));
    drop(first);
    assert!(until(SOON, || links(&mut raw) == 1), "{}", links(&mut raw));
    single().block_on(held.release()).unwrap();
}

/// What a runtime leaves under way when it is dropped.
#[derive(Clone, Copy, Debug)]
enum Left {
    Acquire,
    Release,
    Waiter,
}

#[test]
fn what_a_runtime_leaves_under_way_is_brought_to_an_end() {
    for left in [Left::Acquire, Left::Release, Left::Waiter] {
        for make in [single, many] {
            leave(left, &make());
        }
    }
}

fn leave(left: Left, other: &Runtime) {
    let server = Server::start();
    let (client, mut raw) = (client(&server), raw(&server));
    let (mine, theirs) = (client.lock("order_lock").unwrap(), client.lock("order_lock").unwrap());
    let ending = single();
    let held = ending.block_on(async {
        pair(&mine).await;
        if matches!(left, Left::Release) { Some(mine.acquire().await.unwrap()) } else { None }
    });
    let guard = matches!(left, Left::Waiter).then(|| other.block_on(theirs.acquire()).unwrap());
    if guard.is_none() {
        server.pause();
    }
    ending.spawn(async move {
        match held {
            Some(held) => held.release().await.map(drop),
            None => mine.acquire().await.map(drop),
        }
    });
    // Polled, so that what it has to send at once is sent.
    ending.block_on(tokio::task::yield_now());
    if guard.is_some() {
        let channels = |raw: &mut _| ask::<Vec<String>>(raw, &["PUBSUB", "CHANNELS"]).len();
        assert!(until(SOON, || channels(&mut raw) == 1), "it waits");
    }
    drop(ending);
    if guard.is_none() {
        server.resume();
    }
    other.block_on(async {
        if let Some(guard) = guard {
            guard.release().await.unwrap();
        }
        let again = tokio::time::timeout(SOON, pair(&theirs)).await;
        again.unwrap_or_else(|_| panic!("{left:?}: the lock is not free"));
    });
    let rest = |raw: &mut _| (ask::<u32>(raw, &["DBSIZE"]), ask::<Vec<String>>(raw, &["PUBSUB", "CHANNELS"]).len());
    assert!(until(SOON, || rest(&mut raw) == (0, 0)), "{left:?}: {:?}", rest(&mut raw));
}

#[test]
fn a_future_may_go_on_in_another_runtime_than_it_began_in() {
    let server = Server::start();
    let patient = client_with(&server, |options| options.glance(Duration::from_secs(20)));
    let other = single();
    // A runtime that turns without us, one that is gone, and one that nobody drives any more.
    for (client, began, dropped) in
        [(patient.clone(), many(), false), (patient, single(), true), (client(&server), single(), false)]
    {
        let lock = client.lock("order_lock").unwrap();
        began.block_on(async {
            pair(&lock).await;
            pair(&lock).await;
        });
        let mut moved = Box::pin(async move { pair(&lock).await });
        server.pause();
        began.block_on(async { assert!(futures::poll!(moved.as_mut()).is_pending()) });
        let began = (!dropped).then_some(began);
        server.resume();
        other.block_on(async { tokio::time::timeout(SOON, moved).await }).unwrap();
        drop(began);
    }
    assert_eq!(ask::<u32>(&mut raw(&server), &["DBSIZE"]), 0);
}

#[test]
fn a_runtime_that_nobody_drives_leaves_reading_to_the_keeper() {
    let server = Server::start();
    let client = client_with(&server, |options| options.glance(Duration::from_secs(20)));
    let lock = client.lock("order_lock").unwrap();
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = single();
        let _inside = runtime.enter();
        for _ in 0..20 {
            futures::executor::block_on(pair(&lock));
        }
        let _ = sender.send(());
    });
    done.recv_timeout(SOON).unwrap();
}

#[test]
fn a_runtime_without_io_is_served_by_the_keeper() {
    let server = Server::start();
    let client = client_with(&server, |options| options.glance(Duration::from_secs(20)));
    let lock = client.lock("order_lock").unwrap();
    for runtime in
        [Builder::new_current_thread().enable_time().build(), Builder::new_multi_thread().enable_time().build()]
    {
        let runtime = runtime.unwrap();
        runtime.block_on(async {
            for _ in 0..20 {
                tokio::time::timeout(SOON, pair(&lock)).await.unwrap();
            }
        });
    }
    futures::executor::block_on(pair(&lock));
}

#[test]
fn a_wait_that_times_out_leaves_nothing() {
    let server = Server::start();
    let (client, mut raw) = (client(&server), raw(&server));
    let (held, lock) = (client.lock("order_lock").unwrap(), client.lock("order_lock").unwrap());
    for runtime in [single(), many()] {
        runtime.block_on(async {
            let guard = held.acquire().await.unwrap();
            for span in [0, 1, 30] {
                assert!(tokio::time::timeout(millis(span), lock.acquire()).await.is_err(), "{span}");
            }
            guard.release().await.unwrap();
            tokio::time::timeout(SOON, pair(&lock)).await.unwrap();
        });
        let rest = |raw: &mut _| (ask::<u32>(raw, &["DBSIZE"]), ask::<Vec<String>>(raw, &["PUBSUB", "CHANNELS"]).len());
        assert!(until(SOON, || rest(&mut raw) == (0, 0)), "{:?}", rest(&mut raw));
    }
}

#[test]
fn futures_that_wait_when_the_client_ends_are_told_and_its_task_ends() {
    let server = Server::start();
    for make in [single, many] {
        for close in [true, false] {
            let client = client(&server);
            let runtime = make();
            let before = runtime.metrics().num_alive_tasks();
            let lock = client.lock("order_lock").unwrap();
            let (held, waiters): (_, Vec<_>) = runtime.block_on(async {
                let held = lock.acquire().await.unwrap();
                let waiters = (0..5).map(|_| client.lock("order_lock").unwrap());
                (held, waiters.map(|lock| tokio::spawn(async move { lock.acquire().await.map(drop) })).collect())
            });
            runtime.block_on(tokio::task::yield_now());
            drop(lock);
            end(client, close, held);
            runtime.block_on(async {
                for (at, waiter) in waiters.into_iter().enumerate() {
                    let ended = tokio::time::timeout(SOON, waiter).await;
                    let ended = ended.unwrap_or_else(|_| panic!("closed: {close}: waiter {at}")).unwrap();
                    if close {
                        assert_eq!(ended.unwrap_err().code(), Code::Closed);
                    }
                }
                let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
                for _ in 0..500 {
                    if alive() == before {
                        break;
                    }
                    tokio::time::sleep(millis(2)).await;
                }
                assert_eq!(alive(), before, "closed: {close}");
            });
        }
    }
}

fn end(client: Client, close: bool, held: bandog::Hold) {
    if close {
        bandog::host::close(&client, millis(200));
    } else {
        // The waiters have clients of their own: each gets the lock, and drops it.
        drop(held);
    }
}
