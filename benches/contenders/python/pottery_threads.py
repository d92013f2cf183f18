"""The Redlock of pottery, on one server: a thread pool for each request, polls at random within 0.2 s."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pottery
import redis
from contender import LEASE_MS
from threads import compete


class Pottery:
    never_renews = "pottery extends only when it is told to"

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        # Every lock asks from a thread of its own, beside the one that waits.
        self.client = redis.Redis.from_url(url, max_connections=2 * most)

    def lock(self, name: str) -> pottery.Redlock:
        return pottery.Redlock(key=name, masters={self.client}, auto_release_time=LEASE_MS / 1000)

    def still_held(self, lock: AbstractContextManager[Any], entered: Any) -> bool:
        return bool(entered.locked())


if __name__ == "__main__":
    compete(Pottery)
