//! What an operator should know goes to the logger `bandog`, whether or not anybody listens to events.

use std::sync::{Arc, OnceLock};

use bandog::host::{self, Filter, Listener};
use bandog::{Event, Name};
use pyo3::prelude::*;

use crate::dispatcher::{Dispatcher, Job};

/// More than this at once is dropped: a log does not need the same word a thousand times.
const QUEUE: usize = 64;

/// The warnings of one client, on their way to the log.
#[derive(Default)]
pub(crate) struct Warnings {
    listener: OnceLock<Listener>,
    dispatcher: OnceLock<Arc<Dispatcher>>,
}

impl Warnings {
    /// Starts no thread: that is for the first warning.
    pub(crate) fn open(driver: &bandog::Client) -> Arc<Self> {
        let warnings = Arc::new(Self::default());
        let weak = Arc::downgrade(&warnings);
        let wake = move || {
            if let Some(warnings) = weak.upgrade() {
                warnings.hand_on();
            }
        };
        if let Ok(listener) = host::listen(driver, Filter::Warnings, QUEUE, wake) {
            let _ = warnings.listener.set(listener);
        }
        warnings
    }

    /// Any thread, none of Python's: what there is is taken here, and logged where that may be done.
    fn hand_on(&self) {
        let Some(listener) = self.listener.get() else { return };
        while let Some(event) = listener.try_next() {
            let Event::Warning { name, text } = event else { continue };
            if self.dispatcher.get().is_none()
                && let Ok(started) = Dispatcher::get()
            {
                let _ = self.dispatcher.set(started);
            }
            if let Some(dispatcher) = self.dispatcher.get() {
                dispatcher.post(Job::Warning(name, text));
            }
        }
    }
}

/// Logs one.
pub(crate) fn log(py: Python<'_>, name: Option<&Name>, text: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("bandog",))?;
    match name {
        Some(name) => logger.call_method1("warning", ("lock %r: %s", name.as_str(), text))?,
        None => logger.call_method1("warning", ("%s", text))?,
    };
    Ok(())
}
