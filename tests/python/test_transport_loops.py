"""One wire for each running loop, and nothing left of a loop that is over, however it ended."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import uvloop

import bandog
from conftest import Server, eventually
from support.loops import NewLoop
from support.redisserver import pause, resume, until_waiting, waiters

pytestmark = pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")


@pytest.fixture
def raw(own_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_server.url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
def client(own_server: Server) -> Iterator[bandog.Client]:
    with bandog.connect(own_server.url) as client:
        yield client


@pytest.fixture
def other(own_server: Server) -> Iterator[bandog.Client]:
    with bandog.connect(own_server.url) as client:
        yield client


def wires(raw: redis.Redis) -> int:
    return sum(row["name"].startswith("bandog") for row in raw.client_list())


def left() -> tuple[int, int]:
    """Descriptors and threads."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


async def use(client: bandog.Client) -> None:
    await asyncio.gather(*(section(client, f"lk:{number}") for number in range(5)))


async def section(client: bandog.Client, name: str) -> None:
    async with client.lock(name):
        await asyncio.sleep(0)


def run(new_loop: NewLoop, main: Any) -> Any:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def test_one_wire_for_each_loop(new_loop: NewLoop, client: bandog.Client, raw: redis.Redis) -> None:
    """Whatever number of tasks and locks; beside it the keeper's."""

    async def main(inside: int) -> None:
        await use(client)
        assert wires(raw) == 1 + inside
        if inside < 3:
            with ThreadPoolExecutor(1) as pool:
                await asyncio.wrap_future(pool.submit(run, new_loop, main(inside + 1)))
        await use(client)
        eventually(lambda: wires(raw) == 1 + inside)

    run(new_loop, main(1))
    eventually(lambda: wires(raw) == 1)


def test_many_loops_at_once(new_loop: NewLoop, client: bandog.Client, raw: redis.Redis) -> None:
    """They take turns at one lock, and none is heard of after its end."""
    together = threading.Barrier(8)

    async def main() -> int:
        await use(client)
        together.wait(5)
        for _ in range(10):
            await section(client, "lk:same")
        return 1

    with ThreadPoolExecutor(8) as pool:
        with pytest.raises(ZeroDivisionError):
            run(new_loop, fails(client))
        list(pool.map(lambda _: together.wait(5), range(8)))
        before = left()
        assert sum(pool.map(lambda _: run(new_loop, main()), range(8))) == 8
        eventually(lambda: left() == before and wires(raw) == 2)


def test_fifty_runs_with_one_client(new_loop: NewLoop, client: bandog.Client, raw: redis.Redis) -> None:
    with pytest.raises(ZeroDivisionError):
        run(new_loop, fails(client))
    before = left()
    for number in range(50):
        if number % 5 == 0:
            with pytest.raises(ZeroDivisionError):
                run(new_loop, fails(client))
        else:
            run(new_loop, use(client))
    eventually(lambda: left() == before and wires(raw) == 2)
    assert raw.dbsize() == 0


async def fails(client: bandog.Client) -> None:
    async with client.lock("lk:fails"):
        waiting = asyncio.create_task(section(client, "lk:fails"))
        await asyncio.sleep(0.002)
        assert not waiting.done()
        raise ZeroDivisionError


def abandoned(new_loop: NewLoop, client: bandog.Client, server: Server, raw: redis.Redis, what: str, end: str) -> Any:
    """A loop that ends in the middle of a call, whose task nobody cancels."""

    async def main() -> None:
        lock = client.lock("lk:x")
        await section(client, "lk:warm")
        if what == "release":
            hold = await lock.acquire_async()
        if what == "waiting":
            task = asyncio.ensure_future(lock.acquire_async())
            while not waiters(raw, "lk:x"):
                await asyncio.sleep(0.001)
        else:
            # So that the loop does not hear the answer any more.
            pause(server)
            task = asyncio.ensure_future(lock.acquire_async() if what == "acquire" else hold.release_async())
            await asyncio.sleep(0)
        asyncio.get_running_loop().stop()
        await task

    loop = new_loop()
    loop.create_task(main())
    loop.run_forever()
    if end == "close":
        loop.close()
    resume(server)
    return weakref.ref(loop)


@pytest.mark.parametrize("end", ["close", "drop"])
@pytest.mark.parametrize("what", ["acquire", "waiting", "release"])
def test_a_loop_that_dies_with_a_call_under_way(
    new_loop: NewLoop,
    client: bandog.Client,
    other: bandog.Client,
    own_server: Server,
    raw: redis.Redis,
    what: str,
    end: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The keeper sees to it: the lock is free soon, and nothing is left. Other loops go on."""
    with asyncio.Runner(loop_factory=new_loop) as beside:
        with pytest.raises(ZeroDivisionError):
            beside.run(fails(client))
        held = other.lock("lk:x").acquire()
        if what != "waiting":
            held.release()
        before = wires(raw), left()
        loop = abandoned(new_loop, client, own_server, raw, what, end)
        beside.run(use(client))
        # A loop of uvloop that ran and was not closed is never collected, whoever uses it.
        if end == "close" or new_loop is not uvloop.new_event_loop:
            gc.collect()
            assert loop() is None
            eventually(lambda: (wires(raw), left()) == before, 2)
        if what == "waiting":
            held.release()
        with other.lock("lk:x", wait=2.5):
            beside.run(use(client))
        eventually(lambda: raw.dbsize() == 0)
    assert all("was destroyed but it is pending" in record.getMessage() for record in caplog.records)


def test_a_closed_loop_that_is_kept_is_left_with_the_next(
    new_loop: NewLoop, client: bandog.Client, other: bandog.Client, raw: redis.Redis
) -> None:
    """Its tasks are alive, but nothing will resume them."""
    loop = new_loop()
    held = other.lock("lk:x").acquire()
    tasks = [loop.create_task(section(client, "lk:x"))]
    loop.run_until_complete(asyncio.sleep(0.02))
    until_waiting(raw, "lk:x")
    loop.close()
    run(new_loop, use(client))
    eventually(lambda: not raw.pubsub_channels())
    held.release()
    start = time.monotonic()
    with other.lock("lk:x"):
        assert time.monotonic() - start < 0.3
    assert not tasks[0].done()
    tasks[0]._log_destroy_pending = False  # type: ignore[attr-defined]
