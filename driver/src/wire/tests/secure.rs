//! TLS: who is believed, who is not (F38, X7), and what is known of calls whose ciphertext went.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use bandog_harness::Server as Redis;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection};

use super::live::Pump;
use super::*;
use crate::options::Options;

/// An authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for this host, and its key.
    fn certify(&self, host: &str, until: i32) -> (String, String) {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, host);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Files that go with the test.
struct Files(PathBuf);

impl Files {
    fn new(label: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("bandog-tls-{label}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn put(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().into()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A real server with this certificate, and its TLS port.
fn redis(label: &str, (chain, key): (String, String), ca: &str, clients: &str) -> (Redis, u16, Files) {
    let files = Files::new(label);
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let args = [
        ["--tls-port".to_owned(), port.to_string()],
        ["--tls-cert-file".into(), files.put("chain.pem", &chain)],
        ["--tls-key-file".into(), files.put("key.pem", &key)],
        ["--tls-ca-cert-file".into(), files.put("ca.pem", ca)],
        ["--tls-auth-clients".into(), clients.into()],
    ];
    (Redis::builder().password(MARKER).args(args.concat()).start(), port, files)
}

fn options(port: u16) -> Options {
    Options::new(&format!("rediss://:{MARKER}@127.0.0.1:{port}")).unwrap()
}

fn refusal(options: &Options) -> Error {
    let error = Pump::new(&options.server(), Role::Calls).err().expect("refused");
    code(&error);
    assert!(error.message().contains("127.0.0.1:"), "{error}");
    error
}

#[test]
fn a_server_with_a_good_certificate_is_believed() {
    let (ca, other) = (Authority::new("ours"), Authority::new("another"));
    let (_redis, port, _files) = redis("good", ca.certify("127.0.0.1", 2096), &ca.pem, "no");
    let trusting = options(port).tls_ca(ca.pem.as_str());
    trusting.check().unwrap();
    let mut pump = Pump::new(&trusting.server(), Role::Calls).unwrap();
    pump.ask(acquire(1, "live", true)).unwrap();
    for id in 2..200 {
        pump.connection.call(acquire(id, "live", false));
    }
    for id in 2..200 {
        assert!(matches!(pump.next(), Ok(Incoming::Reply { call, result: Ok(_) }) if call.0 == id));
    }
    for untrusting in [options(port), options(port).tls_ca(other.pem.as_str())] {
        let error = refusal(&untrusting);
        assert_eq!(error.code(), Code::Protocol);
        assert!(error.message().contains("not signed by a known authority"), "{error}");
    }
    Pump::new(&options(port).tls_without_verification().server(), Role::Calls).unwrap();

    let plain = Options::new(&format!("redis://:{MARKER}@127.0.0.1:{port}")).unwrap();
    let error = Pump::new(&plain.server(), Role::Calls).err().expect("plain text on a TLS port");
    assert!(matches!(code(&error), Code::Protocol | Code::Unreachable), "{error}");
}

#[test]
fn f38_expired_and_foreign_certificates_are_refused() {
    let ca = Authority::new("ours");
    for (label, host, until, why) in
        [("old", "127.0.0.1", 2020, "expired"), ("host", "elsewhere.test", 2096, "is for another host")]
    {
        let (_redis, port, _files) = redis(label, ca.certify(host, until), &ca.pem, "no");
        let error = refusal(&options(port).tls_ca(ca.pem.as_str()));
        assert_eq!(error.code(), Code::Protocol);
        assert!(error.message().contains(why), "{error}");
    }
}

#[test]
fn client_certificates_are_shown_where_asked_for() {
    let ca = Authority::new("ours");
    let (_redis, port, _files) = redis("mutual", ca.certify("127.0.0.1", 2096), &ca.pem, "yes");
    let (chain, key) = ca.certify("client", 2096);
    let known = options(port).tls_ca(ca.pem.as_str()).tls_client_certificate(chain, key.as_str());
    known.check().unwrap();
    assert!(!format!("{known:?}").contains(&key[40..60]));
    Pump::new(&known.server(), Role::Calls).unwrap();
    let error = refusal(&options(port).tls_ca(ca.pem.as_str()));
    assert_eq!(error.code(), Code::PermissionDenied, "{error}");
}

#[test]
fn f38_tls_on_a_plain_port_never_falls_back() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = [0; 4096];
        let count = stream.read(&mut seen).unwrap();
        stream.write_all(b"-ERR unknown command\r\n").unwrap();
        seen[..count].to_vec()
    });
    let error = refusal(&options(port));
    assert!(error.code() == Code::Protocol && error.message().contains("does not speak TLS"), "{error}");
    let seen = server.join().unwrap();
    assert!(!seen.windows(4).any(|word| word == &MARKER.as_bytes()[..4]));
}

#[test]
fn settings_that_cannot_work_are_refused_without_io() {
    let ca = Authority::new("ours");
    let (chain, key) = ca.certify("client", 2096);
    for bad in [
        options(1).tls_ca("no certificate"),
        options(1).tls_ca(key.as_str()),
        options(1).tls_client_certificate(chain.as_str(), MARKER),
        options(1).tls_client_certificate(MARKER, key.as_str()),
        options(1).tls_client_certificate(ca.certify("another", 2096).0, key.as_str()),
        Options::new("redis://127.0.0.1").unwrap().tls_ca(ca.pem.as_str()),
        Options::new("redis://127.0.0.1").unwrap().tls_without_verification(),
    ] {
        assert_eq!(code(&bad.check().unwrap_err()), Code::InvalidOption);
        assert!(!format!("{bad:?}").contains(MARKER));
    }
}

#[test]
fn a_call_is_unknown_once_ciphertext_of_its_batch_went() {
    let ca = Authority::new("ours");
    let (chain, key) = ca.certify("127.0.0.1", 2096);
    let chain = vec![rustls::pki_types::CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let mut peer = ServerConnection::new(Arc::new(config)).unwrap();
    let options = options(1).tls_ca(ca.pem.as_str());
    let mut connection = Connection::new(&options.server(), Role::Calls, CLIENT).unwrap();
    let mut greeted = false;
    while !connection.is_ready() {
        let bytes = written(&mut connection);
        assert!(!bytes.windows(MARKER.len()).any(|word| word == MARKER.as_bytes()));
        peer.read_tls(&mut &bytes[..]).unwrap();
        peer.process_new_packets().unwrap();
        if !peer.is_handshaking() && !greeted {
            greeted = true;
            std::io::Write::write_all(&mut peer.writer(), &[HELLO, INFO].concat()).unwrap();
        }
        let mut answer = Vec::new();
        while peer.wants_write() {
            peer.write_tls(&mut answer).unwrap();
        }
        connection.input(&answer).unwrap();
    }
    written(&mut connection);

    connection.call(call(1));
    let first = connection.output().len();
    connection.wrote(first - 1);
    connection.call(call(2));
    assert_eq!(connection.output().len(), 1, "the next batch waits for the one before it");
    connection.wrote(1);
    assert!(connection.output().len() > 1);
    connection.call(call(3));
    let fate = connection.abandon();
    assert!(matches!(fate[0], (CallId(1), CallError::Unknown(Some(_)))));
    assert!(matches!(fate[1], (CallId(2), CallError::NotSent(_))), "encrypted, but no byte went");
    assert!(matches!(fate[2], (CallId(3), CallError::NotSent(_))));
}
