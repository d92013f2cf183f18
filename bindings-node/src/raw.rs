//! The few things of Node-API that the napi crate has no cheap word for: a promise settled later from the
//! loop's own thread, and a JS function kept for later.

use std::ffi::{CStr, c_void};
use std::ptr;

use napi::{Env, Result, Status, sys};

pub(crate) fn check(status: sys::napi_status, doing: &str) -> Result<()> {
    if status == sys::Status::napi_ok { Ok(()) } else { Err(napi::Error::new(Status::from(status), doing.to_owned())) }
}

/// The other end of a promise. The napi crate's own deferred makes one threadsafe function each; this one
/// is settled in the loop's thread and costs nothing beside the promise.
pub(crate) struct Deferred(sys::napi_deferred);

impl Deferred {
    /// A pending promise and its other end.
    pub(crate) fn new(env: Env) -> Result<(Self, sys::napi_value)> {
        let (mut deferred, mut promise) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `env` is the running environment and both pointers are ours.
        check(unsafe { sys::napi_create_promise(env.raw(), &raw mut deferred, &raw mut promise) }, "create a promise")?;
        Ok((Self(deferred), promise))
    }

    /// Settles the promise: `Ok` fulfils it, `Err` rejects it.
    pub(crate) fn settle(self, env: Env, result: std::result::Result<sys::napi_value, sys::napi_value>) -> Result<()> {
        // SAFETY: the deferred is settled once, since `self` goes; the value belongs to the open handle scope.
        let status = unsafe {
            match result {
                Ok(value) => sys::napi_resolve_deferred(env.raw(), self.0, value),
                Err(error) => sys::napi_reject_deferred(env.raw(), self.0, error),
            }
        };
        check(status, "settle a promise")
    }
}

/// A JS function kept beyond the call that brought it.
pub(crate) struct Callback {
    env: Env,
    kept: sys::napi_ref,
}

impl Callback {
    /// Keeps a function alive until this is dropped.
    pub(crate) fn keep(env: Env, function: sys::napi_value) -> Result<Self> {
        let mut kept = ptr::null_mut();
        // SAFETY: the function is a live value of this environment.
        check(unsafe { sys::napi_create_reference(env.raw(), function, 1, &raw mut kept) }, "keep a function")?;
        Ok(Self { env, kept })
    }

    /// The function itself.
    pub(crate) fn value(&self) -> Result<sys::napi_value> {
        let mut value = ptr::null_mut();
        // SAFETY: the reference is alive and this is the loop's thread.
        let status = unsafe { sys::napi_get_reference_value(self.env.raw(), self.kept, &raw mut value) };
        check(status, "read a kept function")?;
        Ok(value)
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        // SAFETY: dropped in the loop's thread only (it is not Send), and `Loop::shut` drops all of them
        // before the environment goes.
        unsafe { sys::napi_delete_reference(self.env.raw(), self.kept) };
    }
}

/// `undefined`.
pub(crate) fn undefined(env: Env) -> Result<sys::napi_value> {
    let mut value = ptr::null_mut();
    // SAFETY: the environment is running.
    check(unsafe { sys::napi_get_undefined(env.raw(), &raw mut value) }, "make undefined")?;
    Ok(value)
}

/// Any Rust value as a JS value.
pub(crate) fn value<T: napi::bindgen_prelude::ToNapiValue>(env: Env, from: T) -> Result<sys::napi_value> {
    // SAFETY: the environment is running and this is its thread.
    unsafe { T::to_napi_value(env.raw(), from) }
}

/// A copy of bytes as a `Buffer`.
pub(crate) fn buffer(env: Env, bytes: &[u8]) -> Result<sys::napi_value> {
    let mut buffer = ptr::null_mut();
    // SAFETY: the bytes are live and as many as stated; where the copy lies is of no interest.
    let status = unsafe {
        sys::napi_create_buffer_copy(env.raw(), bytes.len(), bytes.as_ptr().cast(), ptr::null_mut(), &raw mut buffer)
    };
    check(status, "make a buffer")?;
    Ok(buffer)
}

/// A function that Rust answers.
pub(crate) fn function(
    env: Env,
    name: &CStr,
    answer: unsafe extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value,
) -> Result<sys::napi_value> {
    let (mut function, length) = (ptr::null_mut(), name.to_bytes().len().cast_signed());
    // SAFETY: the environment is running and the name is as long as stated.
    let status = unsafe {
        let (name, none) = (name.as_ptr(), ptr::null_mut());
        sys::napi_create_function(env.raw(), name, length, Some(answer), none, &raw mut function)
    };
    check(status, "make a function")?;
    Ok(function)
}

/// Whether a value is `true`.
pub(crate) fn boolean(env: Env, value: sys::napi_value) -> Result<bool> {
    let mut boolean = false;
    // SAFETY: the value belongs to the open handle scope.
    check(unsafe { sys::napi_get_value_bool(env.raw(), value, &raw mut boolean) }, "read a boolean")?;
    Ok(boolean)
}

/// Properties of an object.
pub(crate) fn properties<const N: usize>(
    env: Env,
    object: sys::napi_value,
    names: [&CStr; N],
) -> Result<[sys::napi_value; N]> {
    let mut values = [ptr::null_mut(); N];
    for (name, value) in names.iter().zip(&mut values) {
        // SAFETY: the object belongs to the open handle scope.
        let status = unsafe { sys::napi_get_named_property(env.raw(), object, name.as_ptr(), &raw mut *value) };
        check(status, "read a property")?;
    }
    Ok(values)
}

/// Calls a function with `undefined` as `this`.
pub(crate) fn call(env: Env, function: sys::napi_value, arguments: &[sys::napi_value]) -> Result<sys::napi_value> {
    let (this, mut result) = (undefined(env)?, ptr::null_mut());
    // SAFETY: function, arguments and `this` are live values of this environment's open handle scope.
    let status = unsafe {
        sys::napi_call_function(env.raw(), this, function, arguments.len(), arguments.as_ptr(), &raw mut result)
    };
    check(status, "call a function")?;
    Ok(result)
}

/// What the loop needs to run JS by itself, in a turn that Node did not open for us.
pub(crate) struct Scopes(sys::napi_async_context);

impl Scopes {
    pub(crate) fn new(env: Env) -> Result<Self> {
        let (name, mut context) = (value(env, "bandog")?, ptr::null_mut());
        // SAFETY: the environment is running, the name is a live value, and Node makes the resource itself.
        check(unsafe { sys::napi_async_init(env.raw(), ptr::null_mut(), name, &raw mut context) }, "begin to watch")?;
        Ok(Self(context))
    }

    /// Runs `body`, then everything that it made ready: what was passed to `process.nextTick`, and the code that
    /// waited for promises. Does nothing when no JS can run any more.
    pub(crate) fn run(&self, env: Env, body: impl FnOnce()) {
        let (mut handles, mut scope) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: this is the loop's thread; each scope that could be opened is closed, in reverse.
        unsafe {
            if sys::napi_open_handle_scope(env.raw(), &raw mut handles) != sys::Status::napi_ok {
                return;
            }
            let opened = sys::napi_open_callback_scope(env.raw(), ptr::null_mut(), self.0, &raw mut scope);
            if opened == sys::Status::napi_ok {
                body();
                sys::napi_close_callback_scope(env.raw(), scope);
            }
            sys::napi_close_handle_scope(env.raw(), handles);
        }
    }
}

/// Has `leave` called when the environment goes, which then waits until the hook given to it is removed.
pub(crate) fn at_the_end(env: Env, leave: impl FnOnce(sys::napi_async_cleanup_hook_handle) + 'static) -> Result<()> {
    type Leave = Box<dyn FnOnce(sys::napi_async_cleanup_hook_handle)>;
    unsafe extern "C" fn go(hook: sys::napi_async_cleanup_hook_handle, leave: *mut c_void) {
        // SAFETY: made below; Node calls this once.
        let leave = unsafe { Box::from_raw(leave.cast::<Leave>()) };
        leave(hook);
    }
    let leave: *mut Leave = Box::into_raw(Box::new(Box::new(leave)));
    // SAFETY: the environment is running; `go` frees what it is given.
    let status = unsafe { sys::napi_add_async_cleanup_hook(env.raw(), Some(go), leave.cast(), ptr::null_mut()) };
    if status != sys::Status::napi_ok {
        // SAFETY: Node did not take it.
        drop(unsafe { Box::from_raw(leave) });
    }
    check(status, "wait for the end of the environment")
}
