//! What goes through a pipe, and who is told.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::*;

fn pipe() -> (Arc<Pipe>, Carried, Arc<AtomicU32>) {
    let rings = Arc::new(AtomicU32::new(0));
    let ring = {
        let rings = rings.clone();
        move || {
            rings.fetch_add(1, SeqCst);
        }
    };
    let pipe = Pipe::new(&Address::Unix("/run/redis.sock".into()), Arc::new(ring));
    let host = pipe.host_end();
    (pipe, host, rings)
}

fn read(pipe: &Pipe) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 3];
    pipe.read(&mut buffer).map(|count| buffer[..count].to_vec())
}

#[test]
fn bytes_go_through_in_order_both_ways() {
    let (pipe, host, rings) = pipe();
    assert_eq!(*host.place(), Place::Unix("/run/redis.sock".into()));
    host.received(b"abcd");
    host.received(b"e");
    assert_eq!([read(&pipe).unwrap(), read(&pipe).unwrap()], [b"abc".to_vec(), b"de".to_vec()]);
    assert_eq!(read(&pipe).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!([pipe.write(b"12").unwrap(), pipe.write(b"3").unwrap()], [2, 1]);
    assert_eq!(rings.load(SeqCst), 1, "once for both");
    assert_eq!((host.take(), host.has_output()), (b"123".to_vec(), false));
}

#[test]
fn a_loop_that_is_about_to_look_is_not_rung() {
    let (pipe, host, rings) = pipe();
    host.hush();
    pipe.write(b"1").unwrap();
    host.unhush();
    pipe.write(b"2").unwrap();
    assert_eq!((rings.load(SeqCst), host.take()), (0, b"12".to_vec()));
    pipe.write(b"3").unwrap();
    assert_eq!((rings.load(SeqCst), host.take()), (1, b"3".to_vec()), "it has looked");
    host.hush();
    host.unhush();
    pipe.write(b"4").unwrap();
    assert_eq!(rings.load(SeqCst), 2, "nothing came of the call, so that it does not look");
}

#[test]
fn a_full_host_takes_no_more() {
    let (pipe, host, _) = pipe();
    host.set_full(true);
    assert_eq!(pipe.write(b"1").unwrap_err().kind(), io::ErrorKind::WouldBlock);
    host.set_full(false);
    assert_eq!(pipe.write(b"1").unwrap(), 1);
}

#[test]
fn what_came_before_the_end_is_read_first_and_the_reason_once() {
    let (pipe, host, _) = pipe();
    host.received(b"ab");
    host.lost(Some(io::ErrorKind::ConnectionReset.into()));
    host.lost(None);
    assert_eq!(read(&pipe).unwrap(), b"ab");
    assert_eq!(read(&pipe).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(read(&pipe).unwrap(), b"");
}

#[test]
fn after_the_drivers_end_nothing_goes_either_way() {
    let (pipe, host, rings) = pipe();
    pipe.write(b"1").unwrap();
    pipe.end(true);
    pipe.end(false);
    assert_eq!((host.ended(), host.take(), rings.load(SeqCst)), (Some(true), Vec::new(), 2));
    host.received(b"a");
    assert_eq!(read(&pipe).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test(flavor = "current_thread")]
async fn a_connection_is_awaited() {
    let (one, host, _) = pipe();
    host.opened();
    one.opened().await.unwrap();
    let (two, host, _) = pipe();
    host.lost(Some(io::ErrorKind::ConnectionRefused.into()));
    assert_eq!(two.opened().await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    let (three, host, _) = pipe();
    host.lost(None);
    assert_eq!(three.opened().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
