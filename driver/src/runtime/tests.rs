use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use bandog_core::io::{Call, CallId};
use bandog_core::scripts::{Ask, Request};
use tokio::runtime::Builder;

use super::*;
use crate::client::Client;
use crate::options::Options;
use crate::wire::{Connection, Role};

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
    crate::host::close(&client, Duration::ZERO);
    assert!(shared.runtimes.current(shared).is_none());
    assert_eq!((loops(shared), lock(&shared.runtimes.0).wires.len()), (0, 0));
}

#[test]
fn a_connection_that_comes_after_the_end_of_its_runtime_is_dropped() {
    let client = client();
    let shared = client.shared();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let wire = runtime.block_on(async { shared.runtimes.current(shared).unwrap() });
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let connection = Connection::new(&shared.options.server(), Role::Calls, shared.id).unwrap();
    drop(runtime);
    shared.came_up(&wire.road, connection, Arc::new(Socket::new(ours.into()).unwrap()));
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "it is closed, though a future still knows the wire");
}

/// Tells that it was woken.
struct Bell(Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// A call whose reply never comes: what arrives here is read by nobody, only noticed.
fn due(road: &Road) {
    let ask = Ask::Status { name: bandog_core::name::Name::new("order_lock").unwrap() };
    road.post(Call { id: CallId(0), wire: Wire(9), request: Request { ask, source: false }, fences: Vec::new() });
}

/// Futures on threads of their own are polled at once, and all but one leave at once: whatever their order,
/// that one is woken by what comes.
#[test]
fn whoever_is_left_has_the_descriptor() {
    const FUTURES: usize = 4;
    let client = client();
    let shared = client.shared();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let wire = shared.runtimes.current(shared).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut drain = ours.try_clone().unwrap();
    let _ = wire.road.seats.came_up(Arc::new(Socket::new(ours.into()).unwrap()), || wire.road.tally());
    due(&wire.road);
    let (start, gone, woken) = (Barrier::new(FUTURES), Barrier::new(FUTURES), Barrier::new(FUTURES));
    let stop = AtomicBool::new(false);
    let serve = |place: &mut Place, waker: &Waker| {
        let mut context = Context::from_waker(waker);
        loop {
            assert!(place.promise.poll(&mut context).is_pending());
            if !place.serve(shared, &mut context) {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for at in 1..FUTURES {
            let (wire, start, gone, woken, stop, handle) =
                (&wire, &start, &gone, &woken, &stop, runtime.handle().clone());
            scope.spawn(move || {
                let _inside = handle.enter();
                let waker = Waker::from(Arc::new(Bell(channel().0)));
                loop {
                    start.wait();
                    if stop.load(SeqCst) {
                        return;
                    }
                    let mut place = wire.sit(&Arc::default());
                    serve(&mut place, &waker);
                    if at % 2 == 0 {
                        serve(&mut place, &waker);
                    }
                    place.leave(shared);
                    gone.wait();
                    woken.wait();
                }
            });
        }
        let mut lost = None;
        for round in 0..5000 {
            let (bell, rings) = channel();
            let waker = Waker::from(Arc::new(Bell(bell)));
            start.wait();
            let mut place = wire.sit(&Arc::default());
            serve(&mut place, &waker);
            gone.wait();
            // What was meant for others while they were there does not count.
            while rings.try_recv().is_ok() {
                serve(&mut place, &waker);
            }
            theirs.write_all(b".").unwrap();
            let came = rings.recv_timeout(Duration::from_secs(1)).is_ok();
            drain.read_exact(&mut [0]).unwrap();
            serve(&mut place, &waker);
            place.leave(shared);
            woken.wait();
            if !came {
                lost = Some(round);
                break;
            }
        }
        stop.store(true, SeqCst);
        start.wait();
        assert_eq!(lost, None, "nobody was woken");
    });
}
