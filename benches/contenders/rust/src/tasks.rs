//! The scenarios for libraries that live in a tokio runtime: one thread, as a socket served by its caller has it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::unbounded_channel;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use crate::answer::{Answer, Given, LEASE, Outcome, Share, cpu, parked_for, resident_bytes, shares, until, wall};
use crate::threads::ready;

/// One client of one library: its own connection.
pub trait Face: Sized + 'static {
    type Lock: 'static;
    type Held: 'static;
    /// Why the library cannot keep a lock alive by itself.
    const NEVER_RENEWS: Option<&'static str>;

    fn new(url: &str, lease: Duration) -> Self;
    fn lock(&self, name: &str) -> Self::Lock;
    async fn acquire(lock: &Self::Lock) -> Self::Held;
    async fn release(held: Self::Held);
    fn still_held(held: &Self::Held) -> bool;
}

#[tokio::main(flavor = "current_thread")]
pub async fn run<F: Face>(scenario: &str, url: &str, given: &Given) -> Outcome {
    if let (Some(why), "held" | "blocked") = (F::NEVER_RENEWS, scenario) {
        return Err(why.into());
    }
    let local = LocalSet::new();
    local
        .run_until(async {
            match scenario {
                "pair" => Ok(pair::<F>(url, given).await),
                "storm" => Ok(storm::<F>(url, given).await),
                "handoff" => Ok(handoff::<F>(url, given).await),
                "contend" => Ok(contend::<F>(url, given).await),
                "held" => Ok(held::<F>(url, given).await),
                "blocked" => Ok(blocked::<F>(url, given).await),
                other => Err(format!("no scenario {other} here")),
            }
        })
        .await
}

async fn turn<F: Face>(lock: &F::Lock) {
    F::release(F::acquire(lock).await).await;
}

async fn pair<F: Face>(url: &str, given: &Given) -> Answer {
    let client = F::new(url, LEASE);
    let lock = client.lock(&given.name);
    for _ in 0..given.warm_up() {
        turn::<F>(&lock).await;
    }
    let before = cpu();
    let mut took = Vec::with_capacity(given.pairs);
    for _ in 0..given.pairs {
        let start = Instant::now();
        turn::<F>(&lock).await;
        took.push(start.elapsed());
    }
    Answer::times(took).with_cpu(cpu() - before, given.pairs)
}

async fn storm<F: Face>(url: &str, given: &Given) -> Answer {
    let client = F::new(url, LEASE);
    let over = Rc::new(Cell::new(false));
    let done = Rc::new(RefCell::new(vec![0u64; given.inflight]));
    let tasks: Vec<_> = (0..given.inflight)
        .map(|at| {
            let lock = client.lock(&format!("{}:{at}", given.name));
            let (over, done) = (over.clone(), done.clone());
            spawn_local(async move {
                while !over.get() {
                    turn::<F>(&lock).await;
                    done.borrow_mut()[at] += 1;
                }
            })
        })
        .collect();
    // Everybody has been served before the clock starts.
    while done.borrow().contains(&0) {
        sleep(Duration::from_millis(10)).await;
    }
    sleep(given.span() / 10).await;
    let (before, start) = (done.borrow().iter().sum::<u64>(), Instant::now());
    sleep(given.span()).await;
    let answer = Answer::rate(done.borrow().iter().sum::<u64>() - before, start.elapsed());
    over.set(true);
    for task in tasks {
        task.await.expect("no panic");
    }
    answer
}

async fn handoff<F: Face>(url: &str, given: &Given) -> Answer {
    let (one, two) = (F::new(url, LEASE), F::new(url, LEASE));
    let (holder, waiter) = (one.lock(&given.name), two.lock(&given.name));
    let (begin, mut begun) = unbounded_channel();
    let (told, mut got) = unbounded_channel();
    let waiting = spawn_local(async move {
        while begun.recv().await.is_some() {
            let held = F::acquire(&waiter).await;
            let stamp = Instant::now();
            F::release(held).await;
            told.send(stamp).expect("the holder waits");
        }
    });
    let mut took = Vec::new();
    for number in 0..given.warm_rounds() + given.rounds {
        let held = F::acquire(&holder).await;
        begin.send(()).expect("the waiter waits");
        sleep(parked_for(number)).await;
        let released = Instant::now();
        F::release(held).await;
        took.push(got.recv().await.expect("the waiter answers") - released);
    }
    drop(begin);
    waiting.await.expect("no panic");
    Answer::times(took.split_off(given.warm_rounds()))
}

async fn contend<F: Face>(url: &str, given: &Given) -> Answer {
    let client = F::new(url, LEASE);
    turn::<F>(&client.lock(&format!("{}:warm:{}", given.name, std::process::id()))).await;
    let (start_at, end, hold) = (given.start_at, given.start_at + given.seconds, Duration::from_millis(given.hold_ms));
    let late = wall() - start_at;
    let tasks: Vec<_> = (0..given.tasks)
        .map(|_| {
            let lock = client.lock(&given.name);
            spawn_local(async move {
                let mut share = Share::default();
                sleep(until(start_at)).await;
                loop {
                    let asked = wall();
                    if asked >= end {
                        return share;
                    }
                    let held = F::acquire(&lock).await;
                    let began = wall();
                    if share.add(asked, began, end) {
                        sleep(hold).await;
                        share.held(began, end);
                    }
                    F::release(held).await;
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.expect("no panic"));
    }
    shares(&all, late)
}

async fn held<F: Face>(url: &str, given: &Given) -> Answer {
    let client = F::new(url, given.lease());
    turn::<F>(&client.lock(&format!("{}:warm", given.name))).await;
    let before = resident_bytes();
    let start = Instant::now();
    let mut holds = Vec::new();
    for first in (0..given.locks).step_by(1000) {
        let batch: Vec<_> = (first..given.locks.min(first + 1000))
            .map(|number| {
                let lock = client.lock(&format!("{}:{number:06}", given.name));
                spawn_local(async move { F::acquire(&lock).await })
            })
            .collect();
        for task in batch {
            holds.push(task.await.expect("no panic"));
        }
    }
    let took = start.elapsed();
    let spent = cpu();
    sleep(given.span()).await;
    let spent = cpu() - spent;
    Answer {
        took_s: Some(took.as_secs_f64()),
        lost: Some(holds.iter().filter(|held| !F::still_held(held)).count()),
        cpu_s: Some(spent.as_secs_f64()),
        rss_bytes: Some(resident_bytes() - before),
        ..Answer::default()
    }
}

async fn blocked<F: Face>(url: &str, given: &Given) -> Answer {
    let client = F::new(url, given.lease());
    let held = F::acquire(&client.lock(&given.name)).await;
    ready();
    // On purpose the blocking one: nothing else of this runtime runs meanwhile.
    std::thread::sleep(3 * given.lease());
    // The race looks until it hears that this is over: nothing is given back before.
    std::mem::forget(held);
    Answer::done()
}
