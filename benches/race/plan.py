"""What is measured, and how much of it. All the sizes of the race stand here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benches.race import blocked, contention, counted, held
from benches.race.contender import Contender
from benches.race.process import FREE, ONE, TWO, Answer, Pin, ask
from benches.race.server import Server

Given = dict[str, Any]
Measure = Callable[[Contender, Server, Pin, Given], Answer]


@dataclass(frozen=True)
class Plan:
    key: str
    # Who plays: those whose `plays` has this.
    scenario: str
    pins: tuple[Pin, ...]
    rounds: int
    given: Given
    measured: Measure
    # Where peers are far off, fewer rounds tell as much.
    rounds_of_peers: int | None = None

    def measure(self, contender: Contender, server: Server, pin: Pin, round_number: int) -> Answer:
        given = self.given | {"name": f"bench:{contender.key}:{round_number}"}
        for size in ("pairs", "rounds"):
            if size in given:
                given[size] = max(10, int(given[size] * contender.pace))
        return self.measured(contender, server, pin, given)

    def suits(self, contender: Contender, round_number: int) -> bool:
        if self.rounds_of_peers is not None and not contender.ours and round_number >= self.rounds_of_peers:
            return False
        return int(self.given.get("inflight", 1)) <= contender.most


def plain(scenario: str) -> Measure:
    """One process, one answer."""

    def measured(contender: Contender, server: Server, pin: Pin, given: Given) -> Answer:
        return ask(contender, scenario, server, pin, given)

    return measured


def storm(contender: Contender, server: Server, pin: Pin, given: Given) -> Answer:
    """A floor runs twice: one pair at a time, which all are divided by, and as many in a pipeline as the others."""
    answer = ask(contender, "storm", server, pin, given)
    if contender.floor is None and given["inflight"] > 1:
        alone = ask(contender, "storm", server, pin, given | {"inflight": 1})
        answer = {"pairs_per_s": alone["pairs_per_s"], "piped_per_s": answer["pairs_per_s"]}
    return answer


BOTH = (ONE, TWO)
# Shares of a lock that is held for 20 ms each time.
CONTEND = {"hold_ms": 20, "seconds": 2.0}
FULL = [
    Plan("pair", "pair", BOTH, 5, {"pairs": 1500}, plain("pair")),
    Plan("storm-1", "storm", (ONE,), 5, {"inflight": 1, "seconds": 0.3}, storm),
    Plan("storm-100", "storm", (ONE,), 5, {"inflight": 100, "seconds": 0.4}, storm),
    Plan("storm-1000", "storm", BOTH, 5, {"inflight": 1000, "seconds": 0.5}, storm),
    Plan("handoff", "handoff", BOTH, 5, {"rounds": 8}, plain("handoff")),
    Plan("reenter", "reenter", (ONE,), 5, {"pairs": 20_000}, plain("reenter")),
    Plan("count", "count", (FREE,), 1, {"pairs": 300}, counted.measure),
    Plan("contend-tasks", "contend", (FREE,), 5, CONTEND | {"processes": 1, "tasks": 8}, contention.measure, 2),
    Plan("contend-processes", "contend", (FREE,), 5, CONTEND | {"processes": 8, "tasks": 1}, contention.measure, 2),
    Plan("held-1000", "held", (TWO,), 1, {"locks": 1000, "lease_ms": 2000, "window": 4.0}, held.measure),
    Plan("held-100000", "herd", (TWO,), 1, {"locks": 100_000, "lease_ms": 30_000, "window": 30.0}, held.measure),
    Plan("blocked", "blocked", (FREE,), 1, {"lease_ms": 1000}, blocked.measure),
]
# For those who change something and want to know roughly; the tables are made from the full race.
QUICK: dict[str, Given] = {
    "pair": {"pairs": 1000},
    "held-100000": {"locks": 20_000, "lease_ms": 6000, "window": 6.0},
}


def plans(quick: bool, rounds: int | None) -> list[Plan]:
    if not quick:
        return [replace(plan, rounds=min(plan.rounds, rounds) if rounds else plan.rounds) for plan in FULL]
    return [
        replace(plan, pins=plan.pins[:1], rounds=rounds or 1, given=plan.given | QUICK.get(plan.key, {}))
        for plan in FULL
    ]
