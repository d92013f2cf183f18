"""The contenders that need no installation really do what the scenarios ask for, and the race measures it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from benches.race import blocked, contention, counted, held
from benches.race.contender import BY_KEY, Contender, Way
from benches.race.plan import storm
from benches.race.process import FREE, ask
from benches.race.server import Server

KEYS = ["bandog-python", "bandog-asyncio", "redis-py", "redis-py-asyncio"]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None) as server:
        yield server


def contender(key: str) -> Contender:
    """As it races, on the interpreter at hand."""
    found = BY_KEY[key]
    return replace(found, way=Way("python", (sys.executable, *found.way.command[1:])))


@pytest.mark.parametrize("key", [*KEYS, "floor-python"])
def test_timed(key: str, server: Server) -> None:
    one = contender(key)
    pair = ask(one, "pair", server, FREE, {"pairs": 50, "name": "t"})
    assert 0 < pair["p50_us"] <= pair["p99_us"] < 1e6
    assert storm(one, server, FREE, {"inflight": 5, "seconds": 0.1, "name": "t"})["pairs_per_s"] > 10
    handoff = ask(one, "handoff", server, FREE, {"rounds": 3, "name": "t"})
    assert 0 < handoff["p50_us"] < 1e6
    # Nobody keeps anything.
    assert server.link.dbsize() == 0


def test_a_message_alone(server: Server) -> None:
    assert ask(contender("pubsub-python"), "handoff", server, FREE, {"rounds": 3, "name": "t"})["p50_us"] > 0


@pytest.mark.parametrize("key", [*KEYS, "floor-python"])
def test_two_requests_a_pair(key: str, server: Server) -> None:
    answer = counted.measure(contender(key), server, FREE, {"pairs": 200, "name": "t"})
    assert sum(answer["sent"].values()) == 2
    assert sum(answer["inner"].values()) >= 2


@pytest.mark.parametrize(("key", "processes", "tasks"), [*((key, 1, 3) for key in KEYS), ("bandog-python", 3, 1)])
def test_contention(key: str, processes: int, tasks: int, server: Server) -> None:
    given: dict[str, Any] = {"processes": processes, "tasks": tasks, "hold_ms": 10, "seconds": 0.5, "name": "t"}
    answer = contention.measure(replace(contender(key), boot=2.0), server, FREE, given)
    assert len(answer["acquired"]) == 3
    # One at a time, and never the hold of another: no more than the window has room for.
    assert 5 < sum(answer["acquired"]) <= 51
    assert sum(answer["sent"].values()) >= 2 * (sum(answer["acquired"]) - 1)
    assert 0 < answer["longest_wait_ms"] <= 501
    # Never two at once.
    assert 10 * (sum(answer["acquired"]) - 1) <= answer["held_ms"] <= 501


def test_late_contenders_get_more_time(server: Server) -> None:
    """Who was not there when the window began has not lost: the window was too early."""
    given: dict[str, Any] = {"processes": 1, "tasks": 1, "hold_ms": 10, "seconds": 0.5, "name": "t"}
    with pytest.raises(contention.Late):
        contention.window(contender("bandog-python"), server, FREE, given, boot=0.01)
    answer = contention.measure(replace(contender("bandog-python"), boot=0.02), server, FREE, given)
    assert sum(answer["acquired"]) > 5


@pytest.mark.parametrize("key", ["bandog-python", "bandog-asyncio"])
def test_held(key: str, server: Server) -> None:
    given = {"locks": 150, "lease_ms": 600, "window": 1.2, "name": "t"}
    answer = held.measure(contender(key), server, FREE, given)
    assert (answer["lost"], answer["gone"]) == (0, 0)
    # Six periods, two batches each.
    assert 8 <= answer["script_calls"] <= 20
    assert 0 < answer["script_usec"] < 1.2e6
    assert answer["cpu_s"] < 1.2


@pytest.mark.parametrize("key", ["bandog-python", "bandog-asyncio"])
def test_blocked(key: str, server: Server) -> None:
    assert blocked.measure(contender(key), server, FREE, {"lease_ms": 600, "name": "t"}) == {"kept": True}


def test_a_lock_that_goes_is_seen(server: Server) -> None:
    """A program that stands still and renews nothing: the key's end must not go unnoticed."""
    forgetful = (
        "import json, redis, sys, time\n"
        "given = json.loads(sys.argv[-1])\n"
        "redis.Redis.from_url(sys.argv[-2]).set(given['name'], 'me', px=given['lease_ms'])\n"
        "print('{\"ready\": true}', flush=True)\n"
        "time.sleep(3 * given['lease_ms'] / 1000)\n"
        "print('{\"done\": true}', flush=True)\n"
    )
    one = replace(contender("redis-py"), way=Way("python", (sys.executable, "-c", forgetful)))
    answer = blocked.measure(one, server, FREE, {"lease_ms": 300, "name": "t"})
    assert not answer["kept"]
    assert 100 < answer["lost_after_ms"] < 800


@pytest.mark.parametrize("scenario", ["held", "blocked"])
def test_who_never_renews_says_so(scenario: str, server: Server) -> None:
    measure = {"held": held.measure, "blocked": blocked.measure}[scenario]
    given = {"locks": 1, "lease_ms": 300, "window": 1.0, "name": "t"}
    assert "unsupported" in measure(contender("redis-py"), server, FREE, given)
