//! The one threadsafe function of an environment: however many completions a batch has, the loop is woken once.

use std::ffi::c_void;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use napi::{Env, JsValue, Result, Status, sys};

use crate::looped::Loop;

/// Wakes the loop from any thread. Safe to call after the environment has gone: then it does nothing.
pub(crate) struct Waker {
    function: Mutex<Option<Function>>,
    woken: AtomicBool,
}

struct Function(sys::napi_threadsafe_function);

// SAFETY: a threadsafe function may be called from any thread; reference counting and closing happen in the
// loop's thread, and the mutex around it keeps a late caller off a closed one.
unsafe impl Send for Function {}

impl Waker {
    /// A waker nobody can hear yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { function: Mutex::new(None), woken: AtomicBool::new(false) })
    }

    /// Opens the way to the loop. It does not keep the process alive until [`Waker::hold`] says so.
    pub(crate) fn open(&self, env: Env, to: &Rc<Loop>) -> Result<()> {
        let name = env.create_string("bandog")?;
        let context = Box::into_raw(Box::new(Rc::downgrade(to))).cast::<c_void>();
        let mut function = ptr::null_mut();
        // SAFETY: the context is freed by `forget`, which Node calls once when the function is closed.
        let status = unsafe {
            sys::napi_create_threadsafe_function(
                env.raw(),
                ptr::null_mut(),
                ptr::null_mut(),
                name.raw(),
                0,
                1,
                context,
                Some(forget),
                context,
                Some(turn),
                &raw mut function,
            )
        };
        if status != sys::Status::napi_ok {
            // SAFETY: Node did not take the context.
            drop(unsafe { Box::from_raw(context.cast::<Weak<Loop>>()) });
            return Err(napi::Error::new(Status::from(status), "open the way to the event loop".to_owned()));
        }
        // SAFETY: just made, in the loop's thread.
        unsafe { sys::napi_unref_threadsafe_function(env.raw(), function) };
        *self.function.lock().unwrap_or_else(PoisonError::into_inner) = Some(Function(function));
        Ok(())
    }

    /// Wakes the loop, unless it was woken and has not looked yet.
    pub(crate) fn wake(&self) {
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(function) = &*self.function.lock().unwrap_or_else(PoisonError::into_inner) {
            // SAFETY: open, since the mutex is held; the call only queues.
            unsafe {
                sys::napi_call_threadsafe_function(
                    function.0,
                    ptr::null_mut(),
                    sys::ThreadsafeFunctionCallMode::nonblocking,
                );
            }
        }
    }

    /// The loop looks now: whatever comes from here on needs another wake.
    pub(crate) fn rearm(&self) {
        self.woken.store(false, Ordering::Release);
    }

    /// Whether the process must stay alive for what is under way.
    pub(crate) fn hold(&self, env: Env, alive: bool) {
        if let Some(function) = &*self.function.lock().unwrap_or_else(PoisonError::into_inner) {
            // SAFETY: open, and this is the loop's thread.
            unsafe {
                if alive {
                    sys::napi_ref_threadsafe_function(env.raw(), function.0);
                } else {
                    sys::napi_unref_threadsafe_function(env.raw(), function.0);
                }
            }
        }
    }

    /// Closes the way. Wakes that come later are dropped.
    pub(crate) fn close(&self) {
        if let Some(function) = self.function.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // SAFETY: taken out under the mutex, so nobody calls it any more.
            unsafe {
                sys::napi_release_threadsafe_function(function.0, sys::ThreadsafeFunctionReleaseMode::abort);
            }
        }
    }
}

/// Node calls this in the loop's thread for each wake.
unsafe extern "C" fn turn(env: sys::napi_env, _: sys::napi_value, context: *mut c_void, _: *mut c_void) {
    if env.is_null() {
        return;
    }
    // SAFETY: the context lives until `forget`.
    let to = unsafe { &*context.cast::<Weak<Loop>>() };
    if let Some(to) = to.upgrade() {
        to.turn();
    }
}

/// Node calls this once, when the function is closed.
unsafe extern "C" fn forget(_: sys::napi_env, context: *mut c_void, _: *mut c_void) {
    // SAFETY: made by `open`, given back once.
    drop(unsafe { Box::from_raw(context.cast::<Weak<Loop>>()) });
}
