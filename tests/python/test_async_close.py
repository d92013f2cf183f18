"""Closing a client while an event loop runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time

import pytest

import bandog
from support.loops import Main


def test_r1_closing_leaves_the_loop(run: Main, url: str, name: str) -> None:
    async def main() -> None:
        async def use() -> int:
            async with bandog.connect(url) as client, client.lock(name):
                return len(os.listdir("/proc/self/fd"))

        await use()  # starts the executor's thread
        # The port leaves in the loop's next turn.
        await asyncio.sleep(0.01)
        before = len(os.listdir("/proc/self/fd"))
        assert await use() > before
        await asyncio.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) <= before

    run(main())


def test_closing_ends_every_wait(run: Main, url: str, other: bandog.Client, name: str) -> None:
    held = other.lock(name).acquire()

    async def main() -> None:
        client = bandog.connect(url)
        waiting = asyncio.create_task(client.lock(name).acquire_async())
        await asyncio.sleep(0.02)
        await client.close_async()
        with pytest.raises(bandog.Closed):
            await waiting
        with pytest.raises(bandog.Closed):
            await client.lock(name).acquire_async()

    run(main())
    held.release()


def test_a_client_closes_although_the_default_pool_is_taken(run: Main, url: str, name: str) -> None:
    """Its threads may all wait for the very lock that the close releases."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pool = concurrent.futures.ThreadPoolExecutor(2)
        loop.set_default_executor(pool)
        with bandog.connect(url, allow_blocking_in_loop=True) as waiting:
            async with bandog.connect(url) as client:
                await client.lock(name).acquire_async()
                waits = [asyncio.to_thread(lambda: waiting.lock(name).acquire().release()) for _ in range(2)]
                tasks = [asyncio.create_task(wait) for wait in waits]
                await asyncio.sleep(0.1)
                start = time.monotonic()
            assert time.monotonic() - start < 3
            await asyncio.wait_for(asyncio.gather(*tasks), 5)

    run(main())


def test_closing_twice_at_once_and_again(run: Main, url: str, name: str) -> None:
    async def main() -> None:
        client = bandog.connect(url)
        await client.lock(name).acquire_async()
        await asyncio.wait_for(asyncio.gather(*(client.close_async() for _ in range(5))), 5)
        await asyncio.wait_for(client.close_async(), 5)
        assert client.closed
        with pytest.raises(asyncio.CancelledError):
            closing = asyncio.ensure_future(bandog.connect(url).close_async())
            closing.cancel()
            await closing
        # It goes on all the same.
        await asyncio.sleep(0.1)

    run(main())


def test_closing_an_unused_client(run: Main, url: str) -> None:
    async def main() -> None:
        async with bandog.connect(url) as client:
            pass
        assert client.closed

    run(main())
