//! What one request costs this side of the socket: encoding it, decoding its reply.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the wire layer is private to the crate, so it is compiled in here"
)]

use std::hint::black_box;

use bandog_core::io::{Call, CallId, Wire};
use bandog_core::name::Name;
use bandog_core::owner::{ClientId, HoldNumber, WireOwner};
use bandog_core::scripts::{Ask, Renewal, Request};
use bandog_core::time::Millis;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

#[path = "../src/options.rs"]
mod options;
#[path = "../src/secret.rs"]
mod secret;
#[path = "../src/server/mod.rs"]
mod server;
#[path = "../src/wire/mod.rs"]
mod wire;

use self::server::Server;
use self::wire::{Connection, Incoming, Role};

const CLIENT: ClientId = ClientId([0x28; 16]);
const GREETING: &[u8] =
    b"%2\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+id=7 addr=10.0.0.1:5000 laddr=10.0.0.2:6379\r\n";

fn ready() -> Connection {
    let server = Server::parse("redis://127.0.0.1").expect("a URL");
    let mut connection = Connection::new(&server, Role::Calls, CLIENT).expect("a connection");
    let greeting = connection.output().len();
    connection.wrote(greeting);
    connection.input(GREETING).expect("a greeting");
    assert_eq!(connection.poll(), Some(Incoming::Ready));
    connection
}

fn owner() -> WireOwner {
    WireOwner { client: CLIENT, number: HoldNumber(1234) }
}

fn call(ask: Ask) -> Call {
    Call { id: CallId(1), wire: Wire::KEEPER, request: Request { ask, source: false }, fences: Vec::new() }
}

/// One request there and its reply back, through the whole connection.
fn round(connection: &mut Connection, call: Call, reply: &[u8]) -> Option<Incoming> {
    connection.call(call);
    let length = black_box(connection.output()).len();
    connection.wrote(length);
    connection.input(black_box(reply)).expect("a reply");
    connection.poll()
}

fn wire(criterion: &mut Criterion) {
    let name = Name::new("order_lock").expect("a name");
    let lease = Millis(30_000);
    let acquire = call(Ask::Acquire { name: name.clone(), owner: owner(), lease, count: 1, fresh: true, heal: lease });
    let renewals = (0..100).map(|number| Renewal {
        name: Name::new(&format!("order_lock:{number}")).expect("a name"),
        owner: owner(),
        lease,
    });
    let renew = call(Ask::Renew(renewals.collect()));
    let renewed = format!("*101\r\n{}:1732118400000000\r\n", ":1\r\n".repeat(100));

    let mut connection = ready();
    let mut measure = |label: &str, call: &Call, reply: &[u8]| {
        let mut group = criterion.benchmark_group("wire");
        group.throughput(Throughput::Elements(1));
        group.bench_function(label, |bench| {
            bench.iter_batched(|| call.clone(), |call| round(&mut connection, call, reply), BatchSize::SmallInput);
        });
        group.finish();
    };
    measure("acquire, integer reply", &acquire, b":1\r\n");
    measure("acquire, reply of two", &acquire, b"*2\r\n:1\r\n:30000\r\n");
    measure("renewal of 100", &renew, renewed.as_bytes());
    criterion.bench_function("wire/new connection", |bench| bench.iter(ready));
}

criterion_group!(benches, wire);
criterion_main!(benches);
