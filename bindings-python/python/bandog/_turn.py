"""The part of an event loop's turn in which Python code runs: the loop's own, that of tasks, and callbacks.

It runs under Python's frames only: a thread that the end of the program cuts off in the middle of it must not have
native frames to unwind.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, iscoroutine
from collections.abc import Callable
from typing import Any

# A function and what it is called with.
Step = tuple[Callable[..., object], tuple[Any, ...]]


def run(first: Callable[[], Step | None], following: Callable[[], Step | None], again: Callable[[], None]) -> None:
    """Takes every step there is, whatever one of them raises (the end of the program, say)."""
    raised: BaseException | None = None
    try:
        step = first()
        while step is not None:
            function, arguments = step
            try:
                function(*arguments)
            except BaseException as error:
                raised = raised or error
            step = following()
    except BaseException as struck:
        # A signal, between the steps: what was at hand is not to be lost with it.
        again()
        raise struck from raised
    if raised is not None:
        raise raised


def unwatch(event_loop: AbstractEventLoop, descriptor: int, writer: bool, kept: object) -> None:
    """Stops watching a descriptor, which `kept` keeps open until then."""
    event_loop.remove_reader(descriptor)
    if writer:
        event_loop.remove_writer(descriptor)


def tell(
    event_loop: AbstractEventLoop,
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    start: Callable[[Any], None],
) -> None:
    """Calls a callback for a lost lock. What it raises is reported; the others run all the same."""
    try:
        result = function(*arguments)
        if iscoroutine(result):
            start(result)
    except BaseException as error:
        event_loop.call_exception_handler({"message": "a callback for a lost lock raised", "exception": error})
