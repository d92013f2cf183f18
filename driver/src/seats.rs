//! Who reads a wire: one of the threads that wait for its replies leads and reads for all, the others
//! follow; with no such thread, the keeper leads while replies are due. A loop's wire is led by its loop
//! once that watches the socket, until then by the keeper.
//!
//! The invariant that keeps wakes from being lost: while replies are due and there is a connection, the
//! wire has a leader, or a *running* caller: one between [`Seats::enter`] and [`Seats::leave`] that is not
//! parked as a follower, or that is and has its outcome. A running caller sits down (and leads) or leaves (and then, under the same
//! mutex, passes the lead on). Whoever makes replies due without being a caller asks [`Seats::attend`].

#[cfg(test)]
#[path = "seats/tests.rs"]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::parker::Parker;
use crate::seat::Seat;
use crate::sync::{Mutex, lock};
use crate::sys::Socket;

/// The places at one wire.
#[derive(Debug)]
pub(crate) struct Seats {
    readers: Readers,
    inner: Mutex<Inner>,
}

/// Who may lead besides the keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readers {
    /// Nobody: the keeper always does.
    Keeper,
    /// Threads that wait for a reply.
    Threads,
    /// One event loop, all the time.
    Loop,
}

#[derive(Debug, Default)]
struct Inner {
    socket: Option<Arc<Socket>>,
    leader: Leader,
    /// By seat, so that the longest waiting leads next.
    followers: BTreeMap<u64, Follower>,
    running: usize,
}

#[derive(Debug)]
struct Follower {
    seat: Arc<Seat>,
    /// Its replies are in once this many calls of the wire are answered.
    until: u64,
}

#[derive(Debug, Default)]
enum Leader {
    #[default]
    Nobody,
    Caller(Arc<Seat>),
    Loop,
    Keeper,
}

/// What a caller that sat down has to do.
#[derive(Debug)]
pub(crate) enum Role {
    /// Read this socket for everybody.
    Lead(Arc<Socket>),
    /// Park; [`Seats::rise`] afterwards.
    Follow,
}

/// Whom to wake because the lead went to them.
#[derive(Debug)]
#[must_use]
pub(crate) enum Next {
    Nobody,
    Caller(Arc<Parker>),
    Loop,
    Keeper,
}

/// How many calls were made on a wire, and how many have their replies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) posted: u64,
    pub(crate) answered: u64,
}

impl Tally {
    pub(crate) fn is_due(self) -> bool {
        self.posted > self.answered
    }
}

impl Seats {
    pub(crate) fn new(readers: Readers) -> Self {
        Self { readers, inner: Mutex::default() }
    }

    /// A caller begins, before its wish is stated.
    pub(crate) fn enter(&self) {
        lock(&self.inner).running += 1;
    }

    /// A running caller wants to wait. It takes the lead if no other caller has it.
    pub(crate) fn sit(&self, seat: &Arc<Seat>, until: u64) -> Role {
        let mut inner = lock(&self.inner);
        if let Some(socket) = &inner.socket {
            let free = match &inner.leader {
                Leader::Nobody | Leader::Keeper => true,
                Leader::Caller(leader) => leader.id == seat.id,
                Leader::Loop => false,
            };
            if free {
                let socket = socket.clone();
                if !matches!(inner.leader, Leader::Caller(_)) {
                    inner.leader = Leader::Caller(seat.clone());
                }
                return Role::Lead(socket);
            }
        }
        inner.running -= 1;
        inner.followers.insert(seat.id, Follower { seat: seat.clone(), until });
        Role::Follow
    }

    /// A follower woke and runs again.
    pub(crate) fn rise(&self, seat: &Seat) {
        let mut inner = lock(&self.inner);
        if inner.followers.remove(&seat.id).is_some() {
            inner.running += 1;
        }
    }

    /// A running caller ends, or has no reply to wait for.
    pub(crate) fn leave(&self, seat: &Seat, tally: impl Fn() -> Tally) -> Next {
        let mut inner = lock(&self.inner);
        inner.running -= 1;
        match &inner.leader {
            Leader::Caller(leader) if leader.id == seat.id => inner.pass(tally()),
            Leader::Nobody => inner.pass(tally()),
            _ => Next::Nobody,
        }
    }

    /// Calls were made on behalf of nobody who will sit down.
    pub(crate) fn attend(&self, tally: impl Fn() -> Tally) -> Next {
        let mut inner = lock(&self.inner);
        match inner.leader {
            Leader::Nobody => inner.pass(tally()),
            _ => Next::Nobody,
        }
    }

    /// There is a connection.
    pub(crate) fn came_up(&self, socket: Arc<Socket>, tally: impl Fn() -> Tally) -> Next {
        let mut inner = lock(&self.inner);
        let carried = socket.is_carried();
        inner.socket = Some(socket);
        if self.readers == Readers::Threads {
            inner.pass(tally())
        } else if carried {
            inner.leader = Leader::Loop;
            Next::Loop
        } else {
            inner.leader = Leader::Keeper;
            Next::Keeper
        }
    }

    /// The connection is gone. Its leader follows from now on.
    pub(crate) fn went_down(&self) {
        let mut inner = lock(&self.inner);
        inner.socket = None;
        inner.leader = Leader::Nobody;
    }

    /// Who must look again at the socket, for there are bytes that could not be written.
    pub(crate) fn leader(&self) -> Next {
        match &lock(&self.inner).leader {
            Leader::Nobody => Next::Nobody,
            Leader::Caller(seat) => Next::Caller(seat.parker.clone()),
            Leader::Loop => Next::Loop,
            Leader::Keeper => Next::Keeper,
        }
    }

    /// The loop watches this socket from now on; `false` when it is not the connection any more.
    pub(crate) fn take(&self, socket: &Arc<Socket>) -> bool {
        let mut inner = lock(&self.inner);
        let current = inner.socket.as_ref().is_some_and(|current| Arc::ptr_eq(current, socket));
        if current {
            inner.leader = Leader::Loop;
        }
        current
    }

    /// The connection, as the loop that should watch it needs it.
    pub(crate) fn socket(&self) -> Option<Arc<Socket>> {
        lock(&self.inner).socket.clone()
    }

    /// What the keeper has to read, if it leads. It lets go of the lead when no reply is due.
    pub(crate) fn keeper_leads(&self, tally: impl Fn() -> Tally) -> Option<Arc<Socket>> {
        let mut inner = lock(&self.inner);
        if !matches!(inner.leader, Leader::Keeper) {
            return None;
        }
        if self.readers == Readers::Threads && !tally().is_due() {
            inner.leader = Leader::Nobody;
            return None;
        }
        inner.socket.clone()
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        lock(&self.inner).socket.is_some()
    }
}

impl Inner {
    /// The lead is free: it goes to a follower whose reply is due, else stays free for a running caller,
    /// else goes to the keeper if any reply is due.
    fn pass(&mut self, tally: Tally) -> Next {
        self.leader = Leader::Nobody;
        if self.socket.is_none() {
            return Next::Nobody;
        }
        let heir = self.followers.iter().find(|(_, f)| f.until > tally.answered && !f.seat.is_ready());
        if let Some(id) = heir.map(|(id, _)| *id)
            && let Some(follower) = self.followers.remove(&id)
        {
            self.running += 1;
            let parker = follower.seat.parker.clone();
            self.leader = Leader::Caller(follower.seat);
            return Next::Caller(parker);
        }
        // A follower with an outcome is as good as running: it was woken, or will be.
        let busy = self.running > 0 || self.followers.values().any(|follower| follower.seat.is_ready());
        if tally.is_due() && !busy {
            self.leader = Leader::Keeper;
            return Next::Keeper;
        }
        Next::Nobody
    }
}
