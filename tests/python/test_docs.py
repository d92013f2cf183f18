"""The Python in README.md, docs/ and examples/ runs as it stands there, and every file they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets() -> list[object]:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append(pytest.param(match[1], id=f"{page.name}:{line}"))
    return found


@pytest.mark.parametrize("code", snippets())
def test_snippet_runs(code: str, url: str) -> None:
    env = os.environ | {"BANDOG_URL": url}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True, timeout=30
    )
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda example: example.name)
def test_example_runs(example: Path, url: str) -> None:
    env = os.environ | {"BANDOG_URL": url}
    command = [sys.executable, "-W", "error", str(example)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`([a-z.][\w.-]+/[\w./-]*)`", text)
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text) if not (page.parent / link).exists()]
    assert not missing
