"""Every kind of event loop, for tests that take `run`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Main = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop", "no add_reader"])
def run(request: pytest.FixtureRequest) -> Main:
    """Runs a coroutine in each kind of loop."""
    factory = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop, "no add_reader": NoReader}

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory[request.param]) as runner:
            return runner.run(main)

    return run


class NoReader(asyncio.SelectorEventLoop):
    """A loop that watches no descriptors, like the one of Windows."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        raise NotImplementedError
