//! The floor: a bare blocking socket that sends the same `EVALSHA`s. And what work costs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bandog_core::owner::{ClientId, HoldNumber, WireOwner};
use bandog_core::scripts::{Ask, Request, Script, Sink};
use bandog_core::time::Millis;

pub(crate) struct Bare {
    stream: TcpStream,
    /// For all locks: the acquires, the releases.
    both: [Vec<u8>; 2],
    /// Lines of all replies to each.
    lines: [usize; 2],
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
    /// For so many locks at once.
    pub(crate) fn new(address: &str, count: usize) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        for script in [Script::Acquire, Script::Release] {
            let load = pack(&[b"SCRIPT".to_vec(), b"LOAD".to_vec(), script.source().into()]);
            stream.write_all(&load).unwrap();
            let _ = stream.read(&mut [0; 512]).unwrap();
        }
        let lease = Millis::secs(30);
        let (mut both, mut lines) = ([Vec::new(), Vec::new()], [0; 2]);
        for number in 0..count {
            let name = bandog::Name::new(&format!("bare:{number}")).unwrap();
            let owner = WireOwner { client: ClientId([7; 16]), number: HoldNumber(number as u64 + 1) };
            let acquire = Ask::Acquire { name: name.clone(), owner, lease, count: 1, fresh: true, heal: lease };
            let release = Ask::Release { name, owner, lease, count: 0 };
            for (at, ask) in [acquire, release].into_iter().enumerate() {
                let request = request(ask);
                if number == 0 {
                    stream.write_all(&request).unwrap();
                    let mut reply = [0; 512];
                    let length = stream.read(&mut reply).unwrap();
                    lines[at] = count * ends(&reply[..length]);
                }
                both[at].extend(request);
            }
        }
        Self { stream, both, lines }
    }

    /// Acquires all locks, then releases them all.
    pub(crate) fn pairs(&mut self) {
        let mut buffer = [0; 16 << 10];
        for (words, lines) in self.both.iter().zip(self.lines) {
            self.stream.write_all(words).unwrap();
            let mut due = lines;
            while due > 0 {
                let length = self.stream.read(&mut buffer).unwrap();
                due = due.checked_sub(ends(&buffer[..length])).expect("replies of one shape");
            }
        }
    }
}

fn ends(bytes: &[u8]) -> usize {
    assert!(!bytes.contains(&b'-'), "{}", String::from_utf8_lossy(bytes));
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// What this process used so far.
pub(crate) fn cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live value, and zeros are one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let span = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    span(usage.ru_utime) + span(usage.ru_stime)
}

fn request(ask: Ask) -> Vec<u8> {
    let request = Request { ask, source: false };
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
