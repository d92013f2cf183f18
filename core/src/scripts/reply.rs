//! Replies, read with mistrust: a value that no script of ours can give is a protocol error, not a guess.

use super::{Ask, Reply, Script, Verdict};
use crate::io::Value;
use crate::time::Millis;

/// What is needed of a request to understand its reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shape {
    script: Script,
    /// How many locks or owners it names.
    items: usize,
}

impl Ask {
    /// What to keep of a request until its reply comes.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let items = match self {
            Self::Renew(renewals) => renewals.len(),
            Self::Force { owners, .. } => owners.len(),
            Self::Acquire { .. } | Self::Release { .. } | Self::Status { .. } => 1,
        };
        Shape { script: self.script(), items }
    }
}

impl Shape {
    /// Understands what the server answered.
    ///
    /// # Errors
    /// What is wrong with the value, for a message to the operator.
    pub fn decode(&self, value: Value) -> Result<Reply, String> {
        match (self.script, value) {
            (Script::Acquire | Script::Release, Value::Int(0)) => Ok(Reply::NotOurs),
            (Script::Acquire, Value::Int(count)) => Ok(Reply::Granted { count: small("a hold count", count)? }),
            (Script::Acquire, Value::List(list)) => match list[..] {
                [Value::Int(ttl)] => Ok(Reply::Busy { ttl: millis(ttl)?, healed: false }),
                [Value::Int(ttl), Value::Int(1)] => Ok(Reply::Busy { ttl: millis(ttl)?, healed: true }),
                _ => Err(self.unexpected(&Value::List(list))),
            },
            (Script::Release, Value::Int(count)) => Ok(Reply::Still { count: small("a hold count", count)? }),
            (Script::Release, Value::List(list)) => match list[..] {
                [Value::Int(told)] => Ok(Reply::Freed { told: small("a number of subscribers", told)? }),
                _ => Err(self.unexpected(&Value::List(list))),
            },
            (Script::Renew, Value::List(list)) => renewed(list, self.items),
            (Script::Force, Value::List(list)) if self.items == 0 => {
                let text = |value| match value {
                    Value::Text(owner) => Ok(owner),
                    other => Err(self.unexpected(&other)),
                };
                list.into_iter().map(text).collect::<Result<_, _>>().map(Reply::Owners)
            }
            (Script::Force, Value::Int(gone)) if self.items > 0 => {
                Ok(Reply::Forced(small("a number of owners", gone)?))
            }
            (Script::Status, Value::Int(-2)) => Ok(Reply::Status(None)),
            (Script::Status, Value::Int(-1)) => Ok(Reply::Status(Some(None))),
            (Script::Status, Value::Int(ttl)) => Ok(Reply::Status(Some(Some(millis(ttl)?)))),
            (_, value) => Err(self.unexpected(&value)),
        }
    }

    fn unexpected(&self, value: &Value) -> String {
        format!("the {:?} script answered {}", self.script, describe(value))
    }
}

fn renewed(mut list: Vec<Value>, asked: usize) -> Result<Reply, String> {
    let wrong = |what: &str| format!("the Renew script answered {what} for {asked} locks");
    let (Some(micros), Some(seconds), Some(Value::Int(count))) = (list.pop(), list.pop(), list.pop()) else {
        return Err(wrong("a list too short"));
    };
    if list.len() % 2 == 1 {
        return Err(wrong("half a verdict"));
    }
    let server_us = match (digits(&seconds), digits(&micros)) {
        (Some(seconds), Some(micros)) if micros < 1_000_000 => {
            seconds.checked_mul(1_000_000).and_then(|us| us.checked_add(micros))
        }
        _ => None,
    };
    let Some(server_us) = server_us else {
        return Err(wrong("no time of day"));
    };
    let mut verdicts = vec![Verdict::Renewed; asked];
    let mut others = 0;
    let mut rest = list.into_iter();
    while let (Some(place), Some(value)) = (rest.next(), rest.next()) {
        let place = match place {
            Value::Int(place) => usize::try_from(place).ok().and_then(|place| place.checked_sub(1)),
            _ => None,
        };
        let verdict = match value {
            Value::Int(0) => Verdict::NotOurs,
            Value::Text(text) => Verdict::Refused(String::from_utf8_lossy(&text).into_owned()),
            other => return Err(wrong(&describe(&other))),
        };
        match place.and_then(|place| verdicts.get_mut(place)) {
            Some(at @ Verdict::Renewed) => *at = verdict,
            _ => return Err(wrong("no place of its own for a verdict")),
        }
        others += 1;
    }
    // Whoever is not named was renewed; that is not left to be guessed from a reply cut short.
    if usize::try_from(count) != Ok(asked - others) {
        return Err(wrong(&format!("{count} renewed and {others} not")));
    }
    Ok(Reply::Renewed { verdicts, server_us })
}

fn digits(value: &Value) -> Option<u64> {
    let Value::Text(text) = value else { return None };
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

fn small(what: &str, value: i64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("the server answered {value} as {what}"))
}

fn millis(value: i64) -> Result<Millis, String> {
    u64::try_from(value).map(Millis).map_err(|_| format!("the server answered {value} as a time to live"))
}

/// A kind and a size, never the content: it may be large, and it is a stranger's.
fn describe(value: &Value) -> String {
    match value {
        Value::Nil => "nothing".into(),
        Value::Int(number) => format!("the number {number}"),
        Value::Text(text) => format!("a text of {} bytes", text.len()),
        Value::List(list) => format!("a list of {}", list.len()),
    }
}
