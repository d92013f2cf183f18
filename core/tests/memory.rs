//! R4: what a held lock costs in memory, at a hundred thousand of them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use bandog_core::Engine;
use bandog_core::config::Config;
use bandog_core::io::{AcquireRequest, Claim, Output, Value, Wait, Wire};
use bandog_core::name::Name;
use bandog_core::owner::{ClientId, LocalOwner};
use bandog_core::time::Time;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every request goes to the system's allocator as it came; only sizes are added up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HOLDS: usize = 100_000;

/// Bytes for each of so many held locks; `owners` share them.
fn bytes_per_hold(owners: u64) -> usize {
    let before = LIVE.load(Ordering::Relaxed);
    let mut engine = Engine::new(Config::default(), ClientId([7; 16]), 0);
    for number in 0..HOLDS {
        let name = Name::new(&format!("a lock of 24 bytes{number:06}")).unwrap();
        assert_eq!(name.as_str().len(), 24);
        let owner = LocalOwner(number as u64 % owners);
        let (wire, wait) = (Wire(1), Wait::Forever);
        let now = Time(number as u64 / 20);
        let op = engine.acquire(now, AcquireRequest { name, owner, wire, wait, lease: None, reenter: None });
        while let Some(output) = engine.poll() {
            if let Output::Send(call) = output {
                engine.handle_reply(now, call.id, Ok(Value::Int(1)));
            }
        }
        assert!(matches!(engine.claim(now, op), Claim::Held(_)));
    }
    assert!(engine.is_idle());
    (LIVE.load(Ordering::Relaxed) - before) / HOLDS
}

#[test]
fn r4_a_held_lock_costs_400_bytes_at_most() {
    for owners in [1, HOLDS as u64] {
        let bytes = bytes_per_hold(owners);
        assert!((100..=400).contains(&bytes), "{bytes} bytes for each of {HOLDS} locks of {owners} owners");
    }
}
