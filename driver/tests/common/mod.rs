//! What the tests of the Rust API share.
#![allow(dead_code, reason = "no test uses all of it")]

use std::time::{Duration, Instant};

use bandog::{Client, Options};
use bandog_harness::server::Server;

/// A client of a throw-away server.
pub(crate) fn client(server: &Server) -> Client {
    client_with(server, |options| options)
}

pub(crate) fn client_with(server: &Server, tune: impl FnOnce(Options) -> Options) -> Client {
    Client::new(tune(Options::new(&server.url()).unwrap())).unwrap()
}

/// A plain connection beside the library.
pub(crate) fn raw(server: &Server) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

pub(crate) fn ask<T: redis::FromRedisValue>(raw: &mut redis::Connection, words: &[&str]) -> T {
    let mut cmd = redis::Cmd::new();
    for word in words {
        cmd.arg(word);
    }
    cmd.query(raw).unwrap()
}

/// Runs a future without any runtime: the library brings its own thread.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Thread(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Looks every few milliseconds, for at most `within`.
pub(crate) fn until(within: Duration, mut what: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < within {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    what()
}

pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
