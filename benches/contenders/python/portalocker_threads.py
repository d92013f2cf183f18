"""portalocker's RedisLock: a subscription, with a connection and a thread for each acquire, holds the lock."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import portalocker
import redis
from contender import has_option
from threads import compete

FOREVER = 1e6


class Portalocker:
    never_renews = "no lease: the lock lives as long as its connection"

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        self.client = redis.Redis.from_url(url, max_connections=4 * most, decode_responses=True)
        # How often its thread looks whether to stop, and a waiter whether the lock is free.
        self.pace = (0.001, 0.01) if has_option("--fast") else (0.1, 0.25)

    def lock(self, name: str) -> portalocker.RedisLock:
        sleep, check = self.pace
        return portalocker.RedisLock(
            name, self.client, timeout=FOREVER, check_interval=check, thread_sleep_time=sleep, interrupt_on_lost=False
        )

    def still_held(self, lock: AbstractContextManager[Any], entered: Any) -> bool:
        return not entered.lost


if __name__ == "__main__":
    compete(Portalocker)
