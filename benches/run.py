"""`make bench`: how long a pair of acquire and release takes, as a ratio to a bare socket in the same round.

Server and contender share one core (`taskset`): unpinned, a loopback round trip takes 30 or 100 us by chance. Every
contender is a fresh process, every round has its own floor, and the table shows the medians of all rounds.
"""

import argparse
import json
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
CONTENDERS = HERE / "contenders"
# The goal, as a ratio to the floor.
RACE = [
    ("bare socket", "floor.py", None),
    ("Bandog, Python threads", "bandog_sync.py", 1.15),
    ("redis-py Lock", "redis_py.py", None),
    ("Bandog, Node", "bandog.mjs", None),
    ("redis-semaphore", "redis_semaphore.mjs", None),
]


class Server:
    """A throw-away redis-server on a free port and on one core."""

    def __init__(self, core: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.folder = tempfile.mkdtemp(prefix="bandog-bench-")
        self.process = subprocess.Popen(
            ["taskset", "-c", core, "redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
            + ["--save", "", "--appendonly", "no", "--dir", self.folder],
            stdout=subprocess.DEVNULL,
        )
        while True:
            try:
                self.call("PING")
                return
            except OSError:
                if self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    def call(self, *words: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            link.sendall((" ".join(words) + "\r\n").encode())
            return link.recv(1 << 16).decode()

    def requests(self) -> int:
        """Scripts run so far. What they call inside is counted by Redis too, but under other names."""
        stats = self.call("INFO", "commandstats")
        return sum(int(calls) for calls in re.findall(r"cmdstat_eval(?:sha)?:calls=(\d+)", stats))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def run(script: str, server: Server, core: str, pairs: int) -> dict[str, float]:
    command = [sys.executable] if script.endswith(".py") else ["node"]
    argv = ["taskset", "-c", core, *command, str(CONTENDERS / script), "127.0.0.1", str(server.port), str(pairs)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{script} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--pairs", type=int, default=5000)
    options.add_argument("--core", default="0")
    given = options.parse_args()
    server = Server(given.core)
    p50: dict[str, list[float]] = {name: [] for name, _, _ in RACE}
    ratios: dict[str, list[float]] = {name: [] for name, _, _ in RACE}
    per_pair = 0.0
    try:
        for turn in range(given.rounds):
            floor = 0.0
            for name, script, _ in RACE:
                before = server.requests()
                result = run(script, server, given.core, given.pairs)
                if script == "bandog_sync.py":
                    per_pair = (server.requests() - before) / (given.pairs + max(200, given.pairs // 10))
                floor = floor or result["p50"]
                p50[name].append(result["p50"])
                ratios[name].append(result["p50"] / floor)
            print(f"round {turn + 1} of {given.rounds} done", file=sys.stderr)
    finally:
        server.stop()
    version = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout.split()[2]
    print(f"\nacquire and release, one at a time, {given.rounds} rounds of {given.pairs} pairs, all on one core")
    print(f"Python {platform.python_version()}, Redis {version.removeprefix('v=')}, {platform.machine()}\n")
    print("| contender | p50, us | ratio to the bare socket | goal |")
    print("|---|---|---|---|")
    missed = False
    for name, _, goal in RACE:
        ratio = statistics.median(ratios[name])
        missed |= goal is not None and ratio > goal
        shown = f"<= {goal}" if goal else ""
        print(f"| {name} | {statistics.median(p50[name]):.1f} | {ratio:.2f} | {shown} |")
    print(f"\nrequests of Bandog for each pair: {per_pair:.2f} (goal 2)")
    return int(missed or round(per_pair, 1) != 2.0)


if __name__ == "__main__":
    sys.exit(main())
