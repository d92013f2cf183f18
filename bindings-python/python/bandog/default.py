"""The client behind the module-level ``lock``."""

from __future__ import annotations

import os
import threading
from datetime import timedelta

from bandog._native import Client, Lock, connect

_guard = threading.Lock()
_client: Client | None = None


def default_client() -> Client:
    """The client that module-level functions use, made at the first call.

    Its URL is ``BANDOG_URL``, else ``REDIS_URL``, else ``redis://127.0.0.1:6379``. Making it does no I/O.
    """
    global _client
    client = _client
    if client is None or client.closed:
        with _guard:
            if _client is None or _client.closed:
                _client = connect()
            client = _client
    return client


def lock(name: str, wait: float | timedelta | None = None, lease: float | timedelta | None = None) -> Lock:
    """A lock on the default client: see :meth:`bandog.Client.lock`."""
    return default_client().lock(name, wait=wait, lease=lease)


def _after_fork_in_child() -> None:
    # Another thread of the parent may have held the guard; that thread does not exist here.
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
