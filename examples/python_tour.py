"""A walk past every public name of `bandog`. Run it against a Redis of your own:

BANDOG_URL=redis://127.0.0.1:6379 python examples/python_tour.py
"""

from __future__ import annotations

import asyncio
import sys
import threading
from datetime import timedelta

import bandog
from bandog import (
    BlockingInLoop,
    Client,
    Closed,
    Event,
    Events,
    ForkedHandle,
    Hold,
    InvalidLease,
    InvalidName,
    InvalidOption,
    InvalidUrl,
    Lock,
    LockError,
    LockLost,
    LockTimeout,
    NotOwner,
    NotReplicated,
    OutOfMemory,
    PermissionDenied,
    Protocol,
    ReadOnly,
    ReleaseUnknown,
    Unreachable,
    WrongType,
    connect,
    default_client,
    lock,
    locked,
)


def blocks() -> None:
    """The whole of it, most of the time."""
    with lock("tour") as hold:
        hold.check()  # before each effect that needs the lock


def handles(client: Client) -> None:
    """Without a block: keep the hold, it works from any thread."""
    tour: Lock = client.lock("tour", wait=timedelta(seconds=5))
    hold: Hold = tour.acquire(wait=5, lease=10)
    stop = threading.Event()
    hold.on_lost(stop.set)
    print(f"{hold.name} is held by {hold.owner}, {hold.count} deep, for {hold.remaining():.1f} s yet")
    assert hold.valid
    assert hold.lost is None
    assert hold.token is None  # a plain lock has no fencing token
    hold.extend(20)
    with hold.reenter():
        assert tour.count == 2
    hold.release()

    maybe: Hold | None = tour.try_acquire()
    if maybe is not None:
        with maybe:
            print(f"{tour.name}: held {tour.held()}, locked {tour.locked()}, {tour.remaining()} s on the server")
    tour.acquire()
    tour.release()
    print(f"forced: {tour.force_release()}")


def errors(client: Client) -> None:
    """Each error has a class, a code, and says what to do."""
    try:
        client.lock("tour").release()
    except LockLost as error:
        print(f"it was ours, and ended too early: {error}")
    except NotOwner as error:
        print(f"{error.code}: {error} ({error.name}, {error.owner})")
    try:
        with client.lock("tour", wait=1):
            pass
    except LockTimeout:
        print("another holds it")
    except ReleaseUnknown as error:
        print(f"free in {error.free_at_latest} s at the latest")
    except (Unreachable, PermissionDenied, Protocol, ReadOnly, OutOfMemory, WrongType, NotReplicated) as error:
        print(f"the server: {error.code}")
    except (Closed, ForkedHandle, BlockingInLoop) as error:
        print(f"our own doing: {error.code}")
    except LockError:
        raise
    for wrong in (lambda: client.lock(""), lambda: client.lock("x", wait=-1), lambda: connect("nowhere")):
        try:
            wrong()
        except (InvalidName, InvalidLease, InvalidOption, InvalidUrl) as error:
            print(f"{error.code}: {error}")


@locked("tour:{order_id}", wait=5)
def ship(order_id: int) -> str:
    return f"order {order_id} shipped"


@locked("tour:nightly", when_busy="skip")
async def nightly() -> int:
    return 42


def show(event: Event) -> None:
    print(f"  {event.kind} {event.name} {event.count} {event.why} {event.remaining} {event.text}")


def listen(client: Client) -> None:
    with client.events(capacity=100) as events:
        with client.lock("tour"):
            pass
        show(next(events))
        show(next(events))
        assert events.dropped == 0


async def coroutines(client: Client) -> None:
    """Every method that talks to the server has a twin to await."""
    tour = client.lock("tour")
    events: Events = tour.events()
    async with tour as hold:
        await hold.extend_async(timedelta(seconds=40))
        level = await hold.reenter_async()
        await level.release_async()
        print(await tour.locked_async(), await tour.remaining_async())
    async for event in events:
        show(event)
        if event.kind == "released":
            events.close()
    hold = await tour.acquire_async(wait=1, lease=5)
    async with hold:
        pass
    maybe = await tour.try_acquire_async()
    if maybe is not None:
        await tour.release_async()
    print(await tour.force_release_async())
    result: int | None = await nightly()
    print(result)


async def main_async() -> None:
    async with connect(watchdog=15, op_timeout=2) as client:
        await coroutines(client)
    other = connect()
    await other.close_async()


def main() -> None:
    print(f"bandog {bandog.__version__}", file=sys.stderr)
    blocks()
    with connect(
        watchdog=30,
        op_timeout=3,
        connect_timeout=timedelta(seconds=5),
        unreachable_after=30,
        max_hold=None,
        local_reentry=False,
        allow_blocking_in_loop=False,
        name_prefix="",
    ) as client:
        handles(client)
        errors(client)
        listen(client)
    assert client.closed
    print(ship(order_id=5))
    asyncio.run(main_async())
    default_client().close()


if __name__ == "__main__":
    main()
