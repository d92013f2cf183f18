"""`@locked`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

import bandog
from bandog import locked


class User:
    def __init__(self, number: int) -> None:
        self.number = number


def test_the_name_comes_from_the_arguments(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    @locked(name + ":{order_id}:{user.number}:{size:03d}", client=client)
    def ship(order_id: int, user: User, *, size: int = 7) -> list[str]:
        """Ships."""
        return [key for key in raw.keys(name + "*") if raw.type(key) == "hash"]

    assert ship(5, User(6)) == [f"{name}:5:6:007"]
    assert ship(user=User(6), order_id=5, size=8) == [f"{name}:5:6:008"]
    assert ship.__doc__ == "Ships."
    assert raw.keys(name + "*") == []


def test_keywords_and_positions(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    @locked(name + ":{region}", client=client)
    def anything(**options: str) -> bool:
        return bool(raw.exists(f"{name}:eu"))

    assert anything(region="eu")

    @locked(name + "{{literal}}", client=client)
    def literal() -> bool:
        return bool(raw.exists(name + "{literal}"))

    assert literal()


def test_when_busy(client: bandog.Client, other: bandog.Client, name: str) -> None:
    @locked(name, when_busy="skip", client=client)
    def skip() -> str:
        return "ran"

    @locked(name, when_busy="raise", client=client)
    def refuse() -> str:
        return "ran"

    @locked(name, wait=0.05, client=client)
    def wait() -> str:
        return "ran"

    assert (skip(), refuse(), wait()) == ("ran", "ran", "ran")
    with other.lock(name):
        assert skip() is None
        with pytest.raises(bandog.LockTimeout):
            refuse()
        with pytest.raises(bandog.LockTimeout):
            wait()


def test_a_timeout_of_the_functions_own_is_not_skipped(client: bandog.Client, name: str) -> None:
    @locked(name, when_busy="skip", client=client)
    def run() -> None:
        raise bandog.LockTimeout("inside")

    with pytest.raises(bandog.LockTimeout, match="inside"):
        run()


def test_async_functions(client: bandog.Client, other: bandog.Client, name: str) -> None:
    @locked(name + ":{n}", client=client)
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @locked(name, when_busy="skip", client=client)
    async def skip() -> str:
        return "ran"

    async def main() -> None:
        assert await double(4) == 8
        assert await skip() == "ran"
        async with other.lock(name):
            assert await skip() is None

    asyncio.run(main())


def test_it_reenters(client: bandog.Client, name: str) -> None:
    @locked(name, client=client)
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * factorial(n - 1)

    assert factorial(5) == 120


def test_generators_are_refused(client: bandog.Client, name: str) -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator, functools.partial(generator)):
        with pytest.raises(TypeError, match="generator"):
            locked(name, client=client)(function)

    @locked(name, client=client)
    def returns_a_generator() -> Iterator[int]:
        return generator()

    with pytest.raises(TypeError, match="after the lock was released"):
        returns_a_generator()


def test_sync_functions_that_return_an_awaitable_are_refused(client: bandog.Client, name: str) -> None:
    async def later() -> None: ...

    @locked(name, client=client)
    def now() -> Any:
        return later()

    with pytest.raises(TypeError, match="decorate the async function"):
        now()
    assert not client.lock(name).locked()


def test_braces_in_values_are_refused(client: bandog.Client, name: str) -> None:
    @locked(name + ":{what}", client=client)
    def run(what: str) -> None: ...

    for bad in ("{", "}", "{x}"):
        with pytest.raises(bandog.InvalidName):
            run(bad)
    run("fine")


def test_names_that_cannot_work_are_refused_at_once() -> None:
    def run(a: int) -> None: ...

    for bad in ("{b}", "{}", "{0}", "{", "{a"):
        with pytest.raises(bandog.InvalidName):
            locked(bad)(run)
    with pytest.raises(bandog.InvalidName):
        locked(run)  # type: ignore[call-overload]
    with pytest.raises(bandog.InvalidOption):
        locked("x", when_busy="panic")  # type: ignore[call-overload]


def test_a_loss_is_raised_on_return(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    @locked(name, client=client)
    def run() -> None:
        raw.delete(name)

    with pytest.raises(bandog.LockLost):
        run()


def test_methods(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    class Shop:
        number = 3

        @locked(name + ":{self.number}", client=client)
        def sell(self) -> bool:
            return bool(raw.exists(f"{name}:3"))

        @staticmethod
        @locked(name, client=client)
        def close() -> bool:
            return bool(raw.exists(name))

    assert Shop().sell()
    assert Shop.close()


@pytest.mark.parametrize("wait", ["5", -1, float("nan"), True])
def test_waits_that_cannot_work_are_refused_when_decorating(wait: Any) -> None:
    with pytest.raises(bandog.InvalidOption, match="wait"):
        locked("x", wait=wait)


@pytest.mark.parametrize("lease", [0, 0.001, "5", -1, 10**30])
def test_leases_that_cannot_work_are_refused_when_decorating(lease: Any) -> None:
    with pytest.raises(bandog.InvalidLease, match="lease"):
        locked("x", lease=lease)
