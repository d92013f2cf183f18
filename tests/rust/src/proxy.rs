//! A TCP proxy between a client and Redis that breaks things to order (reliability, part B).
//!
//! One thread, one `poll` loop. Every test drives it by lines on its control port ([`Proxy::tell`] from Rust, a socket
//! from Python and Node); the lines are listed in `proxy/orders.rs`.

mod frames;
mod link;
mod orders;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use link::{Armed, Link, Rules, Verdict};
use orders::{DOWN, Order, Scope, UP};

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    control: u16,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and carries every connection to `target`.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = listen(0)?;
        let orders = listen(0)?;
        let (port, control) = (listener.local_addr()?.port(), orders.local_addr()?.port());
        let mut hub = Hub {
            listener: Some(listener),
            port,
            orders,
            talks: Vec::new(),
            target,
            links: BTreeMap::new(),
            accepted: 0,
            silence: false,
            unanswered: Vec::new(),
            standing: Rules::default(),
            planned: BTreeMap::new(),
            shots: Vec::new(),
            past: Past::default(),
            stopped: false,
        };
        let thread = std::thread::Builder::new().name("fault-proxy".into()).spawn(move || {
            while !hub.stopped {
                hub.turn();
            }
        })?;
        Ok(Self { port, control, thread: Some(thread) })
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port that takes orders.
    #[must_use]
    pub fn control(&self) -> u16 {
        self.control
    }

    /// Gives one order and returns the answer without its leading `ok`.
    ///
    /// # Errors
    /// When the proxy refuses the order.
    pub fn tell(&self, order: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.control))?;
        stream.write_all(format!("{order}\n").as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        let answer = answer.trim_end();
        match answer.strip_prefix("error ") {
            Some(text) => Err(io::Error::new(ErrorKind::InvalidInput, text)),
            None => Ok(answer.strip_prefix("ok").unwrap_or(answer).trim_start().to_owned()),
        }
    }

    /// A counter by its name (`count` in the list of orders).
    ///
    /// # Errors
    /// When the proxy is gone.
    pub fn count(&self, what: &str) -> io::Result<u64> {
        self.tell(&format!("count {what}"))?.parse().map_err(|_| ErrorKind::InvalidData.into())
    }

    /// Waits until somebody orders `stop`.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.tell("stop");
            let _ = thread.join();
        }
    }
}

/// What the connections that are gone have counted.
#[derive(Debug, Default)]
struct Past {
    moved: [u64; 2],
    replies: u64,
    commands: BTreeMap<String, u64>,
    scripts: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Hub {
    listener: Option<TcpListener>,
    port: u16,
    orders: TcpListener,
    talks: Vec<(TcpStream, Vec<u8>)>,
    target: SocketAddr,
    links: BTreeMap<u64, Link>,
    accepted: u64,
    silence: bool,
    unanswered: Vec<TcpStream>,
    standing: Rules,
    planned: BTreeMap<u64, Rules>,
    shots: Vec<Armed>,
    past: Past,
    stopped: bool,
}

impl Hub {
    fn turn(&mut self) {
        let now = Instant::now();
        self.wait(now);
        self.hear();
        self.carry();
    }

    fn carry(&mut self) {
        self.accept();
        let now = Instant::now();
        let ids: Vec<u64> = self.links.keys().copied().collect();
        for id in ids {
            let verdict = self.links.get_mut(&id).map_or(Verdict::Keep, |link| link.serve(now, &mut self.shots));
            if verdict != Verdict::Keep {
                self.end(id, verdict);
            }
        }
    }

    fn wait(&self, now: Instant) {
        let mut fds = Vec::new();
        let mut add = |fd: RawFd, (read, write): (bool, bool)| {
            let events = if read { libc::POLLIN } else { 0 } | if write { libc::POLLOUT } else { 0 };
            if events != 0 {
                fds.push(libc::pollfd { fd, events, revents: 0 });
            }
        };
        add(self.orders.as_raw_fd(), (true, false));
        self.listener.iter().for_each(|listener| add(listener.as_raw_fd(), (true, false)));
        self.talks.iter().for_each(|(stream, _)| add(stream.as_raw_fd(), (true, false)));
        let mut next: Option<Instant> = None;
        for link in self.links.values() {
            for side in [UP, DOWN] {
                add(link.sockets[side].as_raw_fd(), link.interest(side, now));
                let later = link.ripe(side).filter(|at| *at > now);
                next = [next, later].into_iter().flatten().min();
            }
        }
        let wait = next.map_or(-1, |at| i32::try_from(at.duration_since(now).as_millis() + 1).unwrap_or(i32::MAX));
        // SAFETY: `fds` is a live array of `fds.len()` entries for the length of the call.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, wait) };
    }

    fn accept(&mut self) {
        while let Some(Ok((client, _))) = self.listener.as_ref().map(TcpListener::accept) {
            self.accepted += 1;
            let rules = self.planned.remove(&self.accepted).unwrap_or_else(|| self.standing.clone());
            if self.silence {
                self.unanswered.push(client);
                continue;
            }
            let server = TcpStream::connect_timeout(&self.target, Duration::from_secs(1));
            match server.and_then(|server| ready(&client).and(ready(&server)).map(|()| server)) {
                Ok(server) => {
                    self.links.insert(self.accepted, Link::new(self.accepted, client, server, rules));
                }
                Err(_) => reset(&client),
            }
        }
    }

    fn hear(&mut self) {
        while let Ok((stream, _)) = self.orders.accept() {
            if ready(&stream).is_ok() {
                self.talks.push((stream, Vec::new()));
            }
        }
        let mut talks = std::mem::take(&mut self.talks);
        talks.retain_mut(|(stream, buffer)| {
            let mut bytes = [0; 4096];
            loop {
                match stream.read(&mut bytes) {
                    Ok(0) => return false,
                    Ok(n) => buffer.extend_from_slice(&bytes[..n]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return false,
                }
            }
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                // What came before an order passes by the old rules, what comes after its answer by the new ones.
                self.carry();
                let answer = match orders::parse(&String::from_utf8_lossy(&line)) {
                    Ok((order, scope)) => self.obey(order, scope),
                    Err(text) => format!("error {text}"),
                };
                if stream.write_all(format!("{answer}\n").as_bytes()).is_err() {
                    return false;
                }
            }
            true
        });
        self.talks = talks;
    }

    fn obey(&mut self, order: Order, scope: Scope) -> String {
        let only = match scope {
            Scope::All => None,
            Scope::Next => Some(self.accepted + 1),
            Scope::Nth(n) => Some(n),
        };
        let chosen: Vec<u64> = self.links.keys().copied().filter(|id| only.is_none_or(|only| only == *id)).collect();
        match order {
            Order::Pass => {
                self.change(only, |rules| *rules = Rules::default());
                self.shots.retain(|armed| only.is_some() && armed.link != only);
                self.each(&chosen, Link::release);
                if only.is_none() {
                    self.planned.clear();
                    return self.listen();
                }
            }
            Order::Stall(ways) => self.change(only, |rules| {
                for way in [UP, DOWN] {
                    rules.stall[way] |= ways[way];
                }
            }),
            Order::Resume => self.change(only, |rules| rules.stall = [false; 2]),
            Order::Delay(way, ms) => self.change(only, |rules| rules.delay[way] = Duration::from_millis(ms)),
            Order::Trickle(way, rate) => self.change(only, |rules| rules.rate[way] = (rate > 0).then_some(rate)),
            Order::Shoot(_, 0) => return "error a number from 1".into(),
            Order::Shoot(shot, left) => self.shots.push(Armed { link: only, shot, left }),
            Order::Release => {
                let held: usize = chosen.iter().filter_map(|id| self.links.get(id)).map(Link::held).sum();
                self.each(&chosen, Link::release);
                return format!("ok {held}");
            }
            Order::Reset => chosen.iter().for_each(|id| self.end(*id, Verdict::Reset)),
            Order::HalfClose(way) => self.each(&chosen, |link| link.half_close(way)),
            Order::Refuse => self.listener = None,
            Order::Silence => self.silence = true,
            Order::Accept => return self.listen(),
            Order::Target(to) => match to.to_socket_addrs().ok().and_then(|mut found| found.next()) {
                Some(target) => self.target = target,
                None => return format!("error no such target: {to}"),
            },
            Order::Count(what) => return format!("ok {}", self.count(&what, &chosen, only.is_none())),
            Order::State => return self.state(),
            Order::Stop => self.stopped = true,
        }
        "ok".into()
    }

    fn change(&mut self, only: Option<u64>, change: impl Fn(&mut Rules)) {
        match only {
            None => {
                change(&mut self.standing);
                self.links.values_mut().map(|link| &mut link.rules).chain(self.planned.values_mut()).for_each(change);
            }
            Some(id) if id > self.accepted => change(self.planned.entry(id).or_insert_with(|| self.standing.clone())),
            Some(id) => self.links.get_mut(&id).into_iter().for_each(|link| change(&mut link.rules)),
        }
    }

    fn each(&mut self, chosen: &[u64], act: impl Fn(&mut Link)) {
        self.links.iter_mut().filter(|(id, _)| chosen.contains(id)).for_each(|(_, link)| act(link));
    }

    fn listen(&mut self) -> String {
        self.silence = false;
        self.unanswered.clear();
        if self.listener.is_none() {
            match listen(self.port) {
                Ok(listener) => self.listener = Some(listener),
                Err(error) => return format!("error port {} cannot be had again: {error}", self.port),
            }
        }
        "ok".into()
    }

    fn end(&mut self, id: u64, verdict: Verdict) {
        let Some(link) = self.links.remove(&id) else { return };
        if verdict == Verdict::Reset {
            link.sockets.iter().for_each(reset);
        }
        for way in [UP, DOWN] {
            self.past.moved[way] += link.moved(way);
        }
        self.past.replies += link.replies;
        add(&mut self.past.commands, &link.commands);
        add(&mut self.past.scripts, &link.scripts);
    }

    fn count(&self, what: &str, chosen: &[u64], past: bool) -> u64 {
        let links = || chosen.iter().filter_map(|id| self.links.get(id));
        let ended = |n: u64| if past { n } else { 0 };
        match what {
            "connections" => self.accepted,
            "open" => links().count() as u64,
            "held" => links().map(|link| link.held() as u64).sum(),
            "up" => ended(self.past.moved[UP]) + links().map(|link| link.moved(UP)).sum::<u64>(),
            "down" => ended(self.past.moved[DOWN]) + links().map(|link| link.moved(DOWN)).sum::<u64>(),
            "replies" => ended(self.past.replies) + links().map(|link| link.replies).sum::<u64>(),
            name => {
                let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
                let live: u64 = links().map(|link| of(&link.commands) + of(&link.scripts)).sum();
                ended(of(&self.past.commands) + of(&self.past.scripts)) + live
            }
        }
    }

    fn state(&self) -> String {
        let all: Vec<u64> = self.links.keys().copied().collect();
        let (mut commands, mut scripts) = (self.past.commands.clone(), self.past.scripts.clone());
        let mut links = String::new();
        for link in self.links.values() {
            add(&mut commands, &link.commands);
            add(&mut scripts, &link.scripts);
            let comma = if links.is_empty() { "" } else { "," };
            let _ = write!(
                links,
                r#"{comma}{{"id":{},"client_gone":{},"held":{},"up":{},"down":{},"replies":{},"commands":{}}}"#,
                link.id,
                link.client_gone(),
                link.held(),
                link.moved(UP),
                link.moved(DOWN),
                link.replies,
                json(&link.commands)
            );
        }
        let total = |what: &str| self.count(what, &all, true);
        format!(
            r#"{{"connections":{},"held":{},"up":{},"down":{},"replies":{},"commands":{},"scripts":{},"open":[{links}]}}"#,
            self.accepted,
            total("held"),
            total("up"),
            total("down"),
            total("replies"),
            json(&commands),
            json(&scripts)
        )
    }
}

fn add(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    more.iter().for_each(|(name, n)| *sum.entry(name.clone()).or_default() += n);
}

fn json(counts: &BTreeMap<String, u64>) -> String {
    // Names come from the wire: only what needs no quoting.
    let plain = |name: &String| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let rows: Vec<String> = counts.iter().map(|(name, n)| format!(r#""{}":{n}"#, plain(name))).collect();
    format!("{{{}}}", rows.join(","))
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn ready(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)
}

/// Makes the coming close a RST.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
