"""The Redlock of pottery for asyncio, on one server. It polls at random within 0.2 s."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pottery
import redis.asyncio
from contender import LEASE_MS
from loop import compete


class Pottery:
    never_renews = "pottery extends only when it is told to"

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        self.client = redis.asyncio.Redis.from_url(url, max_connections=most)

    def lock(self, name: str) -> pottery.AIORedlock:
        return pottery.AIORedlock(key=name, masters={self.client}, auto_release_time=LEASE_MS / 1000)

    def still_held(self, lock: AbstractAsyncContextManager[Any], entered: Any) -> bool:
        return True


if __name__ == "__main__":
    compete(Pottery)
