//! Servers that refuse: out of memory, without a command, for users who may not.

use bandog_core::error::Code;
use bandog_core::scripts::{Verdict, refusal};

use super::*;

const KEY: &str = "lk:order";

/// What a user of plain locks must be allowed, for names that begin with `lk:`. Nothing here can go.
const RULE: [&str; 15] = [
    "+evalsha",
    "+eval",
    "+hlen",
    "+hget",
    "+hset",
    "+hdel",
    "+hexists",
    "+hgetall",
    "+pexpire",
    "+pttl",
    "+publish",
    "+time",
    "~lk:*",
    "~redisson_lock__channel:{lk:*",
    "&redisson_lock__channel:{lk:*",
];

#[test]
fn s15_f08_a_full_server_still_renews_and_releases() {
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));
    assert_eq!(rig.reply(&acquire(KEY, a, 2, true)), Reply::Granted { count: 2 });
    let _: redis::Value = rig.redis(&["SET", "filler", &"x".repeat(2 << 20)]);
    let _: redis::Value = rig.redis(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let refused = cmd("SET").arg("y").arg("1").query::<()>(&mut rig.admin).unwrap_err();
    assert_eq!(refused.code(), Some("OOM"), "the server is full");

    let error = rig.ask(&acquire("lk:other", b, 1, true)).unwrap_err();
    assert_eq!(refusal(&error).0, Some(Code::OutOfMemory), "{error}");
    assert_eq!(rig.keys(), ["filler", KEY]);

    assert_eq!(rig.reply(&acquire(KEY, a, 3, false)), Reply::Granted { count: 3 });
    assert_eq!(rig.reply(&release(KEY, a, 1)), Reply::Still { count: 1 });
    let _: i64 = rig.redis(&["PEXPIRE", KEY, "9000"]);
    let Reply::Renewed { verdicts, .. } = rig.reply(&renew(&[(KEY, a)])) else { panic!() };
    assert_eq!(verdicts, [Verdict::Renewed]);
    assert!(about(rig.pttl(KEY), LEASE));
    assert_eq!(rig.hash(KEY)[&a.to_string()], "1");
    let messages = rig.messages_during("redisson_lock__channel:{lk:order}", |rig| {
        assert_eq!(rig.reply(&release(KEY, a, 0)), Reply::Freed { told: 1 });
    });
    assert_eq!(messages, ["0"]);
    assert_eq!(rig.keys(), ["filler"]);
}

#[test]
fn s14_a_server_without_pexpire_keeps_no_lock() {
    let mut rig = Rig::with(&["--rename-command", "PEXPIRE", ""]);
    let error = rig.ask(&acquire(KEY, owner(b'A'), 1, true)).unwrap_err();
    assert!(error.contains("Unknown Redis command"), "{error}");
    rig.expect_nothing();
}

/// One thing the user tries: on a lock of this owner (or none), this request.
struct Attempt {
    held_by: Option<WireOwner>,
    persist: bool,
    ask: Ask,
}

fn attempts() -> Vec<Attempt> {
    let (a, b) = (owner(b'A'), owner(b'B'));
    let on = |held_by, ask| Attempt { held_by, persist: false, ask };
    vec![
        on(None, acquire(KEY, a, 1, true)),
        on(Some(a), acquire(KEY, a, 3, false)),
        on(Some(b), acquire(KEY, a, 1, true)),
        Attempt { held_by: Some(b), persist: true, ask: acquire(KEY, a, 1, true) },
        on(Some(a), release(KEY, a, 1)),
        on(Some(a), release(KEY, a, 0)),
        on(Some(a), renew(&[(KEY, a)])),
        on(Some(b), force(KEY, &[])),
        on(Some(b), force(KEY, &[&b])),
        on(Some(b), status(KEY)),
    ]
}

/// Makes the attempts one after the other as a user of this rule; what the server refused, and how.
fn refusals(rig: &mut Rig, rule: &[&str]) -> Vec<String> {
    let _: redis::Value = rig.redis(&["ACL", "DELUSER", "worker"]);
    let user = ["ACL", "SETUSER", "worker", "on", "nopass", "resetkeys", "resetchannels", "-@all"];
    let _: redis::Value = rig.redis(&[&user, rule].concat());
    let _: redis::Value = rig.redis(&["SCRIPT", "FLUSH"]);
    let mut worker = connect(&rig.server);
    // Any user may say who it is: AUTH needs no permission.
    let _: redis::Value = cmd("AUTH").arg("worker").arg("x").query(&mut worker).unwrap();

    let mut refusals = Vec::new();
    for Attempt { held_by, persist, ask } in attempts() {
        let _: redis::Value = rig.redis(&["FLUSHALL"]);
        if let Some(holder) = held_by {
            rig.given(KEY, &holder, 2, LEASE);
        }
        if persist {
            let _: i64 = rig.redis(&["PERSIST", KEY]);
        }
        match run(&mut worker, &ask) {
            Err(error) => refusals.push(error),
            Ok(Reply::Renewed { verdicts, .. }) => refusals.extend(verdicts.into_iter().filter_map(|verdict| {
                let Verdict::Refused(text) = verdict else { return None };
                Some(text)
            })),
            Ok(_) => {}
        }
        let left = rig.pttl(KEY);
        assert!(left != -1 || persist, "{ask:?} left an immortal lock under {rule:?}");
        assert!(held_by.is_some() || left == -2 || refusals.is_empty(), "{ask:?} failed and left a key under {rule:?}");
    }
    refusals
}

#[test]
fn x8_the_rule_suffices_for_every_request() {
    let mut rig = Rig::start();
    assert_eq!(refusals(&mut rig, &RULE), [] as [&str; 0]);
}

#[test]
fn s14_f36_a_rule_that_lacks_one_entry_is_refused_and_leaves_no_immortal_lock() {
    let mut rig = Rig::start();
    for missing in RULE {
        let rule: Vec<_> = RULE.into_iter().filter(|entry| *entry != missing).collect();
        let refusals = refusals(&mut rig, &rule);
        assert!(!refusals.is_empty(), "{missing} is not needed");
        for error in refusals {
            assert_eq!(refusal(&error).0, Some(Code::PermissionDenied), "{missing}: {error}");
        }
    }
}

#[test]
fn s14_an_inner_release_without_a_lease_leaves_no_lock_without_an_expiry() {
    let mut rig = Rig::start();
    let holder = owner(b'A');
    rig.given(KEY, &holder, 2, 30_000);
    let _: u32 = rig.redis(&["PERSIST", KEY]);
    let Ask::Release { name, owner, count, .. } = release(KEY, holder, 1) else { unreachable!() };
    rig.ask(&Ask::Release { name, owner, count, lease: Millis::ZERO }).unwrap();
    assert_ne!(rig.pttl(KEY), -1);
}
