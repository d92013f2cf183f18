"""No server, the wrong one, or one that is lost on the way: a typed error in time that says what to do, and waits
that outlast an outage."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import bandog
from conftest import Server, eventually, free_port
from support.proxy import FaultProxy
from support.redisserver import pause, restart, resume, until_waiting

MARKER = "hunter2-marker"
ANOTHER = "285475da-9152-4c83-822a-67ee2f116a79:52"


@contextlib.contextmanager
def talker(say: Callable[[socket.socket], object]) -> Iterator[int]:
    """A server that does whatever it likes with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                say(connection)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threads.append(threading.Thread(target=one, args=(listener.accept()[0],)))
                    threads[-1].start()

        threads: list[threading.Thread] = []
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Or a test that fails leaves a thread that the interpreter waits for.
            listener.shutdown(socket.SHUT_RDWR)
    server.join()
    for thread in threads:
        thread.join()


def answer(*replies: bytes) -> Callable[[socket.socket], object]:
    def say(connection: socket.socket) -> None:
        for reply in replies:
            connection.recv(65536)
            connection.sendall(reply)
        while connection.recv(65536):
            pass

    return say


def flood(connection: socket.socket) -> None:
    connection.recv(65536)
    while True:
        connection.sendall(b"x" * 65536)


GREETING = (
    b"%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n"
    b"$27\r\nid=7 addr=1.2.3.4:5 laddr=x\r\n"
)

NONSENSE: dict[str, tuple[Callable[[socket.socket], object], type[bandog.LockError]]] = {
    "http": (answer(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n"), bandog.Protocol),
    "ssh": (answer(b"SSH-2.0-OpenSSH_9.2\r\n"), bandog.Protocol),
    "bytes": (answer(bytes(range(256)) * 8), bandog.Protocol),
    "flood": (flood, bandog.Protocol),
    "huge bulk": (answer(b"$1073741824\r\n"), bandog.Protocol),
    "huge map": (answer(b"%999999999\r\n"), bandog.Protocol),
    "deep": (answer(b"*1\r\n" * 50_000), bandog.Protocol),
    "redis 5": (answer(b"-ERR unknown command `HELLO`, with args beginning with: `3`\r\n"), bandog.Protocol),
    "redis 6.0": (answer(GREETING.replace(b"7.0.0", b"6.0.9")), bandog.Protocol),
    "loading": (answer(b"-LOADING Redis is loading the dataset in memory\r\n"), bandog.Unreachable),
    "full": (answer(b"-ERR max number of clients reached\r\n"), bandog.Unreachable),
    "hangs up": (lambda connection: connection.recv(65536), bandog.Unreachable),
    "wants a password": (
        answer(b"-NOAUTH HELLO must be called with the client already authenticated\r\n"),
        bandog.PermissionDenied,
    ),
    "quotes the password": (
        answer(b"-ERR wrong number, with args: 'AUTH' '" + MARKER.encode() + b"'\r\n"),
        bandog.Protocol,
    ),
    "nonsense to the acquire": (answer(GREETING, b"+PONG\r\n"), bandog.Protocol),
    "a list to the acquire": (answer(GREETING, b"*3\r\n:1\r\n:2\r\n:3\r\n"), bandog.Protocol),
    "a negative count": (answer(GREETING, b":-5\r\n"), bandog.Protocol),
    # What cannot be read ends the connection; asked again, it is the same.
    "a number beyond all": (answer(GREETING, b":99999999999999999999999\r\n"), bandog.Unreachable),
    "too many answers": (answer(GREETING, b":1\r\n:1\r\n:1\r\n"), bandog.LockError),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_a_server_that_answers_nonsense(what: str) -> None:
    say, kind = NONSENSE[what]
    with talker(say) as port:
        start = time.monotonic()
        url = f"redis://:{MARKER}@127.0.0.1:{port}"
        with bandog.connect(url, connect_timeout=1, op_timeout=0.5) as client:
            if what == "too many answers":
                # The first is the answer; what comes unasked ends the connection, and nothing else.
                client.lock("x").try_acquire()
            else:
                with pytest.raises(kind) as caught:
                    client.lock("x").acquire(wait=1)
                assert time.monotonic() - start < 1.2
                text = f"{caught.value} {caught.value!r}"
                assert MARKER not in text
                assert 20 < len(str(caught.value)) < 400


def test_a_server_that_is_silent_from_the_start() -> None:
    with talker(lambda connection: connection.recv(65536) and connection.recv(65536)) as port:
        with bandog.connect(f"redis://127.0.0.1:{port}", connect_timeout=0.4, op_timeout=0.5) as client:
            start = time.monotonic()
            with pytest.raises(bandog.Unreachable, match="did not answer within 400 ms"):
                client.lock("x").acquire()
            assert 0.35 < time.monotonic() - start < 0.6
            # Sooner where the wait is shorter.
            start = time.monotonic()
            with pytest.raises((bandog.Unreachable, bandog.LockTimeout)):
                client.lock("x").acquire(wait=0.1)
            assert time.monotonic() - start < 0.25


@pytest.mark.parametrize("face", ["thread", "task"])
@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:{port}", "unix:///nowhere/redis.sock", "redis://no.such.host.invalid"]
)
def test_no_server_at_all(url: str, face: str) -> None:
    with bandog.connect(url.format(port=free_port()), connect_timeout=2) as client:
        start = time.monotonic()
        lock = client.lock("x")
        with pytest.raises(bandog.Unreachable, match="check") as caught:
            lock.acquire() if face == "thread" else asyncio.run(lock.acquire_async())
        assert time.monotonic() - start < 2.2
        assert isinstance(caught.value, ConnectionError)


def test_tls_to_a_plain_server_and_a_plain_client_never_fall_back(url: str, name: str) -> None:
    with bandog.connect(url.replace("redis://", f"rediss://:{MARKER}@"), connect_timeout=0.7) as client:
        with pytest.raises((bandog.Unreachable, bandog.Protocol)) as caught:
            client.lock(name).acquire()
        assert MARKER not in str(caught.value)


def test_a_server_that_comes_up_later_is_found(url: str, name: str) -> None:
    with FaultProxy(url) as proxy, bandog.connect(proxy.url) as client:
        proxy.tell("refuse")
        with pytest.raises(bandog.Unreachable):
            client.lock(name).acquire()
        proxy.tell("accept")
        with client.lock(name) as hold:
            assert hold.valid


@pytest.mark.parametrize("outage", ["refused", "silent", "restarted"])
def test_a_wait_goes_on_after_an_outage(own_server: Server, outage: str) -> None:
    with FaultProxy(own_server.url) as proxy, bandog.connect(proxy.url, op_timeout=0.5, connect_timeout=1) as client:
        with redis.Redis.from_url(own_server.url, decode_responses=True) as raw, ThreadPoolExecutor(2) as pool:
            raw.hset("x", ANOTHER, 1)
            raw.pexpire("x", 30_000)
            endless = pool.submit(client.lock("x").acquire)
            bounded = pool.submit(client.lock("x").try_acquire, 20)
            until_waiting(raw, "x")
            if outage == "refused":
                proxy.tell("refuse")
                proxy.tell("reset")
                time.sleep(1)
                raw.delete("x")
                proxy.tell("accept")
            elif outage == "silent":
                proxy.tell("stall both")
                proxy.tell("silence")
                time.sleep(1)
                raw.delete("x")
                proxy.tell("pass")
                proxy.tell("reset")
            else:
                restart(own_server)
            back = time.monotonic()
            first = endless.result(5)
            # The backoff ends at a second.
            assert time.monotonic() - back < 1.5
            assert not bounded.done()
            first.release()
            second = bounded.result(5)
            assert second is not None
            assert raw.hgetall("x") == {second.owner: "1"}
            second.release()


def test_unreachable_when_the_wait_ends_and_not_before(own_server: Server) -> None:
    with bandog.connect(own_server.url, op_timeout=0.3, connect_timeout=0.5, unreachable_after=2) as client:
        with redis.Redis.from_url(own_server.url, decode_responses=True) as raw, ThreadPoolExecutor(3) as pool:
            raw.hset("x", ANOTHER, 1)
            raw.pexpire("x", 60_000)

            def wait(seconds: float | None) -> tuple[type[BaseException] | None, float]:
                try:
                    client.lock("x").acquire(wait=seconds)
                except bandog.LockError as error:
                    return type(error), time.monotonic()
                return None, time.monotonic()

            start = time.monotonic()
            bounded = [pool.submit(wait, seconds) for seconds in (1.0, 3.0)]
            endless = pool.submit(wait, None)
            until_waiting(raw, "x")
            down = time.monotonic()
            own_server.stop()
            results = [one.result(8) for one in bounded]
            for (kind, at), seconds in zip(results, (1.0, 3.0), strict=True):
                assert kind is bandog.Unreachable
                assert -0.01 < at - start - seconds < 0.1
            kind, at = endless.result(8)
            assert kind is bandog.Unreachable
            assert 1.9 < at - down < 2.5


def test_a_paused_server_is_no_reason_to_end_a_wait(own_server: Server) -> None:
    """Not even for longer than `op_timeout`: it is reached again, and the wait goes on."""
    with bandog.connect(own_server.url, op_timeout=0.3) as client, ThreadPoolExecutor(1) as pool:
        with redis.Redis.from_url(own_server.url, decode_responses=True) as raw:
            raw.hset("x", ANOTHER, 1)
            raw.pexpire("x", 600)
            waiting = pool.submit(client.lock("x").acquire)
            until_waiting(raw, "x")
            pause(own_server)
            time.sleep(1.5)
            assert not waiting.done()
            resume(own_server)
            hold = waiting.result(3)
            eventually(lambda: raw.hgetall("x") == {hold.owner: "1"}, 1)
            hold.release()


@pytest.mark.parametrize(
    "bad",
    [
        "", "redis", "http://x", "redis://:{}@host:99999", "redis://:{}@host:port",
        "redis://u:{}@host/db", "redis://u:{}@host/-1", "redis://u:{}@host?x=1", "redis://u:{}@[::1", "://{}@x",
        "redis+nothing://:{}@x", "redis://:{}\x00@x", "redis://:{}@h ost", "unix://",
    ],
)  # fmt: skip
def test_x6_bad_urls_are_refused_at_once_and_never_quoted(bad: str) -> None:
    with pytest.raises(bandog.InvalidUrl) as caught:
        bandog.connect(bad.format(MARKER))
    assert MARKER not in f"{caught.value} {caught.value!r} {caught.value.args} {caught.value.__cause__}"
    assert len(str(caught.value)) > 15
