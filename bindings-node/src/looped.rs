//! The event loop's side of the driver: one mailbox, and the promises that its letters settle.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bandog::Error;
use bandog::host::{self, Mail, Mailbox, Submitted, Ticket, Wish};
use napi::bindgen_prelude::PromiseRaw;
use napi::{Env, Result, sys};

use crate::cancel::Cancel;
use crate::client::ClientState;
use crate::errors::Fail;
use crate::events::Stream;
use crate::raw::{self, Deferred};
use crate::settle::{Kind, Next};
use crate::slots::Slots;
use crate::waker::Waker;
use crate::wire::{Transport, Wire};
use crate::words::Words;

/// How long an exiting process waits for its releases to be answered, in all.
const EXIT_PATIENCE: Duration = Duration::from_millis(200);

/// What one environment (the main thread or a worker) has under way. Lives in the loop's thread only.
pub(crate) struct Loop {
    pub(crate) env: Env,
    pub(crate) waker: Arc<Waker>,
    pub(crate) words: Words,
    this: Weak<Loop>,
    transport: Transport,
    scopes: raw::Scopes,
    mailbox: Arc<Mailbox>,
    pending: RefCell<Slots<Pending>>,
    /// Where the mail of a batch is put, to use its memory again.
    letters: RefCell<Vec<Mail>>,
    /// Clients whose calls wait for the end of the turn.
    late: RefCell<Vec<Rc<ClientState>>>,
    /// What is late is written without anybody's being asked for it.
    flushes: Cell<bool>,
    /// Clients that are being closed, and which of them are by now.
    closing: RefCell<HashMap<u64, (Rc<ClientState>, Deferred)>>,
    closed: Arc<Mutex<Vec<u64>>>,
    closes: Cell<u64>,
    /// What keeps the process alive: promises of I/O, and events that somebody awaits.
    wanted: Cell<usize>,
    /// Clients that were used and not closed, strongly: a lock held is not lost because its client object is.
    clients: RefCell<Vec<Rc<ClientState>>>,
    /// Event listeners that are open, strongly: somebody may await an event of one whose object is gone.
    streams: RefCell<Vec<Rc<Stream>>>,
}

struct Pending {
    client: Rc<ClientState>,
    ticket: Ticket,
    deferred: Deferred,
    kind: Kind,
}

impl Loop {
    pub(crate) fn new(env: Env, words: Words, transport: Transport) -> Result<Rc<Self>> {
        let waker = Waker::new();
        let wake = Arc::clone(&waker);
        let scopes = raw::Scopes::new(env)?;
        let looped = Rc::new_cyclic(|this| Self {
            env,
            waker,
            words,
            this: this.clone(),
            transport,
            scopes,
            mailbox: Mailbox::new(move || wake.wake()),
            closes: Cell::new(0),
            pending: RefCell::new(Slots::new()),
            letters: RefCell::default(),
            late: RefCell::default(),
            flushes: Cell::new(false),
            closing: RefCell::default(),
            closed: Arc::default(),
            wanted: Cell::new(0),
            clients: RefCell::default(),
            streams: RefCell::default(),
        });
        looped.waker.open(env, &looped)?;
        Ok(looped)
    }

    /// Sends a wish, at once or with what else this turn has to say, and promises its outcome.
    pub(crate) fn submit(
        &self,
        client: &Rc<ClientState>,
        wish: Wish,
        kind: Kind,
        cancel: Option<&Cancel>,
    ) -> Result<PromiseRaw<'static, ()>> {
        let token = self.pending.borrow_mut().reserve();
        let stated = self.wire(client).and_then(|wire| wire.driver.submit(wish, token).map(|stated| (wire, stated)));
        let (wire, stated) = match stated {
            Ok(stated) => stated,
            Err(error) => {
                self.pending.borrow_mut().free(token);
                return self.refuse(kind.about(error).into());
            }
        };
        if wire.wants_flush() {
            self.flush_later(client);
        }
        let (deferred, promise) = Deferred::new(self.env)?;
        self.want();
        match stated {
            Submitted::Waiting(ticket) => {
                self.pending.borrow_mut().put(token, Pending { client: client.clone(), ticket, deferred, kind });
                if let Some(cancel) = cancel {
                    cancel.token.set(Some(token));
                }
            }
            Submitted::Ended(result) => self.settle(token, deferred, kind.end(self.env, client, result)),
        }
        Ok(PromiseRaw::new(self.env.raw(), promise))
    }

    /// Withdraws a wish and rejects its promise. Does nothing when that is settled.
    pub(crate) fn cancel(&self, token: u64, reason: sys::napi_value) -> Result<()> {
        let Some(pending) = self.take(token) else { return Ok(()) };
        self.pending.borrow_mut().free(token);
        host::cancel(&pending.client.driver, &pending.ticket);
        let settled = pending.deferred.settle(self.env, Err(reason));
        self.unwant();
        settled
    }

    /// A promise that is rejected already.
    pub(crate) fn refuse(&self, fail: Fail) -> Result<PromiseRaw<'static, ()>> {
        let error = self.words.error(fail)?;
        let (deferred, promise) = Deferred::new(self.env)?;
        deferred.settle(self.env, Err(error))?;
        Ok(PromiseRaw::new(self.env.raw(), promise))
    }

    /// The client's wire, opened for its first wish.
    fn wire(&self, client: &Rc<ClientState>) -> std::result::Result<Rc<Wire>, Error> {
        if let Some(wire) = &*client.wire.borrow() {
            return Ok(wire.clone());
        }
        let wire = Rc::new(Wire::open(&self.transport, &client.driver, &self.mailbox)?);
        *client.wire.borrow_mut() = Some(wire.clone());
        self.clients.borrow_mut().push(client.clone());
        Ok(wire)
    }

    /// Has what waits written at the end of this turn.
    fn flush_later(&self, client: &Rc<ClientState>) {
        let mut late = self.late.borrow_mut();
        if !late.last().is_some_and(|last| Rc::ptr_eq(last, client)) {
            late.push(client.clone());
        }
        drop(late);
        if !self.flushes.replace(true) && !self.words.later() {
            self.flush();
        }
    }

    /// The end of a turn: writes what waits.
    pub(crate) fn flush(&self) {
        self.flushes.set(false);
        let late = self.late.take();
        for wire in late.iter().filter_map(|client| client.wire.borrow().clone()) {
            wire.flush(self.env);
        }
    }

    /// What carries the bytes.
    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The wire of this client can be read, or written.
    pub(crate) fn ready(&self, client: &Rc<ClientState>, gave_up: bool, room: bool) {
        let Some(wire) = client.wire.borrow().clone() else { return };
        if gave_up {
            wire.gave_up();
        }
        if room {
            wire.driver.flush();
        }
        let mut letters = self.letters.take();
        wire.driver.read_into(&mut letters);
        if !letters.is_empty() {
            // What the promises' own code says is written below, however many of them there are.
            self.flushes.set(true);
            self.scopes.run(self.env, || self.open_all(letters.drain(..)));
            self.flush();
        }
        // Left over where no JS can run any more, and nobody waits for them.
        letters.clear();
        self.letters.replace(letters);
        self.mend(&wire, client);
    }

    /// The JS socket of this client's wire has news. Node runs what the promises make ready after this call.
    pub(crate) fn heard(&self, client: &Rc<ClientState>) {
        let Some(wire) = client.wire.borrow().clone() else { return };
        if wire.driver.is_clogged() {
            wire.driver.flush();
        }
        self.open_all(wire.driver.read().into_iter());
        self.mend(&wire, client);
    }

    fn mend(&self, wire: &Wire, client: &Rc<ClientState>) {
        if let Some(this) = self.this.upgrade() {
            wire.mend(&this, client);
        }
    }

    /// Losses first, then every outcome.
    fn open_all(&self, mail: impl Iterator<Item = Mail>) {
        self.tell_losses();
        for mail in mail {
            self.open(mail);
        }
    }

    /// One turn of the loop: losses first, then every outcome that came, then events.
    pub(crate) fn turn(&self) {
        self.waker.rearm();
        self.tell_losses();
        let clients = self.clients.borrow().clone();
        for client in &clients {
            client.tell_warnings();
            let wire = client.wire.borrow().clone();
            if let Some(wire) = wire {
                self.mend(&wire, client);
            }
        }
        for mail in self.mailbox.drain() {
            self.open(mail);
        }
        let streams = self.streams.borrow().clone();
        for stream in streams {
            stream.pump();
        }
        let closed = std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner));
        for token in closed {
            let Some((client, deferred)) = self.closing.borrow_mut().remove(&token) else { continue };
            self.forget(&client);
            if let Ok(nothing) = raw::undefined(self.env) {
                // Fails only while the environment is being torn down.
                let _ = deferred.settle(self.env, Ok(nothing));
                self.unwant();
            }
        }
    }

    fn tell_losses(&self) {
        let clients = self.clients.borrow().clone();
        for client in clients {
            client.tell_losses();
        }
    }

    /// Settles the promise that a letter is about, or goes on waiting.
    fn open(&self, Mail { token, result }: Mail) {
        let Some(Pending { client, ticket, deferred, kind }) = self.take(token) else { return };
        match kind.finish(self.env, &client, &ticket, result) {
            Next::Wait(kind) => self.pending.borrow_mut().put(token, Pending { client, ticket, deferred, kind }),
            Next::Done(result) => self.settle(token, deferred, result),
        }
    }

    /// Settles a promise, which is waited for no longer.
    fn settle(&self, token: u64, deferred: Deferred, result: std::result::Result<sys::napi_value, Fail>) {
        let result = match result {
            Ok(value) => Some(Ok(value)),
            Err(fail) => self.words.rejection(fail).ok().map(Err),
        };
        self.pending.borrow_mut().free(token);
        if let Some(result) = result {
            // Fails only while the environment is being torn down, when nobody waits any more.
            let _ = deferred.settle(self.env, result);
        }
        self.unwant();
    }

    fn take(&self, token: u64) -> Option<Pending> {
        self.pending.borrow_mut().take(token)
    }

    /// Something is under way that the process must wait for.
    pub(crate) fn want(&self) {
        self.wanted.set(self.wanted.get() + 1);
        if self.wanted.get() == 1 {
            self.waker.hold(self.env, true);
        }
    }

    /// It is over.
    pub(crate) fn unwant(&self) {
        self.wanted.set(self.wanted.get() - 1);
        if self.wanted.get() == 0 {
            self.waker.hold(self.env, false);
        }
    }

    /// Closes a client. That waits for the server, so a thread of its own does it: those of libuv are few.
    pub(crate) fn close(&self, client: &Rc<ClientState>) -> Result<PromiseRaw<'static, ()>> {
        let (deferred, promise) = Deferred::new(self.env)?;
        let token = self.closes.replace(self.closes.get() + 1);
        self.closing.borrow_mut().insert(token, (Rc::clone(client), deferred));
        self.want();
        let (driver, patience) = (client.driver.clone(), client.patience);
        let (closed, waker) = (Arc::clone(&self.closed), Arc::clone(&self.waker));
        thread::Builder::new()
            .name("bandog-close".into())
            .spawn(move || {
                host::close_and_tell(&driver, patience);
                drop(driver);
                closed.lock().unwrap_or_else(PoisonError::into_inner).push(token);
                waker.wake();
            })
            .map_err(|error| {
                self.closing.borrow_mut().remove(&token);
                self.unwant();
                napi::Error::from_reason(format!("no thread to close the client in: {error}"))
            })?;
        Ok(PromiseRaw::new(self.env.raw(), promise))
    }

    /// The client is closed: what it had to tell is told, and nothing else comes.
    fn forget(&self, client: &Rc<ClientState>) {
        client.tell_losses();
        client.forget_losses();
        let streams = self.streams.borrow().clone();
        for stream in streams.iter().filter(|stream| stream.is_of(client)) {
            stream.pump();
            stream.end();
        }
        self.close_wire(client);
        self.clients.borrow_mut().retain(|other| !Rc::ptr_eq(other, client));
    }

    fn close_wire(&self, client: &Rc<ClientState>) {
        if let Some(wire) = client.wire.take() {
            wire.close(&self.words);
        }
    }

    pub(crate) fn attend(&self, stream: &Rc<Stream>) {
        self.streams.borrow_mut().push(Rc::clone(stream));
    }

    pub(crate) fn dismiss(&self, stream: &Stream) {
        self.streams.borrow_mut().retain(|other| !std::ptr::eq(&raw const **other, stream));
    }

    /// Releases what is held, as far as the server answers in time, and stops the threads.
    pub(crate) fn leave(&self) {
        let end = Instant::now() + EXIT_PATIENCE;
        let clients = self.clients.take();
        clients.iter().for_each(|client| self.close_wire(client));
        for client in clients {
            host::close(&client.driver, end.saturating_duration_since(Instant::now()));
            client.forget_losses();
        }
    }

    /// The environment goes: nothing may reach it from here on, and no JS runs any more.
    pub(crate) fn shut(&self) {
        self.words.forget();
        self.leave();
        self.waker.close();
        self.late.take();
        self.pending.replace(Slots::new());
        self.closing.take();
        self.streams.take();
    }
}
