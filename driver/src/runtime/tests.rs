use std::sync::Barrier;
use std::thread;

use tokio::runtime::Builder;

use super::*;
use crate::client::Client;
use crate::options::Options;

fn client() -> Client {
    Client::new(Options::new("redis://127.0.0.1:1").unwrap()).unwrap()
}

fn loops(shared: &Shared) -> usize {
    shared.with(|turn| turn.state.loops.len())
}

#[test]
fn threads_that_begin_in_one_runtime_at_once_share_a_wire() {
    let client = client();
    let shared = client.shared();
    for _ in 0..50 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let start = Barrier::new(4);
        let begin = || {
            let _inside = runtime.enter();
            start.wait();
            shared.runtimes.current(shared).unwrap().wire()
        };
        let wires: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(wires.windows(2).all(|pair| pair[0] == pair[1]), "{wires:?}");
        assert_eq!(loops(shared), 1, "those of the losers are given up");
        drop(runtime);
        assert_eq!((loops(shared), lock(&shared.runtimes.0).wires.len()), (0, 0));
    }
}

#[test]
fn a_closed_client_makes_no_wire() {
    let client = client();
    let shared = client.shared();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    assert!(shared.runtimes.current(shared).is_some());
    crate::host::close(&client, std::time::Duration::ZERO);
    assert!(shared.runtimes.current(shared).is_none());
    assert_eq!((loops(shared), lock(&shared.runtimes.0).wires.len()), (0, 0));
}
