"""A throw-away redis-server, on one core if so asked."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any, Self

import redis


class Server:
    def __init__(self, core: str | None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder = tempfile.mkdtemp(prefix="bandog-bench-")
        pinned = ["taskset", "-c", core] if core else []
        self._process = subprocess.Popen(
            [*pinned, "redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
            + ["--save", "", "--appendonly", "no", "--dir", self._folder, "--slowlog-max-len", "10000000"],
            stdout=subprocess.DEVNULL,
        )
        # One connection for all that is asked: none of its commands is a connection's greeting in between.
        self.link: Any = redis.Redis(
            port=self.port, decode_responses=True, encoding_errors="backslashreplace", single_connection_client=True
        )
        while True:
            try:
                self.link.ping()
                return
            except redis.ConnectionError:
                if self._process.poll() is not None:
                    raise
                time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.link.close()
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def version(self) -> str:
        return str(self.link.info("server")["redis_version"])
