//! Bandog in a tokio runtime. Its watchdog is on in every scenario: that is how it is used.

use std::time::Duration;

use bandog::{Client, Hold, Lock};

use crate::bandog_threads::client;
use crate::tasks::Face;

pub struct Bandog(Client);

impl Face for Bandog {
    type Lock = Lock;
    type Held = Hold;
    const NEVER_RENEWS: Option<&'static str> = None;

    fn new(url: &str, lease: Duration) -> Self {
        Self(client(url, lease))
    }

    fn lock(&self, name: &str) -> Lock {
        self.0.lock(name).expect("a name")
    }

    async fn acquire(lock: &Lock) -> Hold {
        lock.acquire().await.expect("a server")
    }

    async fn release(held: Hold) {
        held.release().await.expect("still held");
    }

    fn still_held(held: &Hold) -> bool {
        held.valid()
    }
}
