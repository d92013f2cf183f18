"""The fault proxy of tests/rust, driven by lines on its control port (listed in tests/rust/src/proxy/orders.rs)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[3]


class FaultProxy:
    """Carries connections to the server of `url`; clients of ours connect to `self.url`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        program = os.environ.get("BANDOG_PROXY") or str(ROOT / "target" / "debug" / "bandog-proxy")
        if not Path(program).exists():
            raise RuntimeError("build the fault proxy: cargo build -p bandog-harness --bin bandog-proxy")
        # Its input ends with this process, and then so does it.
        self._process = subprocess.Popen(
            [program, f"{parts.hostname}:{parts.port or 6379}", "--until-eof"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        ports = json.loads(self._process.stdout.readline())
        user = parts.netloc.rpartition("@")[0]
        self.url = f"redis://{user}{'@' if user else ''}127.0.0.1:{ports['port']}{parts.path}"
        self.port: int = ports["port"]
        self._socket = socket.create_connection(("127.0.0.1", ports["control"]), 10)
        self._answers = self._socket.makefile("r")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()
        self._process.communicate()

    def tell(self, order: str) -> str:
        """Gives one order; it is in force when this returns."""
        self._socket.sendall(f"{order}\n".encode())
        answer = self._answers.readline().strip()
        if answer.startswith("error"):
            raise ValueError(f"{order!r}: {answer!r}")
        return answer.removeprefix("ok").strip()

    def count(self, what: str) -> int:
        return int(self.tell(f"count {what}"))

    def links(self) -> list[dict[str, Any]]:
        """The open connections: id, held, commands ..."""
        open_links: list[dict[str, Any]] = json.loads(self.tell("state"))["open"]
        return open_links

    def subscribers(self) -> list[int]:
        return [link["id"] for link in self.links() if "SUBSCRIBE" in link["commands"]]
