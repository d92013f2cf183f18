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

/// How often the keeper of this process went to sleep.
fn naps() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let keepers = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "bandog-keeper")
    });
    let status = keepers.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let lines = status.flat_map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:").map(str::trim));
        line.map(|count| count.parse::<u64>().unwrap())
    });
    lines.sum()
}

#[test]
fn runtime_after_runtime_leaves_nothing_and_the_keeper_sleeps() {
    let server = Server::start();
    let (client, mut raw) = (client(&server), raw(&server));
    let lock = client.lock("order_lock").unwrap();
    let pair = async || lock.acquire().await.unwrap().release().await.unwrap();
    let single = || Builder::new_current_thread().enable_all().build().unwrap();
    // The keeper's own connection is there all the time.
    let held = single().block_on(client.lock("held").unwrap().acquire()).unwrap();
    single().block_on(pair());
    assert!(until(SOON, || links(&mut raw) == 1), "{}", links(&mut raw));
    let before = ours();
    for round in 0..200 {
        let many = round % 10 == 0;
        let mut builder = if many { Builder::new_multi_thread() } else { Builder::new_current_thread() };
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(pair());
        if round % 20 == 0 {
            runtime.shutdown_background();
        }
    }
    assert!(until(SOON, || ours() == before), "{before:?}, now {:?}", ours());
    assert!(until(SOON, || links(&mut raw) == 1), "{}", links(&mut raw));

    let runtime = single();
    runtime.block_on(async {
        for _ in 0..10 {
            pair().await;
        }
        let naps_before = naps();
        for _ in 0..500 {
            pair().await;
        }
        let naps = naps() - naps_before;
        assert!(naps < 200, "the keeper woke {naps} times for 1,000 replies that were not its to read");
        held.release().await.unwrap();
    });
    assert_eq!(ask::<u32>(&mut raw, &["DBSIZE"]), 0);
}
