"""Bandog from a Python thread."""

from common import address, measure

import bandog

host, port, pairs = address()
with bandog.connect(f"redis://{host}:{port}") as client:
    lock = client.lock("bench:bandog")

    def pair() -> None:
        lock.acquire().release()

    measure(pair, pairs)
