"""L6: of a hundred renewed locks one is spoilt, two hundred times over; the other ninety-nine are never late."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis

import bandog
from conftest import Server, eventually

LEASE = 1.2
TROOPS = 8
ROUNDS = 25
ANOTHER = "285475da-9152-4c83-822a-67ee2f116a79:52"


class Troop:
    """A client with a hundred holds and a user of its own."""

    def __init__(self, server: Server, raw: redis.Redis, number: int) -> None:
        self.raw = raw
        self.user = f"u{number}"
        self.names = [f"k{number}:{n}" for n in range(100)]
        self.allow(self.names)
        url = server.url.replace("redis://", f"redis://{self.user}:x@")
        self.client = bandog.connect(url, watchdog=LEASE)
        self.holds = {name: self.client.lock(name).acquire() for name in self.names}
        self.spoilt: str | None = None
        self.doubtful = threading.Event()
        self.told = dict.fromkeys(self.names, 0)
        self.events = self.client.events(capacity=100_000)
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()

    def allow(self, names: list[str]) -> None:
        keys = [*names, "redisson_lock__channel:*"]
        self.raw.acl_setuser(
            self.user, enabled=True, nopass=True, reset_keys=True, keys=keys, channels="*", commands=["+@all"]
        )

    def listen(self) -> None:
        for event in self.events:
            if event.kind in ("doubtful", "lost"):
                assert event.name is not None
                self.told[event.name] += 1
                if event.name == self.spoilt:
                    self.doubtful.set()

    def round(self, number: int) -> None:
        name = self.names[number * 37 % 100]
        self.doubtful.clear()
        self.told[name] = 0
        self.spoilt = name
        how = number % 4
        if how == 0:
            self.raw.set(name, "spoilt", px=60_000)
        elif how == 1:
            self.raw.delete(name)
        elif how == 2:
            self.raw.delete(name)
            self.raw.hset(name, ANOTHER, 1)
            self.raw.pexpire(name, 60_000)
        else:
            self.allow([other for other in self.names if other != name])
        assert self.doubtful.wait(LEASE), f"{how}: not told"
        if how == 3:
            assert self.holds[name].valid
            self.allow(self.names)
            eventually(lambda: self.raw.pttl(name) > 1000 * LEASE * 0.7, LEASE)
            assert self.holds[name].valid
        else:
            assert self.holds[name].lost in ("taken", "overwritten")
            self.raw.delete(name)
            self.holds[name] = self.client.lock(name).acquire()
        self.spoilt = None
        self.told[name] = 0


def lateness(raw: redis.Redis, troops: list[Troop], until: threading.Event) -> tuple[int, str]:
    """The lowest time to live that was seen of any lock that nobody had spoilt."""
    lowest, whose = 10**9, ""
    while not until.wait(0.01):
        for troop in troops:
            before = troop.spoilt
            with raw.pipeline(transaction=False) as many:
                for name in troop.names:
                    many.pttl(name)
                for name, ttl in zip(troop.names, many.execute(), strict=True):
                    if ttl < lowest and name not in (before, troop.spoilt):
                        lowest, whose = ttl, name
    return lowest, whose


def test_l6_one_of_a_hundred_is_spoilt_two_hundred_times(own_server: Server) -> None:
    with redis.Redis.from_url(own_server.url, decode_responses=True) as raw, ThreadPoolExecutor(TROOPS + 1) as pool:
        troops = [Troop(own_server, raw, number) for number in range(TROOPS)]
        over = threading.Event()
        looking = pool.submit(lateness, raw, troops, over)

        def march(troop: Troop) -> None:
            for number in range(ROUNDS):
                troop.round(number)

        start = time.monotonic()
        try:
            for one in [pool.submit(march, troop) for troop in troops]:
                one.result(50)
        finally:
            over.set()
            for troop in troops:
                troop.events.close()
                troop.listener.join()
        lowest, whose = looking.result(5)
        assert lowest >= 1000 * LEASE / 2, f"{whose} was late"
        for troop in troops:
            # Neither doubtful nor lost, ever, but the one.
            assert not any(troop.told.values())
            assert all(hold.valid for hold in troop.holds.values())
            troop.client.close()
        assert time.monotonic() - start < 45
