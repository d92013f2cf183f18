//! Takes a lock through every public call that a wasm host needs, against a server that is one `match`. What the engine
//! wants from its host would show as an import of the module (`tools/wasm.sh`).

use bandog_core::Engine;
use bandog_core::config::Config;
use bandog_core::io::{AcquireRequest, Claim, Link, Outcome, Output, Target, Value, Wait, Wire};
use bandog_core::name::Name;
use bandog_core::owner::{ClientId, LocalOwner};
use bandog_core::scripts::Ask;
use bandog_core::time::{Millis, Time};

/// Acquires, keeps for ten renewals, releases, closes. The number of requests it took, or minus the step that failed.
#[unsafe(no_mangle)]
pub extern "C" fn probe() -> i32 {
    let mut engine = Engine::new(Config::default(), ClientId([7; 16]), 42);
    let mut now = Time(1_000_000);
    engine.handle_link(now, Link::Requests, true);
    engine.handle_link(now, Link::Messages, true);
    let Ok(name) = Name::new("order_lock") else { return -1 };
    let wire = Wire(1);
    let owner = LocalOwner(1);
    let op =
        engine.acquire(now, AcquireRequest { name, owner, wire, wait: Wait::Forever, lease: None, reenter: None });
    let mut requests = 0;
    if !turn(&mut engine, now, &mut requests).contains(&Outcome::Granted) {
        return -2;
    }
    let Claim::Held(claimed) = engine.claim(now, op) else { return -3 };
    let end = now + Millis::secs(100);
    while now < end {
        let Some(next) = engine.poll_timeout() else { return -4 };
        now = next.max(now);
        engine.handle_timeout(now);
        turn(&mut engine, now, &mut requests);
        if !engine.view(now, claimed.hold).is_some_and(|view| view.valid) || engine.check(now, claimed.hold).is_err() {
            return -5;
        }
    }
    engine.release(now, Target::Level(claimed.hold, claimed.level), wire);
    if !turn(&mut engine, now, &mut requests).contains(&Outcome::Released { left: 0 }) {
        return -6;
    }
    engine.close(now, wire);
    turn(&mut engine, now, &mut requests);
    if engine.is_idle() { requests } else { -7 }
}

/// Answers whatever the engine asks, and collects the outcomes.
fn turn(engine: &mut Engine, now: Time, requests: &mut i32) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while let Some(output) = engine.poll() {
        match output {
            Output::Send(call) => {
                *requests += 1;
                let text = |n: u64| Value::Text(n.to_string().into_bytes());
                let answer = match call.request.ask {
                    Ask::Acquire { count, .. } => Value::Int(count.into()),
                    Ask::Release { .. } => Value::List(vec![Value::Int(0)]),
                    _ => Value::List(vec![Value::Int(1), text(now.0 / 1000), text(now.0 % 1000 * 1000)]),
                };
                engine.handle_reply(now, call.id, Ok(answer));
            }
            Output::Done(_, outcome) => outcomes.push(outcome),
            _ => {}
        }
    }
    outcomes
}
