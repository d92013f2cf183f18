//! Protocol 20.1, row by row, without the unlock latch that absolute counts replace; and what absolute
//! counts promise beyond it.

use bandog_core::scripts::Verdict;

use super::*;

const KEY: &str = "order_lock";
const CHANNEL: &str = "redisson_lock__channel:{order_lock}";

#[test]
fn rows_1_to_9_of_the_protocol() {
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));

    assert_eq!(rig.reply(&acquire(KEY, a, 1, true)), Reply::Granted { count: 1 });
    rig.expect_lock(KEY, &a, 1, LEASE);
    assert_eq!(rig.redis::<String>(&["TYPE", KEY]), "hash");

    let _: i64 = rig.redis(&["PEXPIRE", KEY, "9000"]);
    assert_eq!(rig.reply(&acquire(KEY, a, 2, false)), Reply::Granted { count: 2 });
    rig.expect_lock(KEY, &a, 2, LEASE);

    let Reply::Busy { ttl, healed: false } = rig.reply(&acquire(KEY, b, 1, true)) else { panic!("B must wait") };
    assert!(about(i64::try_from(ttl.0).unwrap(), LEASE));
    rig.expect_lock(KEY, &a, 2, LEASE);

    assert_eq!(rig.reply(&release(KEY, b, 0)), Reply::NotOurs);
    assert_eq!(rig.reply(&release(KEY, b, 1)), Reply::NotOurs);
    rig.expect_lock(KEY, &a, 2, LEASE);

    // The second of each pair is the same call again, as after a lost reply.
    let none = rig.messages_during(CHANNEL, |rig| {
        for _ in 0..2 {
            let _: i64 = rig.redis(&["PEXPIRE", KEY, "9000"]);
            assert_eq!(rig.reply(&release(KEY, a, 1)), Reply::Still { count: 1 });
            rig.expect_lock(KEY, &a, 1, LEASE);
        }
    });
    assert_eq!(none, [] as [&str; 0]);
    let one = rig.messages_during(CHANNEL, |rig| {
        assert_eq!(rig.reply(&release(KEY, a, 0)), Reply::Freed { told: 1 });
        rig.expect_nothing();
        assert_eq!(rig.reply(&release(KEY, a, 0)), Reply::NotOurs);
    });
    assert_eq!(one, ["0"]);
    assert_eq!(rig.reply(&release(KEY, a, 1)), Reply::NotOurs);
    rig.expect_nothing();
}

#[test]
fn row_13_braces_in_the_name_decide_the_channel() {
    let mut rig = Rig::start();
    let a = owner(b'A');
    assert_eq!(rig.reply(&acquire("a{b}c", a, 1, true)), Reply::Granted { count: 1 });
    rig.expect_lock("a{b}c", &a, 1, LEASE);
    let messages = rig.messages_during("redisson_lock__channel:a{b}c", |rig| {
        assert_eq!(rig.reply(&release("a{b}c", a, 0)), Reply::Freed { told: 1 });
    });
    assert_eq!(messages, ["0"]);
    rig.expect_nothing();
}

#[test]
fn f41_names_reach_the_server_byte_for_byte() {
    let mut rig = Rig::start();
    let a = owner(b'A');
    let long = "n".repeat(512);
    for key in
        ["{}", "{", "}", "a}b", "a b", "\r\n$3\r\n", "\0", "a\0b", "\u{1f512}", "e\u{301}", "\u{e9}", "'\"", &long]
    {
        let channel = name(key).channel();
        assert_eq!(rig.reply(&acquire(key, a, 1, true)), Reply::Granted { count: 1 });
        rig.expect_lock(key, &a, 1, LEASE);
        assert!(
            matches!(rig.reply(&renew(&[(key, a)])), Reply::Renewed { verdicts, .. } if verdicts == [Verdict::Renewed])
        );
        let messages = rig.messages_during(channel.as_str(), |rig| {
            assert_eq!(rig.reply(&release(key, a, 0)), Reply::Freed { told: 1 });
        });
        assert_eq!(messages, ["0"], "{key:?}");
        rig.expect_nothing();
    }
}

#[test]
fn s5_a_repeated_acquire_changes_no_count() {
    let mut rig = Rig::start();
    let a = owner(b'A');
    for count in 1..=3 {
        for _ in 0..3 {
            assert_eq!(rig.reply(&acquire(KEY, a, count, count == 1)), Reply::Granted { count });
            rig.expect_lock(KEY, &a, count, LEASE);
        }
    }
    // One that comes late does not lower it, and says what stands there.
    for late in [1, 2] {
        assert_eq!(rig.reply(&acquire(KEY, a, late, true)), Reply::Granted { count: 3 });
        rig.expect_lock(KEY, &a, 3, LEASE);
    }
}

#[test]
fn s5_a_repeated_release_never_raises_the_count() {
    let mut rig = Rig::start();
    let a = owner(b'A');
    rig.given(KEY, &a, 3, LEASE);
    assert_eq!(rig.reply(&release(KEY, a, 1)), Reply::Still { count: 1 });
    assert_eq!(rig.reply(&release(KEY, a, 2)), Reply::Still { count: 1 });
    rig.expect_lock(KEY, &a, 1, LEASE);
}

#[test]
fn m40_the_outermost_release_ends_the_hold_whatever_its_count() {
    let mut rig = Rig::start();
    let a = owner(b'A');
    rig.given(KEY, &a, 7, LEASE);
    assert_eq!(rig.reply(&release(KEY, a, 0)), Reply::Freed { told: 0 });
    rig.expect_nothing();
}

#[test]
fn s4_a_re_entry_never_takes_a_lock_anew() {
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));
    assert_eq!(rig.reply(&acquire(KEY, a, 2, false)), Reply::NotOurs);
    rig.expect_nothing();
    rig.given(KEY, &b, 1, LEASE);
    assert_eq!(rig.reply(&acquire(KEY, a, 2, false)), Reply::NotOurs);
    rig.expect_lock(KEY, &b, 1, LEASE);
}

#[test]
fn s1_nothing_of_ours_shortens_a_lease() {
    let mut rig = Rig::start();
    let a = owner(b'A');
    let year = 365 * 24 * 3_600_000;
    rig.given(KEY, &a, 2, year);
    assert_eq!(rig.reply(&release(KEY, a, 1)), Reply::Still { count: 1 });
    rig.expect_lock(KEY, &a, 1, year);
    rig.reply(&renew(&[(KEY, a)]));
    rig.expect_lock(KEY, &a, 1, year);
    // Nor a re-entry, nor a first try that is executed late.
    for (count, fresh) in [(2, false), (1, true)] {
        assert_eq!(rig.reply(&acquire(KEY, a, count, fresh)), Reply::Granted { count: 2 });
        rig.expect_lock(KEY, &a, 2, year);
    }
}

#[test]
fn leases_to_the_very_last_keep_every_digit() {
    let mut rig = Rig::start();
    let (a, longest) = (owner(b'A'), bandog_core::config::MAX_SPAN);
    let asked = Ask::Acquire { name: name(KEY), owner: a, lease: longest, count: 2, fresh: true, heal: longest };
    assert_eq!(rig.reply(&asked), Reply::Granted { count: 2 });
    rig.expect_lock(KEY, &a, 2, longest.0);
    assert_eq!(rig.reply(&release(KEY, a, 1)), Reply::Still { count: 1 });
    rig.reply(&renew(&[(KEY, a)]));
    rig.expect_lock(KEY, &a, 1, longest.0);
}

#[test]
fn s3_a_renewal_touches_only_its_own_hold_and_makes_no_key() {
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));
    rig.given(KEY, &b, 1, 9_000);
    let Reply::Renewed { verdicts, server_us } = rig.reply(&renew(&[(KEY, a), ("gone", a), (KEY, b)])) else {
        panic!()
    };
    assert_eq!(verdicts, [Verdict::NotOurs, Verdict::NotOurs, Verdict::Renewed]);
    rig.expect_lock(KEY, &b, 1, LEASE);

    let (seconds, micros): (u64, u64) = rig.redis(&["TIME"]);
    let now = seconds * 1_000_000 + micros;
    assert!((now - 5_000_000..=now).contains(&server_us), "{server_us} at {now}");
}

#[test]
fn a_server_older_than_7_0_renews_all_the_same() {
    // In front of the script: a PEXPIRE that knows no GT.
    const OLD: &str = "local real = redis
local redis = {call = real.call, pcall = function(name, ...)
  if name == 'PEXPIRE' and select('#', ...) > 2 then return {err = 'ERR wrong number of arguments'} end
  return real.pcall(name, ...)
end}
";
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));
    for (key, owner, ttl) in [("short", a, 9_000), ("other", b, 9_000), ("long", a, 90_000), ("none", a, 9_000)] {
        rig.given(key, &owner, 1, ttl);
    }
    let _: i64 = rig.redis(&["PERSIST", "none"]);
    let ask = renew(&[("short", a), ("other", a), ("long", a), ("none", a)]);
    let mut paper = Paper::default();
    let script = Request { ask: ask.clone(), source: true }.write(&mut paper);
    let mut command = cmd("EVAL");
    command.arg(OLD.to_owned() + script.source()).arg(paper.keys.len()).arg(&paper.keys).arg(&paper.args);
    let value = command.query::<redis::Value>(&mut rig.admin).unwrap();
    let Ok(Reply::Renewed { verdicts, .. }) = ask.shape().decode(plain(value)) else { panic!() };
    assert_eq!(verdicts, [Verdict::Renewed, Verdict::NotOurs, Verdict::Renewed, Verdict::Renewed]);
    for (key, ttl) in [("short", LEASE), ("other", 9_000), ("long", 90_000), ("none", LEASE)] {
        let left = rig.pttl(key);
        assert!(about(left, ttl), "{key}: {left} of {ttl} ms");
    }
}

#[test]
fn status_tells_free_from_held() {
    let mut rig = Rig::start();
    assert_eq!(rig.reply(&status(KEY)), Reply::Status(None));
    rig.given(KEY, &owner(b'A'), 1, LEASE);
    let Reply::Status(Some(Some(ttl))) = rig.reply(&status(KEY)) else { panic!() };
    assert!(about(i64::try_from(ttl.0).unwrap(), LEASE));
    let _: i64 = rig.redis(&["PERSIST", KEY]);
    assert_eq!(rig.reply(&status(KEY)), Reply::Status(Some(None)));
    assert_eq!(rig.pttl(KEY), -1, "a question changes nothing");
}

#[test]
fn force_deletes_only_the_owners_it_names() {
    let mut rig = Rig::start();
    let (a, b) = (owner(b'A'), owner(b'B'));
    assert_eq!(rig.reply(&force(KEY, &[])), Reply::Owners(vec![]));
    assert_eq!(rig.reply(&force(KEY, &[&a])), Reply::Forced(0));
    rig.given(KEY, &b, 2, LEASE);
    assert_eq!(rig.reply(&force(KEY, &[])), Reply::Owners(vec![b.to_string().into_bytes()]));
    let messages = rig.messages_during(CHANNEL, |rig| {
        assert_eq!(rig.reply(&force(KEY, &[&a])), Reply::Forced(0), "the lock changed hands meanwhile");
        rig.expect_lock(KEY, &b, 2, LEASE);
        assert_eq!(rig.reply(&force(KEY, &[&a, &b])), Reply::Forced(1));
        rig.expect_nothing();
        assert_eq!(rig.reply(&force(KEY, &[&b])), Reply::Forced(0));
    });
    assert_eq!(messages, ["0"]);
}
