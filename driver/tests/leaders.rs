//! One thread reads for all that wait: whatever becomes of it, the others have their replies at once.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bandog::Client;
use bandog::host::{self, Settled, Signals, Wait, Wish};
use bandog_harness::server::Server;
use common::{ask, client, client_with, raw, until};

/// Who sleeps looks around once a second: nobody who was forgotten is served sooner.
const PROMPT: Duration = Duration::from_millis(800);

/// What a thread does when it is asked whether it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    GivesUp,
    Panics,
    /// Uses the client for something else, and gives up.
    Nests,
}

/// A thread that waits for a lock, and looks around for each signal.
struct Waiter {
    thread: thread::JoinHandle<bool>,
    id: libc::pthread_t,
    looks: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
}

impl Waiter {
    fn start(client: &Client, name: &str, signals: Signals, manner: Manner) -> Self {
        let (looks, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (looked, ends) = (looks.clone(), over.clone());
        let (tell, told) = mpsc::channel();
        let (client, name) = (client.clone(), client.name(name).unwrap());
        let thread = thread::spawn(move || {
            // SAFETY: no arguments.
            tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
            let wish = acquire(name);
            let waited = catch_unwind(AssertUnwindSafe(|| {
                host::block(&client, wish, signals, &mut || {
                    looked.fetch_add(1, SeqCst);
                    let over = ends.load(SeqCst);
                    match manner {
                        Manner::Panics if over => panic!("as it should"),
                        Manner::Nests if over => {
                            let other =
                                host::block(&client, acquire(client.name("nested").unwrap()), signals, &mut || true);
                            assert!(other.unwrap().is_none());
                        }
                        _ => {}
                    }
                    over
                })
            }));
            let Ok(settled) = waited else { return false };
            let Some(Settled::Held(handle)) = settled.unwrap() else { return false };
            host::block(&client, Wish::Release(host::Release::Handle(handle)), signals, &mut || false).unwrap();
            true
        });
        let id = told.recv().unwrap() as libc::pthread_t;
        let waiter = Self { thread, id, looks, over };
        assert!(waiter.looks_around(), "it waits");
        waiter
    }

    /// Signals it until it has looked once more, and so waits, or waits again.
    fn looks_around(&self) -> bool {
        let before = self.looks.load(SeqCst);
        until(Duration::from_secs(10), || {
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(self.id, libc::SIGUSR1) };
            self.looks.load(SeqCst) > before
        })
    }

    fn ends(self) {
        self.over.store(true, SeqCst);
        assert!(self.looks_around());
        assert!(!self.thread.join().unwrap(), "it did not get the lock");
    }
}

fn acquire(name: bandog::Name) -> Wish {
    let owner = host::next_owner();
    Wish::Acquire { name, owner, wait: Wait::Forever, lease: None, reenter: None }
}

/// The server stands still; `one` came first and reads for the others. Then it ends, and the server goes on.
fn one_ends(manner: Manner, one: Signals, others: Signals) {
    catch_signals();
    let server = Server::start();
    let client = client_with(&server, |options| options.op_timeout(Duration::from_secs(20)));
    client.lock("first").unwrap().acquire_blocking().unwrap().release_blocking().unwrap();
    server.pause();
    let leader = Waiter::start(&client, "one", one, manner);
    let others: Vec<_> =
        (0..3).map(|at| Waiter::start(&client, &format!("own:{at}"), others, Manner::GivesUp)).collect();
    leader.ends();
    // Of whoever leads now: it reads on after a look.
    assert!(others[0].looks_around());
    server.resume();
    let start = Instant::now();
    for other in others {
        assert!(other.thread.join().unwrap(), "it got its lock");
        assert!(start.elapsed() < PROMPT, "{manner:?}: {:?}", start.elapsed());
    }
    let mut raw = raw(&server);
    assert!(until(PROMPT, || ask::<u32>(&mut raw, &["DBSIZE"]) == 0), "{manner:?}: something is held for nobody");
    drop(client);
}

fn catch_signals() {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int);
    // SAFETY: the handler is a plain function that does nothing.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
}

#[test]
fn a_leader_that_gives_up_passes_the_lead_on() {
    one_ends(Manner::GivesUp, Signals::Open, Signals::Open);
    one_ends(Manner::GivesUp, Signals::Guarded, Signals::Guarded);
    one_ends(Manner::GivesUp, Signals::Guarded, Signals::Open);
}

#[test]
fn a_leader_that_panics_passes_the_lead_on() {
    one_ends(Manner::Panics, Signals::Open, Signals::Guarded);
    one_ends(Manner::Panics, Signals::Guarded, Signals::Open);
}

#[test]
fn a_leader_that_begins_something_else_passes_the_lead_on() {
    one_ends(Manner::Nests, Signals::Open, Signals::Open);
    one_ends(Manner::Nests, Signals::Guarded, Signals::Guarded);
}

/// Threads that come for one pair each, and end, by returning or by a panic with the lock held.
#[test]
fn threads_end_while_others_wait() {
    let server = Server::start();
    let client = client(&server);
    let stop = Arc::new(AtomicBool::new(false));
    let slowest = Arc::new(AtomicU64::new(0));
    let steady: Vec<_> = (0..4)
        .map(|at| {
            let (client, stop, slowest) = (client.clone(), stop.clone(), slowest.clone());
            thread::spawn(move || {
                let lock = client.lock(&format!("own:{at}")).unwrap();
                while !stop.load(SeqCst) {
                    let start = Instant::now();
                    lock.acquire_blocking().unwrap().release_blocking().unwrap();
                    slowest.fetch_max(start.elapsed().as_millis() as u64, SeqCst);
                }
            })
        })
        .collect();
    for round in 0..300 {
        let ends: Vec<_> = (0..4)
            .map(|at| {
                let lock = client.lock(&format!("short:{at}")).unwrap();
                thread::spawn(move || {
                    let held = lock.acquire_blocking().unwrap();
                    if at == round % 4 {
                        std::panic::resume_unwind(Box::new("with the lock held"));
                    }
                    held.release_blocking().unwrap();
                })
            })
            .collect();
        assert_eq!(ends.into_iter().map(thread::JoinHandle::join).filter(Result::is_err).count(), 1);
    }
    stop.store(true, SeqCst);
    steady.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(slowest.load(SeqCst) < PROMPT.as_millis() as u64, "{slowest:?} ms");
    let mut raw = raw(&server);
    assert!(until(PROMPT, || ask::<u32>(&mut raw, &["DBSIZE"]) == 0), "something is held for nobody");
}
