//! The way to give up one acquire.

use std::cell::Cell;
use std::rc::Rc;

use napi::Result;
use napi::bindgen_prelude::{JsValue, Unknown};
use napi_derive::napi;

use crate::host::Host;
use crate::looped::Loop;

/// Withdraws one acquire.
#[napi]
pub struct Cancel {
    pub(crate) token: Cell<Option<u64>>,
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
        self.token.take().map_or(Ok(()), |token| self.looped.cancel(token, reason.raw()))
    }
}
