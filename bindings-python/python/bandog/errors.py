"""What can go wrong, one class for each stable code.

Every error is a :class:`LockError` and carries ``code``, the ``name`` of the lock and its ``owner`` where they
are known. The text says what happened and what to do; it never holds a password. All of them pickle.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BlockingInLoop",
    "Closed",
    "ForkedHandle",
    "InvalidLease",
    "InvalidName",
    "InvalidOption",
    "InvalidUrl",
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
]


class LockError(Exception):
    """The base of every error of this package."""

    code: ClassVar[str] = "error"
    """The stable code: the same text in every language that Bandog speaks."""

    name: str | None
    """The lock it is about, as it stands in Redis."""

    owner: str | None
    """The owner it is about: ``<client uuid>:<hold number>`` as in the lock's hash."""

    def __init__(self, message: str = "", *, name: str | None = None, owner: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.owner = owner


class LockTimeout(LockError, TimeoutError):
    """The lock was not to be had within the wait asked for."""

    code = "timeout"


class NotOwner(LockError, RuntimeError):
    """The caller holds nothing that it could release or extend. Keep the handle that ``acquire`` returned."""

    code = "not_owner"


class LockLost(NotOwner):
    """The hold ended before the section that it guarded: another may hold the lock by now."""

    code = "lock_lost"


class ReleaseUnknown(LockError):
    """A release was sent and never answered. It is repeated in the background; releasing again is allowed."""

    code = "release_unknown"

    free_at_latest: float | None
    """In how many seconds from the report the lock is free at the latest."""

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        owner: str | None = None,
        free_at_latest: float | None = None,
    ) -> None:
        super().__init__(message, name=name, owner=owner)
        self.free_at_latest = free_at_latest


class NotReplicated(LockError):
    """Fewer replicas acknowledged the grant than were asked for; the grant was given back."""

    code = "not_replicated"


class PermissionDenied(LockError, PermissionError):
    """The server refused the user, the password, a command, a key or a channel."""

    code = "permission_denied"


class WrongType(LockError):
    """The key holds something that is not a lock of this kind. Nothing was written."""

    code = "wrong_type"


class ReadOnly(LockError):
    """The server is a replica and takes no writes."""

    code = "read_only"


class OutOfMemory(LockError):
    """The server has no memory left for the lock's key."""

    code = "out_of_memory"


class Unreachable(LockError, ConnectionError):
    """No server answered."""

    code = "unreachable"


class Protocol(LockError):
    """The server answered with something that is not the protocol, or is older than Redis 6.2."""

    code = "protocol"


class ForkedHandle(LockError):
    """The hold belongs to the process that this one was forked from. Acquire the lock anew."""

    code = "forked_handle"


class Closed(LockError):
    """The client was closed."""

    code = "closed"


class InvalidName(LockError, ValueError):
    """The name of the lock is empty, too long, not text, or a helper key of another lock."""

    code = "invalid_name"


class InvalidLease(LockError, ValueError):
    """The lease is not a span that a server can keep: at least 10 ms, in seconds or as a ``timedelta``."""

    code = "invalid_lease"


class InvalidUrl(LockError, ValueError):
    """The URL does not describe a server."""

    code = "invalid_url"


class InvalidOption(LockError, ValueError):
    """A wait or an option of the client is out of range."""

    code = "invalid_option"


class BlockingInLoop(LockError, RuntimeError):
    """A call that blocks was made in a thread whose event loop is running. The text names the method to await."""

    code = "blocking_in_loop"
