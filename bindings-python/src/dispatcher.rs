//! The threads that call into Python for those who may not: one at a time, and more behind a slow callback.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bandog::Name;
use pyo3::prelude::*;

use crate::callbacks::{Due, LossBook};
use crate::warnings;

/// How long a callback may keep the others waiting.
const SLOW: Duration = Duration::from_millis(20);
/// How many callbacks may be slow at once before the others do wait.
const MOST: usize = 16;
/// After how long without work a thread ends, unless it is the last that is free.
const IDLE: Duration = Duration::from_secs(1);

/// Something to do with Python, asked for by a thread that may not touch it.
pub(crate) enum Job {
    /// Run the callbacks that are due.
    Losses(Weak<LossBook>),
    /// Run one of them.
    Call(Due),
    /// Log what an operator should know.
    Warning(Option<Name>, String),
    /// Call this: a loop that watches no descriptors is to turn.
    Turn(Arc<Py<PyAny>>),
}

/// Lives while a client needs it.
pub(crate) struct Dispatcher {
    crew: Arc<Crew>,
    process: u32,
}

#[derive(Default)]
struct Crew {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    /// Since when the youngest job runs, if one does: one at a time is young.
    young: Option<(u64, Instant)>,
    taken: u64,
    threads: usize,
    free: usize,
    /// How many of the free ones look on until the young job is slow.
    watching: usize,
    over: bool,
}

impl Dispatcher {
    /// The process's one, started now if there is none; a child has to start its own.
    pub(crate) fn get() -> PyResult<Arc<Self>> {
        static CURRENT: Mutex<Weak<Dispatcher>> = Mutex::new(Weak::new());
        let process = std::process::id();
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = current.upgrade().filter(|running| running.process == process) {
            return Ok(running);
        }
        let crew = Arc::new(Crew::default());
        crew.hire(&mut crew.work())?;
        let started = Arc::new(Self { crew, process });
        *current = Arc::downgrade(&started);
        Ok(started)
    }

    pub(crate) fn post(&self, job: Job) {
        // In a child its threads are gone, and one of them may have had the mutex.
        if self.process == std::process::id() {
            self.crew.work().jobs.push_back(job);
            self.crew.changed.notify_one();
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.crew.work().over = true;
            self.crew.changed.notify_all();
        }
    }
}

impl Crew {
    /// One more thread.
    fn hire(self: &Arc<Self>, work: &mut Work) -> std::io::Result<()> {
        let crew = Arc::clone(self);
        thread::Builder::new().name("bandog-callbacks".into()).spawn(move || crew.serve())?;
        work.threads += 1;
        work.free += 1;
        Ok(())
    }

    fn serve(self: &Arc<Self>) {
        block_signals();
        while let Some((number, job)) = self.next() {
            let attached = Python::try_attach(|py| self.run(py, job)).is_some();
            let mut work = self.work();
            work.free += 1;
            if work.young.is_some_and(|(young, _)| young == number) {
                work.young = None;
            }
            if !attached {
                // No interpreter any more: for nobody else either.
                work.over = true;
                work.jobs.clear();
                self.changed.notify_all();
            }
        }
    }

    fn run(&self, py: Python<'_>, job: Job) {
        match job {
            Job::Losses(book) => {
                if let Some(book) = book.upgrade() {
                    let due = book.due();
                    self.work().jobs.extend(due.into_iter().map(Job::Call));
                }
            }
            Job::Call(due) => due.call_on_thread(py),
            Job::Warning(name, text) => {
                if let Err(error) = warnings::log(py, name.as_ref(), &text) {
                    error.write_unraisable(py, None);
                }
            }
            Job::Turn(turn) => {
                // A closed loop has nobody waiting.
                let _ = turn.call0(py);
            }
        }
    }

    /// The next job, once the one before it is done or slow.
    fn next(self: &Arc<Self>) -> Option<(u64, Job)> {
        let mut work = self.work();
        let mut bored = Instant::now() + IDLE;
        loop {
            let now = Instant::now();
            let mut watch = 0;
            let patience = if work.jobs.is_empty() {
                if work.over || (work.free > 1 && now >= bored) {
                    work.threads -= 1;
                    work.free -= 1;
                    return None;
                }
                (work.free > 1).then(|| bored - now)
            } else if let Some(rest) = work.young.and_then(|(_, since)| SLOW.checked_sub(now - since))
                && !rest.is_zero()
            {
                watch = 1;
                Some(rest)
            } else {
                break;
            };
            work.watching += watch;
            work = match patience {
                Some(span) => self.changed.wait_timeout(work, span).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(work).unwrap_or_else(PoisonError::into_inner),
            };
            work.watching -= watch;
            if !work.jobs.is_empty() {
                bored = Instant::now() + IDLE;
            }
        }
        let job = work.jobs.pop_front()?;
        work.taken += 1;
        let number = work.taken;
        work.young = Some((number, Instant::now()));
        work.free -= 1;
        // Somebody looks on while it runs. Without a thread for that, the others wait for it.
        if matches!(job, Job::Call(_)) && work.free == 0 && work.threads < MOST {
            let _ = self.hire(&mut work);
        } else if work.watching == 0 && !work.jobs.is_empty() {
            self.changed.notify_one();
        }
        Some((number, job))
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signals are for the threads of the program.
fn block_signals() {
    // SAFETY: both calls write to and read from a live set.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
