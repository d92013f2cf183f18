//! TLS between the codec and the bytes, by rustls, which does no I/O either. Chain and host are verified
//! unless a named option says otherwise (reliability X7).

use std::io::{Read, Write};
use std::sync::Arc;

use bandog_core::error::{Code, Error};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

use crate::server::{Address, Identity, Server, TlsSettings};

/// One TLS session.
pub(super) struct Tls {
    session: ClientConnection,
    /// Ciphertext on its way out, and how much of it went.
    cipher: Vec<u8>,
    taken: usize,
}

impl Tls {
    /// Begins a session. The system's certificates are read anew each time: they change while programs run,
    /// and a cache would be one more lock to be caught in by a fork.
    pub(super) fn new(settings: &TlsSettings, server: &Server) -> Result<Self, Error> {
        let host = match &server.address {
            Address::Tcp { host, .. } => ServerName::try_from(host.clone()).ok(),
            Address::Unix(_) => None,
        };
        let host = host.ok_or_else(|| {
            Error::new(Code::InvalidUrl, format!("{server} is not a host that a certificate can be checked against"))
        })?;
        let session = ClientConnection::new(Arc::new(config(settings, system_roots)?), host)
            .map_err(|error| Error::new(Code::Protocol, format!("TLS to {server} cannot begin: {error}")))?;
        Ok(Self { session, cipher: Vec::new(), taken: 0 })
    }

    /// Whether plain text can be encrypted already.
    pub(super) fn is_open(&self) -> bool {
        !self.session.is_handshaking()
    }

    /// Ciphertext to write.
    pub(super) fn output(&self) -> &[u8] {
        &self.cipher[self.taken..]
    }

    /// So much of it went.
    pub(super) fn wrote(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.cipher.len() {
            self.cipher.clear();
            self.taken = 0;
        }
    }

    /// Encrypts plain text, and whatever the session itself has to say. Memory is all it writes to, so that
    /// it cannot fail.
    pub(super) fn encrypt(&mut self, plain: &[u8]) {
        self.session.set_buffer_limit(None);
        let _ = self.session.writer().write_all(plain);
        while self.session.wants_write() {
            if !matches!(self.session.write_tls(&mut self.cipher), Ok(1..)) {
                break;
            }
        }
    }

    /// Decrypts what came, piece by piece.
    pub(super) fn decrypt(
        &mut self,
        mut bytes: &[u8],
        server: &str,
        mut plain: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let mut piece = [0; 4096];
        while !bytes.is_empty() {
            let read = self.session.read_tls(&mut bytes);
            self.session.process_new_packets().map_err(|error| refusal(server, &error))?;
            while let Ok(count @ 1..) = self.session.reader().read(&mut piece) {
                plain(&piece[..count]);
            }
            match read {
                Ok(1..) => {}
                // Nothing follows the end of a session.
                Ok(0) => break,
                Err(error) => return Err(Error::new(Code::Protocol, format!("TLS with {server} failed: {error}"))),
            }
        }
        Ok(())
    }
}

/// Refuses settings that no session could begin with. No I/O: the system's certificates are left alone.
pub(crate) fn check_tls(settings: &TlsSettings) -> Result<(), Error> {
    config(settings, || Ok(RootCertStore::empty())).map(drop)
}

fn config(
    settings: &TlsSettings,
    system: impl FnOnce() -> Result<RootCertStore, Error>,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&format!("TLS has no usable version: {error}")))?;
    let builder = if settings.unverified {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    } else {
        builder.with_root_certificates(match &settings.ca {
            Some(pem) => roots(pem)?,
            None => system()?,
        })
    };
    let mut config = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity_of(identity)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|_| bad("the client certificate and its private key do not belong together"))?
        }
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(pem)? {
        store.add(certificate).map_err(|_| bad("a certificate given to tls_ca is not one that can be used"))?;
    }
    Ok(store)
}

fn system_roots() -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() {
        return Err(bad(
            "the system has no certificates to check a server with: install ca-certificates, or give tls_ca",
        ));
    }
    Ok(store)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(bad("the certificate given is not PEM: it begins with -----BEGIN CERTIFICATE-----")),
    }
}

fn identity_of(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let key = PrivateKeyDer::from_pem_slice(identity.key.expose())
        .map_err(|_| bad("the private key given for the client certificate is not PEM"))?;
    Ok((certificates(&identity.chain)?, key))
}

fn bad(why: &str) -> Error {
    Error::new(Code::InvalidOption, why)
}

fn refusal(server: &str, error: &rustls::Error) -> Error {
    let certificate = |why: &str| Error::new(Code::Protocol, format!("the certificate of {server} {why}"));
    match error {
        rustls::Error::InvalidCertificate(reason) => match reason {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                certificate("has expired: renew it on the server")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                certificate("is not valid yet: check the clocks of both machines")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                certificate("is for another host: connect by a name that it holds")
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                certificate("is not signed by a known authority: give its CA certificate with tls_ca")
            }
            other => certificate(&format!("cannot be trusted: {other:?}")),
        },
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown,
        ) => Error::new(
            Code::PermissionDenied,
            format!("{server} wants a client certificate that it knows: give one with tls_client_certificate"),
        ),
        rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. } => Error::new(
            Code::Protocol,
            format!("the server at {server} does not speak TLS: check the port, or use redis:// for plain text"),
        ),
        other => Error::new(Code::Protocol, format!("TLS with {server} failed: {other}")),
    }
}

/// Believes any certificate, but still checks that the server has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
