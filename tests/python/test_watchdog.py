"""The watchdog: who is held stays held, whatever the host does; what is fixed, given up or abandoned ends on time."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import bandog
from conftest import Server, eventually
from support.redisserver import Calls

LEASE = 0.6


class Sampler:
    """Looks at the keys from a process of its own, so that nothing this one does makes it late."""

    def __init__(self, program: Callable[[str], Any], names: list[str], seconds: float) -> None:
        self._program = program(f"""
            import redis
            raw = redis.Redis.from_url(url)
            names = {names!r}
            rival = client.lock(names[0])
            got = []
            thread = threading.Thread(target=lambda: got.append(rival.try_acquire(wait={seconds})))
            thread.start()
            print("looking")
            end = time.monotonic() + {seconds}
            lowest = 10**9
            while time.monotonic() < end:
                with raw.pipeline(transaction=False) as many:
                    for name in names:
                        many.pttl(name)
                    lowest = min(lowest, *many.execute())
                time.sleep(0.002)
            thread.join()
            print(lowest, got)
        """)
        assert self._program.line() == "looking"

    def result(self) -> tuple[int, str]:
        lowest, _, got = self._program.line().partition(" ")
        return int(lowest), got


def test_l8_thirty_threads_and_thirty_tasks_of_a_blocked_loop_hold_for_ten_leases(
    program: Callable[[str], Any], url: str, name: str
) -> None:
    """The loop spins, in Python, for all that time."""
    names = [f"{name}:{n}" for n in range(60)]
    leave = threading.Event()
    entered = threading.Barrier(31)

    def hold(client: bandog.Client, text: str) -> bool:
        with client.lock(text) as held:
            entered.wait(5)
            leave.wait(20)
            return held.valid

    async def spin(client: bandog.Client) -> tuple[int, str]:
        holds = await asyncio.gather(*(client.lock(text).acquire_async() for text in names[30:]))
        sampler = Sampler(program, names, 10 * LEASE)
        end = time.monotonic() + 10 * LEASE
        while time.monotonic() < end:
            sum(range(1000))
        assert all(hold.valid for hold in holds)
        found = sampler.result()
        await asyncio.gather(*(hold.release_async() for hold in holds))
        return found

    with bandog.connect(url, watchdog=LEASE) as client, ThreadPoolExecutor(30) as pool:
        holding = [pool.submit(hold, client, text) for text in names[:30]]
        entered.wait(5)
        lowest, got = asyncio.run(spin(client))
        leave.set()
        assert all(one.result(5) for one in holding)
    assert lowest >= 1000 * LEASE / 2
    assert got == "[None]"


def test_a_renewal_of_a_hundred_locks_is_one_request(own_server: Server) -> None:
    with redis.Redis.from_url(own_server.url) as raw, bandog.connect(own_server.url, watchdog=1.2) as client:
        holds = [client.lock(f"x{n}").acquire() for n in range(300)]
        time.sleep(0.9)
        calls = Calls(raw)
        time.sleep(2.0)
        # Five periods of 0.4 s; three batches each, and one more where holds fell due apart.
        assert 15 <= calls.scripts() <= 5 * 4 + 4
        assert all(hold.valid for hold in holds)


def test_a_fixed_lease_is_not_renewed_and_ends_on_time(url: str, raw: redis.Redis, name: str) -> None:
    """Also beside holds that are."""
    with bandog.connect(url, watchdog=0.3) as client, client.lock(name + ":watched") as watched:
        start = time.monotonic()
        holds = [client.lock(f"{name}:{n}").acquire(lease=0.8 + 0.1 * n) for n in range(5)]
        ends: dict[int, float] = {}
        while len(ends) < 5 and time.monotonic() < start + 3:
            for n, hold in enumerate(holds):
                if n not in ends and not raw.exists(hold.name):
                    ends[n] = time.monotonic() - start
            time.sleep(0.001)
        for n, hold in enumerate(holds):
            assert 0.8 + 0.1 * n - 0.01 < ends[n] < 0.8 + 0.1 * n + 0.1
            assert hold.lost == "expired"
        assert watched.valid


def test_a_hold_has_one_deadline_the_longest_asked_for(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.6) as client:
        lock = client.lock(name)
        fixed = lock.acquire(lease=0.5)
        watched = lock.acquire()
        assert fixed.owner == watched.owner
        # A fixed hold joined by a watched level is watched until the outermost release.
        time.sleep(1.5)
        assert fixed.valid
        assert raw.pttl(name) >= 300
        watched.release()
        time.sleep(1.2)
        assert fixed.valid
        long = lock.acquire(lease=5)
        assert raw.pttl(name) > 4_800
        time.sleep(0.5)
        # A renewal asks for what is left of the longest lease, never less.
        assert raw.pttl(name) > 4_300
        long.release()
        fixed.release()
        assert not raw.exists(name)


def test_max_hold_ends_a_wedged_hold(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.3, max_hold=1) as client:
        start = time.monotonic()
        hold = client.lock(name).acquire()
        told: list[float] = []
        hold.on_lost(lambda: told.append(time.monotonic() - start))
        eventually(lambda: told, 3)
        assert 0.8 < told[0] < 1.3
        assert hold.lost == "max_hold"
        eventually(lambda: not raw.exists(name), 0.5)
        with pytest.raises(bandog.LockLost):
            hold.release()


@pytest.mark.parametrize("way", ["exit", "handle"])
def test_l9_abandoned_when_thread_and_handles_are_gone(url: str, raw: redis.Redis, name: str, way: str) -> None:
    with bandog.connect(url, watchdog=0.6) as client:
        kept: list[bandog.Hold] = []

        def work() -> None:
            hold = client.lock(name).acquire()
            if way == "handle":
                kept.append(hold)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        gc.collect()
        if way == "handle":
            # Its thread is gone, its handle is not.
            time.sleep(1.5)
            assert kept[0].valid
            kept.clear()
            gc.collect()
        start = time.monotonic()
        eventually(lambda: not raw.exists(name), 2)
        assert time.monotonic() - start <= 0.6 + 0.2 + 0.1


def test_l9_a_discarded_handle_does_not_lose_the_lock(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.4) as client:
        lock = client.lock(name)

        async def main() -> None:
            await lock.acquire_async()
            gc.collect()
            await asyncio.sleep(1.2)
            assert lock.held()
            await lock.release_async()

        lock.acquire()
        del lock
        gc.collect()
        time.sleep(1.2)
        assert raw.exists(name)
        client.lock(name).release()
        lock = client.lock(name)
        asyncio.run(main())
        assert not raw.exists(name)


def test_l4_renewal_stops_with_the_release(own_server: Server) -> None:
    """Nothing of a hold is sent after its release, also while that takes long."""
    with redis.Redis.from_url(own_server.url) as raw, bandog.connect(own_server.url, watchdog=0.3) as client:
        for n in range(10):
            with client.lock(f"x{n}"):
                pass
        calls = Calls(raw)
        time.sleep(0.7)
        assert calls.scripts() == 0
        assert raw.dbsize() == 0
