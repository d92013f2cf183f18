//! What an error reply means for a lock.

use crate::error::{Code, Error};
use crate::name::Name;
use crate::scripts::refusal;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refusal {
    /// The server does not know the script's digest: it did not run.
    NoScript,
    /// It will pass by itself: busy, loading, moving, between two primaries.
    Passing,
    /// Another value stands at the key.
    WrongType,
    /// It will not pass by itself.
    Final(Code),
}

impl Refusal {
    pub(crate) fn of(text: &str) -> Self {
        let (code, text) = refusal(text);
        match (code, text.split(' ').next().unwrap_or_default()) {
            (Some(Code::WrongType), _) => Self::WrongType,
            (Some(code), _) => Self::Final(code),
            (None, "NOSCRIPT") => Self::NoScript,
            (None, "BUSY" | "LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "MOVED" | "ASK") => Self::Passing,
            (None, "NOREPLICAS") => Self::Final(Code::NotReplicated),
            (None, "MISCONF") => Self::Final(Code::ReadOnly),
            (None, _) => Self::Final(Code::Protocol),
        }
    }

    /// The error for whoever asked.
    pub(crate) fn error(&self, name: &Name, text: &str) -> Error {
        let (code, advice) = match self {
            Self::NoScript => {
                (Code::Protocol, "the server keeps forgetting scripts: does something flush them all the time?")
            }
            Self::Passing => (Code::Unreachable, "the server is busy or changing: try again"),
            Self::WrongType => {
                (Code::WrongType, "another kind of value stands at this name: choose another name or delete it")
            }
            Self::Final(Code::PermissionDenied) => {
                (Code::PermissionDenied, "give the user the rights that the README lists")
            }
            Self::Final(Code::ReadOnly) => {
                (Code::ReadOnly, "the server takes no writes: connect to the primary, or mend its disk")
            }
            Self::Final(Code::NotReplicated) => {
                (Code::NotReplicated, "the server wants more replicas than it has: mend them")
            }
            Self::Final(Code::OutOfMemory) => (Code::OutOfMemory, "raise maxmemory or free some of it"),
            Self::Final(code) => (*code, "this server refuses what Bandog needs"),
        };
        Error::new(code, format!("the server refused: {}: {advice}", clip(refusal(text).1))).of(name)
    }
}

fn clip(text: &str) -> &str {
    let mut end = text.len().min(160);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_are_told_apart() {
        use Refusal::{Final, NoScript, Passing, WrongType};
        for (text, meaning) in [
            ("NOSCRIPT No matching script. Please use EVAL.", NoScript),
            ("BUSY Redis is busy running a script.", Passing),
            ("LOADING Redis is loading the dataset in memory", Passing),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", WrongType),
            ("WRONGTYPE Operation against a key script: 1f, on @user_script:3.", WrongType),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Final(Code::PermissionDenied)),
            ("ERR The user executing the script can't run this command or subcommand", Final(Code::PermissionDenied)),
            ("READONLY You can't write against a read only replica.", Final(Code::ReadOnly)),
            ("MISCONF Redis is configured to save RDB snapshots", Final(Code::ReadOnly)),
            ("OOM command not allowed when used memory > 'maxmemory'.", Final(Code::OutOfMemory)),
            ("ERR something new", Final(Code::Protocol)),
        ] {
            assert_eq!(Refusal::of(text), meaning, "{text}");
        }
    }
}
