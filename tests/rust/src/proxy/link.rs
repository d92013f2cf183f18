//! One proxied connection: two sockets and what is on its way between them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::frames::{Frames, arguments};
use super::orders::{After, DOWN, Shot, UP};

/// Past this much on its way, no more is read.
const FULL: usize = 4 << 20;

/// What holds for a connection until an order changes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) stall: [bool; 2],
    pub(super) delay: [Duration; 2],
    pub(super) rate: [Option<u64>; 2],
}

/// A shot that waits for its moment on one connection, or on any.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) link: Option<u64>,
    pub(super) shot: Shot,
    pub(super) left: u64,
}

/// What to do with a link after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Close,
    Reset,
}

#[derive(Debug)]
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
    held: bool,
    reply: bool,
}

#[derive(Debug)]
struct Pipe {
    frames: Frames,
    queue: VecDeque<Chunk>,
    moved: u64,
    eof: bool,
    fin: bool,
    trickled: Instant,
}

/// Two sockets: `[client, server]`. Pipe `UP` reads the first and writes the second, pipe `DOWN` the other way.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) sockets: [TcpStream; 2],
    pub(super) rules: Rules,
    pub(super) commands: BTreeMap<String, u64>,
    pub(super) scripts: BTreeMap<String, u64>,
    pub(super) replies: u64,
    pipes: [Pipe; 2],
    /// One entry per request that will be answered: what happens when its reply comes.
    expected: VecDeque<Option<After>>,
    silent: bool,
    verdict: Verdict,
}

impl Link {
    pub(super) fn new(id: u64, client: TcpStream, server: TcpStream, rules: Rules) -> Self {
        let pipe = || Pipe {
            frames: Frames::default(),
            queue: VecDeque::new(),
            moved: 0,
            eof: false,
            fin: false,
            trickled: Instant::now(),
        };
        Self {
            id,
            sockets: [client, server],
            rules,
            commands: BTreeMap::new(),
            scripts: BTreeMap::new(),
            replies: 0,
            pipes: [pipe(), pipe()],
            expected: VecDeque::new(),
            silent: false,
            verdict: Verdict::Keep,
        }
    }

    pub(super) fn moved(&self, way: usize) -> u64 {
        self.pipes[way].moved
    }

    pub(super) fn held(&self) -> usize {
        self.pipes[UP].queue.iter().filter(|chunk| chunk.held).count()
    }

    pub(super) fn client_gone(&self) -> bool {
        self.pipes[UP].eof
    }

    pub(super) fn release(&mut self) {
        self.pipes[UP].queue.iter_mut().for_each(|chunk| chunk.held = false);
    }

    pub(super) fn half_close(&mut self, way: usize) {
        let _ = self.sockets[1 - way].shutdown(Shutdown::Write);
        self.pipes[way].fin = true;
        self.pipes[way].queue.clear();
    }

    /// Whether to wait until socket `side` can be read, and until it can be written.
    pub(super) fn interest(&self, side: usize, now: Instant) -> (bool, bool) {
        let (source, sink) = (&self.pipes[side], &self.pipes[1 - side]);
        let waiting: usize = source.queue.iter().map(|chunk| chunk.bytes.len()).sum();
        (!source.eof && waiting < FULL, self.ripe(1 - side).is_some_and(|at| at <= now) && !sink.fin)
    }

    /// When the next byte of pipe `way` may leave.
    pub(super) fn ripe(&self, way: usize) -> Option<Instant> {
        let pipe = &self.pipes[way];
        let head = pipe.queue.front().filter(|head| !self.rules.stall[way] && !head.held)?;
        let trickle = self.rules.rate[way].map(|rate| pipe.trickled + Duration::from_micros(1_000_000 / rate + 1));
        Some(head.due.max(trickle.unwrap_or(head.due)))
    }

    /// Reads what came, sends what may go.
    pub(super) fn serve(&mut self, now: Instant, shots: &mut Vec<Armed>) -> Verdict {
        for way in [UP, DOWN] {
            if self.read(way, now, shots).is_err() {
                self.pipes[way].eof = true;
                if way == DOWN {
                    self.verdict = Verdict::Reset;
                }
            }
            self.flush(way, now, shots);
        }
        if self.pipes.iter().all(|pipe| pipe.fin) && self.verdict == Verdict::Keep {
            self.verdict = Verdict::Close;
        }
        self.verdict
    }

    fn read(&mut self, way: usize, now: Instant, shots: &mut Vec<Armed>) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        while self.interest(way, now).0 {
            match self.sockets[way].read(&mut bytes) {
                Ok(0) => {
                    self.pipes[way].eof = true;
                    let rest = self.pipes[way].frames.rest();
                    self.push(way, now, rest, false, false);
                }
                Ok(n) => {
                    self.pipes[way].frames.push(&bytes[..n]);
                    while let Some(frame) = self.pipes[way].frames.next() {
                        if way == UP { self.request(now, frame, shots) } else { self.reply(now, frame, shots) }
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn push(&mut self, way: usize, now: Instant, bytes: Vec<u8>, held: bool, reply: bool) {
        // A pipe that was closed for writing takes nothing more.
        if !bytes.is_empty() && !self.pipes[way].fin {
            if self.pipes[way].queue.is_empty() {
                self.pipes[way].trickled = now;
            }
            self.pipes[way].queue.push_back(Chunk { due: now + self.rules.delay[way], bytes, held, reply });
        }
    }

    fn request(&mut self, now: Instant, frame: Vec<u8>, shots: &mut Vec<Armed>) {
        let words = arguments(&frame);
        let name = words.first().map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
        if let Some(name) = &name {
            if let ("EVALSHA", Some(digest)) = (name.as_str(), words.get(1)) {
                *self.scripts.entry(String::from_utf8_lossy(digest).into_owned()).or_default() += 1;
            }
            *self.commands.entry(name.clone()).or_default() += 1;
        }
        let has = |text: &String| contains(&frame, text);
        if let Some(Shot::Drop(_, after)) =
            fire(shots, self.id, |shot| matches!(shot, Shot::Drop(text, _) if has(text)))
        {
            self.end(after);
            return;
        }
        let lose = fire(shots, self.id, |shot| matches!(shot, Shot::Lose(text, _) if has(text)));
        let hold = fire(shots, self.id, |shot| matches!(shot, Shot::Hold(text) if has(text))).is_some();
        // In RESP3 these are answered by pushes.
        if !name.is_some_and(|name| name.ends_with("SUBSCRIBE")) {
            self.expected.push_back(match lose {
                Some(Shot::Lose(_, after)) => Some(after),
                _ => None,
            });
        }
        self.push(UP, now, frame, hold, false);
    }

    fn reply(&mut self, now: Instant, frame: Vec<u8>, shots: &mut Vec<Armed>) {
        if self.silent {
            return;
        }
        if frame.first() == Some(&b'>') {
            let muted = fire(shots, self.id, |shot| matches!(shot, Shot::Mute(text) if contains(&frame, text)));
            if muted.is_none() {
                self.push(DOWN, now, frame, false, false);
            }
            return;
        }
        self.replies += 1;
        if let Some(after) = self.expected.pop_front().flatten() {
            return self.end(after);
        }
        if let Some(Shot::Swallow(after)) = fire(shots, self.id, |shot| matches!(shot, Shot::Swallow(_))) {
            if !shots.iter().any(|armed| armed.shot == Shot::Swallow(after) && armed.fits(self.id)) {
                self.end(after);
            }
            return;
        }
        self.push(DOWN, now, frame, false, true);
    }

    fn end(&mut self, after: After) {
        match after {
            After::Reset => self.verdict = Verdict::Reset,
            After::Silent => self.silent = true,
        }
    }

    fn flush(&mut self, way: usize, now: Instant, shots: &mut Vec<Armed>) {
        while self.ripe(way).is_some_and(|at| at <= now) && self.verdict == Verdict::Keep {
            let id = self.id;
            let cut = shots.iter().position(|armed| armed.shot == Shot::CutBytes(way) && armed.fits(id));
            let pipe = &mut self.pipes[way];
            let Some(head) = pipe.queue.front_mut() else { break };
            let mut room = head.bytes.len();
            if let Some(rate) = self.rules.rate[way] {
                let since = now.duration_since(pipe.trickled).as_micros().min(1_000_000);
                room = room.min(usize::try_from(since * u128::from(rate) / 1_000_000).unwrap_or(room));
            }
            if let Some(cut) = cut {
                room = room.min(usize::try_from(shots[cut].left).unwrap_or(room));
            }
            let wrote = match self.sockets[1 - way].write(&head.bytes[..room]) {
                Ok(wrote) => wrote,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    pipe.queue.clear();
                    pipe.fin = true;
                    break;
                }
            };
            pipe.moved += wrote as u64;
            pipe.trickled = now;
            head.bytes.drain(..wrote);
            let whole = head.bytes.is_empty();
            let reply = whole && head.reply;
            if whole {
                pipe.queue.pop_front();
            }
            if let Some(cut) = cut {
                shots[cut].left -= wrote as u64;
                if shots[cut].left == 0 {
                    shots.remove(cut);
                    self.verdict = Verdict::Close;
                }
            }
            if reply && fire(shots, id, |shot| *shot == Shot::CutReplies).is_some() {
                let more = shots.iter().any(|armed| armed.shot == Shot::CutReplies && armed.fits(id));
                self.verdict = if more { Verdict::Keep } else { Verdict::Close };
            }
        }
        let pipe = &mut self.pipes[way];
        if pipe.eof && pipe.queue.is_empty() && !pipe.fin {
            let _ = self.sockets[1 - way].shutdown(Shutdown::Write);
            pipe.fin = true;
        }
    }
}

impl Armed {
    fn fits(&self, link: u64) -> bool {
        self.link.is_none_or(|only| only == link)
    }
}

/// Takes one round of the first shot that fits.
fn fire(shots: &mut Vec<Armed>, link: u64, wanted: impl Fn(&Shot) -> bool) -> Option<Shot> {
    let at = shots.iter().position(|armed| armed.fits(link) && wanted(&armed.shot))?;
    shots[at].left = shots[at].left.saturating_sub(1);
    if shots[at].left == 0 { Some(shots.remove(at).shot) } else { Some(shots[at].shot.clone()) }
}

fn contains(frame: &[u8], text: &str) -> bool {
    frame.windows(text.len().max(1)).any(|part| part == text.as_bytes())
}
