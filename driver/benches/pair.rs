//! One acquire and release, against a bare blocking socket that sends the same two `EVALSHA`s, in one run:
//! only the ratios mean anything. Pin it to one core (`taskset -c 0`), the server as well.
//!
//!     cargo bench -p bandog --bench pair -- redis://127.0.0.1:6379 [sync]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandog::{Client, Options};
use bandog_core::owner::{ClientId, HoldNumber, WireOwner};
use bandog_core::scripts::{Ask, Script, Sink};
use bandog_core::time::Millis;

const ROUNDS: usize = 20_000;
const THREADS: usize = 100;
const SPAN: Duration = Duration::from_secs(2);

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn main() {
    let server = bandog_harness::server::Server::start();
    let url = std::env::args().find(|arg| arg.starts_with("redis")).unwrap_or_else(|| server.url());
    let address = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let client = Client::new(Options::new(&url).unwrap()).unwrap();
    let lock = client.lock("bench").unwrap();
    let mut bare = Bare::new(&address);
    let mut both = [Vec::new(), Vec::new()];
    // Alternately, so that whatever else the machine does hits both.
    for _ in 0..20 {
        for _ in 0..ROUNDS / 20 {
            both[0].push(timed(|| bare.pair()));
        }
        for _ in 0..ROUNDS / 20 {
            both[1].push(timed(|| lock.acquire_blocking().unwrap().release_blocking().unwrap()));
        }
    }
    let [floor, ours] = both.map(p50);
    println!("pair, bare socket     p50 {:6.1} us", floor.as_secs_f64() * 1e6);
    println!(
        "pair, blocking        p50 {:6.1} us  {:.2}x",
        ours.as_secs_f64() * 1e6,
        ours.as_secs_f64() / floor.as_secs_f64()
    );
    if std::env::args().any(|arg| arg == "sync") {
        return;
    }
    let before = cpu();
    let many = threads(&client);
    let spent = (cpu() - before).as_secs_f64() * 1e6 / (many * SPAN.as_secs_f64());
    println!(
        "{THREADS} threads           {:8.0} pairs/s  {:.2}x  {spent:.1} us of our cpu a pair",
        many,
        many * floor.as_secs_f64()
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let asynchronous = runtime.block_on(async {
        let mut spans = Vec::new();
        for _ in 0..ROUNDS / 4 {
            let start = Instant::now();
            lock.acquire().await.unwrap().release().await.unwrap();
            spans.push(start.elapsed());
        }
        p50(spans)
    });
    println!(
        "pair, async fallback  p50 {:6.1} us  {:.2}x",
        asynchronous.as_secs_f64() * 1e6,
        asynchronous.as_secs_f64() / floor.as_secs_f64()
    );
}

fn timed(what: impl FnOnce()) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}

/// What this process used so far.
fn cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live value, and zeros are one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let span = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    span(usage.ru_utime) + span(usage.ru_stime)
}

fn p50(mut spans: Vec<Duration>) -> Duration {
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

struct Bare {
    stream: TcpStream,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

#[derive(Default)]
struct Words(usize, Vec<Vec<u8>>);

impl Sink for Words {
    fn key(&mut self, key: &[u8]) {
        self.0 += 1;
        self.1.push(key.to_vec());
    }
    fn arg(&mut self, arg: &[u8]) {
        self.1.push(arg.to_vec());
    }
}

impl Bare {
    fn new(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        for script in [Script::Acquire, Script::Release] {
            let load = pack(&[b"SCRIPT".to_vec(), b"LOAD".to_vec(), script.source().into()]);
            stream.write_all(&load).unwrap();
            let _ = stream.read(&mut [0; 512]).unwrap();
        }
        let name = bandog::Name::new("bare").unwrap();
        let owner = WireOwner { client: ClientId([7; 16]), number: HoldNumber(1) };
        let lease = Millis::secs(30);
        let acquire = Ask::Acquire { name: name.clone(), owner, lease, count: 1, fresh: true, heal: lease };
        let release = Ask::Release { name, owner, lease, count: 0 };
        Self { stream, acquire: request(acquire), release: request(release) }
    }

    fn pair(&mut self) {
        let mut buffer = [0; 4096];
        for words in [&self.acquire, &self.release] {
            self.stream.write_all(words).unwrap();
            let count = self.stream.read(&mut buffer).unwrap();
            assert_ne!(buffer[..count].first(), Some(&b'-'));
        }
    }
}

fn request(ask: Ask) -> Vec<u8> {
    let request = bandog_core::scripts::Request { ask, source: false };
    let mut words = Words::default();
    let script = request.write(&mut words);
    let sha = sha1_smol::Sha1::from(script.source()).digest().to_string();
    let mut all = vec![b"EVALSHA".to_vec(), sha.into_bytes(), words.0.to_string().into_bytes()];
    all.extend(words.1);
    pack(&all)
}

fn pack(words: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
    out
}
