"""Writes `python/bandog/_native.pyi` from the signatures and doc comments in Rust. Run it with `make stubs`.

PyO3 puts them into the library, maturin reads them out. Three things are left to do here: PyO3 takes annotations
as text only and knows no imports, and it has no say in the return type of an async iterator.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STUB = HERE / "python" / "bandog" / "_native.pyi"
IMPORTS = """\
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, final
"""
PRIVATE = ("_check_spans", "_exit", "_owner_ended")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "maturin", "generate-stubs", "--quiet", "--features", "stubs", "--out", folder]
        subprocess.run(command, cwd=HERE.parent, check=True)
        (found,) = Path(folder).rglob("*.pyi")
        text = found.read_text()
    STUB.write_text(finish(text))
    ruff("format", "--config", HERE.parent / "pyproject.toml")
    ruff("check", "--fix", "--isolated", "--select", "F401,I")


def ruff(what: str, *options: object) -> None:
    subprocess.run([sys.executable, "-m", "ruff", what, "--quiet", *map(str, options), STUB], check=True)


def finish(text: str) -> str:
    lines = [unquoted(line) if line.lstrip().startswith("def ") else line for line in text.splitlines()]
    text = "\n".join(lines) + "\n"
    text = re.sub(r"^from typing import .*$", IMPORTS, text, count=1, flags=re.MULTILINE)
    text = text.replace("def __anext__(self, /) -> Any", "def __anext__(self, /) -> Awaitable[Event]")
    for name in PRIVATE:
        text = text.replace(f'"{name}", ', "")
        body = r"(?: \.\.\.$|\n\1    \"\"\"\n(?:.*\n)*?\1    \"\"\"$)"
        text = re.sub(rf"^( *)def {name}\(.*\) -> \w+:{body}", "", text, flags=re.MULTILINE)
    return text


def unquoted(line: str) -> str:
    return re.sub(r'(: |-> )"([^"]*)"', r"\1\2", line)


if __name__ == "__main__":
    main()
