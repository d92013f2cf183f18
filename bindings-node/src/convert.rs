//! Names, spans and options out of JS values. Everything is judged before any I/O (reliability F42).

use bandog::host::Wait;
use bandog::{Code, Error, Millis, Options};
use napi::bindgen_prelude::{JsObjectValue, Object, Uint8Array, Unknown};
use napi::{JsString, JsValue, ValueType};
use std::time::Duration;

use crate::errors::Fail;

fn refuse<T>(code: Code, why: String) -> Result<T, Fail> {
    Err(Error::new(code, why).into())
}

fn kind(value: &Unknown) -> Result<&'static str, Fail> {
    Ok(match value.get_type()? {
        ValueType::Undefined => "undefined",
        ValueType::Null => "null",
        ValueType::Boolean => "a boolean",
        ValueType::Number => "a number",
        ValueType::String => "a string",
        ValueType::Symbol => "a symbol",
        ValueType::Object => "an object",
        ValueType::Function => "a function",
        ValueType::BigInt => "a bigint",
        _ => "something else",
    })
}

/// The text of a lock name, as UTF-8. Whether it will do for a name is for the client to say.
pub(crate) fn name(value: Unknown) -> Result<String, Fail> {
    if value.get_type()? != ValueType::String {
        return refuse(Code::InvalidName, format!("a lock name is a string, this is {}", kind(&value)?));
    }
    text(value)?.map_or_else(
        || refuse(Code::InvalidName, "the lock name has a surrogate without its other half: it has no UTF-8".into()),
        Ok,
    )
}

/// The UTF-8 of a string; `None` where a lone surrogate has none.
fn text(value: Unknown) -> Result<Option<String>, Fail> {
    // SAFETY: the callers have seen that it is a string.
    let string: JsString = unsafe { value.cast()? };
    let units = string.into_utf16()?;
    // The napi crate counts the closing NUL in.
    let units = units.split_last().map_or(&[][..], |(_, units)| units);
    Ok(String::from_utf16(units).ok())
}

/// The largest whole number that a double has for certain. Where the limits of leases and waits are, the
/// driver knows.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// How long a close may take where no `opTimeout` is given.
const PATIENCE: Duration = Duration::from_secs(3);

/// Milliseconds. Fractions are rounded up; everything that is no count of milliseconds is refused.
pub(crate) fn millis(value: &Unknown, code: Code, what: &str) -> Result<Millis, Fail> {
    if value.get_type()? != ValueType::Number {
        return refuse(code, format!("{what} is a number of milliseconds, this is {}", kind(value)?));
    }
    // SAFETY: it is a number.
    let number: f64 = unsafe { value.cast()? };
    if !(0.0..=MAX_SAFE).contains(&number) {
        let why = "give a finite number of milliseconds that is not negative";
        return refuse(code, format!("{what} of {number} is out of range: {why}"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(Millis(number.ceil() as u64))
}

/// An options object; `None` where there is none.
fn object<'e>(value: &Unknown<'e>, what: &str) -> Result<Option<Object<'e>>, Fail> {
    match value.get_type()? {
        ValueType::Undefined | ValueType::Null => Ok(None),
        ValueType::Object if value.is_array()? => {
            refuse(Code::InvalidOption, format!("the options of {what} are an object, this is an array"))
        }
        // SAFETY: it is an object.
        ValueType::Object => Ok(Some(unsafe { value.cast()? })),
        _ => refuse(Code::InvalidOption, format!("the options of {what} are an object, this is {}", kind(value)?)),
    }
}

/// The options of an acquire, and those of a lock, which are defaults for each acquire.
pub(crate) const ACQUIRE: &[&str] = &["wait", "lease", "signal"];
pub(crate) const LOCK: &[&str] = &["wait", "lease"];

/// How an acquire is asked for. The outer `None` says nothing, so that what was said before stands.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    pub(crate) wait: Option<Wait>,
    pub(crate) lease: Option<Option<Millis>>,
}

impl Asked {
    /// Reads the `options` of `what`, which knows no others than those of `known`. `null` says "for ever" and
    /// "the watchdog" where a default says otherwise.
    pub(crate) fn read(options: &Unknown, what: &str, known: &[&str]) -> Result<Self, Fail> {
        let mut asked = Self::default();
        let Some(options) = object(options, what)? else { return Ok(asked) };
        for key in Object::keys(&options)? {
            let value: Unknown = options.get_named_property_unchecked(&key)?;
            let kind = value.get_type()?;
            if kind == ValueType::Undefined {
                continue;
            }
            if !known.contains(&key.as_str()) {
                let known = known.join(", ");
                return refuse(Code::InvalidOption, format!("{what} has no option {key:?}: it takes {known}"));
            }
            match key.as_str() {
                "wait" if kind == ValueType::Null => asked.wait = Some(Wait::Forever),
                "wait" => {
                    asked.wait = Some(match millis(&value, Code::InvalidOption, "wait")? {
                        Millis::ZERO => Wait::Try,
                        span => Wait::For(span),
                    });
                }
                "lease" if kind == ValueType::Null => asked.lease = Some(None),
                "lease" => asked.lease = Some(Some(lease(&value)?)),
                // The signal is heard by lib/signal.cjs.
                _ => {}
            }
        }
        Ok(asked)
    }

    /// What this leaves open is filled from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { wait: self.wait.or(other.wait), lease: self.lease.or(other.lease) }
    }
}

/// A fixed lease.
pub(crate) fn lease(value: &Unknown) -> Result<Millis, Fail> {
    millis(value, Code::InvalidLease, "lease")
}

/// How many events may wait for a listener: `{ capacity }`.
pub(crate) fn capacity(options: &Unknown) -> Result<Option<usize>, Fail> {
    let mut capacity = None;
    let Some(options) = object(options, "events")? else { return Ok(capacity) };
    for key in Object::keys(&options)? {
        let value: Unknown = options.get_named_property_unchecked(&key)?;
        if value.get_type()? == ValueType::Undefined {
            continue;
        }
        if key != "capacity" {
            return refuse(Code::InvalidOption, format!("events has no option {key:?}: it takes capacity"));
        }
        if value.get_type()? != ValueType::Number {
            return refuse(Code::InvalidOption, format!("capacity is a number of events, this is {}", kind(&value)?));
        }
        // SAFETY: it is a number.
        let number: f64 = unsafe { value.cast()? };
        if number.fract() != 0.0 || !(1.0..=f64::from(u32::MAX)).contains(&number) {
            return refuse(Code::InvalidOption, format!("capacity of {number}: give a whole number above zero"));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let number = number as usize;
        capacity = Some(number);
    }
    Ok(capacity)
}

/// The options of a client, and its `opTimeout`.
pub(crate) fn options(url: Unknown, value: Unknown) -> Result<(Options, Duration), Fail> {
    if url.get_type()? != ValueType::String {
        return refuse(Code::InvalidUrl, format!("the url is a string, this is {}", kind(&url)?));
    }
    let Some(url) = text(url)? else {
        return refuse(Code::InvalidUrl, "the url has a surrogate without its other half".into());
    };
    let mut options = Options::new(&url)?;
    let Some(given) = object(&value, "connect")? else { return Ok((options, PATIENCE)) };
    let mut patience = PATIENCE;
    let (mut certificate, mut secret) = (None, None);
    for key in Object::keys(&given)? {
        let value: Unknown = given.get_named_property_unchecked(&key)?;
        if value.get_type()? == ValueType::Undefined {
            continue;
        }
        options = match key.as_str() {
            "watchdog" => options.watchdog(Duration::from_millis(millis(&value, Code::InvalidLease, &key)?.0)),
            "opTimeout" => {
                patience = span(&value, &key)?;
                options.op_timeout(patience)
            }
            "connectTimeout" => options.connect_timeout(span(&value, &key)?),
            "unreachableAfter" => options.unreachable_after(span(&value, &key)?),
            "maxHold" => match value.get_type()? {
                ValueType::Null => options,
                _ => options.max_hold(span(&value, &key)?),
            },
            "localReentry" => options.local_reentry(flag(&value, &key)?),
            "namePrefix" => match value.get_type()? {
                ValueType::String => options.name_prefix(name(value)?),
                _ => return refuse(Code::InvalidOption, format!("namePrefix is a string, this is {}", kind(&value)?)),
            },
            "tlsCa" => options.tls_ca(pem(&value, &key)?),
            // The two belong together, so they are set below.
            "tlsCertificate" => {
                certificate = Some(pem(&value, &key)?);
                options
            }
            "tlsKey" => {
                secret = Some(pem(&value, &key)?);
                options
            }
            "tlsWithoutVerification" => match flag(&value, &key)? {
                true => options.tls_without_verification(),
                false => options,
            },
            _ => return refuse(Code::InvalidOption, format!("there is no option {key:?}")),
        };
    }
    options = match (certificate, secret) {
        (Some(certificate), Some(secret)) => options.tls_client_certificate(certificate, secret),
        (None, None) => options,
        _ => return refuse(Code::InvalidOption, "give tlsCertificate and tlsKey together".into()),
    };
    Ok((options, patience))
}

/// A refusal of a client's options. The only lease among them is the watchdog's.
pub(crate) fn watchdog(error: Error) -> Error {
    if error.code() != Code::InvalidLease {
        return error;
    }
    Error::new(Code::InvalidLease, format!("watchdog: {}", error.message()))
}

fn flag(value: &Unknown, what: &str) -> Result<bool, Fail> {
    if value.get_type()? != ValueType::Boolean {
        return refuse(Code::InvalidOption, format!("{what} is a boolean, this is {}", kind(value)?));
    }
    // SAFETY: it is a boolean.
    Ok(unsafe { value.cast()? })
}

fn pem(value: &Unknown, what: &str) -> Result<Vec<u8>, Fail> {
    if value.get_type()? == ValueType::String {
        // SAFETY: it is a string.
        return Ok(unsafe { value.cast::<String>()? }.into_bytes());
    }
    if value.get_type()? == ValueType::Object && value.is_typedarray()? {
        // SAFETY: it is a typed array; one of another element type is refused by the conversion.
        return Ok(unsafe { value.cast::<Uint8Array>()? }.to_vec());
    }
    refuse(Code::InvalidOption, format!("{what} is PEM text, a string or bytes, this is {}", kind(value)?))
}

fn span(value: &Unknown, what: &str) -> Result<Duration, Fail> {
    Ok(Duration::from_millis(millis(value, Code::InvalidOption, what)?.0))
}

/// A span as JS has it. At most 2^53 / 1000 ms: exact in a double.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn number(span: Millis) -> f64 {
    span.0 as f64
}
