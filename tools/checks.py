"""Runs the checks and the tests of every language, counts, and ends with `N passed, N failed`.

    tools/checks.py lint | test | ready [--only NAME ...]

Every suite starts the Redis servers it needs on free ports, and stops them by their process ids.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv" / "bin"
REPORTS = ROOT / "build" / "reports"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
GENERATED = ["bindings-python/python/bandog/_native.pyi", "bindings-node/index.d.ts"]
# A suite that takes longer hangs.
LIMIT = 10 * 60


@dataclass(frozen=True)
class Count:
    passed: int = 0
    failed: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed)


@dataclass(frozen=True)
class Step:
    name: str
    command: Sequence[str]
    env: tuple[tuple[str, str], ...] = ()
    counted: Callable[[str], Count] | None = None
    # Spends most of its time waiting: runs beside the next one, and is printed when it has ended.
    beside: bool = False


def cargo_count(output: str) -> Count:
    lines = re.findall(r"^test result: .*?(\d+) passed; (\d+) failed;", output, re.MULTILINE)
    return Count(sum(int(passed) for passed, _ in lines), sum(int(failed) for _, failed in lines))


def junit_count(name: str) -> Callable[[str], Count]:
    def count(_: str) -> Count:
        try:
            cases = list(ET.parse(REPORTS / f"{name}.xml").getroot().iter("testcase"))
        except (OSError, ET.ParseError):
            return Count()
        bad = sum(1 for case in cases if case.find("failure") is not None or case.find("error") is not None)
        skipped = sum(1 for case in cases if case.find("skipped") is not None)
        if skipped:
            print(f"{name}: {skipped} skipped")
        return Count(len(cases) - bad - skipped, bad)

    return count


def lint() -> list[Step]:
    python = [str(VENV / "python"), "-m"]
    return [
        Step("rustfmt", ["cargo", "fmt", "--all", "--check"]),
        Step("clippy", ["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        Step(
            "rustdoc",
            ["cargo", "doc", "--locked", "--workspace", "--no-deps", "--quiet"],
            (("RUSTDOCFLAGS", "-D warnings"),),
        ),
        Step("ruff check", [*python, "ruff", "check", "."]),
        Step("ruff format", [*python, "ruff", "format", "--check", "."]),
        Step("mypy", [*python, "mypy", "--strict", "bindings-python/python", "examples", "tools", "benches/race"]),
        Step("pyright", [*python, "pyright", "--warnings"], (("PYRIGHT_PYTHON_IGNORE_WARNINGS", "1"),)),
        Step("tsc", ["npm", "run", "--silent", "types"]),
        Step("stubs", [python[0], "bindings-python/stubs.py"]),
        Step("stubs are committed", ["git", "diff", "--exit-code", "--", *GENERATED]),
        Step("wasm", ["tools/wasm.sh"]),
    ]


def tests() -> list[Step]:
    pytest = [str(VENV / "python"), "-m", "pytest", f"--junitxml={REPORTS / 'python.xml'}"]
    node = ["node", "--test", "--test-timeout=300000", "--test-reporter=spec", "--test-reporter-destination=stdout"]
    node += ["--test-reporter=junit"]
    suites = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "node").glob("*.test.mjs"))
    return [
        Step(
            "fault proxy", ["cargo", "build", "--locked", "--quiet", "-p", "bandog-harness"], counted=lambda _: Count()
        ),
        # The bindings have no Rust tests: theirs are in their own languages.
        Step(
            "Rust",
            ["cargo", "test", "--locked", "--workspace", "--exclude", "bandog-python", "--exclude", "bandog-node"]
            + ["--no-fail-fast"],
            counted=cargo_count,
        ),
        Step("Python", pytest, counted=junit_count("python"), beside=True),
        # Once with each transport: node's own loop, and JS sockets, as Bun and Deno have it.
        *(
            Step(
                f"Node, {transport}",
                [*node, f"--test-reporter-destination={REPORTS / f'node-{transport}.xml'}", *suites],
                (("BANDOG_TRANSPORT", transport),),
                counted=junit_count(f"node-{transport}"),
            )
            for transport in ("uv", "socket")
        ),
    ]


def run(step: Step, env: dict[str, str]) -> Count:
    heading = f"\n=== {step.name}: {' '.join(step.command)}\n"
    start = time.monotonic()
    output: list[str] = []
    if not step.beside:
        print(heading, end="", flush=True)
    process = subprocess.Popen(
        step.command,
        cwd=ROOT,
        env=env | dict(step.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    # The whole session is ours, so a hanging suite goes with all it started.
    with deadline(process):
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if not step.beside:
                print(line, end="", flush=True)
        code = process.wait()
    if step.beside:
        print(heading + "".join(output), end="", flush=True)
    count = step.counted("".join(output)) if step.counted else Count(passed=int(code == 0))
    # Broken off, or not even begun: no count says so, the exit code does.
    if code != 0 and count.failed == 0:
        count += Count(failed=1)
    took = time.monotonic() - start
    print(f"=== {step.name}: {count.passed} passed, {count.failed} failed ({took:.1f} s)", flush=True)
    return count


@contextlib.contextmanager
def deadline(process: subprocess.Popen[str]) -> Iterator[None]:
    def end() -> None:
        print(f"=== still running after {LIMIT} s: ended", flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(LIMIT, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def main(what: str, only: Sequence[str]) -> int:
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    wanted = (lint() if what != "test" else []) + (tests() if what != "lint" else [])
    steps = [step for step in wanted if not only or step.name in only]
    env = dict(os.environ) | {"PATH": f"{VENV}{os.pathsep}{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    env["BANDOG_PROXY"] = str(TARGET / "debug" / "bandog-proxy")
    total = Count()
    summary: list[str] = []
    with ThreadPoolExecutor() as pool:
        begun = [(step, pool.submit(run, step, env)) if step.beside else (step, run(step, env)) for step in steps]
    for step, result in begun:
        count = result if isinstance(result, Count) else result.result()
        total += count
        summary.append(f"{'ok  ' if count.failed == 0 else 'FAIL'} {step.name}")
    line = f"{total.passed} passed, {total.failed} failed"
    (REPORTS / "total").write_text(line + "\n")
    print("\n" + "\n".join(summary) + f"\n\n{line}", flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[3:] if sys.argv[2:3] == ["--only"] else []))
