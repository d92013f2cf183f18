"""Installs and builds the contenders. A language whose registry does not answer sits out, and is named."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from pathlib import Path

from benches.race.contender import BUILT, HOME, RUST_TARGET


class Absent(Exception):
    """What is missing for a language."""


def run(*command: str | Path, cwd: Path | None = None) -> None:
    if shutil.which(str(command[0])) is None:
        raise Absent(f"{command[0]} is not installed")
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise Absent(f"{' '.join(map(str, command))}:\n{(done.stderr or done.stdout).strip()[-2000:]}")


def python() -> None:
    home = BUILT / "python"
    asked = (HOME / "python" / "requirements.txt").read_text()
    installed = home / "requirements.txt"
    if installed.exists() and installed.read_text() == asked:
        return
    venv.create(home, with_pip=True, clear=True)
    run(
        home / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
        HOME / "python" / "requirements.txt",
    )
    installed.write_text(asked)


def rust() -> None:
    # Not `--locked`: whoever changes what the driver depends on need not know of this lock file.
    run("cargo", "build", "--quiet", "--release", "--target-dir", RUST_TARGET, cwd=HOME / "rust")


def node() -> None:
    run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=HOME / "node")


def java() -> None:
    run("sh", HOME / "java" / "build.sh")


def go() -> None:
    run("sh", HOME / "go" / "build.sh")


LANGUAGES: dict[str, Callable[[], None]] = {"python": python, "rust": rust, "node": node, "java": java, "go": go}


def prepare(languages: Iterable[str]) -> list[str]:
    """Those of the languages that can race."""
    ready = []
    for language in languages:
        try:
            LANGUAGES[language]()
            ready.append(language)
        except Absent as why:
            print(f"{language} sits out: {why}", file=sys.stderr, flush=True)
    return ready
