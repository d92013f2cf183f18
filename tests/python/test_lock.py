"""The face of a lock, for threads."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis

import bandog
from conftest import eventually


def test_a_block_holds_the_lock_and_frees_it(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    lock = client.lock(name)
    with lock as hold:
        assert hold.valid
        assert hold.lost is None
        assert hold.token is None
        assert (hold.name, hold.count, lock.count, lock.held()) == (name, 1, 1, True)
        assert 26 < hold.remaining() <= 27
        assert raw.hgetall(name) == {hold.owner: "1"}
        assert 29_000 < raw.pttl(name) <= 30_000
        hold.check()
    assert not raw.exists(name)
    assert not hold.valid
    assert hold.remaining() == 0
    assert lock.held() is False


def test_a_fixed_lease_is_not_renewed_and_ends_on_time(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    hold = client.lock(name, lease=timedelta(milliseconds=600)).acquire()
    assert raw.pttl(name) <= 600
    eventually(lambda: not raw.exists(name), 1)
    assert hold.lost == "expired"
    with pytest.raises(bandog.LockLost):
        hold.check()


def test_reentry_counts_and_only_the_last_release_frees(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    lock = client.lock(name)
    with lock as outer:
        with client.lock(name) as inner:
            assert outer.owner == inner.owner
            assert (outer.count, lock.count) == (2, 2)
            assert raw.hgetall(name) == {outer.owner: "2"}
        assert raw.hgetall(name) == {outer.owner: "1"}
    assert not raw.exists(name)


def test_a_fresh_hold_has_a_fresh_number(client: bandog.Client, name: str) -> None:
    lock = client.lock(name)
    with lock as first:
        pass
    with lock as second:
        pass
    assert first.owner.split(":")[0] == second.owner.split(":")[0]
    assert first.owner != second.owner


def test_busy_is_none_or_a_timeout(client: bandog.Client, other: bandog.Client, name: str) -> None:
    with other.lock(name):
        lock = client.lock(name)
        assert lock.try_acquire() is None
        took = []
        for _ in range(5):
            start = time.monotonic()
            with pytest.raises(bandog.LockTimeout) as caught:
                lock.acquire(wait=0.2)
            took.append(time.monotonic() - start)
        assert min(took) >= 0.19
        assert statistics.median(took) < 0.25
        assert max(took) < 1
        assert caught.value.name == name
        assert caught.value.code == "timeout"
        with pytest.raises(bandog.LockTimeout), client.lock(name, wait=0):
            pass


def test_l2_a_waiter_is_woken_by_the_release(client: bandog.Client, other: bandog.Client, name: str) -> None:
    hold = other.lock(name).acquire()
    got: list[float] = []
    waiting = threading.Event()

    def wait() -> None:
        with client.lock(name).events() as events:
            watcher = threading.Thread(target=lambda: (next(events), waiting.set()))
            watcher.start()
            with client.lock(name):
                got.append(time.monotonic())
            watcher.join()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(5)
    time.sleep(0.1)  # until its subscription stands; nothing outside can see that
    released = time.monotonic()
    hold.release()
    thread.join()
    assert got[0] - released < 0.05


def test_extend_prolongs_a_fixed_hold(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    with client.lock(name, lease=1) as hold:
        hold.extend(20)
        assert raw.pttl(name) > 19_000
        hold.extend(timedelta(seconds=1))
        assert raw.pttl(name) > 18_000
        assert hold.remaining() > 17


def test_force_release_tells_the_holder(client: bandog.Client, other: bandog.Client, name: str) -> None:
    hold = client.lock(name).acquire()
    assert other.lock(name).force_release() is True
    assert other.lock(name).force_release() is False
    with pytest.raises(bandog.LockLost, match="attempt to unlock lock, not locked by current thread by node id"):
        hold.release()


def test_locked_and_remaining_ask_the_server(client: bandog.Client, other: bandog.Client, name: str) -> None:
    lock = other.lock(name)
    assert lock.locked() is False
    assert lock.remaining() is None
    with client.lock(name):
        assert lock.locked() is True
        assert lock.held() is False
        left = lock.remaining()
        assert left is not None
        assert 29 < left <= 30


def test_a_hold_is_a_block_too(client: bandog.Client, name: str) -> None:
    lock = client.lock(name)
    with lock.acquire() as hold:
        assert hold.valid
    assert not lock.locked()


def test_leaving_after_an_explicit_release_does_nothing(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    lock = client.lock(name)
    with lock as hold:
        hold.release()
    with lock:
        lock.release()
    with lock.acquire() as hold:
        hold.release()
    with lock:
        with lock as inner:
            inner.release()
        assert raw.hget(name, inner.owner) == "1"
    with pytest.raises(bandog.NotOwner):
        hold.release()


def test_leaving_after_a_release_never_frees_another_block(client: bandog.Client, name: str) -> None:
    lock = client.lock(name)
    entered, leave = threading.Event(), threading.Event()
    state: list[bool] = []

    def another() -> None:
        with lock as hold:
            entered.set()
            leave.wait(5)
            state.append(hold.valid)

    with lock as hold:
        hold.release()
        thread = threading.Thread(target=another)
        thread.start()
        assert entered.wait(5)
    leave.set()
    thread.join()
    assert state == [True]


def test_leaving_a_block_after_a_loss_raises(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    with pytest.raises(bandog.LockLost), client.lock(name):
        raw.delete(name)


def test_a_loss_is_a_note_when_the_body_raised(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    with pytest.raises(ZeroDivisionError) as caught, client.lock(name):
        raw.delete(name)
        _ = 1 / 0
    assert any("not locked by current thread" in note for note in caught.value.__notes__)


def test_s7_the_handle_works_from_any_thread(client: bandog.Client, name: str) -> None:
    hold = client.lock(name).acquire()
    thread = threading.Thread(target=hold.release)
    thread.start()
    thread.join()
    assert not client.lock(name).locked()


def test_reenter_adds_a_level_for_another_thread(client: bandog.Client, raw: redis.Redis, name: str) -> None:
    hold = client.lock(name).acquire()
    levels: list[bandog.Hold] = []
    thread = threading.Thread(target=lambda: levels.append(hold.reenter()))
    thread.start()
    thread.join()
    hold.release()
    assert raw.hgetall(name) == {hold.owner: "1"}
    levels[0].release()
    assert not raw.exists(name)


def test_l9_a_discarded_hold_keeps_the_lock_while_its_thread_lives(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, watchdog=0.5) as client:
        client.lock(name).acquire()
        time.sleep(1)
        assert raw.exists(name)
        client.lock(name).release()

        thread = threading.Thread(target=lambda: client.lock(name).acquire())
        thread.start()
        thread.join()
        # L + L/3, and what a loaded machine adds
        eventually(lambda: not raw.exists(name), 1.2)


def test_events_tell_what_happened(client: bandog.Client, other: bandog.Client, name: str) -> None:
    with client.lock(name).events() as events:
        with client.lock(name):
            pass
        assert [next(events).kind for _ in range(2)] == ["acquired", "released"]
        with other.lock(name):
            assert client.lock(name).try_acquire(wait=0.3) is None
        event = next(events)
        assert (event.kind, event.name) == ("contended", name)
        assert "contended" in repr(event)
        assert events.dropped == 0
        threading.Timer(0.05, events.close).start()
        assert list(events) == []


def test_closing_releases_and_ends_every_wait(url: str, raw: redis.Redis, name: str) -> None:
    client = bandog.connect(url)
    with bandog.connect(url) as other:
        hold = other.lock(name).acquire()
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                client.lock(name).acquire()
            except bandog.Closed as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        with client.lock(name).events() as events:
            thread.start()
            assert next(events).kind == "contended"
        own = client.lock(name + ":own").acquire()
        client.close()
        client.close()
        thread.join()
        hold.release()
    assert len(failed) == 1
    assert not raw.exists(name + ":own")
    assert client.closed
    assert own.valid is False
    with pytest.raises(bandog.Closed):
        client.lock(name).acquire()


def test_a_hundred_threads_take_turns(client: bandog.Client, name: str) -> None:
    lock = client.lock(name)
    total = 0
    inside = 0

    def work() -> None:
        nonlocal total, inside
        for _ in range(5):
            with lock:
                inside += 1
                assert inside == 1
                seen = total
                time.sleep(0)
                total = seen + 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == 500


def test_l8_a_c_call_that_keeps_the_gil_for_ten_leases(url: str, name: str, program: Callable[[str], object]) -> None:
    import ctypes

    with bandog.connect(url, watchdog=0.6) as client, client.lock(name) as hold:
        rival = program(f"""
            print("ready")
            start = time.monotonic()
            print(client.lock({name!r}).try_acquire(wait=5.5))
        """)
        assert rival.line() == "ready"  # type: ignore[attr-defined]
        ctypes.PyDLL(None).usleep(6_000_000)
        assert hold.valid
        assert rival.line() == "None"  # type: ignore[attr-defined]
