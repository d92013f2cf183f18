"""What a task of asyncio awaits, and what may happen to it meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import redis

import bandog
from support.loops import Main, NewLoop

Setup = Callable[[asyncio.AbstractEventLoop], None]


def pure_python(loop: asyncio.AbstractEventLoop) -> None:
    made: Any = asyncio.tasks._PyTask  # type: ignore[attr-defined]
    loop.set_task_factory(lambda loop, coroutine, **more: made(coroutine, loop=loop, **more))


SETUPS: dict[str, Setup] = {
    "tasks in C": lambda loop: None,
    "tasks in Python": pure_python,
    "debug": lambda loop: loop.set_debug(True),
}
if sys.version_info >= (3, 12):
    SETUPS["eager tasks"] = lambda loop: loop.set_task_factory(asyncio.eager_task_factory)


@pytest.fixture(params=SETUPS)
def run_as(request: pytest.FixtureRequest, new_loop: NewLoop) -> Main:
    """Runs a coroutine with each kind of task."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            SETUPS[request.param](runner.get_loop())
            return runner.run(main)

    return run


async def take(lock: bandog.Lock) -> bandog.Hold:
    """For a task of its own: a call belongs to the task that makes it."""
    return await lock.acquire_async()


async def sent_together(client: bandog.Client, *calls: Awaitable[Any]) -> list[asyncio.Future[Any]]:
    """Tasks whose answers lie there when this returns, all for one callback of the loop."""
    first = client.lock("first").locked_async
    await first()
    # By then the loop watches the connection, and the keeper does not any more.
    await asyncio.sleep(0.02)
    tasks = [asyncio.ensure_future(call) for call in (first(), *calls)]
    for _ in range(2):
        await asyncio.sleep(0)
    # Shorter than the keeper waits before it reads for a loop that is blocked.
    time.sleep(0.02)  # noqa: ASYNC251
    assert not any(task.done() for task in tasks[1:])
    return tasks[1:]


def test_every_kind_of_task(run_as: Main, client: bandog.Client, raw: redis.Redis, name: str) -> None:
    value: contextvars.ContextVar[int] = contextvars.ContextVar("value")

    async def work(number: int) -> int:
        value.set(number)
        me = asyncio.current_task()
        async with client.lock(name) as hold:
            assert asyncio.current_task() is me
            assert value.get() == number
            async with client.lock(name):
                assert hold.count == 2
            assert await client.lock(f"{name}:{number}").try_acquire_async() is not None
        assert (asyncio.current_task(), value.get()) == (me, number)
        await client.lock(f"{name}:{number}").release_async()
        with pytest.raises(bandog.NotOwner):
            await hold.release_async()
        return number

    async def main() -> None:
        assert await asyncio.gather(*(work(number) for number in range(20))) == list(range(20))
        with pytest.raises(TimeoutError):
            async with client.lock(name), asyncio.timeout(0.03):
                await asyncio.create_task(take(client.lock(name)))
        with pytest.raises(bandog.WrongType):
            await client.lock(f"{name}:text").acquire_async()

    raw.set(f"{name}:text", "no lock")
    run_as(main())
    assert not raw.exists(name)


@pytest.mark.parametrize("way", ["task", "wait_for", "timeout", "gather", "group", "shield"])
def test_cancelled_in_every_way_at_every_turn(
    run_as: Main, client: bandog.Client, other: bandog.Client, raw: redis.Redis, name: str, way: str
) -> None:
    async def section(name: str = name) -> None:
        async with client.lock(name):
            await asyncio.sleep(0)

    async def work() -> None:
        if way == "wait_for":
            await asyncio.wait_for(section(), 30)
        elif way == "timeout":
            async with asyncio.timeout(30):
                await section()
        elif way == "gather":
            await asyncio.gather(section(), section(f"{name}:beside"))
        elif way == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(section())
                group.create_task(section(f"{name}:beside"))
        elif way == "shield":
            inner = asyncio.ensure_future(section())
            try:
                await asyncio.shield(inner)
            except asyncio.CancelledError:
                await inner
                raise
        else:
            await section()

    async def main() -> None:
        async with client.lock(f"{name}:warm"):
            pass
        for turns in range(12):
            task = asyncio.create_task(work())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel("enough")
            words: tuple[object, ...] = ("enough",)
            try:
                await task
            except asyncio.CancelledError as error:
                words = error.args
            assert words == ("enough",) or way == "gather"
            async with asyncio.timeout(2):
                while raw.exists(name, f"{name}:beside"):
                    await asyncio.sleep(0.001)

    run_as(main())


def test_cancelled_with_a_message_and_twice(run_as: Main, client: bandog.Client, name: str) -> None:
    """The same as of a task that waits for a future of asyncio."""

    async def plain() -> None:
        await asyncio.get_running_loop().create_future()

    async def told(waiting: Coroutine[Any, Any, Any], *messages: str | None) -> tuple[object, ...]:
        task = asyncio.create_task(waiting)
        await asyncio.sleep(0.005)
        assert all(task.cancel(message) for message in messages)
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert task.cancelled()
        return caught.value.args

    async def main() -> None:
        async with client.lock(name):
            for messages in [(None,), ("why",), ("why", "again"), (None, "again"), ("why", None)]:
                assert await told(take(client.lock(name)), *messages) == await told(plain(), *messages)

    run_as(main())


@pytest.mark.parametrize("turns", [0, 1])
def test_cancelled_by_the_task_resumed_before_it(
    run_as: Main, client: bandog.Client, raw: redis.Redis, name: str, turns: int
) -> None:
    """In the very callback that brings the answers of both."""
    tasks: list[asyncio.Future[Any]] = []

    async def cancel() -> None:
        await client.lock(f"{name}:mine").acquire_async()
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks[1].cancel("by another")

    async def main() -> None:
        tasks.extend(await sent_together(client, cancel(), client.lock(name).acquire_async()))
        await tasks[0]
        if turns:
            await (await tasks[1]).release_async()
        else:
            with pytest.raises(asyncio.CancelledError, match="by another"):
                await tasks[1]
        async with asyncio.timeout(2):
            while raw.exists(name):
                await asyncio.sleep(0.001)

    run_as(main())


def test_a_call_that_two_tasks_await(run_as: Main, client: bandog.Client, name: str) -> None:
    """As with a coroutine: the second is told, the first gets its answer."""

    async def wait(call: Awaitable[bandog.Hold]) -> bandog.Hold:
        return await call

    async def main() -> None:
        call = client.lock(name).acquire_async()
        tasks = [asyncio.create_task(wait(call)) for _ in range(2)]
        with pytest.raises(RuntimeError, match=r"Lock\.acquire_async is being awaited already"):
            await tasks[1]
        assert (await asyncio.wait_for(tasks[0], 2)).valid

    run_as(main())


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
def test_the_end_of_the_program_in_a_resumed_task(
    new_loop: NewLoop, client: bandog.Client, name: str, raised: BaseException
) -> None:
    """It goes through the loop, and the answers of the others do not go with it."""

    async def end() -> None:
        await client.lock(f"{name}:end").acquire_async()
        raise raised

    async def main() -> None:
        calls = [client.lock(f"{name}:{number}").acquire_async() for number in range(2)]
        tasks.extend(await sent_together(client, calls[0], end(), calls[1]))
        await asyncio.sleep(10)

    tasks: list[asyncio.Future[Any]] = []
    loop = new_loop()
    with pytest.raises(type(raised)):
        loop.run_until_complete(main())
    before, ending, after = tasks
    assert ending.exception() is raised
    for hold in loop.run_until_complete(asyncio.wait_for(asyncio.gather(before, after), 5)):
        assert hold.valid
        loop.run_until_complete(hold.release_async())
    loop.close()


def test_what_a_resumed_task_does_at_once(run_as: Main, client: bandog.Client, name: str) -> None:
    """Stopping the loop, asking again, or blocking: the answers that came with its own come all the same."""

    async def stop() -> None:
        await client.lock(f"{name}:stop").acquire_async()
        asyncio.get_running_loop().stop()

    async def again() -> list[bandog.Hold]:
        return [await client.lock(f"{name}:again:{number}").acquire_async() for number in range(3)]

    async def block() -> None:
        await client.lock(f"{name}:block").acquire_async()
        time.sleep(0.2)  # noqa: ASYNC251

    async def main() -> None:
        last = client.lock(name).acquire_async()
        holds, _, hold = await asyncio.gather(*await sent_together(client, again(), block(), last))
        assert hold.valid
        assert all(each.valid for each in holds)

    run_as(main())

    async def stopped() -> None:
        tasks.extend(await sent_together(client, stop(), client.lock(f"{name}:2").acquire_async()))
        await tasks[0]

    tasks: list[asyncio.Future[Any]] = []
    loop = asyncio.new_event_loop()
    last = loop.create_task(stopped())
    loop.run_forever()
    assert loop.run_until_complete(tasks[1]).valid
    loop.run_until_complete(last)
    loop.close()
