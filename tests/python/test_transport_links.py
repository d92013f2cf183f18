"""A loop's connection that breaks while the loop watches it, and one under TLS."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

import bandog
from conftest import Server, eventually
from support.loops import Main, NewLoop
from support.proxy import FaultProxy
from support.redisserver import restart
from test_roads import Roads
from test_roads import roads as roads


@pytest.fixture
def proxy(own_server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(own_server.url) as proxy:
        yield proxy


@pytest.fixture
def raw(own_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_server.url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[bandog.Client]:
    with bandog.connect(proxy.url) as client:
        yield client


@pytest.fixture
def run_quietly(new_loop: NewLoop) -> Main:
    """A loop that gets to hear of no error: what breaks is nobody's fault in it."""

    def run(main: Any) -> Any:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            told: list[dict[str, Any]] = []
            runner.get_loop().set_exception_handler(lambda _, context: told.append(context))
            result = runner.run(main)
            assert told == []
            return result

    return run


def sockets() -> set[int]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        # The listing's own descriptor is gone by now.
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                found.add(int(entry.name))
    return found


async def section(client: bandog.Client, name: str) -> None:
    async with client.lock(name):
        await asyncio.sleep(0)


async def warm(client: bandog.Client) -> set[int]:
    """Until the loop watches its connection, and the keeper does not any more. Gives what it may be."""
    before = sockets()
    await section(client, "lk:warm")
    await asyncio.sleep(0.02)
    return sockets() - before


def reuse(descriptors: set[int]) -> tuple[list[int], list[int]]:
    """Opens pipes until these numbers that are free are theirs, and fills them; both ends of all."""
    reading, writing = [], []
    for _ in range(len(descriptors) + 4):
        read, write = os.pipe()
        os.write(write, b"not yours")
        reading.append(read)
        writing.append(write)
    return reading, writing


HARMS: dict[str, Callable[[FaultProxy, Server, redis.Redis], object]] = {
    "killed by the server": lambda proxy, server, raw: raw.client_kill_filter(_type="normal", skipme=True),
    "reset": lambda proxy, server, raw: proxy.tell("reset"),
    "ended": lambda proxy, server, raw: proxy.tell("halfclose down"),
    "server started anew": lambda proxy, server, raw: restart(server),
}


@pytest.mark.parametrize("turns", [0, 3])
@pytest.mark.parametrize("harm", HARMS)
def test_a_connection_that_breaks_while_it_is_watched(
    run_quietly: Main,
    client: bandog.Client,
    proxy: FaultProxy,
    own_server: Server,
    raw: redis.Redis,
    harm: str,
    turns: int,
) -> None:
    """The next call works, nobody reads from what gets its descriptor, and the loop does not spin."""

    async def main() -> None:
        for _ in range(2):
            watched = await warm(client)
            HARMS[harm](proxy, own_server, raw)
            for _ in range(turns):
                await asyncio.sleep(0.005)
            reading, writing = reuse(watched)
            try:
                await asyncio.wait_for(section(client, "lk:x"), 2)
                before = time.process_time()
                await asyncio.sleep(0.1)
                assert time.process_time() - before < 0.05
                assert {os.read(read, 100) for read in reading} == {b"not yours"}
            finally:
                for descriptor in reading + writing:
                    os.close(descriptor)
        eventually(lambda: not raw.dbsize())

    run_quietly(main())


@pytest.mark.parametrize("harm", HARMS)
def test_a_connection_that_breaks_under_a_burst(
    run_quietly: Main, client: bandog.Client, proxy: FaultProxy, own_server: Server, raw: redis.Redis, harm: str
) -> None:
    """Every call ends well, and everything is free again."""

    async def main() -> None:
        await warm(client)
        tasks = [asyncio.create_task(section(client, f"lk:{number % 200}")) for number in range(400)]
        await asyncio.sleep(0.002)
        HARMS[harm](proxy, own_server, raw)
        for done in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10):
            # What was held when the server forgot it is lost.
            assert done is None or (harm == "server started anew" and isinstance(done, bandog.LockLost))

    run_quietly(main())
    eventually(lambda: not raw.dbsize(), 3)


def test_a_connection_that_breaks_while_nobody_calls_is_left_alone(
    new_loop: NewLoop, client: bandog.Client, raw: redis.Redis
) -> None:
    """A server may close idle connections; it is opened again when it is needed."""

    def wires() -> int:
        return sum(row["name"].startswith("bandog") for row in raw.client_list())

    async def main() -> None:
        await warm(client)
        raw.client_kill_filter(_type="normal", skipme=True)
        before = time.process_time()
        await asyncio.sleep(0.3)
        assert time.process_time() - before < 0.1
        assert wires() == 0
        await section(client, "lk:x")
        assert wires() >= 1

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_a_loop_that_is_blocked_while_its_connection_breaks(
    run_quietly: Main, client: bandog.Client, proxy: FaultProxy, raw: redis.Redis
) -> None:
    async def main() -> None:
        await warm(client)
        tasks = [asyncio.create_task(section(client, f"lk:{number}")) for number in range(20)]
        await asyncio.sleep(0)
        proxy.tell("reset")
        time.sleep(0.3)  # noqa: ASYNC251
        await asyncio.wait_for(asyncio.gather(*tasks), 3)

    run_quietly(main())
    eventually(lambda: not raw.dbsize())


def test_tls_in_the_loop(run: Main, roads: Roads, name: str) -> None:
    """Bursts, waits and large answers, through the same wire."""

    async def main() -> None:
        async with bandog.connect(roads.tls, tls_ca=roads.read("ca.pem")) as client:
            await warm(client)
            for _ in range(3):
                await asyncio.gather(*(section(client, f"{name}:{number % 300}") for number in range(1000)))
            async with asyncio.timeout(5):
                for number in range(30):
                    await section(client, f"{name}:{number}")
            roads.raw.client_kill_filter(_type="normal", skipme=True)
            await section(client, name)

    run(main())
    eventually(lambda: not roads.raw.keys(f"{name}*"))
