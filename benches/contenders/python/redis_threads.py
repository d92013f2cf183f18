"""The lock of redis-py, with hiredis. It polls: each 0.1 s by default, each 10 ms with `--fast`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import redis
import redis.lock
from contender import LEASE_MS, has_option
from threads import compete


class RedisPy:
    never_renews = "redis-py does not renew"

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        self.client = redis.Redis.from_url(url, max_connections=most)
        self.sleep = 0.01 if has_option("--fast") else 0.1

    def lock(self, name: str) -> redis.lock.Lock:
        return redis.lock.Lock(self.client, name, timeout=LEASE_MS / 1000, sleep=self.sleep)

    def still_held(self, lock: AbstractContextManager[Any], entered: Any) -> bool:
        return bool(entered.owned())


if __name__ == "__main__":
    compete(RedisPy)
