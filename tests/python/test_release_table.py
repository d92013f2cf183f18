"""What a release reports: every row of the table in design 3, in Redisson's words."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import bandog
from conftest import eventually
from support.proxy import FaultProxy

WORDING = (
    r"attempt to unlock lock, not locked by current thread by node id: "
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12} thread-id: -?\d+"
)
ANOTHER = "285475da-9152-4c83-822a-67ee2f116a79:52"


def take(raw: redis.Redis, name: str) -> None:
    """Another has it now."""
    raw.delete(name)
    raw.hset(name, ANOTHER, 1)
    raw.pexpire(name, 30_000)


def test_valid_and_freed_or_still_held(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    lock = client.lock(name)
    outer, inner = lock.acquire(), lock.acquire()
    inner.release()
    assert raw.hget(name, outer.owner) == "1"
    outer.release()
    assert not raw.exists(name)


@pytest.mark.parametrize("how", ["deleted", "taken", "forced"])
def test_valid_and_not_ours(client: bandog.Client, other: bandog.Client, raw: redis.Redis, name: str, how: str) -> None:
    hold = client.lock(name).acquire()
    assert hold.valid
    match how:
        case "deleted":
            raw.delete(name)
        case "taken":
            take(raw, name)
        case _:
            assert other.lock(name).force_release()
    with pytest.raises(bandog.LockLost, match=WORDING) as caught:
        hold.release()
    assert isinstance(caught.value, bandog.NotOwner)
    assert caught.value.code == "lock_lost"
    assert (caught.value.name, caught.value.owner) == (name, hold.owner)
    assert str(caught.value).count(hold.owner.split(":")[0]) == 1
    assert re.search(rf"thread-id: {hold.owner.split(':')[1]}\b", str(caught.value))
    assert not hold.valid
    assert raw.hgetall(name) == ({ANOTHER: "1"} if how == "taken" else {})


@pytest.mark.parametrize("after", ["free", "taken"])
def test_valid_and_not_ours_but_our_earlier_send_did_it(url: str, raw: redis.Redis, name: str, after: str) -> None:
    with FaultProxy(url) as proxy, bandog.connect(proxy.url) as client, ThreadPoolExecutor(1) as pool:
        hold = client.lock(name).acquire()
        proxy.tell(f"lose {name} reset")
        # Time for another to come between the send that freed it and the one that asks again.
        proxy.tell("delay up 200 on next")
        releasing = pool.submit(hold.release)
        eventually(lambda: not raw.exists(name))
        if after == "taken":
            take(raw, name)
        releasing.result(5)
        assert raw.hgetall(name) == ({ANOTHER: "1"} if after == "taken" else {})
        assert not hold.valid
        with pytest.raises(bandog.NotOwner):
            hold.release()


@pytest.mark.parametrize("after", ["free", "taken"])
def test_lost_by_its_deadline(client: bandog.Client, raw: redis.Redis, name: str, after: str) -> None:
    hold = client.lock(name).acquire(lease=0.3)
    eventually(lambda: hold.lost == "expired", 1)
    if after == "taken":
        take(raw, name)
    with pytest.raises(bandog.LockLost, match=WORDING):
        hold.release()
    assert raw.hgetall(name) == ({ANOTHER: "1"} if after == "taken" else {})


def test_s4_in_the_margin_nothing_is_sent_but_by_a_release(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    """Past its deadline, before the server lets go: nobody has it, nobody may use it, a release reports the loss."""
    holds = [client.lock(f"{name}:{n}").acquire(lease=1.5 + 0.1 * n) for n in range(10)]
    still_there = 0
    for n, hold in enumerate(holds):
        eventually(lambda hold=hold: not hold.valid, 4)
        still_there += raw.hgetall(hold.name) == {hold.owner: "1"}
        if n % 2:
            with pytest.raises(bandog.LockLost, match="expired"):
                hold.release()
            assert not raw.exists(hold.name)
    # One look that came a margin too late is the machine's.
    assert still_there >= 8
    for hold in holds[::2]:
        eventually(lambda hold=hold: not raw.exists(hold.name), 0.5)
        assert hold.lost == "expired"


def test_no_answer_within_op_timeout(url: str, raw: redis.Redis, name: str) -> None:
    with FaultProxy(url) as proxy, bandog.connect(proxy.url, op_timeout=0.5, watchdog=20) as client:
        hold = client.lock(name).acquire()
        proxy.tell("stall both")
        start = time.monotonic()
        with pytest.raises(bandog.ReleaseUnknown) as caught:
            hold.release()
        assert 0.45 <= time.monotonic() - start < 0.7
        assert caught.value.code == "release_unknown"
        assert caught.value.free_at_latest is not None
        assert 15 < caught.value.free_at_latest <= 20
        assert not hold.valid
        assert raw.exists(name)
        # The keeper goes on trying.
        proxy.tell("pass")
        eventually(lambda: not raw.exists(name), 3)


def test_a_release_may_be_called_again_after_it_was_unknown(url: str, raw: redis.Redis, name: str) -> None:
    with FaultProxy(url) as proxy, bandog.connect(proxy.url, op_timeout=0.3) as client:
        hold = client.lock(name).acquire()
        proxy.tell("stall both")
        for _ in range(2):
            with pytest.raises(bandog.ReleaseUnknown):
                hold.release()
        proxy.tell("pass")
        hold.release()
        assert not raw.exists(name)


def test_who_holds_nothing(client: bandog.Client, other: bandog.Client, raw: redis.Redis, name: str) -> None:
    with pytest.raises(bandog.NotOwner, match=WORDING) as caught:
        client.lock(name).release()
    assert not isinstance(caught.value, bandog.LockLost)
    assert caught.value.code == "not_owner"
    hold = client.lock(name).acquire()
    with pytest.raises(bandog.NotOwner, match=WORDING):
        other.lock(name).release()
    assert raw.hgetall(name) == {hold.owner: "1"}
    hold.release()
    with pytest.raises(bandog.NotOwner):
        hold.release()


def test_who_carries_a_lost_hold_is_told_once_at_its_next_acquire(
    client: bandog.Client, raw: redis.Redis, name: str
) -> None:
    hold = client.lock(name).acquire(lease=0.3)
    eventually(lambda: not raw.exists(name), 1)
    with pytest.raises(bandog.LockLost):
        client.lock(name).acquire()
    fresh = client.lock(name).acquire()
    assert fresh.owner != hold.owner
    assert raw.hgetall(name) == {fresh.owner: "1"}
    fresh.release()
