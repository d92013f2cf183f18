"""Who races. The order here is the order of the tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "benches" / "contenders"
# What `prepare` builds and installs.
BUILT = ROOT / "build" / "contenders"
RUST_TARGET = Path(os.environ.get("CARGO_TARGET_DIR", BUILT / "rust"))

TIMED = ("pair", "storm", "handoff")
WAITING = ("contend",)
RENEWING = ("held", "blocked")
EVERYTHING = (*TIMED, *WAITING, *RENEWING)


@dataclass(frozen=True)
class Contender:
    key: str
    label: str
    # What it is written in; also which of the installations it needs.
    language: str
    command: tuple[str, ...]
    plays: tuple[str, ...]
    # The one it is divided by; a floor has none.
    floor: str | None = "floor-python"
    ours: bool = False
    # Requests in flight that it still makes sense to ask for.
    most: int = 1000
    # The share of the work that a slow library is asked for.
    pace: float = 1.0
    # Seconds until a process is warm; a window of contention begins after that.
    boot: float = 1.0
    # As the list of versions calls it.
    library: str = field(default="bandog")


def python(script: str, *options: str, own: bool = False) -> tuple[str, ...]:
    # Bandog is raced as it is installed beside the tools.
    interpreter = sys.executable if own else str(BUILT / "python" / "bin" / "python")
    return (interpreter, str(HOME / "python" / script), *options)


def rust(name: str) -> tuple[str, ...]:
    return (str(RUST_TARGET / "release" / "race-rust"), name)


def node(name: str) -> tuple[str, ...]:
    return ("node", str(HOME / "node" / f"{name}.mjs"))


def built(language: str, name: str) -> tuple[str, ...]:
    return (str(BUILT / language / name),)


FLOORS = [
    Contender(
        "floor-python", "bare socket (Python)", "python", python("floor.py", own=True), TIMED, None, library="CPython"
    ),
    Contender("floor-rust", "bare socket (Rust)", "rust", rust("floor"), TIMED, None, library="rustc"),
    Contender(
        "pubsub-python",
        "a message alone (Python)",
        "python",
        python("floor.py", "--pubsub", own=True),
        ("handoff",),
        library="CPython",
    ),
    Contender(
        "floor-tokio", "bare socket, tokio", "rust", rust("floor-tokio"), ("pair",), "floor-rust", library="rustc"
    ),
    Contender("floor-node", "bare net.Socket (Node)", "node", node("bare-socket"), ("pair", "storm"), library="Node"),
]
OURS = [
    Contender(
        "bandog-rust",
        "Bandog, Rust threads",
        "rust",
        rust("bandog"),
        (*EVERYTHING, "reenter"),
        "floor-rust",
        True,
        boot=0.5,
    ),
    Contender(
        "bandog-tokio", "Bandog, Rust async", "rust", rust("bandog-tokio"), EVERYTHING, "floor-rust", True, boot=0.5
    ),
    Contender(
        "bandog-python",
        "Bandog, Python threads",
        "python",
        python("bandog_threads.py", own=True),
        (*EVERYTHING, "reenter"),
        ours=True,
    ),
    Contender(
        "bandog-asyncio", "Bandog, asyncio", "python", python("bandog_asyncio.py", own=True), EVERYTHING, ours=True
    ),
    Contender(
        "bandog-uvloop", "Bandog, uvloop", "python", python("bandog_asyncio.py", "--uvloop", own=True), TIMED, ours=True
    ),
    Contender("bandog-node", "Bandog, Node", "node", node("bandog"), EVERYTHING, ours=True),
]
PEERS = [
    Contender(
        "redis-py", "redis-py Lock", "python", python("redis_threads.py", "--fast"), (*TIMED, *WAITING), library="redis"
    ),
    Contender(
        "redis-py-default",
        "redis-py Lock, its default poll",
        "python",
        python("redis_threads.py"),
        WAITING,
        library="redis",
    ),
    Contender(
        "redis-py-asyncio",
        "redis-py Lock, asyncio",
        "python",
        python("redis_asyncio.py", "--fast"),
        (*TIMED, *WAITING),
        library="redis",
    ),
    Contender(
        "redis-py-uvloop",
        "redis-py Lock, uvloop",
        "python",
        python("redis_asyncio.py", "--fast", "--uvloop"),
        TIMED,
        library="redis",
    ),
    Contender(
        "python-redis-lock",
        "python-redis-lock",
        "python",
        python("redis_lock_threads.py"),
        EVERYTHING,
        library="python-redis-lock",
    ),
    Contender(
        "pottery",
        "pottery Redlock",
        "python",
        python("pottery_threads.py"),
        (*TIMED, *WAITING),
        most=100,
        library="pottery",
    ),
    Contender(
        "pottery-asyncio",
        "pottery AIORedlock",
        "python",
        python("pottery_asyncio.py"),
        (*TIMED, *WAITING),
        library="pottery",
    ),
    Contender(
        "portalocker",
        "portalocker RedisLock",
        "python",
        python("portalocker_threads.py", "--fast"),
        (*TIMED, *WAITING),
        most=100,
        pace=0.02,
        library="portalocker",
    ),
    Contender("redlock", "redlock", "node", node("redlock"), EVERYTHING, library="redlock"),
    Contender(
        "redis-semaphore", "redis-semaphore", "node", node("redis-semaphore"), EVERYTHING, library="redis-semaphore"
    ),
    Contender(
        "redlock-universal",
        "redlock-universal",
        "node",
        node("redlock-universal"),
        EVERYTHING,
        library="redlock-universal",
    ),
    Contender("node-redisson", "node-redisson", "node", node("node-redisson"), EVERYTHING, library="node-redisson"),
    Contender("redisson", "Redisson", "java", built("java", "redisson"), EVERYTHING, boot=9.0, library="redisson"),
    Contender("rueidislock", "rueidislock", "go", built("go", "rueidislock"), EVERYTHING, library="rueidislock"),
    Contender("redsync", "redsync", "go", built("go", "redsync"), EVERYTHING, library="redsync"),
    Contender("rslock", "rslock", "rust", rust("rslock"), (*TIMED, *WAITING), "floor-rust", boot=0.5, library="rslock"),
]
FIELD = [*FLOORS, *OURS, *PEERS]
BY_KEY = {contender.key: contender for contender in FIELD}


def wanted(scenario: str, only: Iterable[str], languages: Iterable[str]) -> list[Contender]:
    """Who plays this scenario: of those named, with the floors that they are divided by; of what is installed.

    A floor runs just before those that are measured by it, and Bandog before its peers: whatever else the machine
    does then hits both.
    """
    names = set(only)
    chosen = [one for one in FIELD if scenario in one.plays and one.language in languages]
    if names:
        named = {one.key for one in chosen if one.key in names or one.language in names}
        floors = {one.floor for one in chosen if one.key in named}
        chosen = [one for one in chosen if one.key in named | floors]
    return sorted(chosen, key=lambda one: (one.floor or one.key, one.floor is not None))
