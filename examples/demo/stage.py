"""What the demo stands on: child processes that report lines of JSON, and a few bytes of the Redis protocol."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Report:
    at: float
    event: str


class Actor:
    """A program on the stage. What it reports is printed at once."""

    cast: list[Actor] = []  # noqa: RUF012

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.reports: queue.Queue[Report | None] = queue.Queue()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.cast.append(self)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                report = json.loads(line)
            except ValueError:
                print(f"   {self.name:<7} |  {line.rstrip()}", flush=True)
                continue
            print(f"   {self.name:<7} |  {report['text']}", flush=True)
            self.reports.put(Report(report["at"], report["event"]))
        self.reports.put(None)

    def hears(self, event: str, seconds: float) -> Report:
        """The next report of this kind."""
        end = time.monotonic() + seconds
        while True:
            try:
                report = self.reports.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"{self.name} did not come to {event!r} within {seconds:.0f} s") from None
            if report is None:
                raise ChildProcessError(f"{self.name} ended with {self.process.wait()} before {event!r}")
            if report.event == event:
                return report

    def ended(self, seconds: float) -> int:
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} did not end within {seconds:.0f} s") from None
        self.reader.join()
        return code

    @classmethod
    @contextlib.contextmanager
    def stage(cls) -> Iterator[None]:
        """Nobody outlives the play."""
        try:
            yield
        finally:
            for actor in cls.cast:
                actor.process.kill()
                actor.process.wait()
            cls.cast.clear()


class Redis:
    """Just enough of a client to look at the server from outside, without the library that is shown."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "unix"):
            raise OSError("the demo looks at the server by a plain connection: redis:// or unix://")
        self.socket = self._connect(
            parts.path if parts.scheme == "unix" else (parts.hostname or "127.0.0.1", parts.port or 6379)
        )
        self.file = self.socket.makefile("rb")
        if parts.password:
            user = [unquote(parts.username)] if parts.username else []
            self.call("AUTH", *user, unquote(parts.password))
        if parts.scheme == "redis" and parts.path.strip("/"):
            self.call("SELECT", parts.path.strip("/"))

    @staticmethod
    def _connect(address: str | tuple[str, int]) -> socket.socket:
        end = time.monotonic() + 10
        while True:
            try:
                if isinstance(address, tuple):
                    return socket.create_connection(address, timeout=5)
                sock = socket.socket(socket.AF_UNIX)
                sock.connect(address)
                return sock
            except OSError as error:
                if time.monotonic() > end:
                    raise OSError(f"no server at {address}: {error}") from error
                time.sleep(0.05)

    def call(self, *words: str) -> Any:
        body = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
        self.socket.sendall(b"*%d\r\n" % len(words) + body)
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:].decode()
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2].decode()
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        raise OSError(f"{words[0]}: {rest or 'the server closed the connection'}")

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
