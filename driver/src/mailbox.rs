//! Where the answers for one event loop wait until the loop turns.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use bandog_core::error::Error;

use crate::fork;
use crate::handle::forked;
use crate::host::Settled;
use crate::waiter::lock;

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

/// The answers for one event loop. The loop is woken once for all that lies in the box when it turns.
pub struct Mailbox {
    generation: u64,
    inner: Mutex<Inner>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Inner {
    mails: VecDeque<Mail>,
    /// The loop was woken and has not looked yet.
    rung: bool,
    /// The loop is about to look.
    hushed: bool,
}

impl Mailbox {
    /// A box for a loop. `wake` is called when the box goes from empty to not empty: from the keeper's
    /// thread, from a blocking caller's, or from the submitting thread itself, always without any lock
    /// held. It must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        fork::install();
        Arc::new(Self { generation: fork::generation(), inner: Mutex::default(), wake: Box::new(wake) })
    }

    /// Everything in the box, oldest first. Empty in a forked child: its mail is the parent's.
    pub fn drain(&self) -> Vec<Mail> {
        let mut mails = Vec::new();
        self.drain_into(&mut mails);
        mails
    }

    /// The same, appended to `mails`: a large box that is used again and again costs less than a new one for
    /// every batch.
    pub fn drain_into(&self, mails: &mut Vec<Mail>) {
        if self.check_fork().is_err() {
            return;
        }
        let mut inner = lock(&self.inner);
        (inner.rung, inner.hushed) = (false, false);
        mails.extend(inner.mails.drain(..));
    }

    /// Puts an answer in; says whether its loop must be woken.
    pub(crate) fn post(&self, mail: Mail) -> bool {
        let mut inner = lock(&self.inner);
        inner.mails.push_back(mail);
        !inner.hushed && !std::mem::replace(&mut inner.rung, true)
    }

    /// The loop's own thread will look into the box before it does anything else: no need to wake it.
    pub(crate) fn hush(&self) {
        lock(&self.inner).hushed = true;
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    fn boxed() -> (Arc<Mailbox>, Arc<AtomicU32>) {
        let wakes = Arc::new(AtomicU32::new(0));
        let count = wakes.clone();
        (
            Mailbox::new(move || {
                count.fetch_add(1, SeqCst);
            }),
            wakes,
        )
    }

    fn mail(token: u64) -> Mail {
        Mail { token, result: Ok(News::Granted) }
    }

    #[test]
    fn one_wake_for_many_answers() {
        let (mailbox, _) = boxed();
        assert!(mailbox.post(mail(1)));
        assert!(!mailbox.post(mail(2)));
        assert_eq!(mailbox.drain().len(), 2);
        assert!(mailbox.post(mail(3)), "the loop looked: it must be woken again");
    }

    #[test]
    fn a_loop_that_is_about_to_look_is_not_woken() {
        let (mailbox, _) = boxed();
        mailbox.hush();
        assert!(!mailbox.post(mail(1)));
        assert_eq!(mailbox.drain().len(), 1);
        assert!(mailbox.post(mail(2)));
    }
}
