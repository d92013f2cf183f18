//! The ways to a server: a database behind a password, a unix socket, TLS.

mod common;

use std::fs;
use std::path::PathBuf;

use bandog::{Client, Code, Options};
use bandog_harness::server::Server;
use common::{raw, wait};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

fn round(options: Options) -> Result<(), bandog::Error> {
    let client = Client::new(options)?;
    let lock = client.lock("order_lock")?;
    lock.acquire_blocking()?.release_blocking()?;
    wait(async { lock.acquire().await?.release().await })?;
    // A waiter needs the connection of messages.
    let held = client.lock("order_lock")?.acquire_blocking()?;
    let waiter = std::thread::spawn(move || lock.acquire_blocking()?.release_blocking());
    std::thread::sleep(common::millis(100));
    held.release_blocking()?;
    waiter.join().unwrap()
}

#[test]
fn a_password_and_a_database() {
    let server = Server::builder().password("secret1").start();
    round(Options::new(&format!("redis://:secret1@127.0.0.1:{}/3", server.port())).unwrap()).unwrap();
    let info: String = common::ask(&mut raw(&server), &["INFO", "commandstats"]);
    assert!(info.contains("cmdstat_select"), "{info}");
}

#[test]
fn a_unix_socket() {
    let server = Server::start();
    round(Options::new(&format!("unix://{}?db=2", server.socket().display())).unwrap()).unwrap();
    let missing = Options::new("unix:///nowhere/at/all.sock").unwrap();
    assert_eq!(round(missing).unwrap_err().code(), Code::Unreachable);
}

#[test]
fn f38_tls_with_a_known_authority_and_with_an_unknown_one() {
    let dir: PathBuf = std::env::temp_dir().join(format!("bandog-tls-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (ca, cert, key) = certificate();
    for (name, text) in [("ca.pem", &ca), ("cert.pem", &cert), ("key.pem", &key)] {
        fs::write(dir.join(name), text).unwrap();
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = |name: &str| dir.join(name).display().to_string();
    let server = Server::builder()
        .args(["--tls-port", &port.to_string(), "--tls-auth-clients", "no"])
        .args(["--tls-cert-file", &file("cert.pem"), "--tls-key-file", &file("key.pem")])
        .args(["--tls-ca-cert-file", &file("ca.pem")])
        .start();
    let options = Options::new(&format!("rediss://localhost:{port}")).unwrap();
    round(options.clone().tls_ca(ca)).unwrap();
    round(options.clone().tls_without_verification()).unwrap();
    assert_eq!(round(options.tls_ca(certificate().0)).unwrap_err().code(), Code::Protocol);
    // Plain text to the TLS port, TLS to the plain port.
    for url in [format!("redis://localhost:{port}"), format!("rediss://localhost:{}", server.port())] {
        let options = Options::new(&url).unwrap().connect_timeout(common::millis(1500));
        let code = round(options).unwrap_err().code();
        assert!(matches!(code, Code::Protocol | Code::Unreachable), "{url}: {code:?}");
    }
    let _ = fs::remove_dir_all(&dir);
}

/// An authority's certificate, one it issued for localhost, and the key of that.
fn certificate() -> (String, String, String) {
    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (ca, cert.pem(), key.serialize_pem())
}
