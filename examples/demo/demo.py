"""The demo: a Python program and a Node program take turns on one lock, and the watchdog is seen at work.

Starts a throw-away `redis-server` on a free port, or uses the one at `BANDOG_URL`. Ends with 0 if all that it
announces came true. What it shows is measured from outside, by commands of its own to the server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from stage import Actor, Redis, free_port

HERE = Path(__file__).resolve().parent
LEASE = 6.0
HOLD = 14.0
LOCK = "order_lock"


class Failed(Exception):
    """Something announced did not happen."""


def expect(true: bool, otherwise: str) -> None:
    if not true:
        raise Failed(otherwise)


class Table:
    """The remaining time of the lock as the server tells it (PTTL), one row a second."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.last: float | None = None
        self.renewals = 0

    def row(self, since: float) -> float:
        left: float = self.redis.call("PTTL", LOCK) / 1000
        renewed = self.last is not None and left > self.last
        self.renewals += renewed
        self.last = left
        shown = f"{left:4.1f} s {'#' * round(left * 5):<30}" if left > 0 else "  no such key" + " " * 24
        print(f"    {time.monotonic() - since:5.1f} s | {shown} {'<- renewed' if renewed else ''}".rstrip(), flush=True)
        return left

    def watch(self, seconds: float, since: float) -> None:
        """Rows for so long, half a second off the full seconds, at which the renewals come."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            pause = 1 - (now - since - 0.5) % 1
            time.sleep(min(pause, end - now))
            if now + pause <= end:
                self.row(since)


def requests(redis: Redis) -> dict[str, int]:
    """How many scripts and subscriptions the server has run so far. A script it did not know yet counts when resent."""
    lines = dict(line.split(":", 1) for line in redis.call("INFO", "commandstats").splitlines() if ":" in line)

    def runs(name: str) -> int:
        fields = dict(pair.split("=") for pair in lines.get(f"cmdstat_{name}", "calls=0").split(","))
        return int(fields["calls"]) - int(fields.get("failed_calls", 0))

    return {"scripts": runs("evalsha") + runs("eval"), "subscriptions": runs("subscribe") + runs("ssubscribe")}


def say(*lines: str) -> None:
    print("\n".join(lines), flush=True)


def one(redis: Redis, url: str) -> Actor:
    say(
        "",
        f"1. Python holds {LOCK} for {HOLD:.0f} s. The lease is {LEASE:.0f} s only: the watchdog renews it every 2 s.",
        "   Node asks for the same lock meanwhile. The bars are the key's remaining time on the server.",
        "",
    )
    python = Actor("python", [sys.executable, "-u", str(HERE / "holder.py"), url, str(HOLD)])
    start = python.hears("held", 10).at
    table = Table(redis)
    table.watch(1.0, start)
    table.renewals, before = 0, requests(redis)
    node = Actor("node", ["node", str(HERE / "waiter.mjs"), url])
    asked = node.hears("waiting", 10).at
    table.watch(start + HOLD - 0.4 - time.monotonic(), start)
    after, waited = requests(redis), time.monotonic() - asked
    released = python.hears("releasing", 5).at
    took = (node.hears("held", 5).at - released) * 1000

    spent = {name: after[name] - before[name] for name in after}
    scripts, tries = spent["scripts"], spent["scripts"] - table.renewals
    say(
        "",
        f"    node got the lock {took:.1f} ms after python began to release it.",
        f"    In the {waited:.0f} s before, the server ran {scripts} scripts:",
        f"    {table.renewals} renewals by python, and {tries} tries by node, which sleeps until the release is",
        f"    announced (subscriptions: {spent['subscriptions']}) or a lease is over.",
        f"    A poller asking ten times a second would have sent {waited * 10:.0f} requests.",
    )
    expect(table.renewals >= 5, f"only {table.renewals} renewals were seen")
    expect(took < 1000, "the wake took more than a second")
    expect(tries <= 10 or "BANDOG_URL" in os.environ, f"{tries} tries are polling")
    expect(python.ended(5) == 0, "python did not end well")
    return node


def two(redis: Redis, url: str, node: Actor) -> Actor:
    say(
        "",
        "2. Now node has it, and python waits. Node's process is killed (SIGKILL): nobody renews any more,",
        "   and python gets the lock when the lease ends.",
        "",
    )
    python = Actor("python", [sys.executable, "-u", str(HERE / "holder.py"), url])
    start = python.hears("waiting", 10).at
    table = Table(redis)
    table.watch(3.2, start)
    node.process.send_signal(signal.SIGKILL)
    node.ended(5)
    left, killed = redis.call("PTTL", LOCK) / 1000, time.monotonic()
    say(f"   node    |  killed with {left:.2f} s left")
    table.watch(killed + left - 0.1 - time.monotonic(), start)
    took = python.hears("held", LEASE + 2).at - killed
    late = (took - left) * 1000
    say("", f"    python got the lock {took:.2f} s after the kill, {late:+.0f} ms from the end of the lease.")
    expect(0 < left <= LEASE, "node did not hold the lock")
    expect(abs(late) < 500, "python got the lock at another time than the end of the lease")
    return python


def three(redis: Redis, python: Actor) -> None:
    say("", "3. Somebody deletes the key behind python's back. At its next renewal python is told.", "")
    time.sleep(1)
    expect(redis.call("DEL", LOCK) == 1, "there was no key to delete")
    deleted = time.monotonic()
    say(f"   redis   |  DEL {LOCK}")
    told = python.hears("told", LEASE / 3 + 2).at - deleted
    python.hears("raised", 5)
    say("", f"    python was told {told:.2f} s later, and leaving the block raised the error.")
    expect(told <= LEASE / 3 + 0.5, "that took longer than a third of the lease")
    expect(python.ended(5) == 0, "python did not end well")


@contextlib.contextmanager
def server() -> Iterator[str]:
    if url := os.environ.get("BANDOG_URL"):
        print("Using the server at BANDOG_URL.", flush=True)
        yield url
        return
    port, directory = free_port(), tempfile.mkdtemp(prefix="bandog-demo-")
    arguments = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", directory]
    process = subprocess.Popen(["redis-server", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(f"Started a throw-away redis-server on port {port}.", flush=True)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    begin = time.monotonic()
    try:
        with server() as url, contextlib.closing(Redis(url)) as redis, Actor.stage():
            if redis.call("EXISTS", LOCK):
                raise Failed(f"somebody uses {LOCK} on this server: the demo would be in their way")
            node = one(redis, url)
            python = two(redis, url, node)
            three(redis, python)
    except (Failed, OSError) as why:
        print(f"\nThe demo FAILED: {why}", flush=True)
        return 1
    print(f"\nAll of it held, in {time.monotonic() - begin:.0f} s.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
