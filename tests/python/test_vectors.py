"""The rows of protocol 20.1 that are ours to do: the same keys, types, fields, expiries and messages as Redisson."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import bandog
from conftest import Server, eventually
from support.redisserver import Calls, channel, messages, until_waiting

REDISSON = "285475da-9152-4c83-822a-67ee2f116a79:52"


@pytest.fixture(params=["order_lock", "a{b}c"])
def key(request: pytest.FixtureRequest, raw: redis.Redis) -> Iterator[str]:
    """The names of the vectors, on a database of their own."""
    raw.delete(request.param)
    yield request.param
    raw.delete(request.param)


def keys(raw: redis.Redis, key: str) -> list[str]:
    return [found for found in raw.scan_iter(count=1000) if key in found]


def test_rows_1_and_2_acquire_and_again(client: bandog.Client, raw: redis.Redis, key: str) -> None:
    lock = client.lock(key)
    with lock as hold:
        assert raw.type(key) == "hash"
        assert raw.hgetall(key) == {hold.owner: "1"}
        assert 29_000 < raw.pttl(key) <= 30_000
        assert keys(raw, key) == [key]
        raw.pexpire(key, 5_000)
        with lock:
            assert raw.hgetall(key) == {hold.owner: "2"}
            assert 29_000 < raw.pttl(key) <= 30_000
            assert keys(raw, key) == [key]


def test_rows_3_and_4_another_changes_nothing(
    client: bandog.Client, other: bandog.Client, raw: redis.Redis, key: str
) -> None:
    with client.lock(key) as hold, messages(raw, key) as come:
        raw.pexpire(key, 9_000)
        assert other.lock(key).try_acquire() is None
        with pytest.raises(bandog.NotOwner) as caught:
            other.lock(key).release()
        assert not isinstance(caught.value, bandog.LockLost)
        assert raw.hgetall(key) == {hold.owner: "1"}
        assert raw.pttl(key) <= 9_000
        assert come() == []
        assert keys(raw, key) == [key]


def test_rows_5_to_9_releases(client: bandog.Client, raw: redis.Redis, key: str) -> None:
    lock = client.lock(key)
    hold = lock.acquire()
    lock.acquire()
    with messages(raw, key) as come:
        raw.pexpire(key, 5_000)
        lock.release()
        assert raw.hgetall(key) == {hold.owner: "1"}
        assert 29_000 < raw.pttl(key) <= 30_000
        assert come() == []
        # No latch: counts are absolute.
        assert keys(raw, key) == [key]
        lock.release()
        assert raw.pttl(key) == -2
        assert come() == ["0"]
        assert keys(raw, key) == []
        with pytest.raises(bandog.NotOwner):
            lock.release()
        assert come() == []


def test_row_10_a_lock_without_expiry_is_given_one_by_who_waits(
    client: bandog.Client, raw: redis.Redis, key: str
) -> None:
    raw.hset(key, REDISSON, 1)
    with client.lock(key).events() as events:
        assert client.lock(key).try_acquire() is None
        assert 29_000 < raw.pttl(key) <= 30_000
        assert raw.hgetall(key) == {REDISSON: "1"}
        event = next(events)
        assert event.kind == "warning"
        assert "expiry" in (event.text or "")


def test_row_11_a_string(client: bandog.Client, raw: redis.Redis, key: str) -> None:
    raw.set(key, "x")
    with pytest.raises(bandog.WrongType):
        client.lock(key).acquire(wait=0)
    assert raw.get(key) == "x"
    assert raw.pttl(key) == -1


def test_a_lease_of_ones_own(client: bandog.Client, raw: redis.Redis, key: str) -> None:
    with client.lock(key, lease=10):
        assert 9_000 < raw.pttl(key) <= 10_000


def test_force_release_deletes_and_tells(client: bandog.Client, raw: redis.Redis, key: str) -> None:
    raw.hset(key, REDISSON, 2)
    raw.pexpire(key, 30_000)
    with messages(raw, key) as come:
        assert client.lock(key).force_release() is True
        assert keys(raw, key) == []
        assert come() == ["0"]


def test_a_java_holder_is_waited_for_and_its_message_wakes(client: bandog.Client, raw: redis.Redis, key: str) -> None:
    raw.hset(key, REDISSON, 1)
    raw.pexpire(key, 30_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: (client.lock(key).acquire().release(), time.monotonic())[1])
        until_waiting(raw, key)
        raw.delete(key)
        told = time.monotonic()
        raw.publish(channel(key), 0)
        assert waiting.result(5) - told < 0.2


def test_an_uncontended_cycle_is_two_requests(own_server: Server) -> None:
    with redis.Redis.from_url(own_server.url) as raw, bandog.connect(own_server.url) as client:
        lock = client.lock("x")
        with lock:
            pass
        calls = Calls(raw)
        for _ in range(10):
            with lock:
                pass
        assert calls.of("evalsha") == 20
        assert calls.of("eval", "subscribe", "ping", "client|kill", "hello") == 0


def test_nothing_is_left_after_the_last_close(own_server: Server) -> None:
    """R1: keys, channels, connections; of the process, its threads and descriptors."""
    before = threading.active_count()
    with redis.Redis.from_url(own_server.url) as raw:
        for _ in range(3):
            with bandog.connect(own_server.url) as client, bandog.connect(own_server.url) as other:
                with ThreadPoolExecutor(4) as pool:
                    held = client.lock("x").acquire()
                    waiting = [pool.submit(lambda: other.lock("x").acquire().release()) for _ in range(4)]
                    until_waiting(raw, "x")
                    held.release()
                    for one in waiting:
                        one.result(5)
        assert raw.dbsize() == 0
        assert raw.pubsub_channels() == []
        eventually(lambda: [one["cmd"] for one in raw.client_list()] == ["client|list"])
    assert threading.active_count() == before
