"""What every Python contender shares: `<program> [options] <scenario> <url> <json>`, one line of JSON as the answer."""

from __future__ import annotations

import ctypes
import gc
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Given = dict[str, Any]
LEASE_MS = 30_000


class Unsupported(Exception):
    """The library cannot do what the scenario asks for."""


def main(run: Callable[[str, str, Given], Given]) -> None:
    """Answers the one question of the command line."""
    scenario, url, given = sys.argv[-3:]
    try:
        say(run(scenario, url, json.loads(given)))
    except Unsupported as reason:
        say({"unsupported": str(reason)})


def has_option(name: str) -> bool:
    return name in sys.argv[1:-3]


def say(line: Given) -> None:
    print(json.dumps(line), flush=True)


def warm_up(pairs: int) -> int:
    """A tenth of the work, at least 200 pairs; slow libraries are asked for fewer than that."""
    return max(pairs // 10, min(pairs, 200))


def percentiles(took_ns: Sequence[int]) -> Given:
    """The median and the 99th percentile, in microseconds."""
    ranked = sorted(took_ns)
    return {"p50_us": ranked[len(ranked) // 2] / 1000, "p99_us": ranked[len(ranked) * 99 // 100] / 1000}


def shares(acquired: list[int], longest: list[float], held: list[float]) -> Given:
    """What each contender got. Timers overshoot, some by a millisecond: how long it was held is told, too."""
    return {
        "acquired": acquired,
        "longest_wait_ms": [wait * 1000 for wait in longest],
        "held_ms": [span * 1000 for span in held],
    }


def parked_for(round_number: int) -> float:
    """How long the waiter of a handoff waits. Drawn anew each time: a poller must not fall into step with it."""
    return random.Random(round_number).uniform(0.02, 0.12)


def resident_bytes() -> int:
    gc.collect()
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def hold_the_gil(seconds: float) -> None:
    """Sleeps in C without letting any other Python thread run."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
