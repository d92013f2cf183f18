//! The keeper: one background thread that opens every connection, reads those that no caller reads, and
//! wakes at the engine's deadlines. It never calls into the host's language: what it wakes are parked
//! threads, and callbacks that must not block.

mod link;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use bandog_core::error::{Code, Error};
use bandog_core::time::Time;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::road::Road;
use crate::shared::Shared;
use crate::sys;
use crate::turn::closed;
use crate::waiter::{Promise, Waiter, lock};

/// How long the keeper goes on after the last client object is gone, to release what was held.
const GRACE: Duration = Duration::from_secs(1);

/// How long it waits before it starts a task again that panicked.
const AFTER_PANIC: Duration = Duration::from_millis(100);

/// The thread, from the outside.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    id: OnceLock<ThreadId>,
    bell: Notify,
    runtime: OnceLock<Handle>,
    stop: Mutex<Stop>,
    ended: Mutex<bool>,
    end: Condvar,
    /// Gone when the thread is: a closed client keeps no descriptor.
    #[cfg(target_os = "linux")]
    alarm: Mutex<Option<Arc<sys::Alarm>>>,
    #[cfg(not(target_os = "linux"))]
    alarm: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stop {
    #[default]
    No,
    /// Once nothing is under way, or after a while.
    WhenIdle,
    Now,
}

impl Keeper {
    /// Starts the thread, once.
    ///
    /// # Errors
    /// `unreachable` when the system refuses a thread or descriptor; `closed`.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> Result<(), Error> {
        if self.is_started() {
            return Ok(());
        }
        let mut thread = lock(&self.thread);
        if thread.is_none() && !self.is_started() {
            if shared.is_closed() {
                return Err(closed());
            }
            let spawned = self.spawn(shared).map_err(|error| {
                let text = format!(
                    "the background thread could not be started ({error}): raise the limits of threads and open files"
                );
                Error::new(Code::Unreachable, text)
            })?;
            let _ = self.id.set(spawned.thread().id());
            *thread = Some(spawned);
            self.started.store(true, Ordering::Release);
            if shared.is_closed() {
                // Closed by somebody who saw no thread.
                self.stop(false);
            }
        }
        Ok(())
    }

    fn spawn(&self, shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
        #[cfg(target_os = "linux")]
        {
            *lock(&self.alarm) = Some(Arc::new(sys::Alarm::new()?));
        }
        let runtime = Builder::new_current_thread().enable_io().enable_time().thread_name("bandog-keeper").build()?;
        let _ = self.runtime.set(runtime.handle().clone());
        let shared = shared.clone();
        // A thread inherits the mask of the one that starts it: signals are the host's.
        let old = sys::set_mask(libc::SIG_SETMASK, &sys::full_mask());
        let spawned = thread::Builder::new().name("bandog-keeper".into()).spawn(move || run(shared, runtime));
        sys::set_mask(libc::SIG_SETMASK, &old);
        spawned
    }

    /// Looks after a road until that is retired.
    pub(crate) fn tend(&self, shared: &Arc<Shared>, road: &Arc<Road>) {
        if let Some(runtime) = self.runtime.get() {
            let (shared, road) = (shared.clone(), road.clone());
            runtime.spawn(persist(move || link::tend(shared.clone(), road.clone())));
        }
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Whether the calling thread is the keeper's.
    pub(crate) fn is_current(&self) -> bool {
        self.id.get() == Some(&thread::current().id())
    }

    pub(crate) fn has_ended(&self) -> bool {
        *lock(&self.ended)
    }

    /// Wakes at this instant. Under the engine's mutex.
    pub(crate) fn arm(&self, at: Time) {
        #[cfg(target_os = "linux")]
        if let Some(alarm) = &*lock(&self.alarm) {
            alarm.set(at);
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = at;
            self.alarm.notify_one();
        }
    }

    pub(crate) fn stop(&self, when_idle: bool) {
        let mut stop = lock(&self.stop);
        *stop = match *stop {
            Stop::No if when_idle => Stop::WhenIdle,
            Stop::WhenIdle if when_idle => Stop::WhenIdle,
            _ => Stop::Now,
        };
        self.bell.notify_one();
    }

    /// Waits until the thread has ended, if it does so in time. Not for the thread itself.
    pub(crate) fn join(&self, within: Duration) {
        if self.is_current() {
            return;
        }
        let ended = lock(&self.ended);
        let waited = self.end.wait_timeout_while(ended, within, |ended| !*ended);
        let ended = waited.map_or_else(|poisoned| *poisoned.into_inner().0, |(ended, _)| *ended);
        if ended && let Some(thread) = lock(&self.thread).take() {
            // Its panic was printed when it happened.
            let _ = thread.join();
        }
    }

    async fn stopped(&self, shared: &Shared) {
        loop {
            self.bell.notified().await;
            let stop = *lock(&self.stop);
            match stop {
                Stop::No => {}
                Stop::Now => return,
                Stop::WhenIdle => {
                    let idle = Arc::new(Promise::default());
                    shared.shut(false, Waiter::Task(idle.clone()));
                    let idle = std::future::poll_fn(|context| idle.poll(context));
                    let _ = tokio::time::timeout(GRACE, idle).await;
                    return;
                }
            }
        }
    }
}

/// The thread, from the inside.
fn run(shared: Arc<Shared>, runtime: Runtime) {
    // Told at the end whatever happens, so that nobody waits for a thread that is gone.
    struct End(Arc<Shared>);
    impl Drop for End {
        fn drop(&mut self) {
            *lock(&self.0.keeper.ended) = true;
            self.0.keeper.end.notify_all();
        }
    }
    let end = End(shared);
    let shared = &end.0;
    runtime.block_on(async {
        for road in &shared.roads {
            shared.keeper.tend(shared, road);
        }
        let sleeper = shared.clone();
        tokio::spawn(persist(move || watch(sleeper.clone())));
        shared.keeper.stopped(shared).await;
    });
    // Does not wait for a name that is still being looked up.
    runtime.shutdown_background();
    #[cfg(target_os = "linux")]
    drop(lock(&shared.keeper.alarm).take());
    shared.end();
}

/// Runs a task; one that panics is started again, for the holds of others depend on it.
async fn persist<F, T>(mut task: F)
where
    F: FnMut() -> T,
    T: Future<Output = ()> + Send + 'static,
{
    while tokio::spawn(task()).await.is_err() {
        tokio::time::sleep(AFTER_PANIC).await;
    }
}

/// Wakes at the engine's deadlines, and only then.
#[cfg(target_os = "linux")]
async fn watch(shared: Arc<Shared>) {
    let Some(alarm) = lock(&shared.keeper.alarm).clone() else { return };
    let Ok(fd) = link::watch(&*alarm, tokio::io::Interest::READABLE) else { return };
    shared.timeout();
    loop {
        if let Ok(mut ready) = fd.readable().await {
            ready.clear_ready();
        }
        alarm.clear();
        shared.timeout();
    }
}

/// Without a timer that counts suspended time: looks at the clock once a second while anything is due.
#[cfg(not(target_os = "linux"))]
async fn watch(shared: Arc<Shared>) {
    loop {
        shared.timeout();
        let next = shared.read(|engine, now| engine.poll_timeout().map(|at| at.since(now)));
        match next {
            None => shared.keeper.alarm.notified().await,
            Some(left) => {
                let nap = Duration::from_millis(left.0.clamp(1, 1000));
                let _ = tokio::time::timeout(nap, shared.keeper.alarm.notified()).await;
            }
        }
    }
}
