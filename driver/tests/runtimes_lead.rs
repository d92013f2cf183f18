//! Who of the futures in a runtime reads for the others, and what becomes of these when that one ends, or is
//! not polled. But for the last tests, the keeper never looks: a lost wake shows.

mod common;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use bandog::{Client, Hold, Lock, Options};
use bandog_harness::proxy::Proxy;
use bandog_harness::server::Server;
use common::{ask, millis, raw, until};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(1);

/// A server whose answers come when the test says so.
struct Stage {
    server: Server,
    proxy: Proxy,
    client: Client,
}

impl Stage {
    fn new(glance: Duration) -> Self {
        let server = Server::start();
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).unwrap();
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        let client = Client::new(Options::new(&url).unwrap().glance(glance)).unwrap();
        Self { server, proxy, client }
    }

    /// Connections are there, scripts are known, the runtime reads by itself.
    async fn warm(&self) {
        for _ in 0..3 {
            self.client.lock("warm").unwrap().acquire().await.unwrap().release().await.unwrap();
        }
    }

    fn acquire(&self, name: &str) -> JoinHandle<Hold> {
        let lock = self.client.lock(name).unwrap();
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    }

    /// So many more requests have come to the proxy.
    async fn sent(&self, before: u64, more: u64) {
        for _ in 0..500 {
            if self.proxy.count("EVALSHA").unwrap() >= before + more {
                return;
            }
            tokio::time::sleep(millis(2)).await;
        }
        panic!("{before} requests before, {} now, not {more} more", self.proxy.count("EVALSHA").unwrap());
    }
}

fn runtimes() -> [Runtime; 2] {
    [Builder::new_current_thread(), Builder::new_multi_thread()]
        .map(|mut builder| builder.worker_threads(2).enable_all().build().unwrap())
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what}: nobody read its reply"))
}

/// Has a future polled when nothing came for it.
#[derive(Clone, Default)]
struct Polled {
    nudge: Arc<Notify>,
    polls: Arc<AtomicU32>,
}

impl Polled {
    /// Acquires in a task, which does something else then.
    fn spawn(lock: Lock, then: impl FnOnce() + Send + 'static) -> (JoinHandle<Hold>, Self) {
        let this = Self::default();
        let Self { nudge, polls } = this.clone();
        let task = tokio::spawn(async move {
            let mut acquire = pin!(lock.acquire());
            let held = loop {
                let counted = poll_fn(|context| {
                    let polled = acquire.as_mut().poll(context);
                    polls.fetch_add(1, SeqCst);
                    polled
                });
                tokio::select! {
                    biased;
                    held = counted => break held.unwrap(),
                    () = nudge.notified() => {}
                }
            };
            then();
            held
        });
        (task, this)
    }

    async fn again(&self) {
        // Once for the wake, once when it waits again.
        let enough = self.polls.load(SeqCst) + 2;
        self.nudge.notify_one();
        while self.polls.load(SeqCst) < enough {
            tokio::task::yield_now().await;
        }
    }
}

/// How the future that leads ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Aborted,
    Panics,
    Abandoned,
}

#[test]
fn whoever_leads_may_be_dropped_in_any_way() {
    for runtime in runtimes() {
        for end in [End::Aborted, End::Panics, End::Abandoned] {
            let stage = Stage::new(Duration::from_secs(20));
            runtime.block_on(async {
                stage.warm().await;
                let before = stage.proxy.count("EVALSHA").unwrap();
                stage.proxy.tell("stall down").unwrap();
                let followers: Vec<_> = (0..3).map(|at| stage.acquire(&format!("own:{at}"))).collect();
                stage.sent(before, 3).await;
                let lock = stage.client.lock("leader").unwrap();
                let over = Arc::new(Notify::new());
                let signal = over.clone();
                let leader = tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        _ = lock.acquire() => unreachable!("no answer came"),
                        () = signal.notified() => assert!(end != End::Panics, "as the test asks"),
                    }
                });
                stage.sent(before, 4).await;
                if end == End::Aborted {
                    leader.abort()
                } else {
                    over.notify_one()
                }
                assert_eq!(leader.await.is_err(), end != End::Abandoned);
                stage.proxy.tell("resume").unwrap();
                for follower in followers {
                    soon(&format!("{end:?}"), follower).await.unwrap().release().await.unwrap();
                }
            });
            let mut raw = raw(&stage.server);
            assert!(until(SOON, || ask::<u32>(&mut raw, &["DBSIZE"]) == 0), "{end:?}: an orphan");
        }
    }
}

/// The one polled last has its reply, those of others come later.
fn reply_first(busy: bool) {
    for runtime in runtimes() {
        let stage = Stage::new(Duration::from_secs(20));
        runtime.block_on(async {
            stage.warm().await;
            let mut raw = raw(&stage.server);
            if busy {
                ask::<u32>(&mut raw, &["HSET", "first", "28a24051-6e84-4f1c-b23c-6a3a0f4a1f0e:1", "1"]);
                ask::<u32>(&mut raw, &["PEXPIRE", "first", "5000"]);
            }
            stage.proxy.tell("stall down").unwrap();
            let before = stage.proxy.count("EVALSHA").unwrap();
            let (first, polls) = Polled::spawn(stage.client.lock("first").unwrap(), || {});
            stage.sent(before, 1).await;
            stage.proxy.tell("hold later 1").unwrap();
            let later = [stage.acquire("later:0"), stage.acquire("later:1")];
            stage.sent(before, 3).await;
            polls.again().await;
            stage.proxy.tell("resume").unwrap();
            let mut held = None;
            if busy {
                for _ in 0..500 {
                    if !ask::<Vec<String>>(&mut raw, &["PUBSUB", "CHANNELS"]).is_empty() {
                        break;
                    }
                    tokio::time::sleep(millis(2)).await;
                }
            } else {
                held = Some(soon("first", first).await.unwrap());
            }
            stage.proxy.tell("release").unwrap();
            for later in later {
                soon("later", later).await.unwrap().release().await.unwrap();
            }
            if let Some(held) = held {
                held.release().await.unwrap();
            }
        });
    }
}

#[test]
fn one_that_has_its_lock_passes_the_lead_on() {
    reply_first(false);
}

#[test]
fn one_that_goes_on_waiting_for_its_lock_reads_for_others() {
    reply_first(true);
}

#[test]
fn the_lead_does_not_stay_in_a_thread_that_blocks() {
    let stage = Stage::new(Duration::from_secs(20));
    let [_, runtime] = runtimes();
    let (done, blocked) = mpsc::channel();
    let (begun, begins) = mpsc::channel::<()>();
    let (before, polls, first) = runtime.block_on(async {
        stage.warm().await;
        let before = stage.proxy.count("EVALSHA").unwrap();
        stage.proxy.tell("stall down").unwrap();
        // A worker that does something else for a while.
        let busy = move || {
            drop(begun);
            let _ = blocked.recv_timeout(Duration::from_secs(5));
        };
        let (first, polls) = Polled::spawn(stage.client.lock("first").unwrap(), busy);
        stage.sent(before, 1).await;
        (before, polls, first)
    });
    let later = runtime.block_on(async {
        stage.proxy.tell("hold later 1").unwrap();
        let later = [stage.acquire("later:0"), stage.acquire("later:1")];
        stage.sent(before, 3).await;
        polls.again().await;
        stage.proxy.tell("resume").unwrap();
        later
    });
    assert_eq!(begins.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected));
    // A thread that blocks may be the one that waited for descriptors: tokio has another do it with the next task.
    runtime.block_on(runtime.spawn(async {})).unwrap();
    stage.proxy.tell("release").unwrap();
    runtime.block_on(async {
        for later in later {
            soon("later", later).await.unwrap().release().await.unwrap();
        }
        done.send(()).unwrap();
        first.await.unwrap().release().await.unwrap();
    });
}

#[test]
fn whoever_should_write_may_be_dropped_before() {
    for runtime in runtimes() {
        let stage = Stage::new(Duration::from_secs(20));
        runtime.block_on(async {
            stage.warm().await;
            let before = stage.proxy.count("EVALSHA").unwrap();
            stage.proxy.tell("stall down").unwrap();
            let locks = ["a", "b", "c"].map(|name| stage.client.lock(name).unwrap());
            let [mut at_once, mut writer, mut other] = locks.each_ref().map(|lock| Box::pin(lock.acquire()));
            assert!(futures::poll!(at_once.as_mut()).is_pending());
            stage.sent(before, 1).await;
            assert!(futures::poll!(writer.as_mut()).is_pending());
            assert!(futures::poll!(other.as_mut()).is_pending());
            assert_eq!(stage.proxy.count("EVALSHA").unwrap(), before + 1, "the others wait for the end of the turn");
            drop(writer);
            // With the release of the one that was dropped.
            stage.sent(before, 4).await;
            stage.proxy.tell("resume").unwrap();
            for held in [soon("a", at_once).await, soon("c", other).await] {
                held.unwrap().release().await.unwrap();
            }
        });
        assert!(until(SOON, || ask::<u32>(&mut raw(&stage.server), &["DBSIZE"]) == 0));
    }
}

#[test]
fn one_that_is_not_polled_holds_nobody_up() {
    for runtime in runtimes() {
        let stage = Stage::new(millis(50));
        runtime.block_on(async {
            stage.warm().await;
            stage.proxy.tell("stall down").unwrap();
            let before = stage.proxy.count("EVALSHA").unwrap();
            let others: Vec<_> = (0..3).map(|at| stage.acquire(&format!("own:{at}"))).collect();
            stage.sent(before, 3).await;
            let lock = stage.client.lock("starved").unwrap();
            let mut starved = pin!(lock.acquire());
            assert!(futures::poll!(starved.as_mut()).is_pending());
            stage.proxy.tell("resume").unwrap();
            for other in others {
                soon("other", other).await.unwrap().release().await.unwrap();
            }
            soon("starved", starved).await.unwrap().release().await.unwrap();
        });
    }
}

#[test]
fn a_blocked_runtime_keeps_no_grant() {
    let stage = Arc::new(Stage::new(millis(50)));
    let (freed, blocked) = mpsc::channel();
    let inside = stage.clone();
    let (send, begins) = mpsc::channel();
    let runtime = std::thread::spawn(move || {
        let [runtime, _] = runtimes();
        runtime.block_on(async {
            inside.warm().await;
            inside.proxy.tell("stall down").unwrap();
            let lock = inside.client.lock("order_lock").unwrap();
            let mut acquire = pin!(lock.acquire());
            assert!(futures::poll!(acquire.as_mut()).is_pending());
            send.send(()).unwrap();
            blocked.recv().unwrap();
            // It has its place still.
            soon("the lock", acquire).await.unwrap().release().await.unwrap();
        });
    });
    begins.recv().unwrap();
    let mut raw = raw(&stage.server);
    let mut held = || ask::<bool>(&mut raw, &["EXISTS", "order_lock"]);
    assert!(until(SOON, &mut held), "the server has the request");
    stage.proxy.tell("resume").unwrap();
    assert!(until(2 * SOON, || !held()), "nobody claims the grant: it is given back");
    freed.send(()).unwrap();
    runtime.join().unwrap();
}
