//! One acquire and release, against a bare blocking socket that sends the same two `EVALSHA`s, in one run:
//! only the ratios mean anything. Pin it to one core (`taskset -c 0`), the server as well.
//!
//!     cargo bench -p bandog --bench pair -- redis://127.0.0.1:6379 [sync] [threads] [async]

mod bare;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandog::{Client, Options};
use bare::{Bare, cpu};

/// What may be asked for by name.
const WAYS: [&str; 3] = ["sync", "threads", "async"];
/// Pairs of one round.
const ROUND: usize = 1000;
const THREADS: usize = 100;
const SPAN: Duration = Duration::from_millis(500);

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn main() {
    let server = bandog_harness::server::Server::start();
    let words: Vec<_> = std::env::args().skip(1).collect();
    let url = words.iter().find(|word| word.starts_with("redis")).cloned().unwrap_or_else(|| server.url());
    let wanted =
        |what| words.iter().any(|word| word == what) || !words.iter().any(|word| WAYS.contains(&word.as_str()));
    let address = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let client = Client::new(Options::new(&url).unwrap()).unwrap();
    let lock = client.lock("bench").unwrap();
    let mut bare = Bare::new(&address, 1);
    // Alternately, so that whatever else the machine does hits both.
    if wanted("sync") {
        let mut rounds = Vec::new();
        for _ in 0..20 {
            let floor = p50(|| bare.pairs());
            rounds.push((floor, p50(|| lock.acquire_blocking().unwrap().release_blocking().unwrap())));
        }
        print_pair("blocking", rounds);
    }
    if wanted("threads") {
        let mut rounds = Vec::new();
        for _ in 0..5 {
            let floor = p50(|| bare.pairs());
            let before = cpu();
            let rate = threads(&client);
            let spent = (cpu() - before).as_secs_f64() * 1e6 / (rate * SPAN.as_secs_f64());
            rounds.push((rate * floor.as_secs_f64(), rate, spent));
        }
        rounds.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let (ratio, rate, spent) = rounds[rounds.len() / 2];
        println!("{THREADS} threads           {rate:8.0} pairs/s  {ratio:.3}x  {spent:.1} us of our cpu a pair");
    }
    if wanted("async") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let mut rounds = Vec::new();
        for _ in 0..20 {
            let floor = p50(|| bare.pairs());
            let spans = runtime.block_on(async {
                let mut spans = Vec::with_capacity(ROUND);
                for _ in 0..ROUND {
                    let start = Instant::now();
                    lock.acquire().await.unwrap().release().await.unwrap();
                    spans.push(start.elapsed());
                }
                spans
            });
            rounds.push((floor, median(spans)));
        }
        print_pair("async", rounds);
    }
}

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn print_pair(what: &str, rounds: Vec<(Duration, Duration)>) {
    let mut ratios: Vec<_> = rounds.iter().map(|(floor, ours)| ours.as_secs_f64() / floor.as_secs_f64()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (mut floors, mut ours): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    floors.sort_unstable();
    ours.sort_unstable();
    let micros = |spans: &[Duration]| spans[spans.len() / 2].as_secs_f64() * 1e6;
    println!(
        "pair, {what:<10}      p50 {:6.1} us, bare socket {:6.1} us  {:.3}x",
        micros(&ours),
        micros(&floors),
        ratios[ratios.len() / 2]
    );
}

fn p50(mut what: impl FnMut()) -> Duration {
    let spans = (0..ROUND).map(|_| {
        let start = Instant::now();
        what();
        start.elapsed()
    });
    median(spans.collect())
}

fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

fn threads(client: &Client) -> f64 {
    let pairs = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let threads: Vec<_> = (0..THREADS)
        .map(|at| {
            let (client, pairs) = (client.clone(), pairs.clone());
            thread::spawn(move || {
                let lock = client.lock(&format!("bench:{at}")).unwrap();
                while start.elapsed() < SPAN {
                    lock.acquire_blocking().unwrap().release_blocking().unwrap();
                    pairs.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    pairs.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}
