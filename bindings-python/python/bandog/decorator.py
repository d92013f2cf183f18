"""``@locked``: a function that runs under a lock whose name comes from its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial, wraps
from string import Formatter
from types import EllipsisType
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from bandog import _native
from bandog._native import Client, Lock
from bandog.default import default_client
from bandog.errors import InvalidName, InvalidOption, LockTimeout

__all__ = ["locked"]

P = ParamSpec("P")
R = TypeVar("R")
Span = float | timedelta


class Skipping(Protocol):
    """Decorates a function so that it may be skipped: then there is no result."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]: ...


@overload
def locked(
    name: str,
    *,
    wait: Span | EllipsisType | None = ...,
    when_busy: Literal["skip"],
    lease: Span | None = None,
    client: Client | None = None,
) -> Skipping: ...
@overload
def locked(
    name: str,
    *,
    wait: Span | EllipsisType | None = ...,
    when_busy: Literal["wait", "raise"] = "wait",
    lease: Span | None = None,
    client: Client | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def locked(
    name: str,
    *,
    wait: Span | EllipsisType | None = ...,
    when_busy: Literal["wait", "skip", "raise"] = "wait",
    lease: Span | None = None,
    client: Client | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Runs a function, plain or ``async``, under a lock.

    ``name`` may name parameters of the function in braces, also their attributes and items:
    ``"order:{order_id}"``, ``"user:{user.id}"``. Values with braces in them are refused with ``InvalidName``,
    because braces choose the cluster slot.

    ``when_busy`` says what happens while another holds the lock:

    - ``"wait"``: wait, for ever or as many seconds as ``wait`` says; then ``LockTimeout``.
    - ``"skip"``: do not run the function and return ``None``; after ``wait`` seconds if ``wait`` is given.
    - ``"raise"``: ``LockTimeout`` at once; after ``wait`` seconds if ``wait`` is given.

    ``lease`` is as in ``Client.lock``. ``client`` is the client to use, else the default one.

    Generator functions are refused, and plain functions that return an awaitable: both would run after the
    lock was released. Raises ``LockLost`` on return if the lock was lost meanwhile.

    Example::

        @locked("order:{order_id}", wait=5)
        def ship(order_id: int) -> None: ...
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidName('give the name of the lock: @locked("order:{order_id}")')
    if when_busy not in ("wait", "skip", "raise"):
        raise InvalidOption(f'when_busy is {when_busy!r}: give "wait", "skip" or "raise"')
    fields = _fields(name)
    limit = (None if when_busy == "wait" else 0) if isinstance(wait, EllipsisType) else wait
    _native._check_spans(limit, lease)  # type: ignore[attr-defined]  # pyright: ignore

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _refuse_generators(function)
        signature = inspect.signature(function)
        _check_fields(name, fields, signature)

        def lock_for(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Lock:
            text = name
            if fields or "{" in name or "}" in name:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                values = dict(bound.arguments)
                for parameter in signature.parameters.values():
                    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                        values |= values.pop(parameter.name)
                text = _Name().vformat(name, (), values)
            return (client or default_client()).lock(text, wait=limit, lease=lease)

        # `entered` tells a busy lock from a LockTimeout of the function's own. A hold taken before its block
        # could be left behind by Ctrl-C in between.
        if _is_async(function):

            @wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                entered = False
                try:
                    async with lock_for(args, kwargs):
                        entered = True
                        return await cast("Awaitable[Any]", function(*args, **kwargs))
                except LockTimeout:
                    if entered or when_busy != "skip":
                        raise
                    return None

            return run_async

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            entered = False
            try:
                with lock_for(args, kwargs):
                    entered = True
                    result = function(*args, **kwargs)
                    _refuse_late_work(function, result)
                    return result
            except LockTimeout:
                if entered or when_busy != "skip":
                    raise
                return None

        return run

    return decorate


class _Name(Formatter):
    """Formats a name and refuses braces in what comes from the arguments."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs[cast("str", key)]

    def format_field(self, value: Any, format_spec: str) -> str:
        text = cast("str", super().format_field(value, format_spec))
        if "{" in text or "}" in text:
            raise InvalidName("a value for the name of the lock has braces in it: they would choose the cluster slot")
        return text


def _fields(name: str) -> list[str]:
    try:
        fields = [field for _, field, _, _ in Formatter().parse(name) if field is not None]
    except ValueError as error:
        raise InvalidName(f"the name {name!r} is not a format: {error}; double the braces that are meant") from None
    roots = [field.split(".")[0].split("[")[0] for field in fields]
    for root in roots:
        if not root.isidentifier():
            raise InvalidName(f"the name {name!r} has a field without the name of a parameter: {{{root}}}")
    return roots


def _check_fields(name: str, fields: list[str], signature: inspect.Signature) -> None:
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return
    for field in fields:
        if field not in signature.parameters:
            raise InvalidName(f"the name {name!r} names {field!r}, which is not a parameter of the function")


def _refuse_generators(function: Callable[..., Any]) -> None:
    if not callable(function):
        raise TypeError("put @locked under @staticmethod or @classmethod: it takes the function itself")
    inner = _inner(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(f"{_called(function)} is a generator: its body would run after the lock was released")


def _is_async(function: Callable[..., Any]) -> bool:
    inner = _inner(function)
    return inspect.iscoroutinefunction(inner)


def _inner(function: Callable[..., Any]) -> Any:
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return getattr(function, "__call__", function)  # noqa: B004


def _refuse_late_work(function: Callable[..., Any], result: Any) -> None:
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    # A coroutine that is thrown away says so in a warning, unless it is closed.
    close = getattr(result, "close", None)
    if close is not None:
        close()
    raise TypeError(
        f"{_called(function)} returned {type(result).__name__}, which would run after the lock was released: "
        "decorate the async function itself"
    )


def _called(function: Callable[..., Any]) -> str:
    return cast("str", getattr(function, "__qualname__", repr(function)))
