"""The figures to hold, as data, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass

from benches.race.figures import figures
from benches.race.result import Result

# What is compared with the best of its peers instead of with a number.
NODE_PEERS = ("redlock", "redis-semaphore", "redlock-universal", "node-redisson")


@dataclass(frozen=True)
class Goal:
    what: str
    plan: str
    contender: str
    figure: str
    # At most the goal, or at least, as `better` says.
    better: str
    goal: float
    # Beyond this the race fails.
    limit: float | None = None
    pin: str = "one"


def most(
    what: str, plan: str, contender: str, figure: str, goal: float, limit: float | None = None, pin: str = "one"
) -> Goal:
    return Goal(what, plan, contender, figure, "<=", goal, limit, pin)


def least(
    what: str, plan: str, contender: str, figure: str, goal: float, limit: float | None = None, pin: str = "one"
) -> Goal:
    return Goal(what, plan, contender, figure, ">=", goal, limit, pin)


GOALS = [
    most("Rust threads, a pair", "pair", "bandog-rust", "ratio", 1.05, 1.15),
    most("Rust async, a pair", "pair", "bandog-tokio", "ratio", 1.20, 1.35),
    most("Python threads, a pair", "pair", "bandog-python", "ratio", 1.10, 1.2),
    most("asyncio, a pair", "pair", "bandog-asyncio", "ratio", 1.45, 1.7),
    most("uvloop, a pair", "pair", "bandog-uvloop", "ratio", 1.30, 1.5),
    most("Node, a pair", "pair", "bandog-node", "ratio", 1.33, 1.45),
    least("Rust, 100 threads", "storm-100", "bandog-rust", "ratio", 2.0, 1.5),
    least("Python, 100 threads", "storm-100", "bandog-python", "ratio", 2.0, 1.5),
    least("asyncio, 1,000 tasks", "storm-1000", "bandog-asyncio", "ratio", 3.5, 2.5),
    least("Node, 1,000 in flight", "storm-1000", "bandog-node", "ratio", 3.7, 3.0),
    most("local re-entry, Rust, us", "reenter", "bandog-rust", "p50_us", 0.5, 2),
    most("local re-entry, Python, us", "reenter", "bandog-python", "p50_us", 0.5, 2),
    most("handoff, Rust threads", "handoff", "bandog-rust", "ratio", 1.15, 1.5),
    most("handoff, Rust async", "handoff", "bandog-tokio", "ratio", 1.15, 1.5),
    most("handoff, Python threads", "handoff", "bandog-python", "ratio", 1.8, 3),
    most("handoff, asyncio", "handoff", "bandog-asyncio", "ratio", 1.8, 3),
    most("handoff, Node", "handoff", "bandog-node", "ratio", 1.8, 3),
    most("client work beyond the wire, Rust threads, us a pair", "pair", "bandog-rust", "extra_cpu_us", 1.0, 2),
    *(
        most(f"requests a pair, {name}", "count", f"bandog-{name}", "requests", 2.0, 2.0, "free")
        for name in ("rust", "tokio", "python", "asyncio", "node")
    ),
    *(
        goal
        for name in ("tokio", "python", "asyncio", "node")
        for goal in (
            least(f"eight tasks, {name}, Jain", "contend-tasks", f"bandog-{name}", "jain", 0.99, None, "free"),
            most(f"eight tasks, {name}, requests", "contend-tasks", f"bandog-{name}", "requests", 3, None, "free"),
            least(f"eight processes, {name}, Jain", "contend-processes", f"bandog-{name}", "jain", 0.90, None, "free"),
            most(
                f"eight processes, {name}, requests",
                "contend-processes",
                f"bandog-{name}",
                "requests",
                12,
                None,
                "free",
            ),
            least(
                f"eight processes, {name}, share of the time",
                "contend-processes",
                f"bandog-{name}",
                "share",
                0.98,
                None,
                "free",
            ),
        )
    ),
    *(
        goal
        for name in ("tokio", "asyncio", "node")
        for goal in (
            most(f"100,000 held, {name}, lost", "held-100000", f"bandog-{name}", "lost", 0, 0, "two"),
            most(f"100,000 held, {name}, server us", "held-100000", f"bandog-{name}", "server_us", 1.3, 1.8, "two"),
            most(f"100,000 held, {name}, client us", "held-100000", f"bandog-{name}", "client_us", 0.6, None, "two"),
            most(f"100,000 held, {name}, bytes", "held-100000", f"bandog-{name}", "bytes", 400, None, "two"),
        )
    ),
]


@dataclass(frozen=True)
class Verdict:
    goal: Goal
    # None where the contender should have said and did not.
    measured: float | None
    # met, missed or FAILED
    word: str


def judge(result: Result) -> list[Verdict]:
    """One verdict for each goal that this run was asked about."""
    verdicts = []
    for goal in GOALS:
        if result.of(goal.plan, goal.contender, goal.pin):
            measured = figures(result, goal.plan, goal.contender, goal.pin).get(goal.figure)
            verdicts.append(Verdict(goal, measured, word(goal, measured)))
    best = best_node_peer(result)
    ours = figures(result, "pair", "bandog-node", "one")
    if best and "ratio" in ours:
        goal = most("Node, a pair, against the best lock of npm", "pair", "bandog-node", "ratio", best)
        verdicts.append(Verdict(goal, ours["ratio"], word(goal, ours["ratio"])))
    return verdicts


def best_node_peer(result: Result) -> float | None:
    ratios = [figures(result, "pair", peer, "one").get("ratio") for peer in NODE_PEERS]
    return min((ratio for ratio in ratios if ratio is not None), default=None)


def word(goal: Goal, measured: float | None) -> str:
    if measured is None:
        return "FAILED"
    sign = 1 if goal.better == "<=" else -1
    # Figures are shown with two decimals, and judged as they are shown.
    shown = round(measured, 2)
    if sign * shown <= sign * round(goal.goal, 2):
        return "met"
    if goal.limit is None or sign * shown <= sign * round(goal.limit, 2):
        return "missed"
    return "FAILED"


def exit_code(result: Result) -> int:
    """1 if a hard limit is broken, or a contender broke down."""
    broken = any("failed" in one.answer for one in result.samples)
    return int(broken or any(verdict.word == "FAILED" for verdict in judge(result)))
