"""The race itself: round after round, everybody in each of them, a fresh process every time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from benches.race import machine
from benches.race.contender import wanted
from benches.race.plan import Plan
from benches.race.process import Answer
from benches.race.result import Result, Sample
from benches.race.server import Server


def race(plans: Sequence[Plan], only: Sequence[str], languages: Sequence[str]) -> Iterator[Result]:
    """What is known after each plan: a race takes long, and should not be lost for an interrupt near its end."""
    result = Result(machine.here(), machine.versions(languages), {})
    for plan in plans:
        result.given[plan.key] = plan.given
        field = wanted(plan.scenario, only, languages)
        began = time.monotonic()
        for pin in plan.pins:
            for number in range(plan.rounds):
                for contender in (one for one in field if plan.suits(one, number)):
                    # Nothing of the one before is left: no key, no script, no log.
                    with Server(pin.server) as server:
                        answer: Answer
                        try:
                            answer = plan.measure(contender, server, pin, number)
                        # Whatever goes wrong with one of them costs the others nothing, and is told at the end.
                        except Exception as why:
                            answer = {"failed": str(why) or type(why).__name__}
                            say(f"{plan.key}: {contender.label} failed: {why}")
                    result.samples.append(Sample(plan.key, pin.key, number, contender.key, answer))
        say(f"{plan.key}: {len(field)} contenders, {plan.rounds} rounds, {time.monotonic() - began:.0f} s")
        yield result


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
