"""Figures out of answers: ratios to the floor of the same round, and medians of all rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benches.race.contender import BY_KEY
from benches.race.jain import jain
from benches.race.process import Answer
from benches.race.result import Result, Sample

Figures = dict[str, float]


def figures(result: Result, plan: str, contender: str, pin: str | None = None) -> Figures:
    """The medians of what this contender did in this plan; empty if it did not play."""
    per_round = [
        found
        for one in result.of(plan, contender, pin)
        if "failed" not in one.answer and "unsupported" not in one.answer
        for found in [of_round(result, one)]
    ]
    names = {name for found in per_round for name in found}
    return {name: statistics.median(found[name] for found in per_round if name in found) for name in sorted(names)}


def of_round(result: Result, sample: Sample) -> Figures:
    kind = sample.plan.split("-")[0]
    given = result.given[sample.plan]
    if kind == "contend":
        return contention(sample.answer, given)
    if kind == "held":
        return held(sample.answer, given)
    if kind == "count":
        return requests(sample.answer, 1)
    if kind == "blocked":
        return {"kept": float(sample.answer["kept"])}
    return plain(sample.answer, floor_of(result, sample))


def floor_of(result: Result, sample: Sample) -> Answer:
    floor = BY_KEY[sample.contender].floor or sample.contender
    same = [one for one in result.of(sample.plan, floor, sample.pin) if one.round == sample.round]
    return same[0].answer if same else {}


def plain(answer: Answer, floor: Answer) -> Figures:
    found = {name: float(value) for name, value in answer.items() if isinstance(value, int | float)}
    for name in ("p50_us", "pairs_per_s"):
        if name in answer and floor.get(name):
            found["ratio"] = answer[name] / floor[name]
    if "piped_per_s" in answer:
        found["piped_ratio"] = answer["piped_per_s"] / answer["pairs_per_s"]
    if "cpu_us" in answer and "cpu_us" in floor:
        found["extra_cpu_us"] = answer["cpu_us"] - floor["cpu_us"]
    return found


def contention(answer: Answer, given: Mapping[str, Any]) -> Figures:
    acquired: Sequence[int] = answer["acquired"]
    return {
        "per_s": sum(acquired) / given["seconds"],
        # Timers overshoot: the ideal is that somebody has the lock at every moment, however long he keeps it.
        "share": answer["held_ms"] / (given["seconds"] * 1000),
        "jain": jain(acquired),
        "longest_wait_ms": answer["longest_wait_ms"],
        **requests(answer, max(1, sum(acquired))),
    }


def requests(answer: Answer, acquisitions: float) -> Figures:
    sent, inner = sum(answer["sent"].values()), sum(answer["inner"].values())
    return {"requests": sent / acquisitions, "inner": inner / acquisitions}


def held(answer: Answer, given: Mapping[str, Any]) -> Figures:
    """Per lock, and per third of a lease where that matters: the period of Bandog, and of Redisson."""
    locks, third = given["locks"], given["lease_ms"] / 3000
    periods = answer["window"] / third
    sent = sum(answer["sent"].values()) if "sent" in answer else answer["script_calls"]
    return {
        "took_s": answer["took_s"],
        "lost": max(answer["lost"], answer["gone"]),
        "requests_per_s": sent / answer["window"],
        "server_us": answer["script_usec"] / locks / periods,
        "client_us": answer["cpu_s"] * 1e6 / locks / (answer["seconds"] / third),
        "bytes": answer["rss_bytes"] / locks,
    }
