//! The scenarios for Bandog's blocking face.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bandog::Client;

use crate::answer::{
    Answer, Given, LEASE, Outcome, Share, cpu, parked_for, resident_bytes, shares, timed, until, wall,
};
use crate::bandog_threads::{client, options};

pub fn run(scenario: &str, url: &str, given: &Given) -> Outcome {
    match scenario {
        "pair" => Ok(pair(url, given)),
        "storm" => Ok(storm(url, given)),
        "handoff" => Ok(handoff(url, given)),
        "contend" => Ok(contend(url, given)),
        "held" => Ok(held(url, given)),
        "blocked" => Ok(blocked(url, given)),
        "reenter" => Ok(reenter(url, given)),
        other => Err(format!("no scenario {other} here")),
    }
}

fn pair(url: &str, given: &Given) -> Answer {
    let lock = client(url, LEASE).lock(&given.name).unwrap();
    let pair = || lock.acquire_blocking().unwrap().release_blocking().unwrap();
    (0..given.warm_up()).for_each(|_| pair());
    let before = cpu();
    let took = (0..given.pairs).map(|_| timed(pair)).collect();
    Answer::times(took).with_cpu(cpu() - before, given.pairs)
}

/// A level more and less of a lock that is held, answered without the server.
fn reenter(url: &str, given: &Given) -> Answer {
    let lock = Client::new(options(url).local_reentry(true)).unwrap().lock(&given.name).unwrap();
    let outer = lock.acquire_blocking().unwrap();
    let pair = || lock.acquire_blocking().unwrap().release_blocking().unwrap();
    (0..given.warm_up()).for_each(|_| pair());
    let answer = Answer::times((0..given.pairs).map(|_| timed(pair)).collect());
    outer.release_blocking().unwrap();
    answer
}

fn storm(url: &str, given: &Given) -> Answer {
    let client = client(url, LEASE);
    let over = AtomicBool::new(false);
    let done: Vec<AtomicU64> = (0..given.inflight).map(|_| AtomicU64::new(0)).collect();
    let sum = || done.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    thread::scope(|scope| {
        for (at, count) in done.iter().enumerate() {
            let lock = client.lock(&format!("{}:{at}", given.name)).unwrap();
            let over = &over;
            let work = move || {
                while !over.load(Ordering::Relaxed) {
                    lock.acquire_blocking().unwrap().release_blocking().unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, work).expect("a thread");
        }
        // Everybody has been served before the clock starts.
        while done.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(given.span() / 10);
        let (before, start) = (sum(), Instant::now());
        thread::sleep(given.span());
        let answer = Answer::rate(sum() - before, start.elapsed());
        over.store(true, Ordering::Relaxed);
        answer
    })
}

fn handoff(url: &str, given: &Given) -> Answer {
    let (one, two) = (client(url, LEASE), client(url, LEASE));
    let (holder, waiter) = (one.lock(&given.name).unwrap(), two.lock(&given.name).unwrap());
    let (begin, begun) = channel();
    let (told, got) = channel();
    let rounds = given.warm_rounds() + given.rounds;
    let took = thread::scope(|scope| {
        scope.spawn(move || {
            while begun.recv().is_ok() {
                let held = waiter.acquire_blocking().unwrap();
                let stamp = Instant::now();
                held.release_blocking().unwrap();
                told.send(stamp).expect("the holder waits");
            }
        });
        let took: Vec<Duration> = (0..rounds)
            .map(|number| {
                let held = holder.acquire_blocking().unwrap();
                begin.send(()).expect("the waiter waits");
                thread::sleep(parked_for(number));
                let released = Instant::now();
                held.release_blocking().unwrap();
                got.recv().expect("the waiter answers") - released
            })
            .collect();
        drop(begin);
        took
    });
    Answer::times(took[given.warm_rounds()..].to_vec())
}

fn contend(url: &str, given: &Given) -> Answer {
    let client = client(url, LEASE);
    let end = given.start_at + given.seconds;
    client
        .lock(&format!("{}:warm:{}", given.name, std::process::id()))
        .unwrap()
        .acquire_blocking()
        .unwrap()
        .release_blocking()
        .unwrap();
    let late = wall() - given.start_at;
    let work = || {
        let lock = client.lock(&given.name).unwrap();
        let mut share = Share::default();
        thread::sleep(until(given.start_at));
        loop {
            let asked = wall();
            if asked >= end {
                return share;
            }
            let held = lock.acquire_blocking().unwrap();
            let began = wall();
            if share.add(asked, began, end) {
                thread::sleep(Duration::from_millis(given.hold_ms));
                share.held(began, end);
            }
            held.release_blocking().unwrap();
        }
    };
    let all: Vec<Share> = thread::scope(|scope| {
        let threads: Vec<_> = (0..given.tasks).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    shares(&all, late)
}

fn held(url: &str, given: &Given) -> Answer {
    let client = client(url, given.lease());
    client.lock(&format!("{}:warm", given.name)).unwrap().acquire_blocking().unwrap().release_blocking().unwrap();
    let before = resident_bytes();
    let start = Instant::now();
    let take = |number| client.lock(&format!("{}:{number:06}", given.name)).unwrap().acquire_blocking().unwrap();
    let holds: Vec<_> = (0..given.locks).map(take).collect();
    let took = start.elapsed();
    let spent = cpu();
    thread::sleep(given.span());
    let spent = cpu() - spent;
    Answer {
        took_s: Some(took.as_secs_f64()),
        lost: Some(holds.iter().filter(|hold| !hold.valid()).count()),
        cpu_s: Some(spent.as_secs_f64()),
        rss_bytes: Some(resident_bytes() - before),
        ..Answer::default()
    }
}

fn blocked(url: &str, given: &Given) -> Answer {
    let held = client(url, given.lease()).lock(&given.name).unwrap().acquire_blocking().unwrap();
    ready();
    thread::sleep(3 * given.lease());
    // The race looks until it hears that this is over: nothing is given back before.
    std::mem::forget(held);
    Answer::done()
}

pub fn ready() {
    println!("{{\"ready\": true}}");
    std::io::stdout().flush().expect("an open pipe");
}
