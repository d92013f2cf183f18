//! What a client is told once, at its start.

use std::time::Duration;

use bandog_core::config::Config;
use bandog_core::error::{Code, Error};
use bandog_core::name::MAX_NAME_BYTES;
use bandog_core::time::Millis;

use crate::secret::Secret;
use crate::server::{Identity, Server, TlsSettings};
use crate::wire;

/// The settings of a [`crate::Client`]: a URL, and durations that have good defaults.
///
/// Fractions of a millisecond are rounded up. Nothing is checked before `Client::new`, which refuses
/// what cannot work.
///
/// ```
/// use std::time::Duration;
///
/// let options = bandog::Options::new("redis://127.0.0.1:6379/0")?.watchdog(Duration::from_secs(15));
/// options.check()?;
/// # Ok::<(), bandog::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    server: Server,
    tls: Option<TlsSettings>,
    config: Config,
    name_prefix: String,
    glance: Duration,
}

/// How often the keeper looks whether a loop leaves replies unread.
const GLANCE: Duration = Duration::from_millis(50);

impl Options {
    /// Settings for the server of this URL: `redis://user:password@host:6379/0`, `rediss://` for TLS,
    /// `unix:///run/redis.sock?db=0`.
    ///
    /// # Errors
    /// `invalid_url`. The message says what is wrong and never quotes the URL.
    pub fn new(url: &str) -> Result<Self, Error> {
        let (server, config) = (Server::parse(url)?, Config::default());
        Ok(Self { server, tls: None, config, name_prefix: String::new(), glance: GLANCE })
    }

    /// The lease of a hold that is renewed for as long as it is held; every third of it. Default 30 s.
    #[must_use]
    pub fn watchdog(mut self, lease: Duration) -> Self {
        self.config.watchdog = millis(lease);
        self
    }

    /// How long one request may stay without a reply. Default 3 s.
    #[must_use]
    pub fn op_timeout(mut self, span: Duration) -> Self {
        self.config.op_timeout = millis(span);
        self
    }

    /// How long connecting, TLS and login may take together. Default 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, span: Duration) -> Self {
        self.config.connect_timeout = millis(span);
        self
    }

    /// How long a wait without an end goes on while no server can be reached. Default 30 s.
    #[must_use]
    pub fn unreachable_after(mut self, span: Duration) -> Self {
        self.config.unreachable_after = millis(span);
        self
    }

    /// After how long the watchdog stops renewing a hold. Default: never.
    #[must_use]
    pub fn max_hold(mut self, span: Duration) -> Self {
        self.config.max_hold = Some(millis(span));
        self
    }

    /// Whether a re-entry may be answered without asking the server. Default no.
    #[must_use]
    pub fn local_reentry(mut self, on: bool) -> Self {
        self.config.local_reentry = on;
        self
    }

    /// Text put in front of every lock name. Default none.
    #[must_use]
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.name_prefix = prefix.into();
        self
    }

    /// For tests, to whose eyes the keeper's glances at the wires of loops would hide a lost wake.
    #[doc(hidden)]
    #[must_use]
    pub fn glance(mut self, span: Duration) -> Self {
        self.glance = span;
        self
    }

    /// The certificates (PEM) that may vouch for a `rediss://` server, instead of the system's own.
    #[must_use]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.get_or_insert_default().ca = Some(pem.into());
        self
    }

    /// The certificate chain and private key (both PEM) shown to a `rediss://` server that asks for one.
    #[must_use]
    pub fn tls_client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.get_or_insert_default().identity =
            Some(Identity { chain: chain.into(), key: Secret::new(key.into()) });
        self
    }

    /// Accepts any certificate of a `rediss://` server, for any host. Whoever can answer in the server's
    /// place then reads the password and hands out locks: for tests only.
    #[must_use]
    pub fn tls_without_verification(mut self) -> Self {
        self.tls.get_or_insert_default().unverified = true;
        self
    }

    /// Refuses what cannot work. `Client::new` calls it.
    ///
    /// # Errors
    /// `invalid_lease` for the watchdog, `invalid_option` for the rest.
    pub fn check(&self) -> Result<(), Error> {
        self.config.check()?;
        if self.name_prefix.len() >= MAX_NAME_BYTES {
            return Err(Error::new(
                Code::InvalidOption,
                format!("name_prefix leaves no room for a name: a lock name has at most {MAX_NAME_BYTES} bytes"),
            ));
        }
        if let Some(tls) = &self.tls {
            if self.server.tls.is_none() {
                return Err(Error::new(
                    Code::InvalidOption,
                    "TLS settings need a rediss:// URL: this one is plain text",
                ));
            }
            wire::check_tls(tls)?;
        }
        Ok(())
    }

    /// What the engine is told.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Where to connect, with the TLS settings filled in.
    pub(crate) fn server(&self) -> Server {
        let mut server = self.server.clone();
        if let (Some(slot), Some(tls)) = (&mut server.tls, &self.tls) {
            *slot = tls.clone();
        }
        server
    }

    /// How long a loop may leave replies unread.
    pub(crate) fn patience(&self) -> Duration {
        self.glance
    }

    /// What goes in front of every name.
    pub(crate) fn prefix(&self) -> &str {
        &self.name_prefix
    }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
