"""The scenarios for libraries that live in an asyncio loop; `--uvloop` before the scenario takes that loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from contender import (
    Given,
    Unsupported,
    has_option,
    hold_the_gil,
    main,
    parked_for,
    percentiles,
    resident_bytes,
    say,
    shares,
    warm_up,
)


class Face(Protocol):
    """One client of one library: its own connection, or pool of connections."""

    # Why the library cannot keep a lock alive by itself; empty where it can.
    never_renews: str

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        """A client for up to `most` tasks at a time, locks kept alive at about the lease given."""

    def lock(self, name: str) -> AbstractAsyncContextManager[Any]:
        """A lock as the library's users write it."""

    def still_held(self, lock: AbstractAsyncContextManager[Any], entered: Any) -> bool:
        """Whether the lock that was entered is still its own, as the library says."""


Scenario = Callable[[type[Face], str, Given], Coroutine[Any, Any, Given]]


def compete(face: type[Face], **more: Scenario) -> None:
    scenarios = SCENARIOS | more

    def run(scenario: str, url: str, given: Given) -> Given:
        if scenario not in scenarios:
            raise Unsupported(f"no scenario {scenario} here")
        factory = None
        if has_option("--uvloop"):
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(scenarios[scenario](face, url, given))

    main(run)


async def pair(face: type[Face], url: str, given: Given) -> Given:
    lock = face(url, 1).lock(given["name"])
    for _ in range(warm_up(given["pairs"])):
        async with lock:
            pass
    took = []
    cpu = time.process_time()
    for _ in range(given["pairs"]):
        start = time.perf_counter_ns()
        async with lock:
            pass
        took.append(time.perf_counter_ns() - start)
    return percentiles(took) | {"cpu_us": (time.process_time() - cpu) / given["pairs"] * 1e6}


async def storm(face: type[Face], url: str, given: Given) -> Given:
    client = face(url, given["inflight"])
    done = [0] * given["inflight"]
    over, served = False, asyncio.Event()

    async def work(number: int) -> None:
        lock = client.lock(f"{given['name']}:{number}")
        while not over:
            async with lock:
                pass
            done[number] += 1
            if done[number] == 1 and all(done):
                served.set()

    async with asyncio.TaskGroup() as group:
        for number in range(given["inflight"]):
            group.create_task(work(number))
        # Everybody has a connection and has been served before the clock starts.
        await served.wait()
        await asyncio.sleep(given["seconds"] / 10)
        before, start = sum(done), time.perf_counter()
        await asyncio.sleep(given["seconds"])
        rate = (sum(done) - before) / (time.perf_counter() - start)
        over = True
    return {"pairs_per_s": rate}


async def handoff(face: type[Face], url: str, given: Given) -> Given:
    holder, waiter = face(url, 1).lock(given["name"]), face(url, 1).lock(given["name"])
    begun: asyncio.Queue[None] = asyncio.Queue()
    got: asyncio.Queue[int] = asyncio.Queue()

    async def wait(rounds: int) -> None:
        for _ in range(rounds):
            await begun.get()
            async with waiter:
                stamp = time.perf_counter_ns()
            got.put_nowait(stamp)

    warm = max(3, given["rounds"] // 10)
    took = []
    async with asyncio.TaskGroup() as group:
        group.create_task(wait(warm + given["rounds"]))
        for number in range(warm + given["rounds"]):
            async with holder:
                begun.put_nowait(None)
                await asyncio.sleep(parked_for(number))
                released = time.perf_counter_ns()
            took.append(await got.get() - released)
    return percentiles(took[warm:])


async def contend(face: type[Face], url: str, given: Given) -> Given:
    count = given["tasks"]
    client = face(url, count)
    acquired, longest, held = [0] * count, [0.0] * count, [0.0] * count
    end = given["start_at"] + given["seconds"]

    async def work(number: int) -> None:
        lock = client.lock(given["name"])
        async with client.lock(f"{given['name']}:warm:{id(lock)}"):
            pass
        await asyncio.sleep(max(0.0, given["start_at"] - time.time()))
        while (asked := time.time()) < end:
            async with lock:
                began = time.time()
                longest[number] = max(longest[number], min(began, end) - asked)
                if began < end:
                    acquired[number] += 1
                    await asyncio.sleep(given["hold_ms"] / 1000)
                    held[number] += min(time.time(), end) - began

    late = time.time() - given["start_at"]
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(work(number))
    return shares(acquired, longest, held) | {"late_ms": late * 1000}


async def held(face: type[Face], url: str, given: Given) -> Given:
    if face.never_renews:
        raise Unsupported(face.never_renews)
    client = face(url, 1000, given["lease_ms"])
    async with client.lock(f"{given['name']}:warm"):
        pass
    before = resident_bytes()
    start = time.perf_counter()
    locks = [client.lock(f"{given['name']}:{number:06d}") for number in range(given["locks"])]
    kept: list[tuple[AbstractAsyncContextManager[Any], Any]] = []
    for first in range(0, given["locks"], 1000):
        batch = locks[first : first + 1000]
        kept += zip(batch, await asyncio.gather(*(lock.__aenter__() for lock in batch)), strict=True)
    took = time.perf_counter() - start
    cpu = time.process_time()
    await asyncio.sleep(given["seconds"])
    cpu = time.process_time() - cpu
    after = resident_bytes()
    lost = sum(1 for lock, entered in kept if not client.still_held(lock, entered))
    return {"took_s": took, "lost": lost, "cpu_s": cpu, "rss_bytes": after - before}


async def blocked(face: type[Face], url: str, given: Given) -> Given:
    if face.never_renews:
        raise Unsupported(face.never_renews)
    lock = face(url, 1, given["lease_ms"]).lock(given["name"])
    await lock.__aenter__()
    say({"ready": True})
    hold_the_gil(3 * given["lease_ms"] / 1000)
    return {"done": True}


SCENARIOS: dict[str, Scenario] = {
    "pair": pair,
    "storm": storm,
    "handoff": handoff,
    "contend": contend,
    "held": held,
    "blocked": blocked,
}
