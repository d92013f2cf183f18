//! Which server, and how to log in: what a URL says.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use bandog_core::error::{Code, Error};

use crate::secret::Secret;

const DEFAULT_PORT: u16 = 6379;

/// The longest path that fits the address of a Unix socket on every system we know.
const MAX_SOCKET_PATH: usize = 103;

/// One server and the credentials for it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) address: Address,
    /// `None`: plain text. Never changes by itself: no fallback either way (reliability X7).
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) db: u32,
}

/// Where to connect. Host names are resolved anew for each connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// How a TLS server is judged, and what we show it.
#[derive(Clone, Default, Debug)]
pub(crate) struct TlsSettings {
    /// PEM; replaces the system's own certificates.
    pub(crate) ca: Option<Vec<u8>>,
    /// Set by one named call only.
    pub(crate) unverified: bool,
    pub(crate) identity: Option<Identity>,
}

/// A client certificate and its key, both PEM.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Secret,
}

impl Server {
    /// Reads a URL. No text of the URL gets into an error: a misplaced `/` or `@` makes any part of it
    /// a piece of the password.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let url = url.trim();
        let Some((scheme, rest)) = url.split_once("://") else {
            return refuse("the URL has no scheme: write redis://host:6379/0");
        };
        let (unix, tls) = match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => (false, false),
            "rediss" | "valkeys" => (false, true),
            "unix" | "redis+unix" | "valkey+unix" => (true, false),
            "redis+sentinel" | "rediss+sentinel" => {
                return refuse("redis+sentinel:// is not supported yet in this version");
            }
            "redis+cluster" | "rediss+cluster" => {
                return refuse("redis+cluster:// is not supported yet in this version");
            }
            "memory" => return refuse("memory:// is not supported yet in this version"),
            _ => return refuse("the scheme of the URL is unknown: use redis://, rediss:// or unix://"),
        };
        if rest.chars().any(|c| c.is_control() || c == ' ') {
            return refuse("the URL contains a space or control character: percent-encode it");
        }
        if rest.contains('#') {
            return refuse("the URL contains a '#': in a password write %23; TLS verification is never set by a URL");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if path.contains('@') || query.contains('@') {
            return refuse(
                "the URL has an '@' after its host: in a password write %2F for '/', %3F for '?', %40 for '@'",
            );
        }
        let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
        let mut server = Self {
            address: Address::Unix(PathBuf::new()),
            tls: tls.then(TlsSettings::default),
            user: Some(decode(user)?).filter(|user| !user.is_empty()),
            password: password.map(decode).transpose()?.filter(|text| !text.is_empty()).map(secret),
            db: 0,
        };
        if unix {
            if !host.is_empty() {
                return refuse("a unix:// URL has no host: write three slashes, unix:///run/redis.sock");
            }
            server.address = socket(path)?;
        } else {
            server.address = tcp(host)?;
            if let Some(db) = path.strip_prefix('/').filter(|db| !db.is_empty()) {
                server.db = database(db)?;
            }
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "db" => server.db = database(value)?,
                "user" | "username" if unix => server.user = Some(decode(value)?),
                "pass" | "password" if unix => server.password = Some(secret(decode(value)?)),
                _ => {
                    return refuse(
                        "the URL has a parameter that is not understood: only db is, and with unix:// user and password",
                    );
                }
            }
        }
        Ok(server)
    }
}

/// The address alone: what messages may show.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

fn tcp(authority: &str) -> Result<Address, Error> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return refuse("the IPv6 address in the URL has no closing bracket");
        };
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return refuse("the brackets in the URL do not hold an IPv6 address");
        }
        match port.strip_prefix(':') {
            Some(port) => (host, port),
            None if port.is_empty() => (host, ""),
            None => return refuse("the URL has text between the closing bracket of its host and the port"),
        }
    } else {
        let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
        if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')) {
            return refuse(
                "the host in the URL is not a host name: use letters, digits, dots and hyphens; several hosts need a later version",
            );
        }
        (host, port)
    };
    let port = match port {
        "" => DEFAULT_PORT,
        digits => match digits.parse() {
            Ok(port) if port != 0 => port,
            _ => {
                return refuse(
                    "the port in the URL is not a number from 1 to 65535; in a password write %2F for '/', %3A for ':'",
                );
            }
        },
    };
    Ok(Address::Tcp { host: if host.is_empty() { "127.0.0.1" } else { host }.to_owned(), port })
}

fn socket(path: &str) -> Result<Address, Error> {
    let path = decode(path)?;
    if path.len() < 2 || path.len() > MAX_SOCKET_PATH || path.contains('\0') {
        return refuse("the path of a unix:// URL must name a socket, in at most 103 bytes");
    }
    Ok(Address::Unix(path.into()))
}

fn database(digits: &str) -> Result<u32, Error> {
    match digits.parse() {
        Ok(db) => Ok(db),
        Err(_) => refuse("the database in the URL is not a number: write /0 after the host"),
    }
}

fn secret(text: String) -> Secret {
    Secret::new(text.into_bytes())
}

fn decode(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            #[expect(clippy::cast_possible_truncation, reason = "two hex digits are one byte")]
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return refuse("the URL has a '%' without two hex digits: write %25 for '%'"),
        }
    }
    String::from_utf8(bytes).or_else(|_| refuse("the URL does not decode to UTF-8"))
}

fn refuse<T>(why: &str) -> Result<T, Error> {
    Err(Error::new(Code::InvalidUrl, why))
}
