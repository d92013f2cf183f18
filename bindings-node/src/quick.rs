//! The two calls of every pair, and the object between them, by plain Node-API. What the napi crate does around a
//! method, so that `&mut self` would be safe, costs more than what these two do, and no method of ours takes
//! `&mut self`; what it notes of an object, so that others may refer to it, nobody asks for.

use std::ffi::c_void;
use std::ptr;

use napi::__private::___CALL_FROM_FACTORY;
use napi::bindgen_prelude::{JsObjectValue, Object, ToNapiValue, TypeTag, validate_type_tag};
use napi::{Env, JsError, Result, sys};

use crate::hold::Hold;
use crate::lock::Lock;
use crate::raw::{self, Callback};

/// An object with `acquire`, which is `Lock.acquire` without options and outside of every scope, and `release`, which
/// is `Hold.release`.
pub(crate) fn functions(env: Env) -> Result<Object<'static>> {
    let mut functions = Object::new(&env)?;
    functions.set_named_property("acquire", raw::function(env, c"acquire", acquire)?)?;
    functions.set_named_property("release", raw::function(env, c"release", release)?)?;
    Ok(functions)
}

/// A hold for JS. `class` is the constructor of its class, which refuses everybody but the napi crate itself.
pub(crate) fn hold(env: Env, class: &Callback, hold: Hold) -> Result<sys::napi_value> {
    unsafe extern "C" fn forget(_: sys::napi_env, hold: *mut c_void, _: *mut c_void) {
        // SAFETY: made below; Node gives it back once.
        drop(unsafe { Box::from_raw(hold.cast::<Hold>()) });
    }
    let (class, mut object) = (class.value()?, ptr::null_mut());
    // SAFETY: the class is a function of this environment. The hold is Node's once it is wrapped, and then the object
    // has the tag that says of what class its native part is.
    unsafe {
        ___CALL_FROM_FACTORY.with(|ours| ours.set(true));
        let status = sys::napi_new_instance(env.raw(), class, 0, ptr::null(), &raw mut object);
        ___CALL_FROM_FACTORY.with(|ours| ours.set(false));
        raw::check(status, "make a hold")?;
        let hold = Box::into_raw(Box::new(hold));
        let (none, nothing) = (ptr::null_mut(), ptr::null_mut());
        let status = sys::napi_wrap(env.raw(), object, hold.cast(), Some(forget), none, nothing);
        if status != sys::Status::napi_ok {
            drop(Box::from_raw(hold));
        }
        raw::check(status, "wrap a hold")?;
        raw::check(sys::napi_type_tag_object(env.raw(), object, &Hold::type_tag()), "tag a hold")?;
    }
    Ok(object)
}

unsafe extern "C" fn acquire(env: sys::napi_env, call: sys::napi_callback_info) -> sys::napi_value {
    answer(env, this::<Lock>(env, call, "Lock").and_then(Lock::acquire_bare))
}

unsafe extern "C" fn release(env: sys::napi_env, call: sys::napi_callback_info) -> sys::napi_value {
    answer(env, this::<Hold>(env, call, "Hold").and_then(Hold::release))
}

/// What a method is called on.
fn this<'c, T: TypeTag>(env: sys::napi_env, call: sys::napi_callback_info, class: &str) -> Result<&'c T> {
    let (mut this, mut wrapped) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call is the running one, and what it is called on lives for as long as it runs. An object with the
    // tag of a class has a value of that class for its native part, which is where it was put by the napi crate.
    unsafe {
        let status = sys::napi_get_cb_info(env, call, ptr::null_mut(), ptr::null_mut(), &raw mut this, ptr::null_mut());
        raw::check(status, "read a call")?;
        raw::check(sys::napi_unwrap(env, this, &raw mut wrapped), "find what a method is called on")?;
        validate_type_tag(env, this, &T::type_tag(), class)?;
        Ok(&*wrapped.cast::<T>())
    }
}

fn answer<T: ToNapiValue>(env: sys::napi_env, result: Result<T>) -> sys::napi_value {
    // SAFETY: this is the running environment's thread.
    match result.and_then(|value| unsafe { T::to_napi_value(env, value) }) {
        Ok(value) => value,
        Err(error) => {
            // SAFETY: as above.
            unsafe { JsError::from(error).throw_into(env) };
            ptr::null_mut()
        }
    }
}
