"""A holder whose program stands still for three leases: does it still have the lock?"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from benches.race.contender import Contender
from benches.race.process import Answer, Broken, Pin, end, parse, start
from benches.race.server import Server


def measure(contender: Contender, server: Server, pin: Pin, given: dict[str, Any]) -> Answer:
    process = start(contender, "blocked", server, pin, given)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        first = process.stdout.readline()
        if '"ready"' not in first:
            output, errors = process.communicate(timeout=10)
            return parse(process.returncode, first + output, errors)
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(process.stdout.readline() if process.stdout else ""))
        reader.start()
        kept = watch(server, json.loads(first).get("key") or given["name"], reader, 2.9 * given["lease_ms"] / 1000)
        reader.join(timeout=10)
        if not said or not json.loads(said[0] or "{}").get("done"):
            raise Broken(f"did not come back: {process.stderr.read()[-600:] if process.poll() is not None else said}")
        return kept
    finally:
        end(process)


def watch(server: Server, name: str, until: threading.Thread, limit: float) -> Answer:
    """Whether the keys of this lock stayed as they were until the holder moved again, or nearly so.

    What moves again may well give the lock back.
    """
    keys = list(server.link.scan_iter(match=f"*{name}*"))
    if not keys:
        raise Broken("holds a lock that the server knows nothing of")
    start = time.monotonic()
    before = look(server, keys)
    while until.is_alive() and time.monotonic() - start < limit:
        if look(server, keys) != before:
            return {"kept": False, "lost_after_ms": (time.monotonic() - start) * 1000}
        time.sleep(0.005)
    return {"kept": True}


def look(server: Server, keys: list[str]) -> list[Any]:
    """What stands under the keys; their time to live is no part of it."""
    read = {"hash": server.link.hgetall, "string": server.link.get, "none": lambda key: None}
    return [read.get(server.link.type(key), server.link.type)(key) for key in keys]
