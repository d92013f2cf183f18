"""Every failure is a typed error that says what to do, pickles, and shows no secret (H1, X6)."""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import bandog
import bandog.errors
from conftest import Server, free_port

BASES: dict[str, type[BaseException]] = {
    "LockTimeout": TimeoutError,
    "NotOwner": RuntimeError,
    "LockLost": bandog.NotOwner,
    "PermissionDenied": PermissionError,
    "Unreachable": ConnectionError,
    "InvalidName": ValueError,
    "InvalidLease": ValueError,
    "InvalidUrl": ValueError,
    "InvalidOption": ValueError,
    "BlockingInLoop": RuntimeError,
}


@pytest.mark.parametrize("kind", [name for name in bandog.errors.__all__ if name != "LockError"])
def test_classes(kind: str) -> None:
    cls: Any = getattr(bandog, kind)
    assert issubclass(cls, bandog.LockError)
    assert issubclass(cls, BASES.get(kind, Exception))
    error = cls("what happened", name="order_lock", owner="uuid:1")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.name, again.owner, again.code) == (
        cls,
        "what happened",
        "order_lock",
        "uuid:1",
        error.code,
    )


def test_codes_are_distinct() -> None:
    codes = [getattr(bandog, kind).code for kind in bandog.errors.__all__]
    assert len(set(codes)) == len(codes) == 19


def test_release_unknown_says_when(own_server: Server, name: str) -> None:
    with bandog.connect(own_server.url, op_timeout=0.3) as client:
        hold = client.lock(name).acquire()
        own_server.process.send_signal(19)
        start = time.monotonic()
        with pytest.raises(bandog.ReleaseUnknown) as caught:
            hold.release()
        assert time.monotonic() - start < 0.6
        own_server.process.send_signal(18)
        assert caught.value.name == name
        assert caught.value.free_at_latest is not None
        assert 20 < caught.value.free_at_latest <= 33
        again = pickle.loads(pickle.dumps(caught.value))
        assert again.free_at_latest == caught.value.free_at_latest


def test_f39_wrong_type_is_not_overwritten(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    for write in (lambda: raw.set(name, "x"), lambda: raw.rpush(name, "x"), lambda: raw.hset(name, "a", "b")):
        raw.delete(name)
        write()
        kind = raw.type(name)
        with pytest.raises(bandog.WrongType) as caught:
            client.lock(name).acquire(wait=1)
        assert caught.value.name == name
        assert raw.type(name) == kind
        assert raw.pttl(name) == -1


def test_unreachable() -> None:
    with bandog.connect(f"redis://user:hunter2@127.0.0.1:{free_port()}", connect_timeout=1) as client:
        start = time.monotonic()
        with pytest.raises(bandog.Unreachable) as caught:
            client.lock("x").try_acquire()
        assert time.monotonic() - start < 1.5
        with pytest.raises(bandog.Unreachable):
            client.lock("x").acquire(wait=0.2)
    assert "hunter2" not in str(caught.value)


def test_unreachable_after_a_server_lost_while_waiting(own_server: Server, name: str) -> None:
    """Where the wait has no end, it ends with the option."""
    failed: list[float] = []

    def wait() -> None:
        with pytest.raises(bandog.Unreachable):
            client.lock(name).acquire()
        failed.append(time.monotonic())

    with bandog.connect(own_server.url) as other, bandog.connect(own_server.url, unreachable_after=0.6) as client:
        other.lock(name, lease=1.5).acquire()
        with client.events() as events:
            thread = threading.Thread(target=wait)
            thread.start()
            assert next(events).kind == "contended"
        lost = time.monotonic()
        own_server.stop()
        thread.join()
    assert 0.5 < failed[0] - lost < 4


@pytest.fixture
def nonsense() -> Iterator[int]:
    """A server that talks something else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(100)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_nonsense_is_a_protocol_error(nonsense: int) -> None:
    with bandog.connect(f"redis://127.0.0.1:{nonsense}") as client, pytest.raises(bandog.Protocol):
        client.lock("x").try_acquire()


def test_f37_a_wrong_password(own_server: Server) -> None:
    with redis.Redis(port=own_server.port) as raw:
        raw.acl_setuser("ann", enabled=True, passwords=["+right"], keys="*", channels="*", commands=["+@all"])
    for wrong in ("ann:hunter2@", "bob:hunter2@"):
        with bandog.connect(f"redis://{wrong}127.0.0.1:{own_server.port}") as client:
            with pytest.raises(bandog.PermissionDenied) as caught:
                client.lock("x").try_acquire()
            assert "hunter2" not in f"{caught.value}{caught.value!r}"
    with bandog.connect(f"redis://ann:right@127.0.0.1:{own_server.port}") as client, client.lock("x"):
        pass


def test_f10_a_replica_is_read_only(own_server: Server, name: str) -> None:
    with bandog.connect(own_server.url) as client, redis.Redis(port=own_server.port) as raw:
        raw.replicaof("127.0.0.1", str(free_port()))
        with pytest.raises(bandog.ReadOnly):
            client.lock(name).acquire(wait=0.3)


def test_f08_out_of_memory(own_server: Server, name: str) -> None:
    with bandog.connect(own_server.url, watchdog=0.6) as client, redis.Redis(port=own_server.port) as raw:
        with client.lock(name) as hold:
            raw.config_set("maxmemory", "1")
            with pytest.raises(bandog.OutOfMemory):
                client.lock(name + ":2").acquire(wait=0.3)
            time.sleep(1)
            assert hold.valid
        assert not raw.exists(name)


def test_f07_scripts_gone(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    for _ in range(20):
        raw.script_flush()
        hold = client.lock(name).acquire()
        raw.script_flush()
        hold.release()


def test_f04_connections_killed(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    for _ in range(20):
        with client.lock(name) as hold:
            raw.client_kill_filter(_type="normal", skipme=True)
            assert hold.valid


def test_a_handle_of_another_kind_of_caller(client: bandog.Client, name: str) -> None:
    hold = client.lock(name).acquire()

    async def main() -> None:
        await hold.release_async()

    asyncio.run(main())
    with pytest.raises(bandog.NotOwner, match=r"not locked by current thread.*released already") as caught:
        hold.release()
    assert (caught.value.name, caught.value.owner) == (name, hold.owner)
