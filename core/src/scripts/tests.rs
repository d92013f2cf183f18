use super::*;
use crate::io::Value::{self, Int, List, Nil, Text};
use crate::name::MAX_NAME_BYTES;
use crate::owner::{ClientId, HoldNumber};

const UUID: &str = "285475da-9152-4c83-822a-67ee2f116a79";

/// What a request becomes on the wire: the script, its keys, its arguments.
#[derive(Default)]
struct Paper(Vec<String>, Vec<String>);

impl Sink for Paper {
    fn key(&mut self, key: &[u8]) {
        assert!(self.1.is_empty(), "keys come first");
        self.0.push(String::from_utf8(key.into()).unwrap());
    }

    fn arg(&mut self, arg: &[u8]) {
        self.1.push(String::from_utf8(arg.into()).unwrap());
    }
}

fn written(ask: Ask) -> (Script, Vec<String>, Vec<String>) {
    let mut paper = Paper::default();
    let script = Request { ask, source: false }.write(&mut paper);
    (script, paper.0, paper.1)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn owner(number: u64) -> WireOwner {
    let bytes = [0x28, 0x54, 0x75, 0xda, 0x91, 0x52, 0x4c, 0x83, 0x82, 0x2a, 0x67, 0xee, 0x2f, 0x11, 0x6a, 0x79];
    WireOwner { client: ClientId(bytes), number: HoldNumber(number) }
}

fn acquire() -> Ask {
    Ask::Acquire {
        name: name("order"),
        owner: owner(52),
        lease: Millis(30_000),
        count: 1,
        fresh: true,
        heal: Millis(7),
    }
}

fn release() -> Ask {
    Ask::Release { name: name("a{b}c"), owner: owner(0), lease: Millis(u64::MAX), count: u32::MAX }
}

fn renew(count: usize) -> Ask {
    let one = |at: usize| Renewal { name: name(&format!("n{at}")), owner: owner(at as u64), lease: Millis(100) };
    Ask::Renew((0..count).map(one).collect())
}

fn force(owners: &[&str]) -> Ask {
    Ask::Force { name: name("x"), owners: owners.iter().map(|owner| owner.as_bytes().to_vec()).collect() }
}

fn status() -> Ask {
    Ask::Status { name: name("x") }
}

fn text(text: &str) -> Value {
    Text(text.into())
}

#[test]
fn requests_are_written_as_the_scripts_name_them() {
    let strings = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let expect = |ask, script, keys: &[&str], args: &[&str]| {
        assert_eq!(written(ask), (script, strings(keys), strings(args)));
    };
    let (o52, o0) = (format!("{UUID}:52"), format!("{UUID}:0"));
    expect(acquire(), Script::Acquire, &["order"], &["30000", &o52, "1", "1", "7"]);
    expect(
        release(),
        Script::Release,
        &["a{b}c", "redisson_lock__channel:a{b}c"],
        &[&o0, "4294967295", "18446744073709551615", "PUBLISH"],
    );
    let o1 = format!("{UUID}:1");
    expect(renew(2), Script::Renew, &["n0", "n1"], &[&o0, &o1, "100"]);
    let Ask::Renew(mut different) = renew(2) else { panic!() };
    different[1].lease = Millis(7);
    expect(Ask::Renew(different), Script::Renew, &["n0", "n1"], &[&o0, &o1, "100", "7"]);
    expect(force(&[]), Script::Force, &["x", "redisson_lock__channel:{x}"], &["PUBLISH"]);
    expect(force(&["a", "b"]), Script::Force, &["x", "redisson_lock__channel:{x}"], &["PUBLISH", "a", "b"]);
    expect(status(), Script::Status, &["x"], &[]);
}

#[test]
fn the_longest_texts_have_room() {
    let long = name(&"n".repeat(MAX_NAME_BYTES));
    let ask = Ask::Release { name: long.clone(), owner: owner(u64::MAX), lease: Millis(0), count: 0 };
    let (_, keys, args) = written(ask);
    assert_eq!(keys[1], long.channel().as_str());
    assert_eq!(args[0], owner(u64::MAX).to_string());
}

#[test]
fn scripts_have_a_text_and_no_two_the_same() {
    let mut sources: Vec<_> = Script::ALL.map(Script::source).into();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), Script::ALL.len());
    // Line ends are part of the digest: a checkout that turns them would make other scripts of these.
    assert!(sources.iter().all(|source| source.starts_with("--") && !source.contains('\r')));
}

#[test]
fn replies_are_understood() {
    let expect = |ask: Ask, value, reply| assert_eq!(ask.shape().decode(value), Ok(reply));
    expect(acquire(), Int(1), Reply::Granted { count: 1 });
    expect(acquire(), Int(u32::MAX.into()), Reply::Granted { count: u32::MAX });
    expect(acquire(), Int(0), Reply::NotOurs);
    expect(acquire(), List(vec![Int(0)]), Reply::Busy { ttl: Millis(0), healed: false });
    expect(acquire(), List(vec![Int(9), Int(1)]), Reply::Busy { ttl: Millis(9), healed: true });
    expect(release(), List(vec![Int(0)]), Reply::Freed { told: 0 });
    expect(release(), Int(2), Reply::Still { count: 2 });
    expect(release(), Int(0), Reply::NotOurs);
    expect(
        renew(3),
        List(vec![Int(2), Int(0), Int(3), text("WRONGTYPE no"), Int(1), text("1764000000"), text("000012")]),
        Reply::Renewed {
            verdicts: vec![Verdict::Renewed, Verdict::NotOurs, Verdict::Refused("WRONGTYPE no".into())],
            server_us: 1_764_000_000_000_012,
        },
    );
    expect(force(&[]), List(vec![]), Reply::Owners(vec![]));
    expect(force(&[]), List(vec![text("a")]), Reply::Owners(vec![b"a".to_vec()]));
    expect(force(&["a"]), Int(0), Reply::Forced(0));
    expect(status(), Int(-2), Reply::Status(None));
    expect(status(), Int(-1), Reply::Status(Some(None)));
    expect(status(), Int(5), Reply::Status(Some(Some(Millis(5)))));
}

#[test]
fn x3_a_reply_that_no_script_gives_is_refused_and_not_quoted() {
    let clock = [text("1"), text("2")];
    let renewed = |mut list: Vec<Value>, clock: &[Value]| {
        list.extend_from_slice(clock);
        List(list)
    };
    let bad = [
        (acquire(), Nil),
        (acquire(), text("1")),
        (acquire(), Int(-1)),
        (acquire(), Int(1 << 32)),
        (acquire(), List(vec![])),
        (acquire(), List(vec![Int(-1)])),
        (acquire(), List(vec![Int(1), Int(2)])),
        (acquire(), List(vec![Int(1), Int(1), Int(1)])),
        (release(), Nil),
        (release(), Int(-1)),
        (release(), List(vec![Int(1), Int(1)])),
        (release(), List(vec![Int(-1)])),
        (renew(1), Int(1)),
        (renew(1), List(vec![])),
        (renew(1), List(vec![text("1")])),
        (renew(1), renewed(vec![], &clock)),
        (renew(2), renewed(vec![Int(1)], &clock)),
        (renew(1), renewed(vec![Int(2)], &clock)),
        (renew(1), renewed(vec![Nil], &clock)),
        (renew(1), renewed(vec![Int(-1)], &clock)),
        (renew(1), renewed(vec![Int(1), Int(1)], &clock)),
        (renew(1), renewed(vec![Int(1), Int(0), Int(1)], &clock)),
        (renew(1), renewed(vec![Int(0), Int(0), Int(0)], &clock)),
        (renew(1), renewed(vec![Int(2), Int(0), Int(0)], &clock)),
        (renew(1), renewed(vec![Nil, Int(0), Int(0)], &clock)),
        (renew(1), renewed(vec![Int(1), Nil, Int(0)], &clock)),
        (renew(1), renewed(vec![Int(1), Int(1), Int(0)], &clock)),
        (renew(2), renewed(vec![Int(1), Int(0), Int(1), Int(0), Int(0)], &clock)),
        (renew(1), renewed(vec![Int(1)], &[Int(1), Int(2)])),
        (renew(1), renewed(vec![Int(1)], &[text("1"), text("1000000")])),
        (renew(1), renewed(vec![Int(1)], &[text("+1"), text("1")])),
        (renew(1), renewed(vec![Int(1)], &[text(""), text("1")])),
        (renew(1), renewed(vec![Int(1)], &[text("18446744073709551615"), text("1")])),
        (force(&[]), Int(0)),
        (force(&[]), List(vec![Int(1)])),
        (force(&["a"]), List(vec![])),
        (force(&["a"]), Int(-1)),
        (status(), Int(-3)),
        (status(), List(vec![])),
        (status(), text(&"x".repeat(5000))),
    ];
    for (ask, value) in bad {
        let why = ask.shape().decode(value.clone()).expect_err(&format!("{value:?}"));
        assert!(why.len() < 100, "{why}");
    }
}
