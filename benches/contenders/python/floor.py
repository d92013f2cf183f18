"""The floors: bare blocking sockets that send what Bandog's scripts need, and nothing else.

`--pubsub` leaves the scripts out of the handoff: a message alone.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

from contender import LEASE_MS, Given, Unsupported, has_option, main, parked_for, percentiles, warm_up

SCRIPTS = Path(__file__).parents[3] / "core" / "src" / "scripts"
ACQUIRE = (SCRIPTS / "shape.lua").read_bytes() + (SCRIPTS / "acquire.lua").read_bytes()
RELEASE = (SCRIPTS / "release.lua").read_bytes()
OWNER = b"285475da-9152-4c83-822a-67ee2f116a79:52"
GRANTED = b":1\r\n"
FREED = b"*1\r\n:0\r\n"


def command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def evalsha(script: bytes, keys: list[bytes], *args: bytes) -> bytes:
    return command(b"EVALSHA", hashlib.sha1(script).hexdigest().encode(), b"%d" % len(keys), *keys, *args)


def channel(name: bytes) -> bytes:
    return b"redisson_lock__channel:{%s}" % name


def acquire(name: bytes) -> bytes:
    return evalsha(ACQUIRE, [name], b"%d" % LEASE_MS, OWNER, b"1", b"1", b"%d" % LEASE_MS)


def release(name: bytes) -> bytes:
    return evalsha(RELEASE, [name, channel(name)], OWNER, b"0", b"0", b"PUBLISH")


class Bare:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for script in (ACQUIRE, RELEASE):
            self.call(command(b"SCRIPT", b"LOAD", script))

    def call(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self.socket.recv(4096)

    def expect(self, request: bytes, reply: bytes) -> None:
        got = self.call(request)
        if got != reply:
            raise RuntimeError(f"the floor no longer speaks as the scripts do: {got!r} instead of {reply!r}")

    def batch(self, requests: bytes, replies: bytes) -> None:
        """Many requests in one write; reads on until as much came back as must."""
        self.socket.sendall(requests)
        left = len(replies)
        while left > 0:
            left -= len(self.socket.recv(min(left, 1 << 16)))


def pair(url: str, given: Given) -> Given:
    bare = Bare(url)
    name = given["name"].encode()
    first, second = acquire(name), release(name)
    for _ in range(warm_up(given["pairs"])):
        bare.expect(first, GRANTED)
        bare.expect(second, FREED)
    took = []
    cpu = time.process_time()
    for _ in range(given["pairs"]):
        start = time.perf_counter_ns()
        bare.expect(first, GRANTED)
        bare.expect(second, FREED)
        took.append(time.perf_counter_ns() - start)
    return percentiles(took) | {"cpu_us": (time.process_time() - cpu) / given["pairs"] * 1e6}


def storm(url: str, given: Given) -> Given:
    bare = Bare(url)
    count = given["inflight"]
    names = [f"{given['name']}:{number}".encode() for number in range(count)]
    for name in names:
        bare.expect(acquire(name), GRANTED)
        bare.expect(release(name), FREED)
    first, second = b"".join(map(acquire, names)), b"".join(map(release, names))

    def rate(seconds: float) -> float:
        done, start = 0, time.perf_counter()
        while (took := time.perf_counter() - start) < seconds:
            bare.batch(first, GRANTED * count)
            bare.batch(second, FREED * count)
            done += count
        return done / took

    rate(given["seconds"] / 10)
    return {"pairs_per_s": rate(given["seconds"])}


def handoff(url: str, given: Given) -> Given:
    """One thread holds; another listens, and takes the lock when told."""
    name = given["name"].encode()
    alone = has_option("--pubsub")
    holder, waiter, ears = Bare(url), Bare(url), Bare(url)
    ears.call(command(b"SUBSCRIBE", channel(name)))
    got: SimpleQueue[int] = SimpleQueue()
    warm = max(3, given["rounds"] // 10)
    rounds = warm + given["rounds"]

    def wait() -> None:
        for _ in range(rounds):
            ears.socket.recv(4096)
            if not alone:
                waiter.expect(acquire(name), GRANTED)
            stamp = time.perf_counter_ns()
            if not alone:
                # Given back before the next round begins, and announced to nobody.
                waiter.expect(evalsha(RELEASE, [name, b"nobody"], OWNER, b"0", b"0", b"PUBLISH"), FREED)
            got.put(stamp)

    thread = threading.Thread(target=wait)
    thread.start()
    took = []
    for number in range(rounds):
        if not alone:
            holder.expect(acquire(name), GRANTED)
        time.sleep(parked_for(number))
        released = time.perf_counter_ns()
        holder.call(command(b"PUBLISH", channel(name), b"0") if alone else release(name))
        took.append(got.get() - released)
    thread.join()
    return percentiles(took[warm:])


def run(scenario: str, url: str, given: Given) -> Given:
    scenarios = {"pair": pair, "storm": storm, "handoff": handoff}
    if scenario not in scenarios:
        raise Unsupported("a floor holds nothing")
    return scenarios[scenario](url, given)


if __name__ == "__main__":
    main(run)
