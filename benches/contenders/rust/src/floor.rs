//! What nobody can be faster than: the same bytes from a bare socket, blocking or in tokio.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::answer::{Answer, Given, Outcome, cpu, parked_for, timed};
use crate::bare::{Bare, Pair, address, subscribe};

const GRANTED: usize = ":1\r\n".len();
const FREED: usize = "*1\r\n:0\r\n".len();

pub fn run(scenario: &str, url: &str, given: &Given) -> Outcome {
    match scenario {
        "pair" => Ok(pair(url, given)),
        "storm" => Ok(storm(url, given)),
        "handoff" => Ok(handoff(url, given)),
        _ => Err("a floor holds nothing".into()),
    }
}

fn pair(url: &str, given: &Given) -> Answer {
    let (mut bare, pair) = (Bare::new(url), Pair::new(&given.name));
    (0..given.warm_up()).for_each(|_| bare.pair(&pair));
    let before = cpu();
    let took = (0..given.pairs).map(|_| timed(|| bare.pair(&pair))).collect();
    Answer::times(took).with_cpu(cpu() - before, given.pairs)
}

fn storm(url: &str, given: &Given) -> Answer {
    let mut bare = Bare::new(url);
    let pairs: Vec<Pair> = (0..given.inflight).map(|at| Pair::new(&format!("{}:{at}", given.name))).collect();
    pairs.iter().for_each(|pair| bare.pair(pair));
    let acquires: Vec<u8> = pairs.iter().flat_map(|pair| pair.acquire.clone()).collect();
    let releases: Vec<u8> = pairs.iter().flat_map(|pair| pair.release.clone()).collect();
    let mut rate = |span: Duration| {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < span {
            bare.batch(&acquires, GRANTED * pairs.len());
            bare.batch(&releases, FREED * pairs.len());
            done += pairs.len() as u64;
        }
        Answer::rate(done, start.elapsed())
    };
    rate(given.span() / 10);
    rate(given.span())
}

/// One thread holds; another listens, and takes the lock when told.
fn handoff(url: &str, given: &Given) -> Answer {
    let pair = Pair::new(&given.name);
    let rounds = given.warm_rounds() + given.rounds;
    let (told, got) = channel();
    let (mut ears, mut waiter, mut holder) = (Bare::new(url), Bare::new(url), Bare::new(url));
    ears.call(&subscribe(&given.name));
    let took = thread::scope(|scope| {
        let pair = &pair;
        scope.spawn(move || {
            for _ in 0..rounds {
                ears.read();
                assert_eq!(waiter.call(&pair.acquire), b":1\r\n");
                let stamp = Instant::now();
                waiter.call(&pair.release);
                // Its own release speaks to itself.
                ears.read();
                told.send(stamp).expect("the holder waits");
            }
        });
        let round = |number| {
            assert_eq!(holder.call(&pair.acquire), b":1\r\n");
            thread::sleep(parked_for(number));
            let released = Instant::now();
            holder.call(&pair.release);
            got.recv().expect("the waiter answers") - released
        };
        (0..rounds).map(round).collect::<Vec<_>>()
    });
    Answer::times(took[given.warm_rounds()..].to_vec())
}

#[tokio::main(flavor = "current_thread")]
pub async fn run_tokio(scenario: &str, url: &str, given: &Given) -> Outcome {
    if scenario != "pair" {
        return Err("a pair is all it does".into());
    }
    let pair = Pair::new(&given.name);
    // Loads the scripts.
    drop(Bare::new(url));
    let mut stream = tokio::net::TcpStream::connect(address(url)).await.expect("a server");
    stream.set_nodelay(true).expect("a socket");
    let mut buffer = [0; 4096];
    let mut took = Vec::with_capacity(given.pairs);
    let mut before = cpu();
    for number in 0..given.warm_up() + given.pairs {
        if number == given.warm_up() {
            before = cpu();
        }
        let start = Instant::now();
        for request in [&pair.acquire, &pair.release] {
            stream.write_all(request).await.expect("a server");
            let count = stream.read(&mut buffer).await.expect("a server");
            assert!(count > 0 && buffer[0] != b'-');
        }
        took.push(start.elapsed());
    }
    Ok(Answer::times(took.split_off(given.warm_up())).with_cpu(cpu() - before, given.pairs))
}
