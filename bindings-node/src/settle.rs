//! What becomes of a wish's answer in JS.

use std::rc::Rc;

use bandog::host::{self, News, Settled, Ticket};
use bandog::{Code, Error, Name};
use napi::bindgen_prelude::Null;
use napi::{Env, sys};

use crate::client::ClientState;
use crate::convert;
use crate::errors::Fail;
use crate::hold::Hold;
use crate::owner::Owner;
use crate::raw;

/// Which promise it is.
pub(crate) enum Kind {
    /// For a hold. `busy` says what "still held by another" means: `null` or `LockTimeout`.
    Acquire {
        owner: Rc<Owner>,
        busy: Busy,
    },
    /// The end of a level. The owner is unknown where nobody held anything.
    Release(Option<Rc<Owner>>),
    Extend,
    Force,
    Locked,
    Remaining,
}

pub(crate) enum Busy {
    Null,
    Reject(Name),
}

/// What the loop does next with a promise.
pub(crate) enum Next {
    Done(Result<sys::napi_value, Fail>),
    /// The grant came too late and was given back: wait for the next answer.
    Wait(Kind),
}

impl Kind {
    /// The lock that is asked for or given back, where the error does not say.
    pub(crate) fn about(&self, error: Error) -> Error {
        match self {
            Self::Acquire { owner, .. } | Self::Release(Some(owner)) if error.name().is_none() => {
                error.of(owner.name())
            }
            _ => error,
        }
    }

    /// Turns an answer into a value. Runs in the loop's turn in which the promise is settled, so a grant is
    /// claimed by the code that resumes (reliability S6).
    pub(crate) fn finish(
        self,
        env: Env,
        client: &Rc<ClientState>,
        ticket: &Ticket,
        result: Result<News, Error>,
    ) -> Next {
        let result = match result {
            Ok(News::Granted) => match host::claim(&client.driver, ticket) {
                Ok(Some(handle)) => Ok(Settled::Held(handle)),
                Ok(None) => return Next::Wait(self),
                Err(error) => Err(error),
            },
            Ok(News::Ended(settled)) => Ok(settled),
            Err(error) => Err(error),
        };
        Next::Done(self.end(env, client, result))
    }

    /// The value for the end of a wish.
    pub(crate) fn end(
        self,
        env: Env,
        client: &Rc<ClientState>,
        result: Result<Settled, Error>,
    ) -> Result<sys::napi_value, Fail> {
        let result = result.map_err(|error| self.about(error));
        let value = match (result, self) {
            (Ok(Settled::Held(handle)), Self::Acquire { owner, .. }) => {
                client.looped.words.hold(Hold::new(client, handle, owner))
            }
            (Ok(Settled::Busy), Self::Acquire { busy: Busy::Null, .. }) => raw::value(env, Null),
            (Ok(Settled::Busy), Self::Acquire { busy: Busy::Reject(name), .. }) => {
                let text = "another still holds it at the end of the wait: wait longer, or do without it";
                return Err(Error::new(Code::Timeout, text).of(&name).into());
            }
            (Ok(Settled::Released { left }), Self::Release(owner)) => {
                client.sweep_losses();
                if let (0, Some(owner)) = (left, owner) {
                    owner.released();
                }
                raw::undefined(env)
            }
            (Err(error), Self::Release(owner)) => {
                // An outer level may be held yet, and its scope with it.
                if let Some(owner) = owner.filter(|owner| owner.count() == 0) {
                    owner.gone();
                }
                return Err(error.into());
            }
            (Ok(Settled::Extended), _) => raw::undefined(env),
            (Ok(Settled::Forced(any)), _) => raw::value(env, any),
            (Ok(Settled::Status(status)), Self::Locked) => raw::value(env, status.is_some()),
            (Ok(Settled::Status(status)), _) => {
                raw::value(env, status.map(|ttl| ttl.map_or(f64::INFINITY, convert::number)))
            }
            (Err(error), _) => return Err(error.into()),
            (Ok(_), _) => {
                return Err(Error::new(Code::Protocol, "the driver answered something that was not asked").into());
            }
        };
        value.map_err(Fail::from)
    }
}
