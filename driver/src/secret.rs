//! Text that no log, message or panic may show (reliability X6).

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

/// A password or private key: shows nothing, is cleared when its last copy goes.
#[derive(Clone)]
pub(crate) struct Secret(Arc<Zeroizing<Vec<u8>>>);

impl Secret {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Zeroizing::new(bytes)))
    }

    /// The bytes, for the one place that sends them.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
