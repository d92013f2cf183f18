"""What every Python contender shares: how a pair is timed and told."""

import json
import sys
import time
from collections.abc import Callable


def address() -> tuple[str, int, int]:
    """The server and the number of pairs, from the command line."""
    return sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def measure(pair: Callable[[], None], pairs: int) -> None:
    """Times `pair` many times and prints the percentiles in microseconds as one line of JSON."""
    for _ in range(max(200, pairs // 10)):
        pair()
    took = []
    for _ in range(pairs):
        start = time.perf_counter_ns()
        pair()
        took.append(time.perf_counter_ns() - start)
    took.sort()
    print(json.dumps({"p50": took[len(took) // 2] / 1000, "p99": took[len(took) * 99 // 100] / 1000}))
