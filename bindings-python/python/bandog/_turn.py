"""The part of an event loop's turn in which other people's code runs.

It runs under Python's frames only: a thread that the end of the program cuts off in the middle of it must not have
native frames to unwind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

# A task's context, what continues it, and what it waited on.
Step = tuple[Context | None, Callable[[Any], object], Any]


def run(first: Callable[[], Step | None], following: Callable[[], Step | None]) -> None:
    """Continues every task whose answer came, whatever one of them raises (the end of the program, say)."""
    raised: BaseException | None = None
    step = first()
    while step is not None:
        context, function, wait = step
        try:
            if context is None:
                function(wait)
            else:
                context.run(function, wait)
        except BaseException as error:
            raised = raised or error
        step = following()
    if raised is not None:
        raise raised
