"""A client that goes while loops run: dropped, closed from elsewhere, forked; and what needs no server at all."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

import bandog
from conftest import Server, eventually
from support.loops import Main, NewLoop
from support.redisserver import Calls

Start = Callable[[str], Any]


@pytest.fixture
def raw(own_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_server.url, decode_responses=True) as raw:
        yield raw


def wires(raw: redis.Redis) -> int:
    return sum(row["name"].startswith("bandog") for row in raw.client_list())


async def section(client: bandog.Client, name: str) -> None:
    async with client.lock(name):
        await asyncio.sleep(0)


async def idle() -> None:
    """The loop has nothing to do, and does nothing."""
    before = time.process_time()
    await asyncio.sleep(0.2)
    assert time.process_time() - before < 0.1


def test_a_client_dropped_in_a_running_loop(run: Main, own_server: Server, raw: redis.Redis) -> None:
    """Its wires are closed and the loop watches nothing of it any more."""

    async def main() -> None:
        async def use() -> None:
            client = bandog.connect(own_server.url)
            await asyncio.gather(*(section(client, f"lk:{number}") for number in range(20)))
            await client.lock("lk:kept").acquire_async()

        await use()
        await asyncio.sleep(0.05)
        assert wires(raw) == 0
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            await use()
        gc.collect()
        async with asyncio.timeout(3):
            while wires(raw) or raw.exists("lk:kept") or len(os.listdir("/proc/self/fd")) > before:
                await asyncio.sleep(0.01)
        await idle()

    run(main())


def test_a_client_closed_by_another_thread_with_calls_under_way(
    run: Main, own_server: Server, raw: redis.Redis
) -> None:
    async def main() -> None:
        client = bandog.connect(own_server.url)
        hold = await client.lock("lk:x").acquire_async()

        async def wait() -> None:
            await section(client, "lk:x")

        async def busy() -> None:
            while True:
                await section(client, "lk:y")

        tasks = [asyncio.create_task(wait()) for _ in range(50)] + [asyncio.create_task(busy())]
        await asyncio.sleep(0.05)
        closing = threading.Thread(target=client.close)
        closing.start()
        done, _ = await asyncio.wait(tasks, timeout=3)
        assert len(done) == 51
        for task in done:
            assert isinstance(task.exception(), bandog.Closed | bandog.LockLost), task.exception()
        closing.join()
        assert hold.lost == "closed"
        for call in (client.lock("lk:x").acquire_async, hold.release_async, client.lock("lk:x").locked_async):
            with pytest.raises((bandog.Closed, bandog.LockLost)):
                await call()
        await idle()
        async with bandog.connect(own_server.url) as other:
            await section(other, "lk:x")

    run(main())
    eventually(lambda: wires(raw) == 0)


def test_a_client_closed_by_the_task_that_is_resumed(run: Main, own_server: Server) -> None:
    """While answers for others lie in the same batch."""

    async def main() -> None:
        client = bandog.connect(own_server.url)
        await section(client, "lk:warm")
        ends: list[BaseException | bandog.Hold] = []

        async def close() -> None:
            await client.lock("lk:close").acquire_async()
            await client.close_async()

        tasks = [asyncio.create_task(close())]
        tasks += [asyncio.create_task(section(client, f"lk:{number}")) for number in range(20)]
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert ends[0] is None
        assert all(end is None or isinstance(end, bandog.Closed | bandog.LockLost) for end in ends)
        await idle()

    run(main())


def test_two_loops_and_a_client_closed_under_both(new_loop: NewLoop, own_server: Server, raw: redis.Redis) -> None:
    client = bandog.connect(own_server.url)
    started = threading.Barrier(3)
    ends: list[object] = []

    async def main() -> None:
        await section(client, "lk:warm")
        started.wait(5)
        try:
            while True:
                await section(client, "lk:x")
        except (bandog.Closed, bandog.LockLost) as error:
            ends.append(error)
        await idle()

    def work() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait(5)
    time.sleep(0.05)
    client.close()
    for thread in threads:
        thread.join(5)
    assert len(ends) == 2
    eventually(lambda: wires(raw) == 0)


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("moment", ["idle", "held", "under way"])
def test_f29_fork_in_a_running_loop(program: Start, name: str, kind: str, moment: str) -> None:
    """The child runs a loop of its own with the same client; neither hears of the other."""
    one = program(f"""
        import asyncio, uvloop, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        name, moment = {name!r}, {moment!r}
        new_loop = {{"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}}[{kind!r}]
        def run(main):
            with asyncio.Runner(loop_factory=new_loop) as runner:
                return runner.run(main)
        async def section(name):
            async with client.lock(name): pass
        async def child():
            await asyncio.gather(*(section(f"{{name}}:child:{{n}}") for n in range(50)))
            if moment != "idle":
                assert await client.lock(name).try_acquire_async() is None
            await client.close_async()
        async def main():
            await section(name)
            hold = await client.lock(name).acquire_async() if moment != "idle" else None
            calls = [asyncio.create_task(section(f"{{name}}:{{n}}")) for n in range(50 * (moment == "under way"))]
            await asyncio.sleep(0)
            pid = os.fork()
            if pid == 0:
                try:
                    if hold is not None:
                        try: hold.check()
                        except bandog.ForkedHandle: pass
                        else: os._exit(3)
                    run(child())
                except BaseException as error:
                    print(repr(error))
                    os._exit(4)
                os._exit(0)
            await asyncio.gather(*calls)
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                await section(name + ":beside")
            if hold is not None:
                hold.check()
                await hold.release_async()
            before = time.process_time()
            await asyncio.sleep(0.2)
            assert time.process_time() - before < 0.1
            print("fine")
        run(main())
    """)
    assert one.end() == (0, "fine\n", "")


def test_local_reentry_needs_neither_a_request_nor_a_turn(
    new_loop: NewLoop, own_server: Server, raw: redis.Redis
) -> None:
    def at_once(call: Any) -> Any:
        """What a call gives that does not suspend its task."""
        with pytest.raises(StopIteration) as ended:
            call.send(None)
        return ended.value.value

    async def main() -> None:
        async with bandog.connect(own_server.url, local_reentry=True) as client:
            lock = client.lock("lk:x")
            async with lock as outer:
                calls = Calls(raw)
                for depth in range(2, 50):
                    hold = at_once(lock.acquire_async())
                    assert hold.owner == outer.owner
                    assert outer.count == depth
                for _ in range(48):
                    at_once(lock.release_async())
                assert outer.count == 1
                assert calls.scripts() == 0
                assert raw.hgetall("lk:x") == {outer.owner: "1"}
                # Another task is somebody else.
                assert await asyncio.create_task(attempt(client)) is None
            assert not raw.exists("lk:x")

    async def attempt(client: bandog.Client) -> bandog.Hold | None:
        return await client.lock("lk:x").try_acquire_async()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@pytest.mark.filterwarnings("ignore")  # of calls that the signal kept from being awaited
def test_a_signal_that_strikes_between_two_tasks_loses_neither(client: bandog.Client) -> None:
    """A handler may raise wherever Python looks for signals: right behind our own calls, too."""

    class Struck(Exception):
        pass

    def strike(*_: object) -> None:
        raise Struck

    async def work(number: int) -> None:
        while True:
            with suppress(Struck):
                hold = await client.lock(f"lk:{number}").acquire_async()
                await hold.release_async()

    runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
    event_loop = runner.get_loop()
    event_loop.set_exception_handler(lambda *_: None)
    tasks = [event_loop.create_task(work(number)) for number in range(20)]
    old = signal.signal(signal.SIGALRM, strike)
    try:
        end = time.monotonic() + 2
        signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
        while time.monotonic() < end:
            with suppress(Struck):
                event_loop.run_until_complete(asyncio.sleep(0.5))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert len(tasks) == 20
    start = time.monotonic()
    runner.close()
    assert time.monotonic() - start < 3
    assert all(task.done() for task in tasks)
