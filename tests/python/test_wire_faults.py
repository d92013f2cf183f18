"""S4, S5, F17-F20: whatever is lost, repeated or late on the wire, counts are right and nothing is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest
import redis

import bandog
from conftest import Server, eventually
from support.proxy import FaultProxy
from support.redisserver import Calls, until_waiting

ANOTHER = "285475da-9152-4c83-822a-67ee2f116a79:52"


@pytest.fixture
def proxy(url: str) -> Iterator[FaultProxy]:
    with FaultProxy(url) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[bandog.Client]:
    """Through the proxy; what is not answered is given up soon."""
    with bandog.connect(proxy.url, op_timeout=0.35, connect_timeout=2) as client:
        yield client


FAULTS = ["lose {} reset", "lose {} silent", "drop {} reset", "drop {} silent"]


@pytest.mark.parametrize("fault", FAULTS)
def test_s5_f17_f18_every_step_of_a_nested_section(
    client: bandog.Client, proxy: FaultProxy, raw: redis.Redis, name: str, fault: str
) -> None:
    """Acquire, enter again, leave, leave: each in turn is the one that the fault hits."""
    lock = client.lock(name)

    def count() -> int:
        counts = [int(n) for n in raw.hvals(name)]
        assert len(counts) <= 1
        return sum(counts)

    def patiently(release: Callable[[], None]) -> None:
        try:
            release()
        except bandog.ReleaseUnknown:
            # It goes on in the background.
            eventually(lambda: before != count(), 3)

    for hit in range(4):
        if hit == 0:
            proxy.tell(fault.format(name))
        outer = lock.acquire()
        assert count() == 1
        if hit == 1:
            proxy.tell(fault.format(name))
        inner = lock.acquire()
        assert (count(), inner.count, outer.owner) == (2, 2, inner.owner)
        before = 2
        if hit == 2:
            proxy.tell(fault.format(name))
        patiently(inner.release)
        assert count() == 1
        assert outer.valid
        before = 1
        if hit == 3:
            proxy.tell(fault.format(name))
        patiently(outer.release)
        assert count() == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_f17_f18_renewals(proxy: FaultProxy, raw: redis.Redis, name: str, fault: str) -> None:
    with bandog.connect(proxy.url, watchdog=1.5, op_timeout=0.3) as client, client.lock(name) as hold:
        for _ in range(2):
            done = int(proxy.count("EVALSHA"))
            proxy.tell(fault.format(name))
            eventually(lambda done=done: proxy.count("EVALSHA") >= done + 2, 3)
            eventually(lambda: raw.pttl(name) > 1_200, 1)
            assert hold.valid
        assert raw.hgetall(name) == {hold.owner: "1"}


@pytest.mark.parametrize("fault", ["lose {} reset", "drop {} reset", "reset"])
def test_an_uncontended_acquire_takes_300_ms_at_most_when_the_connection_breaks(
    client: bandog.Client, proxy: FaultProxy, raw: redis.Redis, name: str, fault: str
) -> None:
    took = []
    for n in range(20):
        lock = client.lock(f"{name}:{n}")
        with client.lock("warm"):
            pass
        proxy.tell(fault.format(f"{name}:{n}"))
        start = time.monotonic()
        with lock as hold:
            took.append(time.monotonic() - start)
            assert raw.hgetall(hold.name) == {hold.owner: "1"}
        assert not raw.exists(hold.name)
    assert median(took) < 0.1
    assert max(took) < 0.3


def test_s5_an_acquire_that_executes_late_does_not_come_back(
    client: bandog.Client, proxy: FaultProxy, raw: redis.Redis, name: str
) -> None:
    """Held up beyond its time and sent again; when the first one arrives at last the lock is long free."""
    for n in range(3):
        key = f"{name}:{n}"
        proxy.tell(f"hold {key}")
        lock = client.lock(key)
        hold = lock.acquire()
        assert raw.hgetall(key) == {hold.owner: "1"}
        hold.release()
        assert proxy.count("held") >= 1
        proxy.tell("release")
        proxy.tell("pass")
        time.sleep(0.1)
        assert not raw.exists(key)


def test_s5_a_release_that_executes_late_frees_nobody_else(
    client: bandog.Client, proxy: FaultProxy, raw: redis.Redis, name: str
) -> None:
    lock = client.lock(name)
    hold = lock.acquire()
    proxy.tell(f"hold {name}")
    with pytest.raises(bandog.ReleaseUnknown):
        hold.release()
    eventually(lambda: not raw.exists(name), 3)
    again = lock.acquire()
    proxy.tell("release")
    time.sleep(0.1)
    assert raw.hgetall(name) == {again.owner: "1"}
    assert again.valid
    again.release()


@pytest.mark.parametrize("face", ["thread", "task"])
def test_s4_an_acquire_given_up_leaves_nothing_whenever_it_arrives(
    url: str, raw: redis.Redis, name: str, face: str
) -> None:
    """Its release is written right behind it, or fences the connection that it went down."""

    def give_up(wait: float, late: float) -> None:
        key = f"{name}:{wait}:{late}"
        with FaultProxy(url) as proxy, bandog.connect(proxy.url, op_timeout=0.5) as client:
            proxy.tell(f"hold {key}")
            lock = client.lock(key)
            if face == "thread":
                with pytest.raises(bandog.LockError):
                    lock.acquire(wait=wait)
            else:
                with pytest.raises(TimeoutError):
                    asyncio.run(asyncio.wait_for(lock.acquire_async(), wait))
            time.sleep(late)
            proxy.tell("release")
            proxy.tell("pass")
            time.sleep(0.15)
            eventually(lambda: not raw.exists(key), 1)
            time.sleep(0.1)
            assert not raw.exists(key)

    moments = [(0.1, 0.0), (0.1, 0.1), (0.1, 0.3), (0.1, 0.45), (0.1, 0.8), (0.3, 0.3)]
    with ThreadPoolExecutor(len(moments)) as pool:
        for one in [pool.submit(give_up, *moment) for moment in moments]:
            one.result(10)


def test_s4_f36_without_the_right_to_fence_a_phantom_is_released_again(own_server: Server) -> None:
    """CLIENT KILL refused: the release is said again after 1, 3, 10 s."""
    with redis.Redis.from_url(own_server.url, decode_responses=True) as raw:
        raw.acl_setuser("u", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all", "-client|kill"])
        url = own_server.url.replace("redis://", "redis://u:x@")
        with FaultProxy(url) as proxy, bandog.connect(proxy.url, op_timeout=0.3) as client:
            proxy.tell("hold phantom")
            with pytest.raises(bandog.LockError):
                client.lock("phantom").acquire(wait=0.1)
            # Its connection is given up, its release goes down another; then the first bytes arrive.
            eventually(lambda: any(link["client_gone"] for link in proxy.links()), 3)
            time.sleep(0.2)
            proxy.tell("release")
            eventually(lambda: not raw.exists("phantom"), 2)
            time.sleep(0.05)
            assert not raw.exists("phantom")


def test_f19_s6_a_grant_that_comes_too_late_is_given_back(proxy: FaultProxy, raw: redis.Redis, name: str) -> None:
    with bandog.connect(proxy.url, watchdog=1) as client:
        with client.lock("warm"):
            pass
        # One slow connection: the grant goes back, and the next comes down another.
        proxy.tell("delay down 600 on 1")
        with client.lock(name) as hold:
            assert 0.5 <= hold.remaining() <= 0.9
            assert raw.hgetall(name) == {hold.owner: "1"}
        # All of them: never one that is half over.
        proxy.tell("delay down 600")
        with pytest.raises((bandog.LockTimeout, bandog.Unreachable)):
            client.lock(name).acquire(wait=1)
        proxy.tell("pass")
        eventually(lambda: not raw.exists(name), 2)


@pytest.mark.parametrize("way", ["up", "down"])
def test_f20_bytes_that_come_one_by_one(
    client: bandog.Client, proxy: FaultProxy, raw: redis.Redis, name: str, way: str
) -> None:
    with client.lock("warm"):
        pass
    proxy.tell(f"trickle {way} 2000")
    with client.lock(name) as hold:
        assert raw.hgetall(name) == {hold.owner: "1"}
        with client.lock(name):
            assert raw.hgetall(name) == {hold.owner: "2"}
    assert not raw.exists(name)


def test_f20_cut_anywhere(url: str, proxy: FaultProxy, raw: redis.Redis, name: str) -> None:
    """At every seventh byte, from the handshake to the release, both ways."""
    with bandog.connect(proxy.url) as client:
        with client.lock(name):
            pass
        up, down = proxy.count("up"), proxy.count("down")

    def once(broken: FaultProxy, order: str) -> bool:
        with bandog.connect(broken.url, op_timeout=1) as client:
            broken.tell(f"{order} on next")
            try:
                with client.lock(order) as hold:
                    assert raw.hgetall(order) == {hold.owner: "1"}
                return True
            except bandog.Unreachable as error:
                # Whoever cannot even log in on first contact says so at once.
                return "login" not in str(error)
            finally:
                assert not raw.exists(order)
                with client.lock(order):
                    pass

    def some(orders: list[str]) -> int:
        with FaultProxy(url) as broken:
            return sum(once(broken, order) for order in orders)

    orders = [f"cut {way} {n}" for way, total in [("up", up), ("down", down)] for n in range(1, total, 7)]
    with ThreadPoolExecutor(8) as pool:
        survived = sum(pool.map(some, [orders[n::8] for n in range(8)]))
    assert survived > len(orders) / 4


def test_l6_l10_resets_all_the_time(client: bandog.Client, proxy: FaultProxy, raw: redis.Redis, name: str) -> None:
    """Eight threads take turns while every connection is reset ten times a second."""
    inside = 0
    done = 0

    def work() -> None:
        nonlocal inside, done
        for _ in range(12):
            try:
                with client.lock(name, wait=10):
                    inside += 1
                    assert inside == 1
                    time.sleep(0.002)
                    inside -= 1
                    done += 1
            except bandog.ReleaseUnknown:
                pass

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(work) for _ in range(8)]
        while not all(one.done() for one in working):
            time.sleep(0.1)
            proxy.tell("reset")
        for one in working:
            one.result()
    assert done == 96
    eventually(lambda: not raw.exists(name), 2)


def test_a_waiter_outlives_its_connections(
    client: bandog.Client, proxy: FaultProxy, raw: redis.Redis, name: str
) -> None:
    raw.hset(name, ANOTHER, 1)
    raw.pexpire(name, 30_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.lock(name).acquire)
        until_waiting(raw, name)
        calls = Calls(raw)
        for _ in range(5):
            proxy.tell("reset")
            time.sleep(0.1)
        until_waiting(raw, name)
        raw.delete(name)
        raw.publish(f"redisson_lock__channel:{{{name}}}", 0)
        hold = waiting.result(3)
        assert raw.hgetall(name) == {hold.owner: "1"}
        assert calls.of("subscribe") <= 6
        client.lock(name).force_release()
