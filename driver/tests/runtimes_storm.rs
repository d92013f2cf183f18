//! Thousands of futures in a runtime, some of them dropped anywhere: few writes, no lost wake, nothing left.
//! The keeper never looks at what a runtime leaves unread, so that a lost wake shows.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bandog::{Client, Code, Lock};
use bandog_harness::server::Server;
use common::{ask, client_with, millis, raw, until};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::{Builder, Runtime};

const SOON: Duration = Duration::from_secs(1);
/// A lost wake lasts until the request times out, after three seconds; a busy machine is none.
const HANG: Duration = Duration::from_millis(2500);
const TASKS: usize = 1000;

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn many() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

fn client(server: &Server) -> Client {
    client_with(server, |options| options.glance(Duration::from_secs(20)))
}

async fn pair(lock: Lock) {
    lock.acquire().await.unwrap().release().await.unwrap();
}

fn reads(raw: &mut redis::Connection) -> u64 {
    let info: String = ask(raw, &["INFO", "stats"]);
    let line = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:")).unwrap();
    line.trim().parse().unwrap()
}

fn is_empty(raw: &mut redis::Connection) -> bool {
    let channels: Vec<String> = ask(raw, &["PUBSUB", "CHANNELS"]);
    ask::<u32>(raw, &["DBSIZE"]) == 0 && channels.is_empty()
}

/// Numbers without a pattern, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Tasks,
    Joined,
    Unordered,
}

#[test]
fn a_thousand_in_flight_take_few_writes() {
    let server = Server::start();
    let (client, mut raw) = (client(&server), raw(&server));
    for make in [single, many] {
        let runtime = make();
        runtime.block_on(pair(client.lock("warm").unwrap()));
        for way in [Way::Tasks, Way::Joined, Way::Unordered] {
            let locks = (0..TASKS).map(|at| client.lock(&format!("own:{at}")).unwrap());
            let before = reads(&mut raw);
            let all = async {
                match way {
                    Way::Tasks => {
                        let tasks: Vec<_> = locks.map(|lock| tokio::spawn(pair(lock))).collect();
                        for task in tasks {
                            task.await.unwrap();
                        }
                    }
                    Way::Joined => drop(futures::future::join_all(locks.map(pair)).await),
                    Way::Unordered => {
                        let mut pairs: FuturesUnordered<_> = locks.map(pair).collect();
                        while pairs.next().await.is_some() {}
                    }
                }
            };
            let all = runtime.block_on(async { tokio::time::timeout(5 * SOON, all).await });
            all.unwrap_or_else(|_| panic!("{way:?}: a wake was lost"));
            let reads = reads(&mut raw) - before;
            assert!(reads < TASKS as u64 / 2, "{way:?}: {reads} reads for {} requests", 2 * TASKS);
        }
    }
    assert!(is_empty(&mut raw));
}

/// One of many that acquire and release, unless it is dropped somewhere.
async fn storm(client: Client, at: u64, stop: Arc<AtomicBool>, counts: Arc<[AtomicU64; 2]>) {
    let mut chance = Chance(at * 7919 + 1);
    let own = client.lock(&format!("own:{at}")).unwrap();
    let shared = client.lock(&format!("shared:{}", at % 3)).unwrap();
    while !stop.load(SeqCst) {
        let lock = if chance.below(4) == 0 { &shared } else { &own };
        let cancel = chance.below(2) == 0;
        let turns = chance.below(6);
        let some_turns = async {
            if !cancel {
                return std::future::pending().await;
            }
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        };
        let held = tokio::select! {
            biased;
            held = tokio::time::timeout(HANG, lock.acquire()) => held.expect("a wake was lost").unwrap(),
            () = some_turns => {
                counts[1].fetch_add(1, SeqCst);
                continue;
            }
        };
        assert_eq!(held.count(), 1);
        match chance.below(8) {
            0 => drop(held),
            1 => drop(futures::poll!(std::pin::pin!(held.release()))),
            _ => tokio::time::timeout(HANG, held.release()).await.expect("a wake was lost").unwrap(),
        }
        counts[0].fetch_add(1, SeqCst);
    }
}

#[test]
fn no_wake_is_lost_and_nothing_left_when_futures_are_dropped_anywhere() {
    let server = Server::start();
    let mut raw = raw(&server);
    for make in [single, many] {
        let (client, runtime) = (client(&server), make());
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new([const { AtomicU64::new(0) }; 2]);
        let tasks: Vec<_> =
            (0..48).map(|at| runtime.spawn(storm(client.clone(), at, stop.clone(), counts.clone()))).collect();
        runtime.block_on(async {
            let start = Instant::now();
            while counts.iter().any(|count| count.load(SeqCst) < 4000) && start.elapsed() < 60 * SOON {
                tokio::time::sleep(millis(20)).await;
            }
            stop.store(true, SeqCst);
            for task in tasks {
                tokio::time::timeout(5 * SOON, task).await.expect("it ends").unwrap();
            }
        });
        let [pairs, cancelled] = [0, 1].map(|at: usize| counts[at].load(SeqCst));
        assert!(pairs >= 4000 && cancelled >= 4000, "{pairs} pairs, {cancelled} cancelled");
        let keys = |raw: &mut _| ask::<Vec<String>>(raw, &["KEYS", "*"]);
        assert!(until(2 * SOON, || is_empty(&mut raw)), "left: {:?}", keys(&mut raw));
    }
}

#[test]
fn connections_that_break_hold_no_future_up() {
    let server = Server::start();
    let mut raw = raw(&server);
    for make in [single, many] {
        let client = client(&server);
        let (stop, pairs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let task = |at: usize| {
            let (stop, pairs) = (stop.clone(), pairs.clone());
            let lock = client.lock(&format!("own:{}", at / 2)).unwrap();
            async move {
                while !stop.load(SeqCst) {
                    let pair = async { lock.acquire().await?.release().await };
                    tokio::time::timeout(HANG, pair).await.expect("a wake was lost").unwrap();
                    pairs.fetch_add(1, SeqCst);
                }
            }
        };
        let tasks: Vec<_> = (0..12).map(task).collect();
        let runtime = std::thread::spawn(move || {
            make().block_on(async {
                for task in tasks.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
                    task.await.unwrap();
                }
            });
        });
        for round in 0..50 {
            // A connection that is killed at its login fails its callers: only when all go on again.
            let enough = pairs.load(SeqCst) + 30;
            assert!(until(5 * SOON, || pairs.load(SeqCst) >= enough || runtime.is_finished()), "{round}: it stands");
            ask::<u32>(&mut raw, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
        stop.store(true, SeqCst);
        runtime.join().unwrap();
        assert!(until(2 * SOON, || is_empty(&mut raw)));
    }
}

#[test]
fn a_server_that_is_started_again_finds_the_waiting_futures() {
    let mut server = Server::start();
    let (client, runtime) = (client(&server), many());
    let lock = client.lock("order_lock").unwrap();
    let held = runtime.block_on(lock.acquire()).unwrap();
    let waiters: Vec<_> =
        (0..5).map(|_| client.lock("order_lock").unwrap()).map(|lock| runtime.spawn(pair(lock))).collect();
    let mut raw = raw(&server);
    assert!(until(SOON, || !ask::<Vec<String>>(&mut raw, &["PUBSUB", "CHANNELS"]).is_empty()), "they wait");
    server.restart();
    runtime.block_on(async {
        for waiter in waiters {
            tokio::time::timeout(5 * SOON, waiter).await.expect("it goes on").unwrap();
        }
        // Its lock went with the server, and others had it since.
        let code = held.release().await.unwrap_err().code();
        assert_eq!(code, Code::LockLost);
        pair(lock).await;
    });
}
