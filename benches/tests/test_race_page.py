"""docs/performance.md: its tables are those of the race that is kept, its commands are commands."""

from __future__ import annotations

import re
import shlex

import pytest
from benches.race import report
from benches.race.__main__ import SAVED, choose, parser
from benches.race.contender import ROOT
from benches.race.plan import FULL
from benches.race.result import Result

PAGE = report.PAGE.read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


def test_the_tables_are_those_of_the_race_that_is_kept() -> None:
    assert report.page(PAGE, Result.load(SAVED)) == PAGE, "run: .venv/bin/python -m benches.race report"


def test_there_are_commands() -> None:
    assert any(command.startswith("make ") for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_exists(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    assert words[:3] == [".venv/bin/python", "-m", "benches.race"]
    given = parser().parse_args(words[3:])
    if given.step == "run":
        plans, _ = choose(FULL, given.only)
        assert plans


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="nobody"):
        choose(FULL, ["pair", "nobody"])
