//! Futures of a tokio runtime against a bare socket, one pair at a time and a thousand in flight, where the
//! floor writes all requests and then reads all replies. In one run, for only the ratios mean anything. Pin it
//! to one core (`taskset -c 0`), the server as well.
//!
//!     cargo bench -p bandog --bench flight -- redis://127.0.0.1:6379 [current_thread] [multi_thread]

mod bare;

use std::time::{Duration, Instant};

use bandog::{Client, Lock, Options};
use bare::{Bare, cpu};
use tokio::runtime::{Builder, Runtime};

const ROUNDS: usize = 15;
const PAIRS: usize = 1000;
const FLIGHTS: usize = 5;
const WAYS: [&str; 2] = ["current_thread", "multi_thread"];

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn main() {
    let server = bandog_harness::server::Server::start();
    let words: Vec<_> = std::env::args().skip(1).collect();
    let url = words.iter().find(|word| word.starts_with("redis")).cloned().unwrap_or_else(|| server.url());
    let address = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let client = Client::new(Options::new(&url).unwrap()).unwrap();
    let (mut one, mut many) = (Bare::new(&address, 1), Bare::new(&address, PAIRS));
    let chosen = |way: &&&str| words.iter().any(|word| word == **way);
    let all = WAYS.iter().filter(chosen).count() == 0;
    for way in WAYS.iter().filter(|way| all || chosen(way)) {
        let runtime = match *way {
            "current_thread" => Builder::new_current_thread().enable_all().build().unwrap(),
            _ => Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        };
        // Alternately, so that whatever else the machine does hits both.
        let single = rounds(
            || median((0..PAIRS).map(|_| timed(|| one.pairs())).collect()),
            || {
                // In a task, for what `block_on` waits for may come from another thread.
                let lock = client.lock("bench").unwrap();
                runtime.block_on(async { tokio::spawn(async move { pairs(&lock).await }).await.unwrap() })
            },
        );
        println!("{way:<15} one at a time  {single}");
        let flight = rounds(
            || timed(|| (0..FLIGHTS).for_each(|_| many.pairs())) / (FLIGHTS * PAIRS) as u32,
            || flight(&client, &runtime),
        );
        println!("{way:<15} {PAIRS} in flight {flight}");
        let mut spent = Vec::new();
        for _ in 0..ROUNDS {
            let before = cpu();
            let _ = self::flight(&client, &runtime);
            spent.push((cpu() - before) / (FLIGHTS * PAIRS) as u32);
        }
        println!("{way:<15} {:.2} us of our cpu a pair", median(spent).as_secs_f64() * 1e6);
    }
}

async fn pairs(lock: &Lock) -> Duration {
    let mut spans = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let start = Instant::now();
        lock.acquire().await.unwrap().release().await.unwrap();
        spans.push(start.elapsed());
    }
    median(spans)
}

/// The time of one of a thousand pairs in flight.
fn flight(client: &Client, runtime: &Runtime) -> Duration {
    let locks: Vec<_> = (0..PAIRS).map(|at| client.lock(&format!("bench:{at}")).unwrap()).collect();
    let span = timed(|| {
        runtime.block_on(async {
            let task = |lock: Lock| async move {
                for _ in 0..FLIGHTS {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            };
            let tasks: Vec<_> = locks.into_iter().map(|lock| tokio::spawn(task(lock))).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
    span / (FLIGHTS * PAIRS) as u32
}

/// The median of the ratios, and those of both times.
fn rounds(mut floor: impl FnMut() -> Duration, mut ours: impl FnMut() -> Duration) -> String {
    let both: Vec<_> = (0..ROUNDS).map(|_| (floor(), ours())).collect();
    let mut ratios: Vec<_> = both.iter().map(|(floor, ours)| ours.as_secs_f64() / floor.as_secs_f64()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (floors, ours) = both.into_iter().unzip();
    let micros = |spans| median(spans).as_secs_f64() * 1e6;
    let (floor, ours) = (micros(floors), micros(ours));
    let (low, mid, high) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
    format!("{ours:6.2} us a pair, floor {floor:6.2} us: {mid:.3}x ({low:.2} to {high:.2})")
}

fn timed(what: impl FnOnce()) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}
