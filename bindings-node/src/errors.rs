//! The driver's errors as JS classes: one exhaustive match, so that a new code does not compile until it has one.

use bandog::{Code, Error};
use napi::{Env, Result, sys};

use crate::raw;

/// Why a call failed: the driver said so, or JS threw while its arguments were read.
pub(crate) enum Fail {
    Lock(Error),
    Js(napi::Error),
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<napi::Error> for Fail {
    fn from(error: napi::Error) -> Self {
        Self::Js(error)
    }
}

/// The name of the class in `lib/errors.cjs`.
fn class(code: Code) -> &'static str {
    match code {
        Code::Timeout => "LockTimeout",
        Code::NotOwner => "NotOwner",
        Code::LockLost => "LockLost",
        Code::ReleaseUnknown => "ReleaseUnknown",
        Code::NotReplicated => "NotReplicated",
        Code::PermissionDenied => "PermissionDenied",
        Code::WrongType => "WrongType",
        Code::ReadOnly => "ReadOnly",
        Code::OutOfMemory => "OutOfMemory",
        Code::Unreachable => "Unreachable",
        Code::Protocol => "Protocol",
        Code::ForkedHandle => "ForkedHandle",
        Code::Closed => "Closed",
        Code::InvalidName => "InvalidName",
        Code::InvalidLease => "InvalidLease",
        Code::InvalidUrl => "InvalidUrl",
        Code::InvalidOption => "InvalidOption",
        Code::BlockingInLoop => "BlockingInLoop",
    }
}

/// The options that the driver's messages name, as they are written here.
const OPTIONS: &[(&str, &str)] = &[
    ("op_timeout", "opTimeout"),
    ("connect_timeout", "connectTimeout"),
    ("unreachable_after", "unreachableAfter"),
    ("max_hold", "maxHold"),
    ("name_prefix", "namePrefix"),
    ("tls_ca", "tlsCa"),
    ("tls_client_certificate", "tlsCertificate and tlsKey"),
];

fn ours(word: &str) -> &str {
    OPTIONS.iter().find(|(theirs, _)| *theirs == word).map_or(word, |(_, ours)| ours)
}

fn text(error: &Error) -> String {
    let message = error.message().split(' ').map(ours).collect::<Vec<_>>().join(" ");
    let told = Error::new(error.code(), message);
    match error.name() {
        Some(name) => told.of(name).to_string(),
        None => told.to_string(),
    }
}

/// What the JS side is told: class, code, message, lock name, owner, free at the latest after.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn arguments(env: Env, error: &Error) -> Result<[sys::napi_value; 6]> {
    Ok([
        raw::value(env, class(error.code()))?,
        raw::value(env, error.code().as_str())?,
        raw::value(env, text(error))?,
        raw::value(env, error.name().map(|name| name.as_str().to_owned()))?,
        raw::value(env, error.owner().map(str::to_owned))?,
        // A span of at most 2^53 / 1000 ms is exact in a double.
        raw::value(env, error.free_at_latest().map(|span| span.0 as f64))?,
    ])
}
