"""How many requests a pair of acquire and release is, by the server's books."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benches.race.contender import Contender
from benches.race.counts import Counting
from benches.race.process import Answer, Pin, ask
from benches.race.server import Server


def done(pairs: int) -> int:
    """The pairs that a contender really makes: it warms up first."""
    return pairs + max(pairs // 10, min(pairs, 200))


def measure(contender: Contender, server: Server, pin: Pin, given: dict[str, Any]) -> Answer:
    """A run of many pairs less one of few: what it takes to begin and to end falls out."""
    runs = []
    for pairs in (given["pairs"], 2 * given["pairs"]):
        # Both runs find the server as it is at first.
        server.link.script_flush()
        server.link.flushall()
        counting = Counting(server)
        counting.start()
        answer = ask(contender, "pair", server, pin, {"pairs": pairs, "name": given["name"]})
        counts = counting.stop()
        if "unsupported" in answer:
            return answer
        runs.append((done(pairs), counts))
    (few, before), (many, after) = runs
    return {
        "sent": each(after.sent, before.sent, many - few),
        "inner": each(after.inner, before.inner, many - few),
    }


def each(after: Counter[str], before: Counter[str], pairs: int) -> dict[str, float]:
    spent = {name: (count - before[name]) / pairs for name, count in after.most_common()}
    # A ping now and then is not part of a pair.
    return {name: round(share, 2) for name, share in spent.items() if abs(share) >= 0.01}
