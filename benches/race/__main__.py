"""The benchmark race: Bandog as it is built, against its peers.

    python -m benches.race run [--quick] [--only NAME ...] [--rounds N] [--json FILE]
    python -m benches.race report [FILE ...]

NAME is a scenario (pair, storm-100, contend-tasks ...), a contender (bandog-asyncio ...) or a language (python ...).
`run` prints the tables and which figures hold; it ends with 1 if a hard limit is broken. `report` writes the tables
of a saved run into docs/performance.md, and keeps the run beside this package so that they can be written again; of
several runs the last that has measured a scenario is taken.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from benches.race import goals, report
from benches.race.contender import BY_KEY, ROOT, wanted
from benches.race.plan import Plan, plans
from benches.race.prepare import LANGUAGES, prepare
from benches.race.result import Result
from benches.race.run import race

SAVED = ROOT / "benches" / "result.json"


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m benches.race", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = options.add_subparsers(dest="step", required=True)
    run = steps.add_parser("run", help="measure and print")
    run.add_argument("--quick", action="store_true", help="one round of less, on one core: for a first impression")
    run.add_argument("--only", nargs="+", default=[], metavar="NAME", help="scenarios, contenders or languages")
    run.add_argument("--rounds", type=int, help="at most so many rounds")
    run.add_argument("--json", type=Path, metavar="FILE", help="save every answer")
    write = steps.add_parser("report", help="write the tables of a saved run into docs/performance.md")
    write.add_argument("files", nargs="*", type=Path, default=[SAVED], metavar="FILE", help="later ones replace plans")
    return options


def choose(asked: Sequence[Plan], only: Sequence[str]) -> tuple[list[Plan], list[str]]:
    """The plans that were named, or all; and the contenders and languages that were."""
    plans = {plan.key for plan in asked} & set(only)
    names = set(only) - plans
    if unknown := names - set(BY_KEY) - set(LANGUAGES):
        raise ValueError(f"no such scenario, contender or language: {', '.join(sorted(unknown))}")
    return [plan for plan in asked if not plans or plan.key in plans], sorted(names)


def main() -> int:
    options = parser()
    given = options.parse_args()
    if given.step == "report":
        result = reduce(Result.replaced_by, map(Result.load, given.files))
        result.save(SAVED)
        report.write(result)
        return 0
    try:
        asked, only = choose(plans(given.quick, given.rounds), given.only)
    except ValueError as why:
        options.error(str(why))
    needed = dict.fromkeys(one.way.language for plan in asked for one in wanted(plan.scenario, only, LANGUAGES))
    ready = prepare(needed)
    for result in race(asked, only, ready):
        result.absent = [language for language in needed if language not in ready]
        if given.json:
            result.save(given.json)
    print(report.text(result))
    return goals.exit_code(result)


if __name__ == "__main__":
    sys.exit(main())
