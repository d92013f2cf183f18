//! A bare blocking socket, and the very requests that Bandog's engine would send.

use std::io::{Read, Write};
use std::net::TcpStream;

use bandog_core::name::Name;
use bandog_core::owner::{ClientId, HoldNumber, WireOwner};
use bandog_core::scripts::{Ask, Request, Script, Sink};
use bandog_core::time::Millis;

pub struct Bare {
    stream: TcpStream,
    buffer: Vec<u8>,
}

pub struct Pair {
    pub acquire: Vec<u8>,
    pub release: Vec<u8>,
}

impl Pair {
    pub fn new(name: &str) -> Self {
        let name = Name::new(name).expect("a name");
        let owner = WireOwner { client: ClientId([7; 16]), number: HoldNumber(1) };
        let lease = Millis::secs(30);
        let acquire = Ask::Acquire { name: name.clone(), owner, lease, count: 1, fresh: true, heal: lease };
        Self { acquire: request(acquire), release: request(Ask::Release { name, owner, lease, count: 0 }) }
    }
}

impl Bare {
    pub fn new(url: &str) -> Self {
        let stream = TcpStream::connect(address(url)).expect("a server");
        stream.set_nodelay(true).expect("a socket");
        let mut bare = Self { stream, buffer: vec![0; 1 << 16] };
        for script in [Script::Acquire, Script::Release] {
            bare.call(&pack(&[b"SCRIPT".to_vec(), b"LOAD".to_vec(), script.source().into()]));
        }
        bare
    }

    /// One request, one reply.
    pub fn call(&mut self, request: &[u8]) -> &[u8] {
        self.stream.write_all(request).expect("a server");
        self.read()
    }

    pub fn read(&mut self) -> &[u8] {
        let count = self.stream.read(&mut self.buffer).expect("a server");
        assert!(count > 0 && self.buffer[0] != b'-', "refused: {:?}", String::from_utf8_lossy(&self.buffer[..count]));
        &self.buffer[..count]
    }

    pub fn pair(&mut self, pair: &Pair) {
        // Granted, and freed: anything else, and this is no floor.
        assert_eq!(self.call(&pair.acquire), b":1\r\n");
        assert!(self.call(&pair.release).starts_with(b"*1\r\n:"));
    }

    /// Many requests in one write; reads on until so many bytes came back.
    pub fn batch(&mut self, requests: &[u8], mut replies: usize) {
        self.stream.write_all(requests).expect("a server");
        while replies > 0 {
            replies -= self.read().len();
        }
    }
}

pub fn address(url: &str) -> &str {
    url.trim_start_matches("redis://").trim_end_matches('/')
}

pub fn subscribe(name: &str) -> Vec<u8> {
    pack(&[b"SUBSCRIBE".to_vec(), format!("redisson_lock__channel:{{{name}}}").into_bytes()])
}

#[derive(Default)]
struct Words {
    keys: usize,
    all: Vec<Vec<u8>>,
}

impl Sink for Words {
    fn key(&mut self, key: &[u8]) {
        self.keys += 1;
        self.all.push(key.to_vec());
    }

    fn arg(&mut self, arg: &[u8]) {
        self.all.push(arg.to_vec());
    }
}

fn request(ask: Ask) -> Vec<u8> {
    let mut words = Words::default();
    let script = Request { ask, source: false }.write(&mut words);
    let sha = sha1_smol::Sha1::from(script.source()).digest().to_string();
    let mut all = vec![b"EVALSHA".to_vec(), sha.into_bytes(), words.keys.to_string().into_bytes()];
    all.extend(words.all);
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
