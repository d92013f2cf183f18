//! What others put at our key: nothing of it is overwritten, and only a lock is ever given an expiry.

use bandog_core::scripts::Verdict;

use super::*;

const KEY: &str = "order_lock";
const MODES: [&str; 2] = ["read", "write"];

/// Every request that could touch the key, from an owner who has nothing there.
fn strangers() -> Vec<Ask> {
    let a = owner(b'A');
    vec![
        acquire(KEY, a, 1, true),
        acquire(KEY, a, 2, false),
        release(KEY, a, 0),
        release(KEY, a, 1),
        renew(&[(KEY, a)]),
        force(KEY, &[]),
        force(KEY, &[&a]),
        status(KEY),
    ]
}

/// Bytes of the value and its expiry.
fn snapshot(rig: &mut Rig) -> (Vec<u8>, bool) {
    (rig.redis(&["DUMP", KEY]), rig.pttl(KEY) == -1)
}

#[test]
fn f39_other_types_are_wrong_type_and_stay() {
    let mut rig = Rig::start();
    for put in [
        ["SET", KEY, "1"].as_slice(),
        &["RPUSH", KEY, "1", "2"],
        &["SADD", KEY, "1"],
        &["ZADD", KEY, "1", "a"],
        &["XADD", KEY, "*", "a", "1"],
    ] {
        let _: i64 = rig.redis(&["DEL", KEY]);
        let _: redis::Value = rig.redis(put);
        let before = snapshot(&mut rig);
        for ask in strangers() {
            match rig.ask(&ask) {
                Err(error) => assert!(error.starts_with("WRONGTYPE "), "{put:?} {ask:?}: {error}"),
                Ok(Reply::Renewed { verdicts, .. }) => {
                    assert!(matches!(&verdicts[..], [Verdict::Refused(text)] if text.starts_with("WRONGTYPE ")));
                }
                Ok(reply) => panic!("{put:?} {ask:?}: {reply:?}"),
            }
            assert_eq!(snapshot(&mut rig), before, "{put:?} {ask:?}");
        }
    }
}

#[test]
fn f39_hashes_of_another_shape_are_wrong_type_and_stay() {
    let mut rig = Rig::start();
    let b = owner(b'B').to_string();
    let write = format!("{b}:write");
    let (short, glued) = (&b[1..], format!("{b}x"));
    let hashes = [
        vec!["user", "1"],
        vec![&b, "soon"],
        vec![&b, ""],
        vec![&b, "1.5"],
        vec![&b, "1", "name", "x"],
        vec![&b[..36], "1"],
        vec![&b[..37], "1"],
        vec![short, "1"],
        vec![&glued, "1"],
        vec!["mode", "1"],
        vec!["mode", "read"],
        vec!["mode", MODES[0], &b, "1"],
        vec!["mode", MODES[1], &write, "1"],
    ];
    for hash in hashes {
        let _: i64 = rig.redis(&["DEL", KEY]);
        let _: i64 = rig.redis(&[&["HSET", KEY], &hash[..]].concat());
        let before = snapshot(&mut rig);
        for ask in strangers() {
            let reply = rig.ask(&ask);
            let sees_others = !matches!(ask, Ask::Release { .. } | Ask::Renew(_) | Ask::Acquire { fresh: false, .. });
            match reply {
                Err(error) => {
                    let what =
                        if hash[0] == "mode" && MODES.contains(&hash[1]) { "read-write lock" } else { "not a lock" };
                    assert!(
                        sees_others && error.starts_with("WRONGTYPE ") && error.contains(what),
                        "{hash:?}: {error}"
                    );
                }
                Ok(Reply::NotOurs) => assert!(!sees_others),
                Ok(Reply::Renewed { verdicts, .. }) => assert_eq!(verdicts, [Verdict::NotOurs]),
                Ok(reply) => panic!("{hash:?} {ask:?}: {reply:?}"),
            }
            assert_eq!(snapshot(&mut rig), before, "{hash:?} {ask:?}");
        }
    }
}

#[test]
fn f39_owners_of_other_clients_are_locks() {
    let mut rig = Rig::start();
    let uuid = "285475da-9152-4c83-822a-67ee2f116a79";
    // Java's thread ids, a number its caller made up, a transaction; a count that Java counted up.
    for field in ["52", "-7", "9223372036854775807", "52:a1b2-transaction", "52:write"] {
        let _: i64 = rig.redis(&["DEL", KEY]);
        let holder = format!("{uuid}:{field}");
        let _: i64 = rig.redis(&["HSET", KEY, &holder, "17"]);
        let _: i64 = rig.redis(&["PEXPIRE", KEY, "9000"]);
        let before = snapshot(&mut rig);
        assert!(matches!(rig.reply(&acquire(KEY, owner(b'A'), 1, true)), Reply::Busy { healed: false, .. }), "{field}");
        assert_eq!(rig.reply(&force(KEY, &[])), Reply::Owners(vec![holder.into_bytes()]));
        assert_eq!(snapshot(&mut rig), before);
    }
}

#[test]
fn x4_a_giant_hash_is_never_read() {
    let mut rig = Rig::start();
    let fields: Vec<String> = (0..20_000).flat_map(|at| [format!("f{at}"), "x".into()]).collect();
    let _: i64 = cmd("HSET").arg(KEY).arg(&fields).query(&mut rig.admin).unwrap();
    for ask in strangers() {
        let _ = rig.ask(&ask);
    }
    let stats: String = rig.redis(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_hlen") && !stats.contains("cmdstat_hgetall"), "{stats}");
}

#[test]
fn f40_a_lock_without_expiry_is_healed_by_a_waiter() {
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));
    rig.given(KEY, &b, 2, LEASE);
    let _: i64 = rig.redis(&["PERSIST", KEY]);
    assert_eq!(rig.reply(&acquire(KEY, a, 1, true)), Reply::Busy { ttl: Millis(HEAL), healed: true });
    rig.expect_lock(KEY, &b, 2, HEAL);
    assert!(matches!(rig.reply(&acquire(KEY, a, 1, true)), Reply::Busy { healed: false, .. }), "once is enough");
}

#[test]
fn m41_a_waiter_never_cuts_a_longer_lease() {
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));
    rig.given(KEY, &b, 1, 3_600_000);
    let Reply::Busy { ttl, healed: false } = rig.reply(&acquire(KEY, a, 1, true)) else { panic!() };
    assert!(about(i64::try_from(ttl.0).unwrap(), 3_600_000));
    rig.expect_lock(KEY, &b, 1, 3_600_000);
}

#[test]
fn f40_the_holder_puts_right_what_was_altered() {
    let mut rig = Rig::start();
    let a = owner(b'A');
    for count in ["", "x", "1.5", "0", "-3", "nan", "inf", "1e300", "99999999999999999999"] {
        let _: i64 = rig.redis(&["HSET", KEY, &a.to_string(), count]);
        assert_eq!(rig.reply(&acquire(KEY, a, 2, false)), Reply::Granted { count: 2 }, "{count}");
        rig.expect_lock(KEY, &a, 2, LEASE);
        let _: i64 = rig.redis(&["HSET", KEY, &a.to_string(), count]);
        let Reply::Still { count: 1 } = rig.reply(&release(KEY, a, 1)) else { panic!("{count}") };
    }
    for spoil in [["PERSIST", KEY].as_slice(), &["PEXPIRE", KEY, "5000"]] {
        rig.given(KEY, &a, 1, LEASE);
        let _: i64 = rig.redis(spoil);
        rig.reply(&renew(&[(KEY, a)]));
        rig.expect_lock(KEY, &a, 1, LEASE);
    }
}

#[test]
fn s3_a_release_leaves_what_is_not_its_own() {
    let mut rig = Rig::start();
    let a = owner(b'A');
    rig.given(KEY, &a, 1, LEASE);
    let _: i64 = rig.redis(&["HSET", KEY, "stranger", "x"]);
    let messages = rig.messages_during("redisson_lock__channel:{order_lock}", |rig| {
        assert_eq!(rig.reply(&release(KEY, a, 0)), Reply::Freed { told: 0 });
    });
    assert_eq!(messages, [] as [&str; 0], "nobody could take it");
    assert_eq!(rig.hash(KEY), BTreeMap::from([("stranger".into(), "x".into())]));
}

#[test]
fn m42_one_bad_key_does_not_stop_the_rest_of_a_batch() {
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));
    let keys: Vec<String> = (0..100).map(|at| format!("lock{at}")).collect();
    let mut expected = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        expected.push(match at % 10 {
            0 => {
                let _: redis::Value = rig.redis(&["SET", key, "x"]);
                Verdict::Refused(String::new())
            }
            5 => {
                rig.given(key, &b, 1, 9_000);
                Verdict::NotOurs
            }
            7 => Verdict::NotOurs,
            _ => {
                rig.given(key, &a, 1, 9_000);
                Verdict::Renewed
            }
        });
    }
    let batch: Vec<_> = keys.iter().map(|key| (key.as_str(), a)).collect();
    let Reply::Renewed { mut verdicts, .. } = rig.reply(&renew(&batch)) else { panic!() };
    for verdict in &mut verdicts {
        if let Verdict::Refused(text) = verdict {
            assert!(text.starts_with("WRONGTYPE "), "{text}");
            text.clear();
        }
    }
    assert_eq!(verdicts, expected);
    for (key, verdict) in keys.iter().zip(expected) {
        assert_eq!(about(rig.pttl(key), LEASE), verdict == Verdict::Renewed, "{key}");
    }
}
