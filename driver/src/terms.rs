//! What one acquire asks for beyond the defaults of its lock.

use std::time::Duration;

use bandog_core::time::Millis;

use crate::host::Wait;

/// How long one acquire waits, and how long what it gets lasts. What is not said is as the lock says.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn run(lock: &bandog::Lock) -> Result<(), bandog::Error> {
/// let terms = bandog::Terms::new().wait(Duration::from_secs(5)).lease(Duration::from_secs(60));
/// let held = lock.acquire_with(terms).await?;
/// held.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Terms {
    pub(crate) wait: Option<Wait>,
    pub(crate) lease: Option<Millis>,
}

impl Terms {
    /// Nothing said yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { wait: None, lease: None }
    }

    /// Waits this long in all; zero is one try.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(span(wait));
        self
    }

    /// Waits for ever, also where the lock says otherwise.
    #[must_use]
    pub fn forever(mut self) -> Self {
        self.wait = Some(Wait::Forever);
        self
    }

    /// The hold ends after this long and is not renewed.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(millis(lease));
        self
    }

    /// These terms, and where they say nothing the others.
    pub(crate) fn or(self, others: Self) -> Self {
        Self { wait: self.wait.or(others.wait), lease: self.lease.or(others.lease) }
    }
}

fn span(wait: Duration) -> Wait {
    if wait.is_zero() { Wait::Try } else { Wait::For(millis(wait)) }
}

/// Rounded up: nobody waits or holds for less than was asked for.
pub(crate) fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
