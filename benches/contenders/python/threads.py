"""The scenarios for libraries that block the calling thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, Protocol

from contender import (
    Given,
    Unsupported,
    hold_the_gil,
    main,
    parked_for,
    percentiles,
    resident_bytes,
    say,
    shares,
    warm_up,
)

# A thousand threads with the stacks of the system would count as memory of the library.
threading.stack_size(256 * 1024)


class Face(Protocol):
    """One client of one library: its own connection, or pool of connections."""

    # Why the library cannot keep a lock alive by itself; empty where it can.
    never_renews: str

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        """A client for up to `most` threads at a time, locks kept alive at about the lease given."""

    def lock(self, name: str) -> AbstractContextManager[Any]:
        """A lock as the library's users write it."""

    def still_held(self, lock: AbstractContextManager[Any], entered: Any) -> bool:
        """Whether the lock that was entered is still its own, as the library says."""


Scenario = Callable[[type[Face], str, Given], Given]


def compete(face: type[Face], **more: Scenario) -> None:
    scenarios = SCENARIOS | more

    def run(scenario: str, url: str, given: Given) -> Given:
        if scenario not in scenarios:
            raise Unsupported(f"no scenario {scenario} here")
        return scenarios[scenario](face, url, given)

    main(run)


def pair(face: type[Face], url: str, given: Given) -> Given:
    lock = face(url, 1).lock(given["name"])
    for _ in range(warm_up(given["pairs"])):
        with lock:
            pass
    took = []
    cpu = time.process_time()
    for _ in range(given["pairs"]):
        start = time.perf_counter_ns()
        with lock:
            pass
        took.append(time.perf_counter_ns() - start)
    return percentiles(took) | {"cpu_us": (time.process_time() - cpu) / given["pairs"] * 1e6}


def storm(face: type[Face], url: str, given: Given) -> Given:
    client = face(url, given["inflight"])
    done = [0] * given["inflight"]
    over = threading.Event()

    def work(number: int) -> None:
        lock = client.lock(f"{given['name']}:{number}")
        while not over.is_set():
            with lock:
                pass
            done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(given["inflight"])]
    for thread in threads:
        thread.start()
    # Everybody has a connection and has been served before the clock starts.
    while min(done) == 0:
        time.sleep(0.01)
    time.sleep(given["seconds"] / 10)
    before, start = sum(done), time.perf_counter()
    time.sleep(given["seconds"])
    rate = (sum(done) - before) / (time.perf_counter() - start)
    over.set()
    for thread in threads:
        thread.join()
    return {"pairs_per_s": rate}


def handoff(face: type[Face], url: str, given: Given) -> Given:
    holder, waiter = face(url, 1).lock(given["name"]), face(url, 1).lock(given["name"])
    begun: SimpleQueue[None] = SimpleQueue()
    got: SimpleQueue[int] = SimpleQueue()

    def wait(rounds: int) -> None:
        for _ in range(rounds):
            begun.get()
            with waiter:
                stamp = time.perf_counter_ns()
            got.put(stamp)

    warm = max(3, given["rounds"] // 10)
    thread = threading.Thread(target=wait, args=(warm + given["rounds"],))
    thread.start()
    took = []
    for number in range(warm + given["rounds"]):
        with holder:
            begun.put(None)
            time.sleep(parked_for(number))
            released = time.perf_counter_ns()
        took.append(got.get() - released)
    thread.join()
    return percentiles(took[warm:])


def contend(face: type[Face], url: str, given: Given) -> Given:
    count = given["tasks"]
    client = face(url, count)
    acquired, longest, held = [0] * count, [0.0] * count, [0.0] * count
    end = given["start_at"] + given["seconds"]

    def work(number: int) -> None:
        lock = client.lock(given["name"])
        with client.lock(f"{given['name']}:warm:{id(lock)}"):
            pass
        time.sleep(max(0.0, given["start_at"] - time.time()))
        while (asked := time.time()) < end:
            with lock:
                began = time.time()
                longest[number] = max(longest[number], min(began, end) - asked)
                if began < end:
                    acquired[number] += 1
                    time.sleep(given["hold_ms"] / 1000)
                    held[number] += min(time.time(), end) - began

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    late = time.time() - given["start_at"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return shares(acquired, longest, held) | {"late_ms": late * 1000}


def held(face: type[Face], url: str, given: Given) -> Given:
    if face.never_renews:
        raise Unsupported(face.never_renews)
    client = face(url, 1, given["lease_ms"])
    with client.lock(f"{given['name']}:warm"):
        pass
    before = resident_bytes()
    start = time.perf_counter()
    locks = [client.lock(f"{given['name']}:{number:06d}") for number in range(given["locks"])]
    kept = [(lock, lock.__enter__()) for lock in locks]
    took = time.perf_counter() - start
    cpu = time.process_time()
    time.sleep(given["seconds"])
    cpu = time.process_time() - cpu
    after = resident_bytes()
    lost = sum(1 for lock, entered in kept if not client.still_held(lock, entered))
    return {"took_s": took, "lost": lost, "cpu_s": cpu, "rss_bytes": after - before}


def blocked(face: type[Face], url: str, given: Given) -> Given:
    if face.never_renews:
        raise Unsupported(face.never_renews)
    lock = face(url, 1, given["lease_ms"]).lock(given["name"])
    lock.__enter__()
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
