//! Where the answers for one event loop wait until the loop turns.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bandog_core::error::Error;

use crate::fork;
use crate::handle::forked;
use crate::host::Settled;

/// What became of a submitted wish.
#[derive(Clone, Debug)]
pub enum News {
    /// The lock is there: [`claim`](crate::host::claim) it when the caller resumes.
    Granted,
    /// The wish ended.
    Ended(Settled),
}

/// The answer to one submitted wish.
#[derive(Clone, Debug)]
pub struct Mail {
    /// The number given to [`submit`](crate::host::submit).
    pub token: u64,
    /// What became of it.
    pub result: Result<News, Error>,
}

/// The answers for one event loop. The loop is woken once for each time the box stops being empty.
pub struct Mailbox {
    generation: u64,
    mails: Mutex<VecDeque<Mail>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Mailbox {
    /// A box for a loop. `wake` is called when the box goes from empty to not empty: from the keeper's
    /// thread, from a blocking caller's, or from the submitting thread itself, always without any lock
    /// held. It must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        fork::install();
        Arc::new(Self { generation: fork::generation(), mails: Mutex::default(), wake: Box::new(wake) })
    }

    /// Everything in the box, oldest first. Empty in a forked child: its mail is the parent's.
    pub fn drain(&self) -> Vec<Mail> {
        if self.check_fork().is_err() {
            return Vec::new();
        }
        self.mails.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Puts an answer in; says whether the box was empty, so that its loop must be woken.
    pub(crate) fn post(&self, mail: Mail) -> bool {
        let mut mails = self.mails.lock().unwrap_or_else(PoisonError::into_inner);
        mails.push_back(mail);
        mails.len() == 1
    }

    pub(crate) fn wake(&self) {
        (self.wake)();
    }

    pub(crate) fn check_fork(&self) -> Result<(), Error> {
        if self.generation == fork::generation() { Ok(()) } else { Err(forked()) }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}
