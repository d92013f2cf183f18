"""python-redis-lock: waits with BLPOP; a thread for each lock renews it, where asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import redis
import redis_lock
from contender import LEASE_MS
from threads import compete


class PythonRedisLock:
    never_renews = ""

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        self.client = redis.Redis.from_url(url, max_connections=most + 1000)
        self.renew = keep_alive_ms is not None
        # Whole seconds only.
        self.expire = max(1, (keep_alive_ms or LEASE_MS) // 1000)

    def lock(self, name: str) -> redis_lock.Lock:
        return redis_lock.Lock(self.client, name, expire=self.expire, auto_renewal=self.renew)

    def still_held(self, lock: AbstractContextManager[Any], entered: Any) -> bool:
        return bool(entered.get_owner_id() == entered.id)


if __name__ == "__main__":
    compete(PythonRedisLock)
