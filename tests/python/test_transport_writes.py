"""When a loop's calls are written, how often it is woken, and what happens while it is blocked or its socket full."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
import uvloop

import bandog
from conftest import Server, eventually
from support.loops import Main, NewLoop, NoReader
from support.redisserver import pause, resume


def counting(base: Any, counts: Counter[str]) -> NewLoop:
    """Loops that count what is asked of them, and how often they are woken for it."""

    class Counting(base):  # type: ignore[misc]
        def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> Any:
            added = super().add_reader(fd, self._woken, callback, *args)
            counts["add_reader"] += 1
            return added

        def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
            return super().call_soon_threadsafe(self._woken, callback, *args, context=context)

        def _woken(self, callback: Callable[..., object], *args: Any) -> object:
            counts["wakes"] += 1
            return callback(*args)

        def add_writer(self, *args: Any) -> Any:
            counts["add_writer"] += 1
            return super().add_writer(*args)

        def remove_writer(self, *args: Any) -> Any:
            counts["remove_writer"] += 1
            return super().remove_writer(*args)

    return Counting


BASES = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.Loop, "no add_reader": NoReader}


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture(params=BASES)
def run_counted(request: pytest.FixtureRequest, counts: Counter[str]) -> Main:
    def run(main: Any) -> Any:
        with asyncio.Runner(loop_factory=counting(BASES[request.param], counts)) as runner:
            return runner.run(main)

    return run


@pytest.fixture
def raw(own_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_server.url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
def client(own_server: Server) -> Iterator[bandog.Client]:
    with bandog.connect(own_server.url) as client:
        yield client


@pytest.fixture
def other(own_server: Server) -> Iterator[bandog.Client]:
    with bandog.connect(own_server.url) as client:
        yield client


class NarrowServer(Server):
    """One behind a socket file, which takes a fifth of a megabyte where TCP takes many."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "socket"
        super().__init__(folder, "--unixsocket", str(self.path))


@pytest.fixture
def narrow_server(tmp_path: Path) -> Iterator[NarrowServer]:
    server = NarrowServer(tmp_path)
    yield server
    server.stop()


async def section(client: bandog.Client, name: str) -> None:
    async with client.lock(name):
        pass


async def warm(client: bandog.Client) -> None:
    """Until the loop watches its connection, and the keeper does not any more."""
    await section(client, "lk:warm")
    await asyncio.sleep(0.02)


def reads(raw: redis.Redis) -> int:
    return int(raw.info("stats")["total_reads_processed"])  # type: ignore[index]


def test_a_call_of_an_idle_loop_is_written_at_once(run: Main, client: bandog.Client, raw: redis.Redis) -> None:
    async def main() -> None:
        await warm(client)
        call = client.lock("lk:x").acquire_async()
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        # The loop does not turn meanwhile.
        eventually(lambda: raw.exists("lk:x"), 0.04)
        await (await task).release_async()

    run(main())


def test_a_burst_is_few_writes_and_few_wakes(
    run_counted: Main, counts: Counter[str], client: bandog.Client, raw: redis.Redis
) -> None:
    async def main() -> None:
        await warm(client)
        counts.clear()
        before = reads(raw)
        holds = await asyncio.gather(*(client.lock(f"lk:{number}").acquire_async() for number in range(1000)))
        # A server reads 16 KiB at a time.
        assert reads(raw) - before < 150
        assert counts["wakes"] < 150
        before = reads(raw)
        await asyncio.gather(*(hold.release_async() for hold in holds))
        assert reads(raw) - before < 150
        assert counts["wakes"] < 300

    run_counted(main())
    assert raw.dbsize() == 0


def test_a_call_for_each_turn_is_one_write_each(new_loop: NewLoop, client: bandog.Client, raw: redis.Redis) -> None:
    """And nothing beside it."""

    async def main() -> None:
        await warm(client)
        before = reads(raw)
        for number in range(50):
            await section(client, f"lk:{number}")
        assert reads(raw) - before <= 100 + 5

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_a_loop_that_blocks_right_after_an_acquire(run: Main, client: bandog.Client, other: bandog.Client) -> None:
    """Its grant goes back after a second, and its task waits on."""

    async def main() -> None:
        await warm(client)
        task = asyncio.ensure_future(client.lock("lk:x").acquire_async())
        await asyncio.sleep(0)
        with ThreadPoolExecutor(1) as pool:
            start = time.monotonic()
            rival = pool.submit(lambda: other.lock("lk:x").acquire(wait=3))
            hold = rival.result()
            assert 0.8 < time.monotonic() - start < 1.5
            assert not task.done()
            await asyncio.sleep(0.05)
            assert not task.done()
            pool.submit(hold.release).result()
        mine = await asyncio.wait_for(task, 2)
        assert mine.valid
        await mine.release_async()

    run(main())


@pytest.mark.parametrize("busy", [False, True])
def test_a_loop_that_blocks_right_after_a_release(
    run: Main, client: bandog.Client, raw: redis.Redis, busy: bool
) -> None:
    """It is executed all the same, also when it was put off to the end of the turn."""

    async def main() -> None:
        await warm(client)
        hold = await client.lock("lk:x").acquire_async()
        calls = [client.lock("lk:y").locked_async() for _ in range(3 * busy)]
        tasks = [asyncio.ensure_future(call) for call in (*calls, hold.release_async())]
        await asyncio.sleep(0)
        eventually(lambda: not raw.exists("lk:x"), 0.3 if busy else 0.04)
        await asyncio.gather(*tasks)

    run(main())


def test_a_socket_that_takes_no_more(run_counted: Main, counts: Counter[str], narrow_server: NarrowServer) -> None:
    """The rest is written when it can be; nobody polls for that, nor afterwards."""

    async def main() -> None:
        async with bandog.connect(f"unix://{narrow_server.path}") as client:
            await warm(client)
            pause(narrow_server)
            tasks = [asyncio.ensure_future(section(client, f"lk:{number}")) for number in range(4000)]
            await asyncio.sleep(0.3)
            before, wakes = time.process_time(), counts["wakes"]
            await asyncio.sleep(0.5)
            assert time.process_time() - before < 0.1
            assert counts["wakes"] - wakes <= 2
            resume(narrow_server)
            await asyncio.wait_for(asyncio.gather(*tasks), 20)
            await asyncio.sleep(0.1)
            before = time.process_time()
            await asyncio.sleep(0.5)
            assert time.process_time() - before < 0.05

    run_counted(main())
    if counts["add_reader"]:
        assert counts["add_writer"] > 0
        assert counts["remove_writer"] == counts["add_writer"]
