"""Who races. The order here is the order of the tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "benches" / "contenders"
# What `prepare` builds and installs.
BUILT = ROOT / "build" / "contenders"
RUST_TARGET = Path(os.environ.get("CARGO_TARGET_DIR", BUILT / "rust"))

TIMED = ("pair", "storm", "handoff")
LOCKS = (*TIMED, "count", "contend")
RENEWS = (*LOCKS, "held", "blocked")


@dataclass(frozen=True)
class Way:
    """How a contender is run, and what has to be installed for it."""

    language: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Contender:
    key: str
    label: str
    way: Way
    # The scenarios it takes part in.
    plays: tuple[str, ...]
    # The one it is divided by; a floor has none.
    floor: str | None = "floor-python"
    ours: bool = False
    # Requests in flight that it still makes sense to ask for.
    most: int = 1000
    # The share of the work that a slow library is asked for.
    pace: float = 1.0
    # Seconds until a process is ready; a window of contention begins after that.
    boot: float = 0.6


def python(script: str, *options: str) -> Way:
    return Way("python", (str(BUILT / "python" / "bin" / "python"), str(HOME / "python" / script), *options))


def own(script: str, *options: str) -> Way:
    """Bandog is raced as it is installed beside the tools."""
    return Way("python", (sys.executable, str(HOME / "python" / script), *options))


def rust(name: str) -> Way:
    return Way("rust", (str(RUST_TARGET / "release" / "race-rust"), name))


def node(name: str) -> Way:
    return Way("node", ("node", str(HOME / "node" / f"{name}.mjs")))


def built(language: str, name: str) -> Way:
    return Way(language, (str(BUILT / language / name),))


FLOORS = [
    Contender("floor-python", "bare socket (Python)", own("floor.py"), (*TIMED, "count"), None),
    Contender("pubsub-python", "a message alone (Python)", own("floor.py", "--pubsub"), ("handoff",)),
    Contender("floor-rust", "bare socket (Rust)", rust("floor"), TIMED, None),
    Contender("floor-tokio", "bare socket, tokio", rust("floor-tokio"), ("pair",), "floor-rust"),
    Contender("floor-node", "bare net.Socket (Node)", node("bare-socket"), ("pair", "storm")),
]
OURS = [
    Contender(
        "bandog-rust", "Bandog, Rust threads", rust("bandog"), (*RENEWS, "reenter"), "floor-rust", True, boot=0.4
    ),
    Contender(
        "bandog-tokio", "Bandog, Rust async", rust("bandog-tokio"), (*RENEWS, "herd"), "floor-rust", True, boot=0.4
    ),
    Contender("bandog-python", "Bandog, Python threads", own("bandog_threads.py"), (*RENEWS, "reenter"), ours=True),
    Contender("bandog-asyncio", "Bandog, asyncio", own("bandog_asyncio.py"), (*RENEWS, "herd"), ours=True),
    Contender("bandog-uvloop", "Bandog, uvloop", own("bandog_asyncio.py", "--uvloop"), TIMED, ours=True),
    Contender("bandog-node", "Bandog, Node", node("bandog"), (*RENEWS, "herd"), ours=True),
]
PEERS = [
    Contender("redis-py", "redis-py Lock", python("redis_threads.py", "--fast"), LOCKS, most=100),
    Contender("redis-py-default", "redis-py Lock, its default poll", python("redis_threads.py"), ("contend",)),
    Contender("redis-py-asyncio", "redis-py Lock, asyncio", python("redis_asyncio.py", "--fast"), (*TIMED, "count")),
    Contender("redis-py-uvloop", "redis-py Lock, uvloop", python("redis_asyncio.py", "--fast", "--uvloop"), TIMED),
    Contender("python-redis-lock", "python-redis-lock", python("redis_lock_threads.py"), RENEWS, most=100),
    Contender("pottery", "pottery Redlock", python("pottery_threads.py"), LOCKS, most=100),
    Contender("pottery-asyncio", "pottery AIORedlock", python("pottery_asyncio.py"), (*TIMED, "count")),
    Contender(
        "portalocker", "portalocker RedisLock", python("portalocker_threads.py", "--fast"), LOCKS, most=100, pace=0.02
    ),
    Contender("redlock", "redlock", node("redlock"), RENEWS),
    Contender("redis-semaphore", "redis-semaphore", node("redis-semaphore"), RENEWS),
    Contender("redlock-universal", "redlock-universal", node("redlock-universal"), RENEWS),
    Contender("node-redisson", "node-redisson", node("node-redisson"), RENEWS),
    # Warms up for as long as it takes, so that its pairs are not known well enough to be counted.
    Contender(
        "redisson", "Redisson", built("java", "redisson"), (*TIMED, "contend", "held", "blocked", "herd"), boot=1.5
    ),
    Contender("rueidislock", "rueidislock", built("go", "rueidislock"), RENEWS),
    Contender("redsync", "redsync", built("go", "redsync"), RENEWS),
    Contender("rslock", "rslock", rust("rslock"), LOCKS, "floor-rust", boot=0.4),
]
FIELD = [*FLOORS, *OURS, *PEERS]
BY_KEY = {contender.key: contender for contender in FIELD}


def wanted(scenario: str, only: Iterable[str], languages: Iterable[str]) -> list[Contender]:
    """Who plays this scenario: of those named, with the floors that they are divided by; of what is installed.

    A floor runs just before those that are measured by it, and Bandog before its peers: whatever else the machine
    does then hits both.
    """
    names = set(only)
    chosen = [one for one in FIELD if scenario in one.plays and one.way.language in languages]
    if names:
        named = {one.key for one in chosen if one.key in names or one.way.language in names}
        floors = {one.floor for one in chosen if one.key in named}
        chosen = [one for one in chosen if one.key in named | floors]
    return sorted(chosen, key=lambda one: (one.floor or one.key, one.floor is not None))
