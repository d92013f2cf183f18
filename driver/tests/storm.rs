//! Many threads, futures and broken connections at once: nothing hangs, nothing is left behind.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandog::host::{self, Settled, Signals, Wait, Wish};
use bandog_harness::server::Server;
use common::{ask, client, millis, raw, wait};

/// Longer than any call may take here; a lost wake would be noticed after a second.
const HANG: Duration = Duration::from_millis(900);

#[test]
fn no_wake_is_lost_while_connections_break() {
    let server = Server::start();
    let client = client(&server);
    let stop = Arc::new(AtomicBool::new(false));
    let pairs = Arc::new(AtomicU64::new(0));
    let inside = Arc::new(AtomicU32::new(0));
    let workers: Vec<_> = (0..18)
        .map(|at| {
            let (client, stop, pairs, inside) = (client.clone(), stop.clone(), pairs.clone(), inside.clone());
            thread::spawn(move || {
                let shared = at % 3 == 0;
                let lock = client.lock(&if shared { "shared".into() } else { format!("own:{at}") }).unwrap();
                let mut slowest = Duration::ZERO;
                while !stop.load(Ordering::SeqCst) {
                    let start = Instant::now();
                    let held = if at % 2 == 0 { lock.acquire_blocking() } else { wait(lock.acquire()) }.unwrap();
                    if shared {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                    if at % 2 == 0 { held.release_blocking() } else { wait(held.release()) }.unwrap();
                    slowest = slowest.max(start.elapsed());
                    pairs.fetch_add(1, Ordering::Relaxed);
                }
                (at, slowest)
            })
        })
        .collect();
    let mut raw = raw(&server);
    let start = Instant::now();
    let mut kills = 0;
    while start.elapsed() < Duration::from_secs(5) {
        thread::sleep(millis(30));
        kills += ask::<u32>(&mut raw, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        ask::<u32>(&mut raw, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        let (at, slowest) = worker.join().unwrap();
        assert!(slowest < HANG, "worker {at} once took {slowest:?}");
    }
    let pairs = pairs.load(Ordering::Relaxed);
    assert!(kills > 50 && pairs > 500, "{kills} kills, {pairs} pairs");
    assert_eq!(ask::<u32>(&mut raw, &["DBSIZE"]), 0, "keys are left");
}

#[test]
fn l4_interrupted_calls_leave_nothing() {
    let server = Server::start();
    let client = client(&server);
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int);
    // SAFETY: the handler is a plain function that does nothing.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    let threads: Vec<_> = (0..6)
        .map(|at| {
            let client = client.clone();
            thread::spawn(move || {
                // SAFETY: no arguments.
                let me = unsafe { libc::pthread_self() } as usize;
                let done = Arc::new(AtomicBool::new(false));
                let over = done.clone();
                let striker = thread::spawn(move || {
                    let mut pause = 50 + at * 13;
                    while !over.load(Ordering::SeqCst) {
                        thread::sleep(Duration::from_micros(pause));
                        pause = pause % 900 + 37;
                        // SAFETY: the thread lives: it joins this one.
                        unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR1) };
                    }
                });
                let mut interrupted = 0;
                let mut granted = 0;
                let owner = host::next_owner();
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(3) {
                    let wish = Wish::Acquire {
                        name: client.name(&format!("n{}", at % 3)).unwrap(),
                        owner,
                        wait: Wait::Forever,
                        lease: None,
                        reenter: None,
                    };
                    let signals = if at % 2 == 0 { Signals::Guarded } else { Signals::Open };
                    let begin = Instant::now();
                    match host::block(&client, wish, signals, &mut || true).unwrap() {
                        Some(Settled::Held(handle)) => {
                            granted += 1;
                            let wish = Wish::Release(host::Release::Handle(handle));
                            // Interrupted, it goes on in the background.
                            let _ = host::block(&client, wish, signals, &mut || true).unwrap();
                        }
                        Some(other) => panic!("{other:?}"),
                        None => interrupted += 1,
                    }
                    assert!(begin.elapsed() < HANG, "{:?}", begin.elapsed());
                }
                done.store(true, Ordering::SeqCst);
                striker.join().unwrap();
                (granted, interrupted)
            })
        })
        .collect();
    let (granted, interrupted) = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(granted > 100 && interrupted > 100, "{granted} granted, {interrupted} interrupted");
    let mut raw = raw(&server);
    assert!(common::until(millis(500), || ask::<u32>(&mut raw, &["DBSIZE"]) == 0), "orphans are left");
}

#[test]
fn r3_forks_while_other_threads_are_busy() {
    let server = Server::start();
    let client = client(&server);
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..4)
        .map(|at| {
            let (client, stop) = (client.clone(), stop.clone());
            thread::spawn(move || {
                let lock = client.lock(&format!("busy:{at}")).unwrap();
                while !stop.load(Ordering::SeqCst) {
                    lock.acquire_blocking().unwrap().release_blocking().unwrap();
                }
            })
        })
        .collect();
    for round in 0..40 {
        // SAFETY: the child calls nothing but this library and ends without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let lock = client.lock(&format!("child:{round}"));
            let done = lock.and_then(|lock| lock.acquire_blocking()).and_then(bandog::Hold::release_blocking);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(done.is_err())) };
        }
        let start = Instant::now();
        let mut status = 0;
        // SAFETY: the status is live.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if start.elapsed() > Duration::from_secs(10) {
                // SAFETY: the child is ours.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("child {round} hangs");
            }
            thread::sleep(millis(1));
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
    }
    stop.store(true, Ordering::SeqCst);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
}
