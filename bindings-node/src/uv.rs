//! Node's own event loop watches a descriptor for us (`uv_poll`). libuv is not part of Node-API, so that its
//! functions are looked up when the addon is loaded: where they are missing, another transport does the work.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};

use bandog::host::Watched;
use napi::{Env, sys};

use crate::client::ClientState;
use crate::looped::Loop;

const UV_POLL: c_int = 8;
const READABLE: c_int = 1;
const WRITABLE: c_int = 2;

type Handle = *mut c_void;
type Ready = unsafe extern "C" fn(Handle, c_int, c_int);
type Closed = unsafe extern "C" fn(Handle);

/// The loop of one environment.
pub(crate) struct Uv {
    main: *mut sys::uv_loop_s,
    calls: Calls,
    /// Handles that libuv has, from their making until it is done with them.
    open: Cell<usize>,
    /// Set while the environment waits for the last of them.
    leaving: Cell<Option<sys::napi_async_cleanup_hook_handle>>,
}

struct Calls {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    unref: unsafe extern "C" fn(Handle),
    close: unsafe extern "C" fn(Handle, Option<Closed>),
    poll_init: unsafe extern "C" fn(*mut sys::uv_loop_s, Handle, c_int) -> c_int,
    poll_start: unsafe extern "C" fn(Handle, c_int, Option<Ready>) -> c_int,
}

/// A descriptor that is watched, until this is dropped.
pub(crate) struct Poll {
    uv: Rc<Uv>,
    handle: Handle,
    watched: Watched,
    /// What it is watched for; 0 after libuv has given up.
    events: Cell<c_int>,
}

/// What libuv keeps until it is done with the handle.
struct Shell {
    uv: Rc<Uv>,
    memory: Box<[u128]>,
    /// Keeps the descriptor open, and so its number.
    _watched: Watched,
    looped: Weak<Loop>,
    client: Weak<ClientState>,
}

/// One of libuv's functions, as the field says that it is.
macro_rules! look {
    ($name:literal) => {{
        let found = symbol($name)?;
        // SAFETY: libuv's interface is stable: the function of this name has the type that `Calls` gives it.
        unsafe { std::mem::transmute::<*mut c_void, _>(found) }
    }};
}

impl Uv {
    /// The loop of this environment, where it is libuv's.
    #[expect(clippy::missing_transmute_annotations, reason = "the fields say the types")]
    pub(crate) fn find(env: Env) -> Option<Rc<Self>> {
        let calls = Calls {
            handle_size: look!(c"uv_handle_size"),
            unref: look!(c"uv_unref"),
            close: look!(c"uv_close"),
            poll_init: look!(c"uv_poll_init"),
            poll_start: look!(c"uv_poll_start"),
        };
        let mut main = std::ptr::null_mut();
        // SAFETY: the environment is running and the pointer is ours.
        let status = unsafe { sys::napi_get_uv_event_loop(env.raw(), &raw mut main) };
        let found = status == sys::Status::napi_ok && !main.is_null();
        found.then(|| Rc::new(Self { main, calls, open: Cell::new(0), leaving: Cell::new(None) }))
    }

    /// Watches a descriptor for what comes to it. `None` when libuv refuses.
    pub(crate) fn watch(
        self: &Rc<Self>,
        looped: &Rc<Loop>,
        client: &Rc<ClientState>,
        watched: &Watched,
    ) -> Option<Poll> {
        // SAFETY: takes the kind of a handle and has no effect.
        let size = unsafe { (self.calls.handle_size)(UV_POLL) };
        let mut shell = Box::new(Shell {
            uv: self.clone(),
            memory: vec![0; size.div_ceil(size_of::<u128>())].into(),
            _watched: watched.clone(),
            looped: Rc::downgrade(looped),
            client: Rc::downgrade(client),
        });
        let handle: Handle = shell.memory.as_mut_ptr().cast();
        // SAFETY: this is the loop's thread; the memory is of the size that libuv asks for, and stays where it
        // is until `closed`. A handle that could not be made is none: its memory is ours again.
        unsafe {
            if (self.calls.poll_init)(self.main, handle, watched.as_raw_fd()) != 0 {
                return None;
            }
            *data_of(handle) = Box::into_raw(shell);
            // What keeps the process alive is that something is wanted, not that it can be asked for.
            (self.calls.unref)(handle);
        }
        self.open.set(self.open.get() + 1);
        let poll = Poll { uv: self.clone(), handle, watched: watched.clone(), events: Cell::new(0) };
        poll.expect(false);
        Some(poll)
    }

    /// The environment goes, and nothing is watched any more. It waits until libuv is done with our handles.
    pub(crate) fn leave(&self, hook: sys::napi_async_cleanup_hook_handle) {
        self.leaving.set(Some(hook));
        self.go();
    }

    fn go(&self) {
        if self.open.get() == 0
            && let Some(hook) = self.leaving.take()
        {
            // SAFETY: given by Node for this very call, and taken out of the cell.
            unsafe { sys::napi_remove_async_cleanup_hook(hook) };
        }
    }
}

impl Poll {
    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Watches for what comes, and with `room` for room to write.
    pub(crate) fn expect(&self, room: bool) {
        let events = if room { READABLE | WRITABLE } else { READABLE };
        if self.events.replace(events) != events {
            // SAFETY: the handle is open and this is its loop's thread.
            let status = unsafe { (self.uv.calls.poll_start)(self.handle, events, Some(ready)) };
            debug_assert_eq!(status, 0);
        }
    }

    /// libuv found something wrong with the descriptor and does not watch it any more.
    pub(crate) fn gave_up(&self) {
        self.events.set(0);
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        // SAFETY: open until here, and this is its loop's thread. Nothing but `closed` comes from now on.
        unsafe { (self.uv.calls.close)(self.handle, Some(closed)) };
    }
}

/// libuv calls this in the loop's thread whenever the descriptor can be read or written.
unsafe extern "C" fn ready(handle: Handle, status: c_int, events: c_int) {
    // SAFETY: every handle of ours has its shell there until `closed`.
    let shell = unsafe { &**data_of(handle) };
    if let (Some(looped), Some(client)) = (shell.looped.upgrade(), shell.client.upgrade()) {
        looped.ready(&client, status < 0, events & WRITABLE != 0);
    }
}

/// libuv calls this once, when it is done with the handle.
unsafe extern "C" fn closed(handle: Handle) {
    // SAFETY: made by `watch`, given back once.
    let shell = unsafe { Box::from_raw(*data_of(handle)) };
    let uv = shell.uv.clone();
    drop(shell);
    uv.open.set(uv.open.get() - 1);
    uv.go();
}

/// The first field of every handle, `void* data`, is ours to set.
fn data_of(handle: Handle) -> *mut *mut Shell {
    handle.cast()
}

/// A function of the program that loaded us.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with NUL, and nothing is called.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
