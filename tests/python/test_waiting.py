"""L2, L3: waiting costs next to nothing, a release wakes within milliseconds, and a lost message costs time only."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import redis

import bandog
from conftest import Server, eventually
from support.proxy import FaultProxy
from support.redisserver import Calls, channel, until_waiting

ANOTHER = "285475da-9152-4c83-822a-67ee2f116a79:52"


@pytest.fixture
def quiet(own_server: Server) -> redis.Redis:
    """A server that nobody else talks to, so that its requests can be counted."""
    return redis.Redis.from_url(own_server.url, decode_responses=True)


def hold_it(raw: redis.Redis, name: str, ms: int = 30_000) -> None:
    raw.hset(name, ANOTHER, 1)
    raw.pexpire(name, ms)


def free_it(raw: redis.Redis, name: str) -> float:
    raw.delete(name)
    now = time.monotonic()
    raw.publish(channel(name), 0)
    return now


def cycle(client: bandog.Client, name: str) -> float:
    with client.lock(name):
        return time.monotonic()


def test_l2_a_message_wakes_a_thread_within_20_ms(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    delays = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(41):
            hold_it(raw, name)
            waiting = pool.submit(cycle, client, name)
            until_waiting(raw, name)
            time.sleep(0.005)
            freed = free_it(raw, name)
            delays.append(waiting.result(5) - freed)
    assert statistics.median(delays) < 0.02
    assert sorted(delays)[-3] < 0.1


def test_l2_a_message_wakes_a_task_within_20_ms(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    async def wait() -> float:
        async with client.lock(name):
            return time.monotonic()

    async def rounds() -> list[float]:
        delays = []
        for _ in range(41):
            hold_it(raw, name)
            waiting = asyncio.create_task(wait())
            await asyncio.to_thread(until_waiting, raw, name)
            await asyncio.sleep(0.005)
            freed = await asyncio.to_thread(free_it, raw, name)
            delays.append(await waiting - freed)
        return delays

    delays = asyncio.run(rounds())
    assert statistics.median(delays) < 0.02
    assert sorted(delays)[-3] < 0.1


@pytest.mark.parametrize("how", ["muted", "none"])
def test_l3_without_a_message_by_expiry(url: str, raw: redis.Redis, name: str, how: str) -> None:
    with FaultProxy(url) as proxy, bandog.connect(proxy.url) as client, ThreadPoolExecutor(1) as pool:
        hold_it(raw, name, 1200)
        asked = time.monotonic()
        waiting = pool.submit(cycle, client, name)
        until_waiting(raw, name)
        if how == "muted":
            # Once subscribed it looks again; then it is parked.
            eventually(lambda: proxy.count("EVALSHA") == 2)
            time.sleep(0.05)
            proxy.tell("mute redisson_lock__channel")
            free_it(raw, name)
        got = waiting.result(5) - asked
        assert 1.0 <= got <= 1.2 + 0.1


def test_l3_f22_subscriber_killed_and_the_message_with_it(
    client: bandog.Client, own_server: Server, quiet: redis.Redis
) -> None:
    with bandog.connect(own_server.url) as client, ThreadPoolExecutor(1) as pool, quiet as raw:
        for _ in range(5):
            hold_it(raw, "x")
            waiting = pool.submit(cycle, client, "x")
            until_waiting(raw, "x")
            with raw.pipeline(transaction=True) as both:
                both.client_kill_filter(_type="pubsub")
                both.delete("x")
                both.publish(channel("x"), 0)
                both.execute()
            freed = time.monotonic()
            # As soon as it is subscribed again it looks.
            assert waiting.result(5) - freed < 0.5


def test_l2_requests_while_waiting(own_server: Server, quiet: redis.Redis) -> None:
    with bandog.connect(own_server.url) as client, ThreadPoolExecutor(1) as pool, quiet as raw:
        with client.lock("warm"):
            pass
        hold_it(raw, "x")
        calls = Calls(raw)
        waiting = pool.submit(cycle, client, "x")
        until_waiting(raw, "x")
        eventually(lambda: calls.scripts() == 2)
        assert calls.of("subscribe", "ssubscribe", "psubscribe") == 1
        time.sleep(0.5)
        assert calls.scripts() == 2
        for n in range(1, 6):
            raw.publish(channel("x"), 0)
            eventually(lambda n=n: calls.scripts() == 2 + n, 1)
            time.sleep(0.15)
        assert calls.scripts() == 7
        free_it(raw, "x")
        waiting.result(5)
        # The last try, and the release.
        assert calls.scripts() == 9
        assert calls.of("subscribe") == 1


def test_l2_without_messages_one_request_a_lease(own_server: Server, quiet: redis.Redis) -> None:
    """A holder with a watchdog of 0.6 s renews; who waits for 3 s looks when its lease could have ended, no more."""
    with bandog.connect(own_server.url, watchdog=0.6) as holder, bandog.connect(own_server.url) as client, quiet as raw:
        with holder.lock("x"):
            calls = Calls(raw)
            assert client.lock("x").try_acquire(wait=3) is None
            renewals = 3 / 0.2
            looks = 3 / 0.4
            assert calls.scripts() <= renewals + looks + 4
            assert calls.of("subscribe") == 1


def test_f23_forged_messages_grant_nothing_and_cost_one_look_at_a_time(own_server: Server, quiet: redis.Redis) -> None:
    with bandog.connect(own_server.url) as client, ThreadPoolExecutor(1) as pool, quiet as raw:
        hold_it(raw, "x")
        waiting = pool.submit(client.lock("x").try_acquire, 1)
        until_waiting(raw, "x")
        calls = Calls(raw)
        with raw.pipeline(transaction=False) as many:
            for _ in range(5000):
                many.publish(channel("x"), "junk \x00 \xff" * 3)
            many.execute()
        assert waiting.result(5) is None
        assert calls.scripts() < 5000 / 10


def test_l2_a_message_that_overtakes_the_busy_reply(url: str, raw: redis.Redis, name: str) -> None:
    """The reply of the second try, sent once subscribed, is late; the release is told meanwhile."""
    with FaultProxy(url) as proxy, bandog.connect(proxy.url) as client, ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            hold_it(raw, name)
            # Its links are all there before any of them is slowed down.
            assert client.lock(name).try_acquire(wait=0.1) is None
            messages = proxy.subscribers()
            for link in proxy.links():
                if link["id"] not in messages:
                    proxy.tell(f"delay down 250 on {link['id']}")
            sent = proxy.count("EVALSHA")
            waiting = pool.submit(cycle, client, name)
            eventually(lambda sent=sent: proxy.count("EVALSHA") == sent + 2)
            time.sleep(0.03)
            freed = free_it(raw, name)
            assert waiting.result(10) - freed < 0.25 + 0.25 + 0.15
            proxy.tell("pass")


def test_l2_a_hundred_waiters_put_one_contender_on_the_wire(own_server: Server, quiet: redis.Redis) -> None:
    with bandog.connect(own_server.url) as client, ThreadPoolExecutor(100) as pool, quiet as raw:
        with client.lock("warm"):
            pass
        hold_it(raw, "x")
        calls = Calls(raw)
        together = threading.Barrier(100)

        def turn() -> float:
            together.wait()
            return cycle(client, "x")

        waiting: list[Future[float]] = [pool.submit(turn) for _ in range(100)]
        until_waiting(raw, "x")
        time.sleep(0.5)
        assert calls.scripts() == 2
        assert calls.of("subscribe") == 1
        free_it(raw, "x")
        for one in waiting:
            one.result(20)
        # Each then takes its turn with a try and a release, and perhaps looks once more at a message of its own.
        assert calls.scripts() <= 2 + 100 * 3
        assert calls.of("subscribe") == 1


def test_waiters_of_one_process_are_served_in_order(client: bandog.Client, other: bandog.Client, name: str) -> None:
    order: list[int] = []
    held = other.lock(name).acquire()

    async def turn(n: int) -> None:
        async with client.lock(name):
            order.append(n)

    async def all_of_them() -> None:
        tasks = []
        for n in range(20):
            tasks.append(asyncio.create_task(turn(n)))
            await asyncio.sleep(0)
        await held.release_async()
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())
    assert order == list(range(20))


def test_l5_a_wait_is_total(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    """Messages and looks do not prolong it."""
    hold_it(raw, name)
    stop = threading.Event()

    def chatter() -> None:
        while not stop.wait(0.02):
            raw.publish(channel(name), 0)

    thread = threading.Thread(target=chatter)
    thread.start()
    took = []
    for wait in (0.05, 0.1, 0.2, 0.3, 0.4):
        start = time.monotonic()
        assert client.lock(name).try_acquire(wait=wait) is None
        took.append(time.monotonic() - start - wait)
    stop.set()
    thread.join()
    assert min(took) > -0.005
    assert statistics.median(took) < 0.05
    assert max(took) < 0.5
