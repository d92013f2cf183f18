"""Every kind of event loop, for tests that take `run`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Main = Callable[[Coroutine[Any, Any, Any]], Any]
NewLoop = Callable[[], asyncio.AbstractEventLoop]


class NoReader(asyncio.SelectorEventLoop):
    """A loop that watches no descriptors, like the one of Windows."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        raise NotImplementedError


KINDS: dict[str, NewLoop] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "no add_reader": NoReader,
}


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest) -> Main:
    """Runs a coroutine in each kind of loop."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=KINDS[request.param]) as runner:
            return runner.run(main)

    return run


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> NewLoop:
    """Makes loops of each kind that has a wire of its own."""
    return KINDS[request.param]
