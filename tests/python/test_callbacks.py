"""F35, L7: who holds is told once, and a callback that throws harms nobody."""

from __future__ import annotations

import asyncio
import functools
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis

import bandog
from conftest import eventually


def test_l7_told_when_the_key_is_deleted(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.6) as client:
        hold = client.lock(name).acquire()
        told = threading.Event()
        hold.on_lost(told.set)
        raw.delete(name)
        assert told.wait(0.6 / 3 + 0.1)
        assert hold.lost == "taken"
        assert hold.valid is False
        later: list[str] = []
        hold.on_lost(later.append, "at once")
        assert later == ["at once"]
        with pytest.raises(bandog.LockLost):
            hold.release()


def test_l7_told_at_the_deadline_of_a_fixed_lease(client: bandog.Client, name: str) -> None:
    late = []
    for number in range(5):
        start = time.monotonic()
        hold = client.lock(f"{name}:{number}", lease=0.5).acquire()
        told: list[float] = []
        # D = L - M, M = 50 ms: before anybody else could get it
        deadline = time.monotonic() + hold.remaining()
        assert deadline - start < 0.451 + 0.05
        hold.on_lost(lambda told=told: told.append(time.monotonic()))  # type: ignore[misc]
        eventually(lambda told=told: told)  # type: ignore[misc]
        assert hold.valid is False
        late.append(told[0] - deadline)
    assert min(late) > -0.005
    assert statistics.median(late) < 0.04
    assert max(late) < 0.5


def test_a_release_tells_nobody(client: bandog.Client, name: str) -> None:
    told: list[int] = []
    with client.lock(name) as hold:
        hold.on_lost(told.append, 1)
    hold.on_lost(told.append, 2)
    time.sleep(0.05)
    assert told == []


def test_f35_a_throwing_callback_is_reported_once(
    url: str, raw: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: reported.append(told.exc_value))
    with bandog.connect(url, watchdog=0.3) as client:
        lost, kept = client.lock(name).acquire(), client.lock(name + ":kept").acquire()
        done = threading.Event()
        lost.on_lost(lambda: 1 / 0)
        lost.on_lost(done.set)
        raw.delete(name)
        assert done.wait(1)
        time.sleep(0.4)
        assert [type(error) for error in reported] == [ZeroDivisionError]
        assert kept.valid
        assert raw.pttl(name + ":kept") > 100
        kept.release()


def test_asyncio_callbacks_run_in_their_loop(url: str, raw: redis.Redis, name: str) -> None:
    async def main() -> None:
        reported: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with bandog.connect(url, watchdog=0.3) as client:
            hold = await client.lock(name).acquire_async()
            told: asyncio.Future[int] = loop.create_future()
            hold.on_lost(lambda: 1 / 0)
            hold.on_lost(lambda: told.set_result(threading.get_ident()))
            raw.delete(name)
            assert await asyncio.wait_for(told, 1) == threading.get_ident()
            assert [type(error) for error in reported] == [ZeroDivisionError]
            with pytest.raises(bandog.LockLost):
                await hold.release_async()

    asyncio.run(main())


def test_every_one_of_many_is_told(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=1.5) as client:
        count = 3000
        told = threading.Semaphore(0)
        names = [f"{name}:{number}" for number in range(count)]
        holds = [client.lock(each).acquire() for each in names]
        for hold in holds:
            hold.on_lost(told.release)
        raw.delete(*names)
        for _ in range(count):
            assert told.acquire(timeout=5)
        assert not any(hold.valid for hold in holds)


def test_what_cannot_be_called_is_refused(client: bandog.Client, name: str) -> None:
    with client.lock(name) as hold, pytest.raises(TypeError):
        hold.on_lost(5)  # type: ignore[arg-type]


def test_r1_the_callback_thread_ends_with_its_clients(url: str, name: str) -> None:
    with bandog.connect(url) as client, client.lock(name) as hold:
        hold.on_lost(print)
        eventually(lambda: NAME in threads())
    eventually(lambda: NAME not in threads(), 1)
    assert [thread.name for thread in threading.enumerate() if "Dummy" in thread.name] == []


# The system keeps fifteen letters of a thread's name.
NAME = "bandog-callbacks"[:15]


def threads() -> list[str]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found.append((task / "comm").read_text().strip())
        except OSError:
            continue
    return found


def test_a_closed_loop_hands_its_callbacks_to_the_thread(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.5) as client:

        async def main() -> bandog.Hold:
            return await client.lock(name).acquire_async()

        hold = asyncio.run(main())
        told = threading.Event()
        hold.on_lost(told.set)
        raw.delete(name)
        assert told.wait(1)


def test_coroutine_functions_run_as_tasks_of_their_loop(url: str, raw: redis.Redis, name: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reported: asyncio.Queue[Any] = asyncio.Queue()
        loop.set_exception_handler(lambda _, context: reported.put_nowait(context["exception"]))
        told: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

        async def tell(what: str) -> None:
            await asyncio.sleep(0)
            await told.put((what, threading.get_ident()))

        async def fail() -> None:
            raise ZeroDivisionError

        async with bandog.connect(url, watchdog=0.3) as client:
            hold = await client.lock(name).acquire_async()
            hold.on_lost(tell, "function")
            hold.on_lost(lambda: tell("lambda"))
            hold.on_lost(fail)
            raw.delete(name)
            here = threading.get_ident()
            got = [await asyncio.wait_for(told.get(), 2) for _ in range(2)]
            assert sorted(got) == [("function", here), ("lambda", here)]
            assert isinstance(await asyncio.wait_for(reported.get(), 2), ZeroDivisionError)
            hold.on_lost(tell, "at once")
            assert await asyncio.wait_for(told.get(), 2) == ("at once", here)
            await asyncio.to_thread(hold.on_lost, tell, "from a thread")
            assert await asyncio.wait_for(told.get(), 2) == ("from a thread", here)
            assert reported.empty()

    asyncio.run(main())


class Later:
    async def __call__(self) -> None: ...


async def later() -> None: ...


@pytest.mark.parametrize("function", [later, functools.partial(later), Later(), Later().__call__])
def test_coroutine_functions_are_refused_without_a_loop(client: bandog.Client, name: str, function: Any) -> None:
    with client.lock(name) as hold, pytest.raises(TypeError, match="event loop"):
        hold.on_lost(function)


def test_a_coroutine_that_nobody_awaits_is_reported(
    url: str, raw: redis.Redis, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: reported.append(told.exc_value))
    with bandog.connect(url, watchdog=0.3) as client:
        hold = client.lock(name).acquire()
        hold.on_lost(lambda: later())
        raw.delete(name)
        eventually(lambda: reported)
        assert [type(error) for error in reported] == [TypeError]


def test_a_slow_callback_delays_nobody_elses(url: str, raw: redis.Redis, name: str) -> None:
    go, told = threading.Event(), threading.Semaphore(0)
    with bandog.connect(url, watchdog=0.3) as client, bandog.connect(url, watchdog=0.3) as another:
        slow = [client.lock(f"{name}:slow{number}").acquire() for number in range(8)]
        for hold in slow:
            hold.on_lost(lambda: (told.release(), go.wait(30)))
        raw.delete(*(hold.name for hold in slow))
        # They are slow at the same time, and each hands on to the next.
        for _ in slow:
            assert told.acquire(timeout=5)
        for who in (client, another):
            lost = who.lock(f"{name}:{id(who)}").acquire()
            news = threading.Event()
            lost.on_lost(news.set)
            raw.delete(lost.name)
            assert news.wait(5)
        assert not go.is_set()
        go.set()
        # The threads that it took end when they are idle.
        eventually(lambda: threads().count(NAME) <= 1, 10)


def test_quick_callbacks_share_one_thread(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.3) as client:
        seen: list[int] = []
        holds = [client.lock(f"{name}:{number}").acquire() for number in range(50)]
        for hold in holds:
            hold.on_lost(lambda: seen.append(threading.get_ident()))
        raw.delete(*(hold.name for hold in holds))
        eventually(lambda: len(seen) == len(holds))
        assert threads().count(NAME) <= 3


def test_holders_are_told_when_their_client_is_closed(url: str, raw: redis.Redis, name: str) -> None:
    client = bandog.connect(url)
    told = threading.Event()
    with pytest.raises(bandog.Closed), client.lock(name) as hold:
        hold.on_lost(told.set)
        client.close()
        assert told.is_set()
        assert hold.lost == "closed"
        assert hold.valid is False
        with pytest.raises(bandog.LockLost):
            hold.check()
    assert raw.exists(name) == 0


async def closed_inside(url: str, name: str) -> str | None:
    told = asyncio.Event()
    client = bandog.connect(url)
    hold = await client.lock(name).acquire_async()
    hold.on_lost(told.set)
    await client.close_async()
    await asyncio.wait_for(told.wait(), 5)
    return hold.lost


def test_coroutines_are_told_when_their_client_is_closed(url: str, raw: redis.Redis, name: str) -> None:
    assert asyncio.run(closed_inside(url, name)) == "closed"
    assert raw.exists(name) == 0


def test_an_operator_finds_warnings_in_the_log(
    url: str, raw: redis.Redis, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    raw.hset(name, "285475da-9152-4c83-822a-67ee2f116a79:52", 1)
    with bandog.connect(url) as client:
        assert client.lock(name).try_acquire() is None
        eventually(lambda: any("no expiry" in record.getMessage() for record in caplog.records))
    assert {record.name for record in caplog.records} == {"bandog"}
    assert name in caplog.records[0].getMessage()
