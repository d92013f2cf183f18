//! What is left of runtimes that are gone. One test, for there is one process.

mod common;

use std::time::Duration;

use bandog_harness::server::Server;
use common::{ask, client, raw, until};
use tokio::runtime::Builder;

const SOON: Duration = Duration::from_secs(1);

fn links(raw: &mut redis::Connection) -> usize {
    ask::<String>(raw, &["CLIENT", "LIST"]).matches("name=bandog").count()
}

/// Descriptors and threads of this process.
fn ours() -> [usize; 2] {
    ["/proc/self/fd", "/proc/self/task"].map(|path| std::fs::read_dir(path).unwrap().count())
}

#[test]
fn runtime_after_runtime_leaves_nothing() {
    let server = Server::start();
    let (client, mut raw) = (client(&server), raw(&server));
    let lock = client.lock("order_lock").unwrap();
    let pair = async || lock.acquire().await.unwrap().release().await.unwrap();
    Builder::new_current_thread().enable_all().build().unwrap().block_on(pair());
    assert!(until(SOON, || links(&mut raw) <= 1));
    let before = (ours(), links(&mut raw));
    for round in 0..200 {
        let many = round % 10 == 0;
        let mut builder = if many { Builder::new_multi_thread() } else { Builder::new_current_thread() };
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(pair());
        if round % 20 == 0 {
            runtime.shutdown_background();
        }
    }
    assert!(until(SOON, || (ours(), links(&mut raw)) == before), "{before:?}, now {:?}", (ours(), links(&mut raw)));
    assert_eq!(ask::<u32>(&mut raw, &["DBSIZE"]), 0);
}
