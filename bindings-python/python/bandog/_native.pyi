"""
The native part of `bandog`: import from `bandog` instead.
"""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, final

__all__ = ["__version__", "Client", "Event", "Events", "Hold", "Lock", "connect"]

__version__: Final[str]
"""
The version of this package.
"""

@final
class Client:
    """
    A client of one server. Make it with `connect`; share it freely between threads, tasks and event loops.

    It goes on working in a forked child, as a client of its own that holds nothing. `with` closes it.
    """
    def __aenter__(self, /) -> Awaitable[Self]: ...
    def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Awaitable[None]: ...
    def __enter__(self, /) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __repr__(self, /) -> str: ...
    def close(self, /) -> None:
        """
        Releases what is held, ends every wait with `Closed`, and stops the background thread.

        Returns within `op_timeout` whether or not the server answers; what it did not hear of ends with its
        lease. Harmless when repeated. Raises `BlockingInLoop` where an event loop runs.
        """
    def close_async(self, /) -> Awaitable[None]:
        """
        The twin of `close` for coroutines.
        """
    @property
    def closed(self, /) -> bool:
        """
        Whether `close` was called.
        """
    def events(self, /, capacity: int = 1024) -> Events:
        """
        What happens to the locks of this client, from now on: iterate with `for` or `async for`.

        At most `capacity` events wait to be read; the oldest give way, and `dropped` counts them.
        """
    def lock(self, /, name: str, wait: float | timedelta | None = ..., lease: float | timedelta | None = ...) -> Lock:
        """
        A reentrant lock of this name, the one that Redisson's `getLock` gives Java programs. No I/O.

        `wait` is how long `with` and `acquire` wait, in seconds: `None` for ever, 0 one try. `lease` is for
        how long the lock is held: `None` lets the watchdog renew it until it is released, a number is fixed
        and never renewed. Names are text of at most 512 bytes, `name_prefix` counted in.

        Raises `InvalidName`, `InvalidOption` for the wait, `InvalidLease`.

        ```python
        with client.lock("order_lock", wait=5) as hold:
            hold.check()  # before each effect that needs the lock
        ```
        """

@final
class Event:
    """
    Something that happened to a lock of this client.
    """
    def __repr__(self, /) -> str: ...
    @property
    def count(self, /) -> int | None:
        """
        How many levels there are now, with `"acquired"` and `"released"`.
        """
    @property
    def kind(self, /) -> str:
        """
        `"acquired"`, `"contended"`, `"renewed"`, `"doubtful"`, `"lost"`, `"released"`, `"link_up"`,
        `"link_down"` or `"warning"`.
        """
    @property
    def name(self, /) -> str | None:
        """
        The lock, where it is about one.
        """
    @property
    def remaining(self, /) -> float | None:
        """
        For how many seconds the hold is good yet, with `"renewed"` and `"doubtful"`; for how long the other
        holds it at least, with `"contended"`.
        """
    @property
    def text(self, /) -> str | None:
        """
        What an operator should know, with `"warning"`.
        """
    @property
    def why(self, /) -> str | None:
        """
        Why, with `"lost"`: `"expired"`, `"taken"`, `"overwritten"`, `"max_hold"` or `"closed"`.
        """

@final
class Events:
    """
    Events from the call that made it on, until `close`. Iterate with `for` or `async for`, or use it as a
    context manager that closes it.
    """
    def __aiter__(self, /) -> Events: ...
    def __anext__(self, /) -> Awaitable[Event]: ...
    def __enter__(self, /) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __iter__(self, /) -> Events: ...
    def __next__(self, /) -> Event: ...
    def __repr__(self, /) -> str: ...
    def close(self, /) -> None:
        """
        Ends it, also for those who wait.
        """
    @property
    def dropped(self, /) -> int:
        """
        How many events gave way because nobody read them in time.
        """

@final
class Hold:
    """
    A lock that is held: what `acquire` returns and `with` yields.

    It is the right to release: it works from any thread and task. As a context manager it releases at the
    end of the block. It has no truth of its own: ask `hold.valid`, or call `hold.check()`.
    """
    def __aenter__(self, /) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Coroutine[Any, Any, None]: ...
    def __enter__(self, /) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __repr__(self, /) -> str: ...
    def check(self, /) -> None:
        """
        Raises `LockLost` unless the lock is held at this very instant. No I/O: call it before each effect.
        """
    @property
    def count(self, /) -> int:
        """
        How many levels the hold has; 0 once it is over. No I/O.
        """
    def extend(self, /, lease: float | timedelta) -> None:
        """
        Makes the hold last at least `lease` seconds from now. Never shortens it.

        Raises `LockLost`, `InvalidLease`, `Unreachable`.
        """
    def extend_async(self, /, lease: float | timedelta) -> Coroutine[Any, Any, None]:
        """
        The twin of `extend` for coroutines.
        """
    @property
    def lost(self, /) -> str | None:
        """
        `None`, or why the lock was lost: `"expired"`, `"taken"`, `"overwritten"`, `"max_hold"` or `"closed"`. No I/O.
        """
    @property
    def name(self, /) -> str:
        """
        The name of the lock as it stands in Redis.
        """
    def on_lost(self, /, function: Callable[..., object], *args: Any) -> None:
        """
        Calls `function(*args)` once if the lock is lost; at once if that has happened already.

        For a hold acquired in a coroutine it runs in that event loop, where it may be a coroutine function;
        else on a thread of this package, where others may run at the same time: one that is slow delays no
        other. What it raises goes to the loop's exception handler or `sys.unraisablehook`, and harms nobody.

        ```python
        stop = threading.Event()
        hold.on_lost(stop.set)
        ```
        """
    @property
    def owner(self, /) -> str:
        """
        `<client uuid>:<hold number>`, the field in the lock's hash.
        """
    def reenter(self, /, wait: float | timedelta | None = ..., lease: float | timedelta | None = ...) -> Hold:
        """
        Adds a level to this hold for whoever calls, also another thread or task, and returns its hold.

        Raises `LockLost` when the hold is over: it never takes the lock anew.
        """
    def reenter_async(
        self, /, wait: float | timedelta | None = ..., lease: float | timedelta | None = ...
    ) -> Coroutine[Any, Any, Hold]:
        """
        The twin of `reenter` for coroutines.
        """
    def release(self, /) -> None:
        """
        Releases this level; the last one frees the lock. Works from any thread.

        Raises `LockLost` when the hold ended before this, `NotOwner` when this level was released already,
        `ReleaseUnknown` when the server did not answer: the release then goes on in the background and the
        lock is free within `free_at_latest` seconds.
        """
    def release_async(self, /) -> Coroutine[Any, Any, None]:
        """
        The twin of `release` for coroutines. Cancelled, it goes on in the background.
        """
    def remaining(self, /) -> float:
        """
        For how many seconds the hold is good yet without another renewal; 0 once it is over. No I/O.

        This ends before the server frees the lock, by a tenth of the lease: time to stop.
        """
    @property
    def token(self, /) -> int | None:
        """
        The fencing token, for kinds of locks that have one; else `None`.
        """
    @property
    def valid(self, /) -> bool:
        """
        Whether the lock is held at this very instant, computed now and not remembered. No I/O.
        """

@final
class Lock:
    """
    A reentrant lock on a Redis key, the same that Redisson's `getLock` uses. Make it with `client.lock`.

    `with lock:` and `async with lock:` wait for it, keep it alive and release it; both yield the hold. One
    object may be shared by threads and tasks: each holds for itself. Who holds may enter again: the running
    asyncio task, else the greenlet, else the thread. A child task or thread is somebody else.

    A lease is not proof against long pauses: call `hold.check()` before each effect that needs the lock.
    """
    def __aenter__(self, /) -> Coroutine[Any, Any, Hold]: ...
    def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Coroutine[Any, Any, None]: ...
    def __enter__(self, /) -> Hold: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __repr__(self, /) -> str: ...
    def acquire(self, /, wait: float | timedelta | None = ..., lease: float | timedelta | None = ...) -> Hold:
        """
        Waits for the lock and returns the hold. Keep it, or release with `lock.release()` from here.

        `wait` and `lease` in seconds, as in `client.lock`; what is not given is as the lock was made with.
        The wait is total. Raises `LockTimeout` when it is over, `Unreachable` when no server answered,
        `LockLost` once if the caller still carries a lost hold of this lock, `BlockingInLoop` where an event
        loop runs. Ctrl-C ends the wait and leaves nothing behind.

        ```python
        hold = lock.acquire(wait=5)
        try:
            ship_order()
        finally:
            hold.release()
        ```
        """
    def acquire_async(
        self, /, wait: float | timedelta | None = ..., lease: float | timedelta | None = ...
    ) -> Coroutine[Any, Any, Hold]:
        """
        The twin of `acquire` for coroutines. Cancelling it leaves nothing behind.

        The task that calls it is the owner, even where another awaits it.
        """
    @property
    def count(self, /) -> int:
        """
        How many times the caller holds it; 0 when it does not, or lost it. No I/O.
        """
    def events(self, /, capacity: int = 1024) -> Events:
        """
        What happens to this lock in this client, from now on: iterate with `for` or `async for`.

        At most `capacity` events wait to be read; the oldest give way, and `dropped` counts them.
        """
    def force_release(self, /) -> bool:
        """
        Deletes whoever holds it, and wakes those who wait. The holder is told that its lock is lost.

        Returns whether there was anything to delete. For operators: it breaks the holder's exclusion.
        """
    def force_release_async(self, /) -> Coroutine[Any, Any, bool]:
        """
        The twin of `force_release` for coroutines.
        """
    def held(self, /) -> bool:
        """
        Whether the caller holds it at this instant. No I/O. See `locked` for whether anybody does.
        """
    def locked(self, /) -> bool:
        """
        Whether anybody holds it, as the server says.
        """
    def locked_async(self, /) -> Coroutine[Any, Any, bool]:
        """
        The twin of `locked` for coroutines.
        """
    @property
    def name(self, /) -> str:
        """
        The name as it stands in Redis, prefix and all.
        """
    def release(self, /) -> None:
        """
        Releases the caller's innermost level. The last one frees the lock.

        Raises `NotOwner` when the caller holds nothing, `LockLost` when the hold ended before this,
        `ReleaseUnknown` when the server did not answer. Nothing of another owner is touched.
        """
    def release_async(self, /) -> Coroutine[Any, Any, None]:
        """
        The twin of `release` for coroutines. Cancelled, it goes on in the background.
        """
    def remaining(self, /) -> float | None:
        """
        In how many seconds the server would free it: `None` when it is free, `inf` when it has no expiry.
        """
    def remaining_async(self, /) -> Coroutine[Any, Any, float | None]:
        """
        The twin of `remaining` for coroutines.
        """
    def try_acquire(
        self, /, wait: float | timedelta | None = ..., lease: float | timedelta | None = ...
    ) -> Hold | None:
        """
        The hold, or `None` when another holds the lock: one try, or as long as `wait` says.

        Otherwise as `acquire`.

        ```python
        if (hold := lock.try_acquire()) is not None:
            with hold:
                tidy_up()
        ```
        """
    def try_acquire_async(
        self, /, wait: float | timedelta | None = ..., lease: float | timedelta | None = ...
    ) -> Coroutine[Any, Any, Hold | None]:
        """
        The twin of `try_acquire` for coroutines.
        """

def connect(
    url: str | None = None,
    *,
    watchdog: float | timedelta = ...,
    op_timeout: float | timedelta = ...,
    connect_timeout: float | timedelta = ...,
    unreachable_after: float | timedelta = ...,
    max_hold: float | timedelta | None = ...,
    local_reentry: bool = False,
    allow_blocking_in_loop: bool = False,
    name_prefix: str = ...,
    tls_ca: str | bytes | None = None,
    tls_certificate: str | bytes | None = None,
    tls_key: str | bytes | None = None,
    tls_without_verification: bool = False,
) -> Client:
    """
    Connects to a Redis or Valkey server, at the first call that needs it.

    Does no I/O and starts no thread. `url` is `redis://user:password@host:6379/0`, `rediss://` for TLS or
    `unix:///run/redis.sock`; without it `BANDOG_URL`, then `REDIS_URL`, then `redis://127.0.0.1:6379`.
    The server must be Redis 6.2 or Valkey 7.2 at least.

    Durations are seconds, as a number or a `timedelta`:

    - `watchdog` (30): the lease of a hold without one of its own, renewed every third of it.
    - `op_timeout` (3): how long one request may stay without an answer.
    - `connect_timeout` (5): how long connecting, TLS and login may take together.
    - `unreachable_after` (30): how long a wait without an end goes on while no server answers.
    - `max_hold` (never): after how long the watchdog gives up a hold.

    `local_reentry`: a re-entry may be answered without asking the server. `allow_blocking_in_loop`: calls
    that block are allowed where an event loop runs, as in notebooks. `name_prefix` goes in front of every
    name. `tls_ca` is PEM text of the certificates that may vouch for the server instead of the system's;
    `tls_certificate` and `tls_key` are shown to a server that asks; `tls_without_verification` accepts any
    server and is for tests only.

    Raises `InvalidUrl`, `InvalidLease` for the watchdog, `InvalidOption` for the rest.

    ```python
    with bandog.connect("redis://localhost:6379/0", watchdog=15) as client:
        with client.lock("order_lock"):
            ship_order()
    ```
    """
