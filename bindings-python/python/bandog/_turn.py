"""The part of an event loop's turn in which Python code runs, the loop's own and that of tasks.

It runs under Python's frames only: a thread that the end of the program cuts off in the middle of it must not have
native frames to unwind.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any

# A function and what it is called with.
Step = tuple[Callable[..., object], tuple[Any, ...]]


def run(first: Callable[[], Step | None], following: Callable[[], Step | None]) -> None:
    """Takes every step there is, whatever one of them raises (the end of the program, say)."""
    raised: BaseException | None = None
    step = first()
    while step is not None:
        function, arguments = step
        try:
            function(*arguments)
        except BaseException as error:
            raised = raised or error
        step = following()
    if raised is not None:
        raise raised


def unwatch(event_loop: AbstractEventLoop, descriptor: int, kept: object) -> None:
    """Stops watching a descriptor, which `kept` keeps open until then."""
    event_loop.remove_reader(descriptor)
    event_loop.remove_writer(descriptor)
