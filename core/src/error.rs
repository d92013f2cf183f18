//! One list of stable error codes, and the error that carries one (reliability H1).

use core::fmt;

use crate::name::Name;
use crate::time::Millis;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// What went wrong, as a stable machine code: the same text in Rust, Python (`.code`) and Node (`.code`).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code {
            $($(#[$doc])* $variant,)+
        }

        impl Code {
            /// Every code, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

codes! {
    /// The lock was not to be had within the wait asked for.
    Timeout = "timeout",
    /// The caller holds nothing that it could release or extend.
    NotOwner = "not_owner",
    /// The hold ended before the section that it guarded.
    LockLost = "lock_lost",
    /// A release was sent and never answered: the lock is free at a known instant at the latest.
    ReleaseUnknown = "release_unknown",
    /// Fewer replicas acknowledged the grant than were asked for.
    NotReplicated = "not_replicated",
    /// The server refused the user, the password, a command, a key or a channel.
    PermissionDenied = "permission_denied",
    /// The key holds something that is not a lock of this kind.
    WrongType = "wrong_type",
    /// The server is a replica and takes no writes.
    ReadOnly = "read_only",
    /// The server has no memory left for the lock's key.
    OutOfMemory = "out_of_memory",
    /// No server answered.
    Unreachable = "unreachable",
    /// The server answered with something that is not the protocol, or is too old.
    Protocol = "protocol",
    /// The hold or operation belongs to the process this one was forked from.
    ForkedHandle = "forked_handle",
    /// The client was closed.
    Closed = "closed",
    /// The name is empty, too long, or a helper key of another lock.
    InvalidName = "invalid_name",
    /// The lease is not a number of milliseconds a server can keep.
    InvalidLease = "invalid_lease",
    /// The URL does not describe a server.
    InvalidUrl = "invalid_url",
    /// A wait or a client option is out of range.
    InvalidOption = "invalid_option",
    /// A call that blocks was made in a thread whose event loop is running.
    BlockingInLoop = "blocking_in_loop",
}

/// What went wrong, with which lock, whose, and what to do about it. Never holds a secret.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Inner {
    code: Code,
    message: String,
    name: Option<Name>,
    owner: Option<String>,
    free_within: Option<Millis>,
}

impl Error {
    /// An error with a code and a sentence that says what happened and what to do.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { code, message: message.into(), name: None, owner: None, free_within: None }))
    }

    /// `not_owner` or `lock_lost`: Redisson's wording, for whoever searches for it, then what happened and
    /// what to do. `owner`: `<uuid>:<number>`.
    #[must_use]
    pub fn not_held(code: Code, name: &Name, owner: &str, what: &str) -> Self {
        let (client, number) = owner.split_once(':').unwrap_or((owner, "0"));
        let text = format!(
            "attempt to unlock lock, not locked by current thread by node id: {client} thread-id: {number}: {what}"
        );
        Self::new(code, text).of(name).by(owner)
    }

    /// Names the lock.
    #[must_use]
    pub fn of(mut self, name: &Name) -> Self {
        self.0.name = Some(name.clone());
        self
    }

    /// Names the owner: `<uuid>:<number>` as the server knows it.
    #[must_use]
    pub fn by(mut self, owner: impl fmt::Display) -> Self {
        self.0.owner = Some(owner.to_string());
        self
    }

    /// Says after how long, counted from the report, the lock is free at the latest.
    #[must_use]
    pub fn free_within(mut self, span: Millis) -> Self {
        self.0.free_within = Some(span);
        self
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What happened and what to do, without the name of the lock.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The lock it is about.
    #[must_use]
    pub fn name(&self) -> Option<&Name> {
        self.0.name.as_ref()
    }

    /// The owner it is about.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.0.owner.as_deref()
    }

    /// With `release_unknown`: after how long the lock is free at the latest.
    #[must_use]
    pub fn free_at_latest(&self) -> Option<Millis> {
        self.0.free_within
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.name {
            Some(name) => write!(f, "lock {:?}: {}", name.as_str(), self.0.message),
            None => f.write_str(&self.0.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.0.code.as_str())
            .field("message", &self.0.message)
            .field("name", &self.0.name)
            .field("owner", &self.0.owner)
            .field("free_within", &self.0.free_within)
            .finish()
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_stable_and_distinct() {
        let mut texts: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), 18);
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), Code::ALL.len());
    }

    #[test]
    fn an_error_names_the_lock() {
        let name = Name::new("order_lock").unwrap();
        let error = Error::new(Code::Timeout, "still held by another").of(&name);
        assert_eq!(error.to_string(), r#"lock "order_lock": still held by another"#);
    }
}
