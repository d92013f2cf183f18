//! What is written for a call, and what is known of it when the connection ends.

use super::*;

#[test]
fn a_call_is_evalsha_with_its_keys_first() {
    let mut connection = ready(Role::Calls);
    connection.call(acquire(1, "order_lock", false));
    let bytes = String::from_utf8(written(&mut connection)).unwrap();
    let words: Vec<_> = bytes.split("\r\n").skip(1).collect();
    assert!(bytes.starts_with("*9\r\n$7\r\nEVALSHA\r\n$40\r\n"), "{bytes}");
    assert_eq!(words[5..8], ["1", "$10", "order_lock"]);
    let args: Vec<_> = words[8..].iter().skip(1).step_by(2).copied().filter(|word| !word.is_empty()).collect();
    assert_eq!(args, ["30000", &format!("{CLIENT}:1"), "1", "1", "30000"]);
}

#[test]
fn a_server_that_lacks_the_script_is_sent_its_text() {
    let mut connection = ready(Role::Calls);
    connection.call(acquire(1, "order_lock", true));
    let bytes = String::from_utf8(written(&mut connection)).unwrap();
    assert!(bytes.starts_with("*9\r\n$4\r\nEVAL\r\n"));
    assert!(bytes.contains(bandog_core::scripts::Script::Acquire.source()));
}

#[test]
fn fences_go_out_in_the_same_write_in_front_of_the_call() {
    let mut connection = ready(Role::Calls);
    let mut fenced = call(1);
    fenced.fences = vec![fence(), Fence { id: 8, addr: "/run/redis.sock:0".into() }];
    connection.call(fenced);
    connection.call(call(2));
    let bytes = String::from_utf8(connection.output().to_vec()).unwrap();
    let kill = "*6\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n$2\r\nID\r\n$1\r\n7\r\n$4\r\nADDR\r\n$13\r\n10.0.0.1:5000\r\n";
    assert!(bytes.starts_with(kill), "{bytes}");
    assert_eq!(bytes.matches("EVALSHA").count(), 2);
    assert_eq!(connection.in_flight(), 2);

    connection.input(b":0\r\n-NOPERM no\r\n:5\r\n-OOM command not allowed\r\n").unwrap();
    let refused = Incoming::Reply { call: CallId(2), result: Err(CallError::Server("OOM command not allowed".into())) };
    assert_eq!(incoming(&mut connection), [Incoming::Unfenced(CallId(1)), reply(1, Value::Int(5)), refused]);
    assert_eq!(connection.in_flight(), 0);
}

#[test]
fn f18_a_call_is_unknown_from_its_first_byte_on() {
    let length = {
        let mut connection = ready(Role::Calls);
        connection.call(call(1));
        connection.output().len()
    };
    for bytes in 0..=2 * length {
        let mut connection = ready(Role::Calls);
        connection.call(call(1));
        connection.call(call(2));
        connection.wrote(bytes);
        let fate = connection.abandon();
        assert_eq!(fate.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 2]);
        for ((_, error), sent) in fate.iter().zip([bytes > 0, bytes > length]) {
            match error {
                CallError::Unknown(by) => assert!(sent && by.as_ref() == Some(&fence()), "{bytes}"),
                CallError::NotSent(error) => assert!(!sent && error.code() == Code::Unreachable, "{bytes}"),
                CallError::Server(_) => panic!("nothing was answered"),
            }
        }
    }
}

#[test]
fn bytes_of_a_fence_are_not_bytes_of_its_call() {
    let mut connection = ready(Role::Calls);
    let mut fenced = call(1);
    fenced.fences = vec![fence()];
    connection.call(fenced);
    let kill = connection.output().windows(7).position(|word| word == b"EVALSHA").unwrap() - "*4\r\n$7\r\n".len();
    connection.wrote(kill);
    assert!(matches!(connection.abandon()[..], [(CallId(1), CallError::NotSent(_))]));
}

#[test]
fn a_reply_that_nobody_polled_leaves_its_call_unknown() {
    let mut connection = ready(Role::Calls);
    connection.call(call(1));
    connection.call(call(2));
    written(&mut connection);
    connection.input(b":1\r\n").unwrap();
    let fate = connection.abandon();
    assert_eq!(fate, [1, 2].map(|id| (CallId(id), CallError::Unknown(Some(fence())))));
}

#[test]
fn a_long_queue_in_small_writes_keeps_its_order_and_its_places() {
    let mut connection = ready(Role::Calls);
    let mut whole = Vec::new();
    for id in 0..3000 {
        connection.call(acquire(id, &format!("lock:{id}"), false));
    }
    let length = connection.output().len();
    while whole.len() < length - 10 {
        let some: Vec<u8> = connection.output().iter().take(1000.min(length - 10 - whole.len())).copied().collect();
        connection.wrote(some.len());
        whole.extend(some);
    }
    assert!(connection.out.len() < length / 2, "what went is cut off");
    let text = String::from_utf8(whole).unwrap();
    let at: Vec<_> = (0..3000).filter_map(|id| text.find(&format!("lock:{id}\r\n"))).collect();
    assert!(at.len() == 3000 && at.is_sorted());
    connection.call(call(3000));
    let fate = connection.abandon();
    assert!(matches!(fate[2999].1, CallError::Unknown(_)) && matches!(fate[3000].1, CallError::NotSent(_)));
}

#[test]
fn a_ping_takes_any_answer_in_its_turn() {
    let channel = Name::new("one").unwrap().channel();
    let mut connection = ready(Role::Messages);
    assert!(!connection.is_owed());
    connection.ping();
    connection.subscribe(&channel);
    connection.ping();
    assert!(written(&mut connection).starts_with(b"*1\r\n$4\r\nPING\r\n*2\r\n"));
    connection.input(b"+PONG\r\n-ERR no such channel\r\n").unwrap();
    assert_eq!(incoming(&mut connection), [Incoming::Push(Push::Refused(channel, "ERR no such channel".into()))]);
    assert!(connection.is_owed());
    connection.input(b"-NOPERM no pings for you\r\n").unwrap();
    assert!(!connection.is_owed() && connection.poll().is_none());
    assert!(connection.abandon().is_empty());
}

#[test]
fn subscriptions_are_confirmed_refused_and_heard() {
    let [one, two] = ["one", "two"].map(|name| Name::new(name).unwrap().channel());
    let push = |kind: &str, channel: &Channel, last: &str| {
        let channel = channel.as_str();
        format!(">3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n{last}\r\n", kind.len(), channel.len()).into_bytes()
    };
    let mut connection = ready(Role::Messages);
    connection.subscribe(&one);
    connection.subscribe(&two);
    let bytes = String::from_utf8(written(&mut connection)).unwrap();
    assert!(bytes.starts_with("*2\r\n$9\r\nSUBSCRIBE\r\n$28\r\nredisson_lock__channel:{one}\r\n*2\r\n"), "{bytes}");

    connection.input(&push("subscribe", &one, ":1")).unwrap();
    connection.input(&push("message", &one, "$1\r\n0")).unwrap();
    connection.input(b"-NOPERM no such channel for you\r\n").unwrap();
    connection.input(&push("message", &Name::new("other").unwrap().channel(), "$1\r\n0")).unwrap();
    connection.input(b">2\r\n$10\r\ninvalidate\r\n*0\r\n").unwrap();
    let heard = [
        Incoming::Push(Push::Subscribed(one.clone())),
        Incoming::Push(Push::Message(one.clone(), b"0".to_vec())),
        Incoming::Push(Push::Refused(two.clone(), "NOPERM no such channel for you".into())),
    ];
    assert_eq!(incoming(&mut connection), heard);

    connection.unsubscribe(&one);
    connection.subscribe(&two);
    connection.input(&push("message", &one, "$1\r\n0")).unwrap();
    connection.input(&push("unsubscribe", &one, ":0")).unwrap();
    connection.input(&push("subscribe", &two, ":1")).unwrap();
    assert_eq!(incoming(&mut connection), [Incoming::Push(Push::Subscribed(two))]);
    assert_eq!(connection.in_flight(), 0);
    assert!(connection.input(&push("subscribe", &one, ":1")).is_err(), "nobody asked");
}
