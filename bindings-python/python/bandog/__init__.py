"""Distributed locks on Redis, on the same keys as Redisson.

    from bandog import lock

    with lock("order_lock"):
        ship_order()

A watchdog outside the GIL keeps the lease alive while the block runs; a holder is told that its lock is lost
before anyone else can get it.
"""

import atexit

from bandog import _native
from bandog._native import Client, Event, Events, Hold, Lock, __version__, connect
from bandog.decorator import locked
from bandog.default import default_client, lock
from bandog.errors import (
    BlockingInLoop,
    Closed,
    ForkedHandle,
    InvalidLease,
    InvalidName,
    InvalidOption,
    InvalidUrl,
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
)

__all__ = [
    "BlockingInLoop",
    "Client",
    "Closed",
    "Event",
    "Events",
    "ForkedHandle",
    "Hold",
    "InvalidLease",
    "InvalidName",
    "InvalidOption",
    "InvalidUrl",
    "Lock",
    "LockError",
    "LockLost",
    "LockTimeout",
    "NotOwner",
    "NotReplicated",
    "OutOfMemory",
    "PermissionDenied",
    "Protocol",
    "ReadOnly",
    "ReleaseUnknown",
    "Unreachable",
    "WrongType",
    "__version__",
    "connect",
    "default_client",
    "lock",
    "locked",
]

# Releases what is held if the server answers within 200 ms; our own threads never keep a program from ending.
atexit.register(_native._exit)  # type: ignore[attr-defined]  # pyright: ignore
