//! Lock names, and the channel names that follow from them (protocol section 1.2).

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::error::{Code, Error};

/// The longest name accepted, in bytes of UTF-8, with the prefix of the client counted in.
pub const MAX_NAME_BYTES: usize = 512;

/// Beginnings that belong to the helper keys and channels of Redisson and of Bandog. A lock of such a
/// name could overwrite the helper of another lock.
const RESERVED_PREFIXES: [&str; 8] = [
    "redisson_lock__channel:",
    "redisson_rwlock:",
    "redisson_unlock_latch:",
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
    "redisson_lock_token:",
    "redisson_sc:",
    "bandog_",
];

/// The name of a lock as it stands in Redis: checked, cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name before any I/O.
    ///
    /// # Errors
    /// `invalid_name` when it is empty, longer than [`MAX_NAME_BYTES`], or one of the helper keys that
    /// Redisson derives from lock names.
    pub fn new(text: &str) -> Result<Self, Error> {
        Self::with_prefix("", text)
    }

    /// The same with the client's `name_prefix` put in front.
    ///
    /// # Errors
    /// As [`Name::new`], judged on the whole name; an empty `text` is refused whatever the prefix.
    pub fn with_prefix(prefix: &str, text: &str) -> Result<Self, Error> {
        let refuse = |why: String| Err(Error::new(Code::InvalidName, why));
        if text.is_empty() {
            return refuse("the lock name is empty: give every lock a name".into());
        }
        let bytes = prefix.len() + text.len();
        if bytes > MAX_NAME_BYTES {
            return refuse(format!(
                "the lock name has {bytes} bytes, at most {MAX_NAME_BYTES} are allowed: shorten it or use a hash of it"
            ));
        }
        let whole: Arc<str> = if prefix.is_empty() { text.into() } else { format!("{prefix}{text}").into() };
        let helper = RESERVED_PREFIXES.iter().any(|reserved| whole.starts_with(reserved))
            || whole.starts_with("redisson_countdownlatch__channel__")
            || whole.contains(":rwlock_timeout:")
            || whole.ends_with("}:timeout");
        if helper {
            return refuse(format!(
                "the lock name {:?} is a helper key of another lock: choose a name outside Redisson's own",
                clip(&whole)
            ));
        }
        Ok(Self(whole))
    }

    /// The text, byte for byte as given, with the client's prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The channel on which the final release of this lock is published.
    #[must_use]
    pub fn channel(&self) -> Channel {
        Channel(self.channel_parts().concat().into())
    }

    /// What [`Name::channel`] is made of, for those who write it without making it.
    pub(crate) fn channel_parts(&self) -> [&str; 4] {
        let (open, close) = if self.0.contains('{') { ("", "") } else { ("{", "}") };
        ["redisson_lock__channel:", open, &self.0, close]
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The full name of a pub/sub channel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel(Arc<str>);

impl Channel {
    /// The text as it goes over the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Channel {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A name short enough for a message.
fn clip(text: &str) -> String {
    let mut end = text.len().min(80);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_follow_the_brace_rule() {
        let channel = |text: &str| Name::new(text).unwrap().channel().as_str().to_owned();
        assert_eq!(channel("order_lock"), "redisson_lock__channel:{order_lock}");
        assert_eq!(channel("a{b}c"), "redisson_lock__channel:a{b}c");
        assert_eq!(channel("a{b"), "redisson_lock__channel:a{b");
        assert_eq!(channel("a}b"), "redisson_lock__channel:{a}b}");
    }

    #[test]
    fn f41_names_are_kept_byte_for_byte_or_refused() {
        for good in ["x", "a b", "a\r\nb", "a\0b", "\u{1f512}", "e\u{301}", "{}", &"n".repeat(MAX_NAME_BYTES)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        let long = "n".repeat(MAX_NAME_BYTES + 1);
        let huge = "n".repeat(1 << 20);
        for bad in [
            "",
            &long,
            &huge,
            "redisson_lock__channel:{x}",
            "redisson_unlock_latch:{x}:00",
            "redisson_countdownlatch__channel__{x}",
            "{x}:timeout",
            "{x}:u:1:rwlock_timeout:1",
            "bandog_fair_alive:{x}",
        ] {
            let error = Name::new(bad).unwrap_err();
            assert_eq!(error.code(), Code::InvalidName, "{bad:.40}");
            assert!(error.to_string().len() < 300, "a refused name is not quoted at length");
        }
    }

    #[test]
    fn the_prefix_counts_and_an_empty_name_stays_empty() {
        assert_eq!(Name::with_prefix("app:", "x").unwrap().as_str(), "app:x");
        assert!(Name::with_prefix("app:", "").is_err());
        assert!(Name::with_prefix(&"p".repeat(MAX_NAME_BYTES), "x").is_err());
    }
}
