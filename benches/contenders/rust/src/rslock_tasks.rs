//! rslock, on one server. It tries three times at random within 0.2 s, and begins again.

use std::time::Duration;

use redis::{Client, IntoConnectionInfo, io::tcp::TcpSettings};
use rslock::{LockGuard, LockManager};

use crate::answer::LEASE;
use crate::tasks::Face;

pub struct Rslock(LockManager);

impl Face for Rslock {
    type Lock = (LockManager, String);
    type Held = LockGuard;
    const NEVER_RENEWS: Option<&'static str> = Some("rslock extends only when it is told to");

    fn new(url: &str, _lease: Duration) -> Self {
        // Small requests leave at once, which is not the crate's default.
        let info = url.into_connection_info().expect("a url");
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Self(LockManager::from_clients(vec![Client::open(info).expect("settings that work")]))
    }

    fn lock(&self, name: &str) -> Self::Lock {
        (self.0.clone(), name.to_owned())
    }

    async fn acquire((manager, name): &Self::Lock) -> LockGuard {
        manager.acquire(name.as_str(), LEASE).await.expect("a server")
    }

    async fn release(held: LockGuard) {
        held.release().await;
    }

    fn still_held(_held: &LockGuard) -> bool {
        true
    }
}
