"""Where it was measured, and with which versions."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benches.race.contender import BUILT, HOME, ROOT

PYTHON = ("redis", "hiredis", "uvloop", "python-redis-lock", "pottery", "portalocker")
RUST = ("rslock", "redis", "tokio")


def here() -> dict[str, str]:
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu(),
        "cores": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "redis": first_line("redis-server", "--version").split("v=")[1].split()[0],
        # Whether it had the machine for itself: 0 or 1 is quiet.
        "load": f"{os.getloadavg()[0]:.0f}",
        "commit": first_line("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
    }


def cpu() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]


def versions(languages: Sequence[str]) -> dict[str, str]:
    found = {"bandog": re.findall(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[0]}
    found["CPython"] = platform.python_version()
    if "python" in languages:
        ask = "import importlib.metadata as m, sys; [print(n, m.version(n)) for n in sys.argv[1:]]"
        interpreter = str(BUILT / "python" / "bin" / "python")
        listed = subprocess.run([interpreter, "-c", ask, *PYTHON], capture_output=True, text=True, check=True).stdout
        found |= dict(line.split(" ", 1) for line in listed.splitlines())
    if "rust" in languages:
        found["rustc"] = first_line("rustc", "--version").split()[1]
        lock = (HOME / "rust" / "Cargo.lock").read_text()
        for crate in RUST:
            found[crate if crate == "rslock" else f"{crate} (crate)"] = re.findall(
                rf'name = "{crate}"\nversion = "(.*)"', lock
            )[0]
    if "node" in languages:
        found["Node"] = first_line("node", "--version").removeprefix("v")
        wanted = json.loads((HOME / "node" / "package.json").read_text())["dependencies"]
        found |= {str(name): str(version) for name, version in wanted.items()}
    if "java" in languages:
        found["Java"] = first_line("java", "--version").split()[1]
        pom = (HOME / "java" / "pom.xml").read_text()
        found["redisson"] = re.findall(r"<artifactId>redisson</artifactId>\s*<version>(.*?)<", pom)[0]
    if "go" in languages:
        found["Go"] = first_line("go", "version").split()[2].removeprefix("go")
        modules = re.findall(r"(\S+)/(rueidis|redsync)(?:/v\d+)? v(\S+)", (HOME / "go" / "go.mod").read_text())
        found |= {name: version for _, name, version in modules}
    return found
