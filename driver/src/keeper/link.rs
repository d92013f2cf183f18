//! One connection's life: opened when something waits for it, read while the keeper leads, opened again.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;

use bandog_core::error::{Code, Error};
use bandog_core::io::Link;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::net::{TcpSocket, UnixStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::loop_wire::LoopEnd;
use crate::road::{Flow, Road};
use crate::server::{Address, Server};
use crate::shared::Shared;
use crate::sys::{Socket, keep_alive};
use crate::wire::{Connection, Incoming, Role};

/// The pauses between attempts of the keeper's own two links double from the first to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// A connection that lasted no longer was of no use.
const BRIEF: Duration = Duration::from_millis(5);

/// The link of messages is never silent for longer while there are subscriptions, nor for a third of a
/// lease: a message that is missed costs its waiter a lease.
const SILENCE: Duration = Duration::from_secs(10);

/// Has the runtime watch a descriptor.
pub(super) fn watch<T: AsRawFd>(owner: &T, interest: Interest) -> io::Result<AsyncFd<Borrowed<'_, T>>> {
    // SAFETY: the borrow keeps the owner alive, an owner keeps its descriptor open and never changes it;
    // only a forked child sees another number, and there is no runtime in a child.
    unsafe { AsyncFd::register_with_interest(Borrowed(owner), interest) }.map_err(|error| error.into_parts().1)
}

/// A descriptor that something else keeps open.
pub(super) struct Borrowed<'a, T>(&'a T);

impl<T: AsRawFd> AsRawFd for Borrowed<'_, T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Tends one road until it is retired.
pub(super) async fn tend(shared: Arc<Shared>, road: Arc<Road>) {
    let road = &*road;
    let mut pause = None;
    let mut opened = None;
    while !road.is_retired() {
        if let Some(socket) = road.seats.keeper_leads(|| road.tally()) {
            serve(&shared, road, &socket).await;
        } else if let (true, Some(end)) = (road.seats.is_up(), road.end.as_ref().filter(|end| !end.carries())) {
            glance(&shared, road, end).await;
        } else if road.seats.is_up() || !shared.wants(road) {
            road.bell.notified().await;
        } else {
            // A server that takes connections only to end them counts as one that refuses them.
            if opened.take().is_some_and(|at: Instant| at.elapsed() > BRIEF) {
                pause = None;
            }
            if let Some(pause) = pause
                && road.link.is_some()
            {
                sleep(pause).await;
            }
            pause = Some(pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LAST_PAUSE)));
            match open(&shared, road).await {
                Ok((connection, socket)) => {
                    opened = Some(Instant::now());
                    shared.came_up(road, connection, Arc::new(socket));
                }
                Err(error) => shared.refused(road, &error),
            }
        }
    }
}

/// The loop reads. While replies are due and none comes, looks whether they lie there, for a loop that is
/// blocked. Sleeps while nothing is due.
async fn glance(shared: &Shared, road: &Road, end: &LoopEnd) {
    let before = road.tally();
    if !before.is_due() && !road.is_clogged() {
        end.resting.store(true, SeqCst);
        // A call that came before that did not ring.
        if !road.tally().is_due() {
            return road.bell.notified().await;
        }
        end.resting.store(false, SeqCst);
    }
    let rung = timeout(shared.options.patience(), road.bell.notified()).await.is_ok();
    if rung || road.tally().answered != before.answered {
        return;
    }
    if road.is_clogged() {
        shared.flush(road, true);
    }
    if let Some(reader) = road.try_reader() {
        shared.pump(road, reader, None);
    }
}

/// What is to be heard on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pulse {
    Nothing,
    /// Messages, some day; a ping tells whether they can come at all.
    Messages,
    /// An answer, soon.
    Answer,
}

fn pulse_of(road: &Road) -> Pulse {
    match road.link {
        Some(Link::Messages) if road.is_owed() => Pulse::Answer,
        Some(Link::Messages) if road.listens() => Pulse::Messages,
        // The engine keeps the time of calls itself.
        _ => Pulse::Nothing,
    }
}

enum Event<'a, T: AsRawFd> {
    Read(AsyncFdReadyGuard<'a, T>),
    Write(AsyncFdReadyGuard<'a, T>),
    Bell,
}

/// Reads for as long as the keeper leads on this socket.
async fn serve(shared: &Shared, road: &Road, socket: &Arc<Socket>) {
    let Ok(fd) = watch(&**socket, Interest::READABLE | Interest::WRITABLE) else {
        return sleep(FIRST_PAUSE).await;
    };
    let config = shared.options.config();
    let silence = Duration::from_millis(config.watchdog.0 / 3).min(SILENCE);
    let patience = Duration::from_millis(config.op_timeout.0);
    let (mut pulse, mut heard) = (Pulse::Nothing, Instant::now());
    loop {
        let leads = road.seats.keeper_leads(|| road.tally()).is_some_and(|now| Arc::ptr_eq(&now, socket));
        if !leads {
            return;
        }
        let now = pulse_of(road);
        if pulse != now {
            (pulse, heard) = (now, Instant::now());
        }
        let event = match pulse {
            Pulse::Nothing => Ok(event(&fd, road).await),
            Pulse::Messages => timeout_at(heard + silence, event(&fd, road)).await,
            Pulse::Answer => timeout_at(heard + patience, event(&fd, road)).await,
        };
        let Ok(event) = event else {
            if pulse == Pulse::Answer {
                return shared.drop_silent(road);
            }
            heard = Instant::now();
            road.ping();
            shared.flush(road, true);
            continue;
        };
        match event {
            // A caller that took the lead while we slept reads by itself.
            Event::Read(mut ready) if road.seats.keeper_leads(|| road.tally()).is_some() => {
                heard = Instant::now();
                match road.try_reader().map(|reader| shared.pump(road, reader, None)) {
                    None | Some(Flow::More) => tokio::task::yield_now().await,
                    Some(_) => ready.clear_ready(),
                }
            }
            Event::Write(mut ready) => {
                shared.flush(road, true);
                if road.is_clogged() {
                    ready.clear_ready();
                }
            }
            Event::Read(_) | Event::Bell => {}
        }
    }
}

async fn event<'a, T: AsRawFd>(fd: &'a AsyncFd<T>, road: &Road) -> Event<'a, T> {
    let mut bell = pin!(road.bell.notified());
    poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(Ok(ready)) = fd.poll_read_ready(context) {
            return Poll::Ready(Event::Read(ready));
        }
        if road.is_clogged()
            && let Poll::Ready(Ok(ready)) = fd.poll_write_ready(context)
        {
            return Poll::Ready(Event::Write(ready));
        }
        bell.as_mut().poll(context).map(|()| Event::Bell)
    })
    .await
}

/// Looks the name up, connects, and goes through TLS and login, all within `connect_timeout`.
async fn open(shared: &Shared, road: &Road) -> Result<(Connection, Socket), Error> {
    let server = shared.options.server();
    let limit = Duration::from_millis(shared.options.config().connect_timeout.0);
    let role = if road.link == Some(Link::Messages) { Role::Messages } else { Role::Calls };
    let end = Instant::now() + limit;
    let attempt = async {
        let socket = match road.end.as_ref().filter(|end| end.carries()) {
            None => Socket::new(connect(&server, end).await?),
            Some(host) => carry(host.ask(&server.address)).await,
        };
        let socket = socket.map_err(|error| refused(&server, &error))?;
        let mut connection = begin(shared, &server, role).await?;
        handshake(&server, &mut connection, &socket).await?;
        Ok((connection, socket))
    };
    timeout(limit, attempt).await.unwrap_or_else(|_| {
        let text = format!("{server} did not answer within {} ms: is a Redis server running there?", limit.as_millis());
        Err(Error::new(Code::Unreachable, text))
    })
}

/// Certificates may have to be read from files first: not on the thread that renews.
async fn begin(shared: &Shared, server: &Server, role: Role) -> Result<Connection, Error> {
    let id = shared.id;
    if server.tls.is_none() {
        return Connection::new(server, role, id);
    }
    let server = server.clone();
    match tokio::task::spawn_blocking(move || Connection::new(&server, role, id)).await {
        Ok(connection) => connection,
        Err(error) => Err(Error::new(Code::Protocol, format!("TLS could not be set up: {error}"))),
    }
}

async fn connect(server: &Server, end: Instant) -> Result<OwnedFd, Error> {
    let refused = |error: io::Error| refused(server, &error);
    match &server.address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(refused)?;
            stream.into_std().map(OwnedFd::from).map_err(refused)
        }
        Address::Tcp { host, port } => {
            let addresses: Vec<_> = tokio::net::lookup_host((host.as_str(), *port)).await.map_err(refused)?.collect();
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for (at, address) in addresses.iter().enumerate() {
                // An address that swallows everything leaves time for the next.
                let share = end.saturating_duration_since(Instant::now()) / (addresses.len() - at) as u32;
                match timeout(share, dial(*address)).await {
                    Ok(Ok(fd)) => return Ok(fd),
                    Ok(Err(error)) => last = error,
                    Err(_) => last = io::ErrorKind::TimedOut.into(),
                }
            }
            Err(refused(last))
        }
    }
}

/// The host connects.
async fn carry(socket: Socket) -> io::Result<Socket> {
    if let Some(pipe) = socket.pipe() {
        pipe.opened().await?;
    }
    Ok(socket)
}

fn refused(server: &Server, error: &io::Error) -> Error {
    let text = format!("cannot reach {server} ({error}): check the address, and that the server is running");
    Error::new(Code::Unreachable, text)
}

async fn dial(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_nodelay(true)?;
    keep_alive(&socket)?;
    Ok(socket.connect(address).await?.into_std()?.into())
}

async fn handshake(server: &Server, connection: &mut Connection, socket: &Socket) -> Result<(), Error> {
    let broken = |why: &dyn std::fmt::Display| {
        Error::new(
            Code::Unreachable,
            format!("{server} ended the connection during the login ({why}): is it a Redis server?"),
        )
    };
    let fd = match socket.pipe() {
        None => Some(watch(socket, Interest::READABLE | Interest::WRITABLE).map_err(|error| broken(&error))?),
        Some(_) => None,
    };
    let mut buffer = [0; 4096];
    loop {
        while !connection.output().is_empty() {
            match socket.write(connection.output()) {
                Ok(count) => connection.wrote(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready(socket, fd.as_ref(), Interest::WRITABLE).await.map_err(|error| broken(&error))?;
                }
                Err(error) => return Err(broken(&error)),
            }
        }
        if connection.is_ready() {
            return Ok(());
        }
        match socket.read(&mut buffer) {
            Ok(0) => return Err(broken(&"end of stream")),
            Ok(count) => {
                connection.input(&buffer[..count])?;
                while let Some(incoming) = connection.poll() {
                    debug_assert!(matches!(incoming, Incoming::Ready | Incoming::Push(_)));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready(socket, fd.as_ref(), Interest::READABLE).await.map_err(|error| broken(&error))?;
            }
            Err(error) => return Err(broken(&error)),
        }
    }
}

/// Waits until it is worth another try.
async fn ready<T: AsRawFd>(socket: &Socket, fd: Option<&AsyncFd<T>>, interest: Interest) -> io::Result<()> {
    match (fd, socket.pipe()) {
        (Some(fd), _) => fd.ready(interest).await?.clear_ready(),
        (None, Some(pipe)) => pipe.news().await,
        (None, None) => {}
    }
    Ok(())
}
