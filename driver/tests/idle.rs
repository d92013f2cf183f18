//! What a client costs that does nothing.

mod common;

use std::thread;

use bandog_harness::server::Server;
use common::{client_with, millis, until, wait};

#[test]
fn an_idle_client_never_wakes() {
    let server = Server::start();
    let client = client_with(&server, |options| options.op_timeout(millis(200)));
    let lock = client.lock("order_lock").unwrap();
    lock.acquire_blocking().unwrap().release_blocking().unwrap();
    wait(async { lock.acquire().await.unwrap().release().await.unwrap() });
    // The time-outs of what was answered have passed.
    thread::sleep(millis(1200));
    let before = switches();
    thread::sleep(millis(1500));
    assert_eq!(switches(), before);
    bandog::host::close(&client, millis(200));

    // Of client after client nothing is left (R1).
    let left = descriptors();
    for round in 0..10 {
        let client = client_with(&server, |options| options);
        client.lock("order_lock").unwrap().acquire_blocking().unwrap().release_blocking().unwrap();
        if round % 2 == 0 {
            bandog::host::close(&client, millis(200));
        }
    }
    assert!(until(millis(500), || descriptors() == left && switches().is_empty()), "{left} then {}", descriptors());
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How often the keeper of this process went to sleep. The only test of this file, for there is one process.
fn switches() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let keepers = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "bandog-keeper")
    });
    keepers
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .filter_map(|status| status.lines().find(|line| line.starts_with("voluntary")).map(str::to_owned))
        .collect()
}
