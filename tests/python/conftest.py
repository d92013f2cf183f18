"""A Redis of our own for the run, or the one of BANDOG_TEST_URL."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import bandog
from support.loops import new_loop as new_loop
from support.loops import run as run

_numbers = itertools.count()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A throw-away redis-server."""

    def __init__(self, folder: Path, *options: str) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            pytest.exit("redis-server is not installed: apt install redis-server, or set BANDOG_TEST_URL", 3)
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        command = [binary, "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", str(folder)]
        command += ["--enable-debug-command", "local", "--logfile", str(folder / f"redis-{self.port}.log")]
        command += options
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise RuntimeError("redis-server did not start")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("BANDOG_TEST_URL")
    if given:
        yield given
        return
    server = Server(tmp_path_factory.mktemp("redis"))
    yield server.url
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may pause and kill."""
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def client(url: str) -> Iterator[bandog.Client]:
    with bandog.connect(url) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[bandog.Client]:
    """Another client, as another process would be."""
    with bandog.connect(url) as client:
        yield client


@pytest.fixture
def raw(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
def name() -> str:
    return f"test:{os.getpid()}:{next(_numbers)}"


def eventually(check: Callable[[], object], within: float = 5.0) -> None:
    """Waits for what no event of ours announces: another program's doing."""
    end = time.monotonic() + within
    while not check():
        if time.monotonic() > end:
            raise AssertionError("it did not come true in time")
        time.sleep(0.002)


class Program:
    """A Python program of its own, with `client`, `url` and `bandog` at hand; one that hangs is killed."""

    def __init__(self, url: str, body: str) -> None:
        head = f"import bandog, os, sys, time, threading\nurl = {url!r}\nclient = bandog.connect(url)\n"
        code = head + textwrap.dedent(body)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-u", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, within: float = 20.0) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=within)
        return self.process.returncode, out, err


@pytest.fixture
def program(url: str) -> Iterator[Callable[[str], Program]]:
    programs: list[Program] = []

    def start(body: str) -> Program:
        programs.append(Program(url, body))
        return programs[-1]

    yield start
    for one in programs:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()
