//! `bandog-proxy HOST:PORT [--until-eof]`: the fault proxy as a program, for the Python and Node tests.
//!
//! Prints `{"port":P,"control":C}` and runs until `stop` is ordered; with `--until-eof` also until its input ends, so
//! that it does not outlive the tests that started it.

use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::process::ExitCode;

use bandog_harness::proxy::Proxy;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(target) = words.next().and_then(|word| word.to_socket_addrs().ok()?.next()) else {
        let _ = writeln!(io::stderr(), "usage: bandog-proxy HOST:PORT [--until-eof]");
        return ExitCode::from(2);
    };
    let proxy = match Proxy::start(target) {
        Ok(proxy) => proxy,
        Err(error) => {
            let _ = writeln!(io::stderr(), "bandog-proxy: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = io::stdout();
    let _ = writeln!(out, r#"{{"port":{},"control":{}}}"#, proxy.port(), proxy.control());
    let _ = out.flush();
    if words.any(|word| word == "--until-eof") {
        let _ = io::stdin().read_to_end(&mut Vec::new());
    } else {
        proxy.join();
    }
    ExitCode::SUCCESS
}
