"""One measurement: a fresh process of a contender, and its answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import Any

from benches.race.contender import ROOT, Contender
from benches.race.server import Server

Answer = dict[str, Any]
# A contender that takes longer hangs.
LIMIT = 60.0


class Broken(Exception):
    """A contender ended without an answer."""


@dataclass(frozen=True)
class Pin:
    """Which core the server has, and which the contender."""

    key: str
    label: str
    server: str | None
    contender: str | None


ONE = Pin("one", "one core", "0", "0")
TWO = Pin("two", "two cores", "1", "0")
FREE = Pin("free", "not pinned", None, None)
PINS = {pin.key: pin for pin in (ONE, TWO, FREE)}


def start(
    contender: Contender, scenario: str, server: Server, pin: Pin, given: dict[str, Any]
) -> subprocess.Popen[str]:
    pinned = ["taskset", "-c", pin.contender] if pin.contender else []
    return subprocess.Popen(
        [*pinned, *contender.way.command, scenario, server.url, json.dumps(given)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def finish(process: subprocess.Popen[str], within: float = LIMIT) -> Answer:
    try:
        output, errors = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        end(process)
        raise Broken(f"no answer within {within:.0f} s") from None
    return parse(process.returncode, output, errors)


def parse(code: int, output: str, errors: str) -> Answer:
    lines = output.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    try:
        answer: Answer = json.loads(last)
    except ValueError:
        answer = {}
    if code != 0 or not isinstance(answer, dict) or not answer:
        raise Broken(f"exit code {code}: {(errors or output).strip()[-600:]}")
    return answer


def ask(contender: Contender, scenario: str, server: Server, pin: Pin, given: dict[str, Any]) -> Answer:
    return finish(start(contender, scenario, server, pin, given))
