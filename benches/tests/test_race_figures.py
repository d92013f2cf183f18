"""From answers to figures, verdicts and tables, with answers made up here."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches.race import goals, report
from benches.race.contender import BY_KEY, wanted
from benches.race.figures import figures
from benches.race.goals import GOALS, Goal, exit_code, judge, word
from benches.race.jain import jain
from benches.race.plan import FULL, QUICK, plans
from benches.race.process import Broken, parse
from benches.race.result import Result, Sample
from benches.race.table import number, table

MACHINE = {"date": "2026-11-20", "cpu": "a cpu", "cores": "2", "kernel": "Linux", "redis": "7.0.15", "commit": "abc"}


def result(*samples: Sample) -> Result:
    given = {plan.key: plan.given for plan in FULL}
    return Result(MACHINE, {"bandog": "0.1.0"}, given, samples=list(samples))


def pair(round_number: int, contender: str, p50: float) -> Sample:
    return Sample("pair", "one", round_number, contender, {"p50_us": p50, "p99_us": 2 * p50})


def test_jain() -> None:
    assert jain([5, 5, 5, 5]) == 1
    assert jain([8, 0, 0, 0, 0, 0, 0, 0]) == pytest.approx(1 / 8)
    assert jain([4, 2]) == pytest.approx(36 / 40)
    assert jain([0, 0]) == 0


def test_a_ratio_is_to_the_floor_of_its_own_round() -> None:
    found = result(
        pair(0, "floor-python", 10),
        pair(0, "redis-py", 30),
        pair(1, "floor-python", 100),
        pair(1, "redis-py", 200),
        pair(2, "floor-python", 10),
        pair(2, "redis-py", 25),
    )
    assert figures(found, "pair", "redis-py", "one")["ratio"] == 2.5
    assert figures(found, "pair", "redis-py", "one")["p50_us"] == 30
    assert figures(found, "pair", "floor-python", "one")["ratio"] == 1


def test_what_was_not_measured_is_no_figure() -> None:
    found = result(
        pair(0, "floor-python", 10),
        Sample("pair", "one", 0, "bandog-asyncio", {"failed": "it broke"}),
        Sample("pair", "one", 0, "redis-py", {"unsupported": "cannot"}),
    )
    assert figures(found, "pair", "bandog-asyncio", "one") == {}
    assert figures(found, "pair", "redis-py", "one") == {}
    assert "failed" in report.text(found)
    # A contender of ours that breaks down does not leave its goal out of the list.
    assert [verdict.word for verdict in judge(found)] == ["FAILED"]
    assert exit_code(found) == 1


def test_contention() -> None:
    answer = {
        "acquired": [30, 10],
        "longest_wait_ms": 80.0,
        "held_ms": 900.0,
        "sent": {"evalsha": 60, "set": 20},
        "inner": {"hget": 400},
    }
    found = figures(result(Sample("contend-tasks", "free", 0, "redis-py", answer)), "contend-tasks", "redis-py")
    seconds = next(plan for plan in FULL if plan.key == "contend-tasks").given["seconds"]
    assert found["per_s"] == 40 / seconds
    assert found["share"] == 0.9 / seconds
    assert found["jain"] == pytest.approx(0.8)
    assert (found["requests"], found["inner"], found["longest_wait_ms"]) == (2, 10, 80)


def test_held_is_by_lock_and_third_of_a_lease() -> None:
    answer = {
        "script_calls": 300,
        "script_usec": 390_000,
        "window": 30.0,
        "took_s": 1.0,
        "lost": 0,
        "gone": 2,
        "cpu_s": 0.3,
        "seconds": 30.0,
        "rss_bytes": 40_000_000,
    }
    found = figures(result(Sample("held-100000", "two", 0, "bandog-asyncio", answer)), "held-100000", "bandog-asyncio")
    assert found["server_us"] == pytest.approx(1.3)
    assert found["client_us"] == pytest.approx(1.0)
    assert (found["requests_per_s"], found["bytes"]) == (10, 400)
    # The server has the last word on what is still there.
    assert found["lost"] == 2


def test_words() -> None:
    goal = Goal("", "pair", "bandog-rust", "ratio", "<=", 1.05, 1.15)
    assert [word(goal, ratio) for ratio in (1.0, 1.054, 1.06, 1.154, 1.16)] == [
        "met",
        "met",
        "missed",
        "missed",
        "FAILED",
    ]
    goal = Goal("", "storm-100", "bandog-rust", "ratio", ">=", 2, 1.5)
    assert [word(goal, ratio) for ratio in (2.1, 1.9, 1.5, 1.4)] == ["met", "missed", "missed", "FAILED"]
    assert word(Goal("", "pair", "x", "ratio", "<=", 1), 9) == "missed"


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.what)
def test_every_goal_is_about_something_that_is_measured(goal: Goal) -> None:
    plan = next(plan for plan in FULL if plan.key == goal.plan)
    assert plan.scenario in BY_KEY[goal.contender].plays
    assert goal.pin in [pin.key for pin in plan.pins]
    assert plan.suits(BY_KEY[goal.contender], plan.rounds - 1)


def test_a_hard_limit_is_on_the_far_side_of_its_goal() -> None:
    for goal in GOALS:
        if goal.limit is not None:
            assert goal.limit >= goal.goal if goal.better == "<=" else goal.limit <= goal.goal


def test_node_is_compared_with_the_best_of_its_peers() -> None:
    samples = [
        pair(0, "floor-python", 10),
        pair(0, "bandog-node", 30),
        pair(0, "redlock", 40),
        pair(0, "redis-semaphore", 20),
    ]
    last = judge(result(*samples))[-1]
    assert (last.goal.goal, last.measured, last.word) == (2, 3, "missed")
    assert set(goals.NODE_PEERS) < set(BY_KEY)


def test_a_floor_runs_before_those_it_measures_and_we_before_our_peers() -> None:
    field = [one.key for one in wanted("pair", [], ["python", "rust", "node"])]
    assert field.index("floor-rust") < field.index("bandog-rust") < field.index("rslock")
    assert field.index("floor-python") < field.index("bandog-python") < field.index("redis-py")
    assert [one.key for one in wanted("pair", ["rslock"], ["rust"])] == ["floor-rust", "rslock"]


def test_plans() -> None:
    assert set(QUICK) <= {plan.key for plan in FULL}
    assert all(plan.rounds == 1 and len(plan.pins) == 1 for plan in plans(True, None))
    timed = [plan for plan in FULL if len(plan.pins) == 2]
    assert timed
    assert all(plan.rounds >= 5 for plan in timed)


def test_answers() -> None:
    assert parse(0, 'talk\n{"p50_us": 1}\n\n', "") == {"p50_us": 1}
    for code, output in [(1, '{"p50_us": 1}'), (0, ""), (0, "no json"), (0, "{}"), (0, "[1]")]:
        with pytest.raises(Broken):
            parse(code, output, "why")


def test_saved_and_loaded(tmp_path: Path) -> None:
    found = result(pair(0, "floor-python", 10.123456), pair(0, "redis-py", 30))
    found.absent = ["go"]
    found.save(tmp_path / "race.json")
    again = Result.load(tmp_path / "race.json")
    assert report.text(again) == report.text(found)
    assert "go" in report.text(again)


def test_a_later_run_replaces_what_it_measured_anew() -> None:
    first = result(pair(0, "floor-python", 10), Sample("storm-1", "one", 0, "floor-python", {"pairs_per_s": 9.0}))
    later = result(pair(0, "floor-python", 20))
    later.given = {"pair": later.given["pair"]}
    both = first.replaced_by(later)
    assert [one.answer["p50_us"] for one in both.of("pair", "floor-python")] == [20]
    assert both.of("storm-1", "floor-python")


def test_tables() -> None:
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n|---|---:|\n| x | 1 |\n"
    assert [number(value) for value in (None, 0, 0.5, 12.345, 123.45, 12345.6)] == [
        "",
        "0",
        "0.50",
        "12.35",
        "123.5",
        "12,346",
    ]


def test_only_the_tables_of_the_page_are_written() -> None:
    page = report.page(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", result(pair(0, "floor-python", 10)))
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert "old" not in page
    assert "bare socket (Python)" in page
