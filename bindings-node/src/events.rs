//! Events as an async iterable. A listener costs nothing until it is opened, and its queue is bounded.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bandog::Event;
use bandog::host::{self, Filter, Listener};
use napi::bindgen_prelude::{Object, PromiseRaw, Unknown};
use napi::{JsValue, Result, sys};
use napi_derive::napi;

use crate::client::ClientState;
use crate::convert;
use crate::raw::Deferred;

/// How many events wait for a slow listener before the oldest are dropped and counted.
pub(crate) const CAPACITY: usize = 1024;

/// One listener, and those who await its next event.
pub(crate) struct Stream {
    client: Rc<ClientState>,
    listener: Listener,
    awaiting: RefCell<VecDeque<Deferred>>,
    ended: Cell<bool>,
    /// Its JS object is gone, although somebody still awaits the event asked for last.
    orphan: Cell<bool>,
}

impl Stream {
    /// Gives what came to those who wait for it.
    pub(crate) fn pump(&self) {
        while !self.awaiting.borrow().is_empty() {
            let step = match self.listener.try_next() {
                Some(event) => self.item(Some(&event)),
                None if self.over() => self.item(None),
                None => return,
            };
            self.answer(step);
        }
        if self.orphan.get() {
            self.end();
        }
    }

    fn answer(&self, item: Result<sys::napi_value>) {
        let Some(deferred) = self.awaiting.borrow_mut().pop_front() else { return };
        let looped = &self.client.looped;
        looped.unwant();
        if let Ok(value) = item {
            // Fails only while the environment is being torn down.
            let _ = deferred.settle(looped.env, Ok(value));
        }
    }

    fn over(&self) -> bool {
        self.ended.get() || self.listener.is_closed()
    }

    /// No more events: whoever waits for one is told so.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.listener.close();
        self.client.looped.dismiss(self);
        while !self.awaiting.borrow().is_empty() {
            self.answer(self.item(None));
        }
    }

    pub(crate) fn is_of(&self, client: &Rc<ClientState>) -> bool {
        Rc::ptr_eq(&self.client, client)
    }

    /// `{ value, done }`.
    fn item(&self, event: Option<&Event>) -> Result<sys::napi_value> {
        let mut item = Object::new(&self.client.looped.env)?;
        if let Some(event) = event {
            item.set("value", self.event(event)?)?;
        } else {
            item.set("value", ())?;
        }
        item.set("done", event.is_none())?;
        Ok(item.raw())
    }

    fn event(&self, event: &Event) -> Result<Object<'static>> {
        let mut told = Object::new(&self.client.looped.env)?;
        told.set("kind", event.kind())?;
        if let Some(name) = event.name() {
            told.set("name", name.as_str())?;
        }
        match event {
            Event::Acquired { count, .. } | Event::Released { count, .. } => told.set("count", *count)?,
            Event::Contended { ttl, .. } => told.set("remaining", ttl.map_or(f64::INFINITY, convert::number))?,
            Event::Renewed { deadline, .. } | Event::Doubtful { deadline, .. } => {
                told.set("remaining", convert::number(deadline.since(host::now())))?;
            }
            Event::Lost { why, .. } => told.set("why", why.as_str())?,
            Event::Warning { text, .. } => told.set("text", text.as_str())?,
            Event::Link { .. } => {}
        }
        Ok(told)
    }
}

/// An endless row of events: `for await (const event of lock.events())`. Ends with `return()`, `break`, or the
/// client's `close()`. Listens from the call on; at most `capacity` events wait for a slow listener.
#[napi]
pub struct Events {
    stream: Rc<Stream>,
}

impl Events {
    pub(crate) fn open(client: &Rc<ClientState>, filter: Filter, options: &Unknown) -> Result<Self> {
        let listen = || {
            let capacity = convert::capacity(options)?.unwrap_or(CAPACITY);
            let waker = client.looped.waker.clone();
            Ok(host::listen(&client.driver, filter, capacity, move || waker.wake())?)
        };
        let listener = listen().map_err(|fail| client.looped.words.thrown(fail))?;
        let stream = Rc::new(Stream {
            client: Rc::clone(client),
            listener,
            awaiting: RefCell::default(),
            ended: Cell::new(false),
            orphan: Cell::new(false),
        });
        client.looped.attend(&stream);
        Ok(Self { stream })
    }
}

#[napi]
impl Events {
    /// The next event. While it is awaited the process stays alive.
    #[napi(ts_return_type = "Promise<IteratorResult<LockEvent, undefined>>")]
    pub fn next(&self) -> Result<PromiseRaw<'static, ()>> {
        let looped = &self.stream.client.looped;
        let (deferred, promise) = Deferred::new(looped.env)?;
        self.stream.awaiting.borrow_mut().push_back(deferred);
        looped.want();
        self.stream.pump();
        Ok(PromiseRaw::new(looped.env.raw(), promise))
    }

    /// Stops listening, and forgets what was not taken.
    #[napi(js_name = "return", ts_return_type = "Promise<IteratorResult<LockEvent, undefined>>")]
    pub fn finish(&self) -> Result<PromiseRaw<'static, ()>> {
        self.stream.end();
        // Nothing comes any more, so this ends.
        while self.stream.listener.try_next().is_some() {}
        let env = self.stream.client.looped.env;
        let (deferred, promise) = Deferred::new(env)?;
        deferred.settle(env, Ok(self.stream.item(None)?))?;
        Ok(PromiseRaw::new(env.raw(), promise))
    }

    /// How many events were dropped because this listener was too slow.
    #[napi(getter)]
    #[allow(clippy::cast_precision_loss)]
    pub fn dropped(&self) -> f64 {
        self.stream.listener.dropped() as f64
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if self.stream.awaiting.borrow().is_empty() {
            self.stream.end();
        } else {
            self.stream.orphan.set(true);
        }
    }
}
