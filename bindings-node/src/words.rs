//! The JS functions that Rust calls.

use std::cell::RefCell;

use napi::bindgen_prelude::{JsObjectValue, Object, Unknown};
use napi::{Env, JsValue, Result, sys};

use crate::errors::{self, Fail};
use crate::hold::Hold;
use crate::quick;
use crate::raw::{self, Callback};

/// The words of lib/host.cjs, until the environment goes.
pub(crate) struct Words {
    env: Env,
    kept: RefCell<Option<Kept>>,
}

struct Kept {
    /// `fail(class, code, message, lockName, owner, freeAtLatest)` makes an error.
    fail: Callback,
    /// `tell(listener, value)` calls a listener and reports what it throws.
    tell: Callback,
    /// `warn(text)` tells an operator.
    warn: Callback,
    /// `later()` has `Host.flush` called at the end of this turn.
    later: Callback,
    /// `dial(carrier, host, port)` or `dial(carrier, path)` opens a socket: `{ send, end }`.
    dial: Callback,
    /// The constructor of `quick::hold`.
    hold: Callback,
}

impl Words {
    pub(crate) fn new(env: Env, words: &Object) -> Result<Self> {
        let keep = |word: &str| Callback::keep(env, words.get_named_property_unchecked::<Unknown>(word)?.raw());
        let kept = Kept {
            fail: keep("fail")?,
            tell: keep("tell")?,
            warn: keep("warn")?,
            later: keep("later")?,
            dial: keep("dial")?,
            hold: keep("Hold")?,
        };
        Ok(Self { env, kept: RefCell::new(Some(kept)) })
    }

    /// The JS error for a failure.
    pub(crate) fn error(&self, fail: Fail) -> Result<sys::napi_value> {
        let error = match fail {
            Fail::Js(error) => return Err(error),
            Fail::Lock(error) => error,
        };
        match self.word(|kept| &kept.fail) {
            Some(fail) => raw::call(self.env, fail, &errors::arguments(self.env, &error)?),
            None => Err(napi::Error::from_reason(error.to_string())),
        }
    }

    /// The same, to be thrown by a call that answers at once.
    pub(crate) fn thrown(&self, fail: Fail) -> napi::Error {
        match self.error(fail) {
            // SAFETY: the value was just made in this environment.
            Ok(value) => unsafe { Unknown::from_raw_unchecked(self.env.raw(), value) }.into(),
            Err(error) => error,
        }
    }

    /// A rejection that a promise can be given whatever else went wrong.
    pub(crate) fn rejection(&self, fail: Fail) -> Result<sys::napi_value> {
        self.error(fail).or_else(|error| raw::value(self.env, error))
    }

    /// Calls a listener. What it throws is reported once and goes no further (reliability F35).
    pub(crate) fn tell(&self, listener: &Callback, value: sys::napi_value) {
        let Ok(listener) = listener.value() else { return };
        if let Some(tell) = self.word(|kept| &kept.tell) {
            let _ = raw::call(self.env, tell, &[listener, value]);
        }
    }

    /// Tells an operator what the engine has to say, whether or not anybody listens to events.
    pub(crate) fn warn(&self, text: &str) {
        if let (Some(warn), Ok(text)) = (self.word(|kept| &kept.warn), raw::value(self.env, text)) {
            let _ = raw::call(self.env, warn, &[text]);
        }
    }

    /// Has `Host.flush` called at the end of this turn; `false` when nobody can.
    pub(crate) fn later(&self) -> bool {
        self.word(|kept| &kept.later).is_some_and(|later| raw::call(self.env, later, &[]).is_ok())
    }

    /// Opens a socket.
    pub(crate) fn dial(&self, arguments: &[sys::napi_value]) -> Result<sys::napi_value> {
        let dial = self.word(|kept| &kept.dial).ok_or_else(gone)?;
        raw::call(self.env, dial, arguments)
    }

    /// A hold for JS.
    pub(crate) fn hold(&self, hold: Hold) -> Result<sys::napi_value> {
        match &*self.kept.borrow() {
            Some(kept) => quick::hold(self.env, &kept.hold, hold),
            None => Err(gone()),
        }
    }

    /// Ends the socket that this function belongs to. Where no JS runs any more, sockets end by themselves.
    pub(crate) fn end(&self, end: &Callback, abrupt: bool) {
        if self.kept.borrow().is_none() {
            return;
        }
        if let (Ok(end), Ok(abrupt)) = (end.value(), raw::value(self.env, abrupt)) {
            let _ = raw::call(self.env, end, &[abrupt]);
        }
    }

    /// The environment goes: nothing may be called from here on.
    pub(crate) fn forget(&self) {
        self.kept.take();
    }

    /// The function itself. The borrow is over when it is called: it may well call back.
    fn word(&self, which: impl Fn(&Kept) -> &Callback) -> Option<sys::napi_value> {
        self.kept.borrow().as_ref().and_then(|kept| which(kept).value().ok())
    }
}

fn gone() -> napi::Error {
    napi::Error::from_reason("the environment is gone")
}
