"""Bandog from threads. Its watchdog is on in every scenario: that is how it is used."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

from contender import LEASE_MS, Given, percentiles, warm_up
from threads import Face, compete

import bandog


class Bandog:
    never_renews = ""

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        self.client = bandog.connect(url, watchdog=(keep_alive_ms or LEASE_MS) / 1000)

    def lock(self, name: str) -> bandog.Lock:
        return self.client.lock(name)

    def still_held(self, lock: AbstractContextManager[Any], entered: Any) -> bool:
        return bool(entered.valid)


def reenter(face: type[Face], url: str, given: Given) -> Given:
    """A level more and less of a lock that is held, answered without the server."""
    lock = bandog.connect(url, local_reentry=True).lock(given["name"])
    took = []
    with lock:
        for _ in range(warm_up(given["pairs"])):
            with lock:
                pass
        for _ in range(given["pairs"]):
            start = time.perf_counter_ns()
            with lock:
                pass
            took.append(time.perf_counter_ns() - start)
    return percentiles(took)


if __name__ == "__main__":
    compete(Bandog, reenter=reenter)
