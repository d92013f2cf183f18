//! The event loop's side of the driver: one mailbox, one wake for each batch, and the promises they settle.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bandog::Name;
use bandog::host::{self, Mail, Mailbox, Ticket, Wish};
use napi::bindgen_prelude::{PromiseRaw, Unknown, retain_current_module_for_unload_safety};
use napi::{Env, JsValue, Result, sys};
use napi_derive::napi;

use crate::client::{Client, ClientState};
use crate::convert::{self, ACQUIRE, Asked};
use crate::errors::{self, Fail};
use crate::events::Stream;
use crate::raw::{self, Callback, Deferred};
use crate::settle::{Kind, Next};
use crate::waker::Waker;

/// How long an exiting process waits for its releases to be answered, in all.
const EXIT_PATIENCE: Duration = Duration::from_millis(200);

/// What one environment (the main thread or a worker) has under way. Lives in the loop's thread only.
pub(crate) struct Loop {
    pub(crate) env: Env,
    pub(crate) waker: Arc<Waker>,
    mailbox: Arc<Mailbox>,
    tokens: Cell<u64>,
    pending: RefCell<HashMap<u64, Pending>>,
    /// Clients that are being closed, and which of them are by now.
    closing: RefCell<HashMap<u64, (Rc<ClientState>, Deferred)>>,
    closed: Arc<Mutex<Vec<u64>>>,
    /// What keeps the process alive: promises of I/O, and events that somebody awaits.
    wanted: Cell<usize>,
    /// Clients that were used and not closed, strongly: a lock held is not lost because its client object is.
    clients: RefCell<Vec<Rc<ClientState>>>,
    /// Event listeners that are open, strongly: somebody may await an event of one whose object is gone.
    streams: RefCell<Vec<Rc<Stream>>>,
    words: RefCell<Option<Words>>,
}

/// The JS functions that Rust calls.
struct Words {
    /// `fail(class, code, message, lockName, owner, freeAtLatest)` makes an error.
    fail: Callback,
    /// `tell(listener, value)` calls a listener and reports what it throws.
    tell: Callback,
    /// `warn(text)` tells an operator.
    warn: Callback,
}

struct Pending {
    client: Rc<ClientState>,
    ticket: Ticket,
    deferred: Deferred,
    kind: Kind,
}

impl Loop {
    /// Sends a wish at once and promises its outcome.
    pub(crate) fn submit(
        &self,
        client: &Rc<ClientState>,
        wish: Wish,
        kind: Kind,
        cancel: Option<&Cancel>,
    ) -> Result<PromiseRaw<'static, ()>> {
        self.adopt(client)?;
        let token = self.token();
        let ticket = match host::submit(&client.driver, wish, &self.mailbox, token) {
            Ok(ticket) => ticket,
            Err(error) => return self.refuse(kind.about(error).into()),
        };
        let (deferred, promise) = Deferred::new(self.env)?;
        self.pending.borrow_mut().insert(token, Pending { client: client.clone(), ticket, deferred, kind });
        if let Some(cancel) = cancel {
            cancel.token.set(Some(token));
        }
        self.want();
        Ok(PromiseRaw::new(self.env.raw(), promise))
    }

    /// A promise that is rejected already.
    pub(crate) fn refuse(&self, fail: Fail) -> Result<PromiseRaw<'static, ()>> {
        let error = self.error(fail)?;
        let (deferred, promise) = Deferred::new(self.env)?;
        deferred.settle(self.env, Err(error))?;
        Ok(PromiseRaw::new(self.env.raw(), promise))
    }

    /// The JS error for a failure.
    pub(crate) fn error(&self, fail: Fail) -> Result<sys::napi_value> {
        let error = match fail {
            Fail::Js(error) => return Err(error),
            Fail::Lock(error) => error,
        };
        let words = self.words.borrow();
        let Some(words) = &*words else {
            return Err(napi::Error::from_reason(error.to_string()));
        };
        words.fail.call(&errors::arguments(self.env, &error)?)
    }

    /// The same, to be thrown by a call that answers at once.
    pub(crate) fn thrown(&self, fail: Fail) -> napi::Error {
        match self.error(fail) {
            // SAFETY: the value was just made in this environment.
            Ok(value) => unsafe { Unknown::from_raw_unchecked(self.env.raw(), value) }.into(),
            Err(error) => error,
        }
    }

    /// Calls a listener. What it throws is reported once and goes no further (reliability F35).
    pub(crate) fn tell(&self, listener: &Callback, value: sys::napi_value) {
        let Ok(listener) = listener.value() else { return };
        let tell = self.words.borrow().as_ref().and_then(|words| words.tell.value().ok());
        if let Some(tell) = tell {
            // The borrow is over: a listener may well call back into the library.
            let _ = raw::call(self.env, tell, &[listener, value]);
        }
    }

    /// Tells an operator what the engine has to say, whether or not anybody listens to events.
    pub(crate) fn warn(&self, text: &str) {
        let warn = self.words.borrow().as_ref().and_then(|words| words.warn.value().ok());
        if let (Some(warn), Ok(text)) = (warn, raw::value(self.env, text)) {
            let _ = raw::call(self.env, warn, &[text]);
        }
    }

    /// One turn of the loop: losses first, then every outcome that came, then events.
    pub(crate) fn turn(&self) {
        self.waker.rearm();
        let clients = self.clients.borrow().clone();
        for client in &clients {
            client.tell_losses();
            client.tell_warnings();
        }
        for mail in self.mailbox.drain() {
            self.settle(mail);
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

    fn settle(&self, mail: Mail) {
        let Some(Pending { client, ticket, deferred, kind }) = self.pending.borrow_mut().remove(&mail.token) else {
            return;
        };
        let result = match kind.finish(self.env, &client, &ticket, mail.result) {
            Next::Wait(kind) => {
                self.pending.borrow_mut().insert(mail.token, Pending { client, ticket, deferred, kind });
                return;
            }
            Next::Done(Ok(value)) => Ok(value),
            Next::Done(Err(fail)) => match self.error(fail).or_else(|error| raw::value(self.env, error)) {
                Ok(error) => Err(error),
                Err(_) => return self.unwant(),
            },
        };
        // Fails only while the environment is being torn down, when nobody waits any more.
        let _ = deferred.settle(self.env, result);
        self.unwant();
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

    /// Keeps a client for as long as it may hold something.
    pub(crate) fn adopt(&self, client: &Rc<ClientState>) -> Result<()> {
        if client.adopted.replace(true) {
            return Ok(());
        }
        self.clients.borrow_mut().push(client.clone());
        Ok(())
    }

    /// Closes a client. That waits for the server, so a thread of its own does it: those of libuv are few.
    pub(crate) fn close(&self, client: &Rc<ClientState>) -> Result<PromiseRaw<'static, ()>> {
        let (deferred, promise) = Deferred::new(self.env)?;
        let token = self.token();
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
        self.clients.borrow_mut().retain(|other| !Rc::ptr_eq(other, client));
    }

    fn token(&self) -> u64 {
        self.tokens.replace(self.tokens.get() + 1)
    }

    pub(crate) fn attend(&self, stream: &Rc<Stream>) {
        self.streams.borrow_mut().push(Rc::clone(stream));
    }

    pub(crate) fn dismiss(&self, stream: &Stream) {
        self.streams.borrow_mut().retain(|other| !std::ptr::eq(&raw const **other, stream));
    }

    /// Releases what is held, as far as the server answers in time, and stops the threads.
    fn leave(&self) {
        let end = Instant::now() + EXIT_PATIENCE;
        for client in self.clients.take() {
            host::close(&client.driver, end.saturating_duration_since(Instant::now()));
            client.forget_losses();
        }
    }

    /// The environment goes: nothing may reach it from here on.
    fn shut(&self) {
        self.leave();
        self.waker.close();
        self.pending.take();
        self.closing.take();
        self.streams.take();
        self.words.take();
    }
}

/// What ties the addon to one event loop. Made once by the JS entry point.
#[napi]
pub struct Host {
    looped: Rc<Loop>,
}

#[napi]
impl Host {
    /// `fail` makes errors, `tell` calls listeners, `warn` tells operators.
    #[napi(constructor)]
    pub fn new(env: Env, fail: Unknown, tell: Unknown, warn: Unknown) -> Result<Self> {
        // Node unloads an addon with the last worker that used it, while a thread of ours may still be on its
        // way out.
        retain_current_module_for_unload_safety();
        let keep = |function: Unknown| Callback::keep(env, function.raw());
        let words = Words { fail: keep(fail)?, tell: keep(tell)?, warn: keep(warn)? };
        let waker = Waker::new();
        let wake = Arc::clone(&waker);
        let looped = Rc::new(Loop {
            env,
            waker,
            mailbox: Mailbox::new(move || wake.wake()),
            tokens: Cell::new(0),
            pending: RefCell::default(),
            closing: RefCell::default(),
            closed: Arc::default(),
            wanted: Cell::new(0),
            clients: RefCell::default(),
            streams: RefCell::default(),
            words: RefCell::new(Some(words)),
        });
        looped.waker.open(env, &looped)?;
        let last = Rc::clone(&looped);
        env.add_env_cleanup_hook((), move |()| last.shut())?;
        Ok(Self { looped })
    }

    /// A client. No I/O, no thread until it is used.
    #[napi]
    pub fn connect(&self, url: Unknown, options: Unknown) -> Result<Client> {
        let make = || {
            let (options, patience) = convert::options(url, options)?;
            let driver = bandog::Client::new(options).map_err(convert::watchdog)?;
            Ok(ClientState::new(driver, patience, &self.looped))
        };
        match make() {
            Ok(state) => Ok(Client { state }),
            Err(fail) => Err(self.looped.thrown(fail)),
        }
    }

    /// Refuses options of `locked` before there is a lock to use them with.
    #[napi]
    pub fn check_options(&self, options: Unknown) -> Result<()> {
        let checked = Asked::read(&options, "locked", ACQUIRE).map(drop);
        checked.map_err(|fail| self.looped.thrown(fail))
    }

    /// Refuses a name of a lock before there is a client to make it.
    #[napi]
    pub fn check_name(&self, name: Unknown) -> Result<()> {
        let checked = convert::name(name).and_then(|name| Ok(Name::new(&name).map(drop)?));
        checked.map_err(|fail| self.looped.thrown(fail))
    }

    /// The process or worker exits.
    #[napi]
    pub fn leave(&self) {
        self.looped.leave();
    }
}

/// The way to give up one acquire.
#[napi]
pub struct Cancel {
    token: Cell<Option<u64>>,
    looped: Rc<Loop>,
}

#[napi]
impl Cancel {
    #[napi(constructor)]
    pub fn new(host: &Host) -> Self {
        Self { token: Cell::new(None), looped: Rc::clone(&host.looped) }
    }

    /// Withdraws the wish and rejects its promise with `reason`. A grant that has come but was not taken yet
    /// is given back. Does nothing when the promise is settled.
    #[napi]
    pub fn cancel(&self, reason: Unknown) -> Result<()> {
        let Some(token) = self.token.take() else { return Ok(()) };
        let Some(pending) = self.looped.pending.borrow_mut().remove(&token) else { return Ok(()) };
        host::cancel(&pending.client.driver, &pending.ticket);
        let settled = pending.deferred.settle(self.looped.env, Err(reason.raw()));
        self.looped.unwant();
        settled
    }
}
