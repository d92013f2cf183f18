"""Bandog from asyncio. Its watchdog is on in every scenario: that is how it is used."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from contender import LEASE_MS
from loop import compete

import bandog


class Bandog:
    never_renews = ""

    def __init__(self, url: str, most: int, keep_alive_ms: int | None = None) -> None:
        self.client = bandog.connect(url, watchdog=(keep_alive_ms or LEASE_MS) / 1000)

    def lock(self, name: str) -> bandog.Lock:
        return self.client.lock(name)

    def still_held(self, lock: AbstractAsyncContextManager[Any], entered: Any) -> bool:
        return bool(entered.valid)


if __name__ == "__main__":
    compete(Bandog)
