"""What tests do to a server, and what they read from it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from conftest import Server, eventually


def channel(name: str) -> str:
    """Where a release of the lock is told (protocol 1.2)."""
    return f"redisson_lock__channel:{name}" if "{" in name else f"redisson_lock__channel:{{{name}}}"


class Calls:
    """Requests that the server got since this was made: outer commands, not what scripts call inside."""

    def __init__(self, raw: redis.Redis) -> None:
        self._raw = raw
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        stats: dict[str, Any] = self._raw.info("commandstats")  # type: ignore[assignment]
        return {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()}

    def of(self, *commands: str) -> int:
        now = self._now()
        return sum(now.get(command, 0) - self._before.get(command, 0) for command in commands)

    def scripts(self) -> int:
        return self.of("evalsha", "eval")


def waiters(raw: redis.Redis, name: str) -> int:
    """Clients that are subscribed to releases of the lock."""
    return int(raw.pubsub_numsub(channel(name))[0][1])


def until_waiting(raw: redis.Redis, name: str, count: int = 1) -> None:
    eventually(lambda: waiters(raw, name) == count)


@contextmanager
def messages(raw: redis.Redis, name: str) -> Iterator[Any]:
    """Listens to the lock's channel; call what this yields for the payloads that have come."""
    with raw.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(channel(name))
        listener.get_message(timeout=5)

        def come(within: float = 0.1) -> list[str]:
            payloads = []
            while (message := listener.get_message(timeout=within)) is not None:
                payloads.append(message["data"])
            return payloads

        yield come


def pause(server: Server) -> None:
    server.process.send_signal(signal.SIGSTOP)


def resume(server: Server) -> None:
    server.process.send_signal(signal.SIGCONT)


def restart(server: Server) -> None:
    """The same port again, with nothing in it."""
    server.process.kill()
    server.process.wait()
    server.process = subprocess.Popen(server.process.args, stdout=subprocess.DEVNULL)
    eventually(lambda: answers(server))


def answers(server: Server) -> bool:
    try:
        with redis.Redis.from_url(server.url) as raw:
            return bool(raw.ping())
    except redis.ConnectionError:
        return False
