//! A connection whose bytes the host carries, for loops that cannot watch a descriptor.
//!
//! The keeper asks for one, the host opens it, and from then on moves bytes: what the driver writes waits here
//! until the host takes it, what the host receives waits here until it is read. TLS and login are the driver's
//! own, as everywhere: the host sees what goes over the wire and no more.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::server::Address;
use crate::waiter::lock;

/// The host's end.
#[derive(Clone)]
pub struct Carried(Arc<Pipe>);

/// Where the host is to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A host name or address, without brackets.
    Tcp(String, u16),
    /// A socket file.
    Unix(PathBuf),
}

/// What is between the two ends.
pub(crate) struct Pipe {
    place: Place,
    inner: Mutex<Inner>,
    /// For the keeper, until the login is done.
    news: Notify,
    /// Has the loop turn.
    ring: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Inner {
    opened: bool,
    /// Received, from `read` on not read yet.
    inbox: Vec<u8>,
    read: usize,
    /// Nothing more comes; why, if there is a reason that nobody was told.
    lost: Option<io::Result<()>>,
    /// To be sent.
    outbox: Vec<u8>,
    /// The host has more than it can send now.
    full: bool,
    /// The loop is about to look.
    hushed: bool,
    /// The driver is done with it; whether what was not sent yet must not be.
    ended: Option<bool>,
}

impl Carried {
    /// Where to connect.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// There is a connection.
    pub fn opened(&self) {
        lock(&self.0.inner).opened = true;
        self.0.news.notify_one();
    }

    /// Bytes came. [`LoopWire::read`](crate::host::LoopWire::read) says what they mean.
    pub fn received(&self, bytes: &[u8]) {
        let mut inner = lock(&self.0.inner);
        if inner.ended.is_none() {
            inner.inbox.extend_from_slice(bytes);
            drop(inner);
            self.0.news.notify_one();
        }
    }

    /// No connection could be made, or there is none any more. `None`: the server ended it.
    pub fn lost(&self, why: Option<io::Error>) {
        let mut inner = lock(&self.0.inner);
        if inner.lost.is_none() {
            inner.lost = Some(why.map_or(Ok(()), Err));
            drop(inner);
            self.0.news.notify_one();
        }
    }

    /// What is to be sent now, in one piece.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        let mut inner = lock(&self.0.inner);
        inner.hushed = false;
        std::mem::take(&mut inner.outbox)
    }

    /// Whether anything is to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !lock(&self.0.inner).outbox.is_empty()
    }

    /// Whether the host has more than it can send now. When that is over, [`LoopWire::flush`] is due.
    ///
    /// [`LoopWire::flush`]: crate::host::LoopWire::flush
    pub fn set_full(&self, full: bool) {
        lock(&self.0.inner).full = full;
    }

    /// Set once the driver is done with it: whether the host must see to it that nothing of what it was given
    /// is sent any more. Nothing that it receives matters from then on.
    #[must_use]
    pub fn ended(&self) -> Option<bool> {
        lock(&self.0.inner).ended
    }

    /// Whether it is the same connection.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The loop's own call begins: it need not be told to look at what comes of it.
    pub(crate) fn hush(&self) {
        lock(&self.0.inner).hushed = true;
    }

    /// The call ends. If there is nothing to be sent, the loop has no reason to look.
    pub(crate) fn unhush(&self) {
        let mut inner = lock(&self.0.inner);
        inner.hushed = !inner.outbox.is_empty();
    }
}

impl Pipe {
    /// Asks the host of this loop for a connection.
    pub(crate) fn new(address: &Address, ring: Arc<dyn Fn() + Send + Sync>) -> Arc<Self> {
        let place = match address {
            Address::Tcp { host, port } => Place::Tcp(host.clone(), *port),
            Address::Unix(path) => Place::Unix(path.clone()),
        };
        Arc::new(Self { place, inner: Mutex::default(), news: Notify::new(), ring })
    }

    pub(crate) fn host_end(self: &Arc<Self>) -> Carried {
        Carried(self.clone())
    }

    /// Returns when the host has connected, or could not.
    pub(crate) async fn opened(&self) -> io::Result<()> {
        loop {
            if let Some(known) = self.outcome() {
                return known;
            }
            self.news.notified().await;
        }
    }

    fn outcome(&self) -> Option<io::Result<()>> {
        let mut inner = lock(&self.inner);
        if inner.opened {
            return Some(Ok(()));
        }
        let lost = inner.lost.as_mut()?;
        Some(std::mem::replace(lost, Ok(())).and(Err(io::ErrorKind::UnexpectedEof.into())))
    }

    /// Returns when something may have come since the last read.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// As `read(2)`; `WouldBlock` when there is nothing.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut inner = lock(&self.inner);
        let left = &inner.inbox[inner.read..];
        if left.is_empty() {
            return match &mut inner.lost {
                None => Err(io::ErrorKind::WouldBlock.into()),
                Some(lost) => std::mem::replace(lost, Ok(())).map(|()| 0),
            };
        }
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        inner.read += count;
        if inner.read == inner.inbox.len() {
            inner.inbox.clear();
            inner.read = 0;
        }
        Ok(count)
    }

    /// As `write(2)`; `WouldBlock` while the host takes no more.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = lock(&self.inner);
        if inner.full {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let ring = inner.outbox.is_empty() && !inner.hushed;
        inner.outbox.extend_from_slice(bytes);
        drop(inner);
        if ring {
            (self.ring)();
        }
        Ok(bytes.len())
    }

    /// The driver is done with it.
    pub(crate) fn end(&self, abrupt: bool) {
        let mut inner = lock(&self.inner);
        if inner.ended.is_none() {
            inner.ended = Some(abrupt);
            inner.outbox.clear();
            drop(inner);
            (self.ring)();
        }
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("place", &self.place).finish_non_exhaustive()
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Carried").field(&self.0).finish()
    }
}
