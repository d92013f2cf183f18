//! Replies of every type, whole and in pieces (F20).

use proptest::prelude::*;

use super::*;
use crate::wire::codec::Decoder;

fn frames(pieces: &[&[u8]]) -> Vec<Frame> {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(frame) = decoder.next().unwrap() {
            frames.push(frame);
        }
    }
    frames
}

#[test]
fn every_type_is_understood() {
    let list = |values: &[Value]| Frame::Value(Value::List(values.to_vec()));
    let table: &[(&str, Frame)] = &[
        ("+OK", Frame::Value(text("OK"))),
        ("+PONG", Frame::Value(text("PONG"))),
        (":-42", Frame::Value(Value::Int(-42))),
        (":+42", Frame::Value(Value::Int(42))),
        (":0042", Frame::Value(Value::Int(42))),
        (":999999999999999999", Frame::Value(Value::Int(999_999_999_999_999_999))),
        (":9223372036854775807", Frame::Value(Value::Int(i64::MAX))),
        ("*1\r\n:30", list(&[Value::Int(30)])),
        ("*1\r\n:-1", list(&[Value::Int(-1)])),
        ("$5\r\nhe\r\no", Frame::Value(text("he\r\no"))),
        ("$0\r\n", Frame::Value(text(""))),
        ("$-1", Frame::Value(Value::Nil)),
        ("*-1", Frame::Value(Value::Nil)),
        ("_", Frame::Value(Value::Nil)),
        ("#t", Frame::Value(Value::Int(1))),
        (",1.5", Frame::Value(text("1.5"))),
        (",inf", Frame::Value(text("inf"))),
        (
            "(3492890328409238509324850943850943825024385",
            Frame::Value(text("3492890328409238509324850943850943825024385")),
        ),
        ("=8\r\ntxt:some", Frame::Value(text("some"))),
        ("*0", list(&[])),
        ("*3\r\n:1\r\n$1\r\nx\r\n*1\r\n_", list(&[Value::Int(1), text("x"), Value::List(vec![Value::Nil])])),
        ("~2\r\n:1\r\n:2", list(&[Value::Int(1), Value::Int(2)])),
        ("*2\r\n-NOPERM no\r\n:1", list(&[text("NOPERM no"), Value::Int(1)])),
        ("*1\r\n%1\r\n+a\r\n:1", list(&[Value::List(vec![text("a"), Value::Int(1)])])),
        ("|1\r\n+ttl\r\n:9\r\n:5", Frame::Value(Value::Int(5))),
        ("*2\r\n|1\r\n+ttl\r\n:9\r\n:5\r\n:6", list(&[Value::Int(5), Value::Int(6)])),
        ("%1\r\n+a\r\n:1", Frame::Map(vec![(text("a"), Value::Int(1))])),
        ("-ERR no luck", Frame::Error("ERR no luck".into())),
        ("-WRONG", Frame::Error("WRONG".into())),
        ("!10\r\nSYNTAX bad", Frame::Error("SYNTAX bad".into())),
        (">2\r\n+message\r\n:1", Frame::Push(PushKind::Message, vec![Value::Int(1)])),
    ];
    for (bytes, frame) in table {
        let bytes = format!("{bytes}\r\n");
        assert_eq!(frames(&[bytes.as_bytes()]), std::slice::from_ref(frame), "{bytes:?}");
    }
    let all: String = table.iter().map(|(bytes, _)| format!("{bytes}\r\n")).collect();
    let expected: Vec<_> = table.iter().map(|(_, frame)| frame.clone()).collect();
    for cut in 0..=all.len() {
        let (head, tail) = all.as_bytes().split_at(cut);
        assert_eq!(frames(&[head, tail]), expected, "F20: cut at {cut}");
    }
    assert_eq!(frames(&all.as_bytes().chunks(1).collect::<Vec<_>>()), expected);
}

#[test]
fn an_error_in_any_encoding_is_an_error() {
    assert_eq!(frames(&[b"-ERR no \xff here\r\n"]), [Frame::Error("ERR no \u{fffd} here".into())]);
}

#[test]
fn f20_a_whole_conversation_may_be_cut_anywhere() {
    let talk =
        [HELLO, INFO, b"*2\r\n:1\r\n:30000\r\n-NOSCRIPT none\r\n>2\r\n+invalidate\r\n_\r\n$3\r\na\r\n\r\n"].concat();
    let run = |pieces: &[&[u8]]| {
        let mut connection = Connection::new(&server("redis://host.test"), Role::Calls, CLIENT).unwrap();
        let (mut asked, mut seen) = (false, Vec::new());
        for piece in pieces {
            // A server answers nothing that was not asked; a piece that ends the greeting may hold replies.
            let greeted = HELLO.len() + INFO.len();
            let (head, tail) =
                if asked { (&b""[..], *piece) } else { piece.split_at(piece.len().min(greeted - seen.len())) };
            connection.input(head).unwrap();
            seen.extend_from_slice(head);
            if connection.is_ready() && !asked {
                asked = true;
                (1..=3).for_each(|id| connection.call(call(id)));
            }
            connection.input(tail).unwrap();
        }
        incoming(&mut connection)
    };
    let whole = run(&[&talk]);
    assert_eq!(whole.len(), 4);
    assert_eq!(whole[3], reply(3, text("a\r\n")));
    for cut in 0..=talk.len() {
        let (head, tail) = talk.split_at(cut);
        assert_eq!(run(&[head, tail]), whole, "cut at {cut}");
    }
    assert_eq!(run(&talk.chunks(1).collect::<Vec<_>>()), whole);
}

fn encoded(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Nil => out.extend(b"_\r\n"),
        Value::Int(number) => out.extend(format!(":{number}\r\n").bytes()),
        Value::Text(text) => {
            out.extend(format!("${}\r\n", text.len()).bytes());
            out.extend(text);
            out.extend(b"\r\n");
        }
        Value::List(values) => {
            out.extend(format!("*{}\r\n", values.len()).bytes());
            values.iter().for_each(|value| encoded(value, out));
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<i64>().prop_map(Value::Int),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Text),
        "[\r\n$:*+-]{0,12}".prop_map(|text| Value::Text(text.into_bytes())),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| prop::collection::vec(inner, 0..8).prop_map(Value::List))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn f20_random_replies_in_random_pieces(
        values in prop::collection::vec(value(), 1..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        values.iter().for_each(|value| encoded(value, &mut bytes));
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let expected: Vec<_> = values.into_iter().map(Frame::Value).collect();
        prop_assert_eq!(frames(&pieces), expected);
    }

    #[test]
    fn x3_any_bytes_end_in_replies_or_a_violation(
        soup in prop::collection::vec(prop_oneof![
            "[-+:$*_,#!=(%|~>]", "-?[0-9]{1,3}", Just("\r\n".to_owned()), "[a-z]{0,3}", Just("\u{e9}".to_owned()),
        ], 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = soup.concat().into_bytes();
        let run = |pieces: &[&[u8]]| {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in pieces {
                decoder.push(piece);
                loop {
                    match decoder.next() {
                        Ok(Some(frame)) => seen.push(format!("{frame:?}")),
                        Ok(None) => break,
                        Err(violation) => {
                            seen.push(format!("{violation:?}"));
                            return seen;
                        }
                    }
                }
            }
            seen
        };
        let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(run(&[head, tail]), run(&[&bytes]));
    }
}
