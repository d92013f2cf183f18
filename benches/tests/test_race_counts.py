"""What a client sent is told from what its scripts called, down to the command."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
import redis
from benches.race.counts import Counting, commands
from benches.race.server import Server

SCRIPT = """
redis.call('set', 'a', 1) redis.call('get', 'a') redis.call('publish', 'news', 1)
redis.pcall('object', 'encoding', 'a') redis.pcall('lpush', 'a', 1) return 1
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(None) as server:
        yield server


def test_sent_and_inner_commands_of_the_same_name(server: Server) -> None:
    client = redis.Redis(port=server.port)
    client.ping()
    counting = Counting(server)
    # Twice: nothing of the first may be left in the second.
    for _ in range(2):
        counting.start()
        client.set("a", 1)
        client.get("a")
        client.publish("news", 1)
        for _ in range(3):
            client.eval(SCRIPT, 0)
        client.client_getname()
        counts = counting.stop()
        assert counts.sent == Counter({"eval": 3, "set": 1, "get": 1, "publish": 1, "client|getname": 1})
        # One that is refused for the type of its key was a command all the same.
        assert counts.inner == Counter({"set": 3, "get": 3, "publish": 3, "object|encoding": 3, "lpush": 3})


def test_subscriptions_and_blocked_commands_count(server: Server) -> None:
    waiter = redis.Redis(port=server.port, single_connection_client=True)
    waiter.ping()
    ears = redis.Redis(port=server.port).pubsub()
    ears.subscribe("before")
    assert ears.get_message(timeout=5)
    client = redis.Redis(port=server.port)
    client.ping()
    counting = Counting(server)
    counting.start()
    ears.subscribe("news")
    assert ears.get_message(timeout=5)
    blocked = threading.Thread(target=waiter.blpop, args=("queue", 5))
    blocked.start()
    deadline = time.monotonic() + 5
    while server.link.info("clients")["blocked_clients"] == 0 and time.monotonic() < deadline:
        pass
    client.rpush("queue", 1)
    blocked.join()
    counts = counting.stop()
    asked = counts.sent.pop("info")
    assert asked > 0
    assert counts.sent == Counter({"subscribe": 1, "blpop": 1, "rpush": 1})
    assert not counts.inner


def test_no_log_is_kept_outside(server: Server) -> None:
    client = redis.Redis(port=server.port)
    Counting(server).start()
    client.set("a", 1)
    before = commands(server.link.info("commandstats"))
    assert before["set"] == 1
    counting = Counting(server)
    counting.start()
    counting.stop()
    client.set("a", 1)
    assert server.link.slowlog_len() == 0
