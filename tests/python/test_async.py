"""The face of a lock, for coroutines."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time

import pytest
import redis

import bandog
from conftest import eventually
from support.loops import Main


def test_a_block(run: Main, client: bandog.Client, raw: redis.Redis, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        async with lock as hold:
            assert hold.valid
            assert raw.hgetall(name) == {hold.owner: "1"}
            async with lock as inner:
                assert inner.count == 2
            assert lock.count == 1
        assert not raw.exists(name)

    run(main())


def test_every_twin(run: Main, client: bandog.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        hold = await lock.acquire_async(wait=1, lease=5)
        assert await lock.locked_async() is True
        left = await lock.remaining_async()
        assert left is not None
        assert 4 < left <= 5
        await hold.extend_async(20)
        assert hold.remaining() > 17
        level = await hold.reenter_async()
        assert hold.count == 2
        await level.release_async()
        await lock.release_async()
        again = await lock.try_acquire_async()
        assert again is not None
        async with again as same:
            assert same is again
        assert await lock.force_release_async() is False
        assert await lock.remaining_async() is None
        with pytest.raises(bandog.NotOwner):
            await lock.release_async()

    run(main())


def test_busy(run: Main, client: bandog.Client, other: bandog.Client, name: str) -> None:
    held = other.lock(name).acquire()

    async def main() -> None:
        assert await client.lock(name).try_acquire_async() is None
        start = time.monotonic()
        with pytest.raises(bandog.LockTimeout):
            await client.lock(name).acquire_async(wait=0.2)
        assert 0.19 <= time.monotonic() - start < 0.4

    run(main())
    held.release()


def test_a_waiter_is_woken(run: Main, client: bandog.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        order: list[int] = []

        async def work(number: int) -> None:
            async with lock:
                order.append(number)
                await asyncio.sleep(0)

        async with lock, asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(work(number))
            await asyncio.sleep(0.02)
            await lock.release_async()
        assert sorted(order) == [0, 1, 2, 3, 4]

    run(main())


def test_tasks_sharing_one_object_never_release_each_others_lock(run: Main, client: bandog.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        entered, leave = asyncio.Event(), asyncio.Event()

        async def another() -> bool:
            async with lock as hold:
                entered.set()
                await leave.wait()
                return hold.valid

        async with lock as hold:
            await hold.release_async()
            task = asyncio.create_task(another())
            await entered.wait()
        leave.set()
        assert await task is True

    run(main())


def test_a_thousand_tasks(run: Main, client: bandog.Client, name: str) -> None:
    async def main() -> None:
        total = 0

        async def work(number: int) -> None:
            nonlocal total
            async with client.lock(f"{name}:{number % 50}"):
                total += 1

        await asyncio.gather(*(work(number) for number in range(1000)))
        assert total == 1000

    run(main())


def test_two_runs_in_a_row_and_nothing_left_of_the_first(client: bandog.Client, name: str) -> None:
    async def main() -> None:
        async with client.lock(name):
            pass

    asyncio.run(main())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        asyncio.run(main())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


async def step(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.mark.parametrize("where", ["free", "busy"])
def test_f32_cancelled_at_every_turn(
    run: Main, client: bandog.Client, other: bandog.Client, raw: redis.Redis, name: str, where: str
) -> None:
    """A cancelled acquire leaves nothing: neither a hold nor a count, whenever it was cancelled."""

    async def main() -> None:
        lock = client.lock(name)
        took = []
        for turns in range(60):
            held = None
            if where == "busy":
                held = await asyncio.to_thread(lambda: other.lock(name).acquire())
            task = asyncio.create_task(lock.acquire_async())
            await step(turns)
            if held is not None and turns % 2:
                await asyncio.to_thread(held.release)
            start = time.monotonic()
            task.cancel()
            try:
                hold = await task
            except asyncio.CancelledError:
                took.append(time.monotonic() - start)
            else:
                await hold.release_async()
            if held is not None and not turns % 2:
                await asyncio.to_thread(held.release)
            # Freed at once: the key is gone long before any lease ends.
            async with asyncio.timeout(2):
                while raw.exists(name):
                    await asyncio.sleep(0.001)
        assert statistics.median(took) < 0.05
        assert max(took) < 0.5

    run(main())


def test_f32_cancelled_after_any_time(run: Main, client: bandog.Client, raw: redis.Redis, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        for number in range(200):
            task = asyncio.create_task(lock.acquire_async())
            await asyncio.sleep(number * 5e-6)
            task.cancel()
            try:
                hold = await task
            except asyncio.CancelledError:
                pass
            else:
                await hold.release_async()
            async with asyncio.timeout(2):
                while raw.exists(name):
                    await asyncio.sleep(0)

    run(main())


def test_f32_a_cancelled_release_goes_on(run: Main, client: bandog.Client, raw: redis.Redis, name: str) -> None:
    async def main() -> None:
        for turns in range(10):
            hold = await client.lock(name).acquire_async()
            task = asyncio.create_task(hold.release_async())
            await step(turns)
            task.cancel()
            await asyncio.wait([task])
            async with asyncio.timeout(2):
                while raw.exists(name):
                    await asyncio.sleep(0.001)

    run(main())


def test_wait_for_and_timeout(run: Main, client: bandog.Client, other: bandog.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        held = await asyncio.to_thread(lambda: other.lock(name).acquire())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lock.acquire_async(), 0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), lock:
                pass
        await asyncio.to_thread(held.release)
        hold = await asyncio.wait_for(lock.acquire_async(), 1)
        # The caller holds it, not the task that wait_for makes in some versions.
        assert lock.held()
        await hold.release_async()
        assert not await lock.locked_async()

    run(main())


def test_a_grant_to_a_blocked_loop_is_given_back(
    client: bandog.Client, other: bandog.Client, raw: redis.Redis, name: str
) -> None:
    held = other.lock(name, lease=0.4).acquire()

    async def main() -> None:
        lock = client.lock(name)
        task = asyncio.create_task(lock.acquire_async())
        await asyncio.sleep(0.05)
        await asyncio.to_thread(held.release)
        # The loop is deaf: whoever else asks must get in.
        time.sleep(1.5)  # noqa: ASYNC251
        rival = other.lock(name)
        with pytest.raises(bandog.BlockingInLoop):
            rival.try_acquire(wait=1)
        taken = await rival.try_acquire_async(wait=1)
        if taken is not None:
            await taken.release_async()
        await (await task).release_async()

    asyncio.run(main())
    assert not raw.exists(name)


def test_nothing_is_sent_before_it_is_awaited(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    async def main() -> None:
        call = client.lock(name).acquire_async()
        await asyncio.sleep(0.01)
        assert not raw.exists(name)
        hold = await call
        await hold.release_async()
        with pytest.raises(RuntimeError, match="awaited already"):
            await call

    asyncio.run(main())
    with pytest.warns(RuntimeWarning, match=r"Lock.acquire_async was never awaited"):
        client.lock(name).acquire_async()
        gc.collect()


def test_a_call_can_be_run_by_itself(client: bandog.Client, name: str) -> None:
    async def main() -> bandog.Hold:
        return await client.lock(name).acquire_async()

    hold = asyncio.run(main())
    asyncio.run(hold.release_async())
    assert not client.lock(name).locked()


def test_sync_calls_in_a_coroutine_name_their_twin(client: bandog.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        with pytest.raises(bandog.BlockingInLoop, match="async with lock"), lock:
            pass
        async with lock as hold:
            for call, twin in [
                (lock.acquire, "acquire_async"),
                (lock.try_acquire, "try_acquire_async"),
                (lock.release, "lock.release_async"),
                (lock.locked, "locked_async"),
                (lock.remaining, "remaining_async"),
                (lock.force_release, "force_release_async"),
                (hold.release, "hold.release_async"),
                (hold.reenter, "reenter_async"),
                (lambda: hold.extend(1), "extend_async"),
                (client.close, "close_async"),
            ]:
                with pytest.raises(bandog.BlockingInLoop, match=twin) as caught:
                    call()
                assert isinstance(caught.value, RuntimeError)
            with pytest.raises(bandog.BlockingInLoop), hold:
                pass
            assert hold.valid

    asyncio.run(main())


def test_notebooks_may_block(url: str, name: str) -> None:
    async def main() -> None:
        client = bandog.connect(url, allow_blocking_in_loop=True)
        lock = client.lock(name)
        with lock as hold:
            assert hold.valid
            async with lock:
                assert hold.count == 2
        client.close()

    asyncio.run(main())


def test_events(run: Main, client: bandog.Client, name: str) -> None:
    async def main() -> None:
        events = client.lock(name).events()
        kinds: list[str] = []

        async def listen() -> None:
            async for event in events:
                kinds.append(event.kind)

        task = asyncio.create_task(listen())
        for _ in range(3):
            async with client.lock(name):
                pass
        while len(kinds) < 6:
            await asyncio.sleep(0.001)
        events.close()
        await asyncio.wait_for(task, 1)
        assert kinds == ["acquired", "released"] * 3

    run(main())


def test_an_abandoned_task_holds_nothing_for_long(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.5) as client:

        async def main() -> None:
            async def take() -> None:
                await client.lock(name).acquire_async()

            await asyncio.create_task(take())

        asyncio.run(main())
        gc.collect()
        eventually(lambda: not raw.exists(name), 1.2)
