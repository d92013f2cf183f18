"""L7, S1: who is cut off is told, and stops being valid, before anyone else can have the lock."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import bandog
from conftest import Server, eventually
from support.proxy import FaultProxy
from support.redisserver import pause, restart, resume, until_waiting

ANOTHER = "285475da-9152-4c83-822a-67ee2f116a79:52"


class Story:
    """When a holder was told by callback, last seen valid, and when another was granted its lock."""

    def __init__(self, hold: bandog.Hold) -> None:
        self.hold = hold
        self.told: float | None = None
        self.last_valid = 0.0
        self.granted = 0.0
        self.why: str | None = None
        hold.on_lost(self._tell)

    def _tell(self) -> None:
        self.told = time.monotonic()
        self.why = self.hold.lost

    def look(self) -> None:
        now = time.monotonic()
        # Before the look: the hold was valid at some instant after this one.
        if self.hold.valid:
            self.last_valid = now


def watch(stories: list[Story], until: threading.Event) -> None:
    while not until.wait(0.002):
        for story in stories:
            story.look()


@pytest.mark.parametrize("stall", ["both", "up", "down"])
def test_l7_s1_link_stalled_under_a_holder(url: str, raw: redis.Redis, name: str, stall: str) -> None:
    count = 20
    names = [f"{name}:{n}" for n in range(count)]
    with FaultProxy(url) as proxy, bandog.connect(url) as others, ThreadPoolExecutor(2 * count) as pool:
        # Four clients of five holds each; their leases end at different instants of their renewal cycles.
        clients = [bandog.connect(proxy.url, watchdog=1 + 0.1 * n, op_timeout=0.5) for n in range(4)]
        holding = [pool.submit(clients[n % 4].lock(text).acquire) for n, text in enumerate(names)]
        stories = [Story(one.result(5)) for one in holding]
        losses = [client.events() for client in clients]

        def take(story: Story) -> bandog.Hold:
            hold = others.lock(story.hold.name).acquire(wait=10)
            story.granted = time.monotonic()
            return hold

        taking = [pool.submit(take, story) for story in stories]
        for text in names:
            until_waiting(raw, text)
        time.sleep(1)
        assert all(story.hold.valid for story in stories)
        over = threading.Event()
        looking = pool.submit(watch, stories, over)
        proxy.tell(f"stall {stall}")
        holds = [one.result(15) for one in taking]
        over.set()
        looking.result(5)
        for story in stories:
            assert story.told is not None, "nobody told it"
            assert story.told < story.granted
            assert story.last_valid < story.granted
            assert story.why == "expired"
            # The margin is 50 ms at least, and what of it is left when the other comes is not an accident.
            assert story.granted - story.last_valid > 0.02
        for events in losses:
            events.close()
            assert [event.kind for event in events if event.kind == "lost"] == ["lost"] * 5
        proxy.tell("pass")
        # The stale holders come back, and do no harm to those that hold now.
        for story in stories:
            with pytest.raises(bandog.LockLost):
                story.hold.release()
        assert all(hold.valid for hold in holds)
        assert all(raw.hgetall(hold.name) == {hold.owner: "1"} for hold in holds)
        for hold in holds:
            hold.release()
        for client in clients:
            client.close()


def test_l7_key_deleted_and_taken_is_told_within_a_third_of_the_lease(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.9) as client:
        stories = [Story(client.lock(f"{name}:{n}").acquire()) for n in range(20)]
        time.sleep(0.4)
        for story in stories:
            raw.delete(story.hold.name)
            raw.hset(story.hold.name, ANOTHER, 1)
            raw.pexpire(story.hold.name, 5_000)
        start = time.monotonic()
        eventually(lambda: all(story.told for story in stories), 2)
        assert max(story.told or 0 for story in stories) - start < 0.3 + 0.1
        for story in stories:
            assert story.why == "taken"
            assert not story.hold.valid
            assert raw.hgetall(story.hold.name) == {ANOTHER: "1"}
            raw.delete(story.hold.name)


def test_f01_server_paused_for_three_leases(own_server: Server) -> None:
    """Told at its deadline while nothing answers; the first word of the server afterwards changes nothing."""
    with bandog.connect(own_server.url, watchdog=0.6) as client:
        story = Story(client.lock("x").acquire())
        pause(own_server)
        start = time.monotonic()
        eventually(lambda: story.told, 2)
        assert (story.told or 0) - start < 0.6
        assert not story.hold.valid
        time.sleep(max(0.0, start + 1.8 - time.monotonic()))
        resume(own_server)
        assert not story.hold.valid
        with pytest.raises(bandog.LockLost):
            story.hold.check()
        with pytest.raises(bandog.LockLost):
            client.lock("x").acquire()
        with client.lock("x") as fresh:
            assert fresh.valid


def test_f01_server_paused_for_half_a_lease_is_survived(own_server: Server) -> None:
    with bandog.connect(own_server.url, watchdog=1.5) as client:
        stories = [Story(client.lock(f"x{n}").acquire()) for n in range(10)]
        for _ in range(3):
            pause(own_server)
            time.sleep(0.6)
            resume(own_server)
            time.sleep(0.4)
        assert all(story.hold.valid for story in stories)
        assert all(story.told is None for story in stories)


def test_f02_server_restarted_empty_is_told_on_reconnecting(own_server: Server) -> None:
    """Within 200 ms of the reconnect, which itself backs off to a second at most."""
    with bandog.connect(own_server.url, watchdog=3) as client:
        stories = [Story(client.lock(f"x{n}").acquire()) for n in range(10)]
        with client.events() as events:
            # From its first renewal on the keeper has a connection of its own.
            assert next(event.kind for event in events if event.kind == "renewed")
            restart(own_server)
            assert next(event.kind for event in events if event.kind == "link_up")
            up = time.monotonic()
            eventually(lambda: all(story.told for story in stories), 2)
        assert max(story.told or 0 for story in stories) - up < 0.2
        assert {story.why for story in stories} == {"taken"}
