"""Who may enter again: the task, else the greenlet, else the thread (S7, design 3)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import bandog
from conftest import Program


def test_another_thread_is_another_owner(client: bandog.Client, name: str) -> None:
    lock = client.lock(name)
    got: list[Any] = []

    def another() -> None:
        got.append(lock.count)
        got.append(lock.try_acquire())
        try:
            lock.release()
        except bandog.NotOwner as error:
            got.append(error)

    with lock as hold:
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
        assert hold.valid
        assert hold.count == 1
    assert got[:2] == [0, None]
    assert isinstance(got[2], bandog.NotOwner)
    assert not isinstance(got[2], bandog.LockLost)
    assert str(got[2]).startswith(f'lock "{name}": attempt to unlock lock, not locked by current thread by node id: ')


def test_threads_of_one_ident_are_not_one_owner(client: bandog.Client, name: str) -> None:
    """Idents are used again as soon as a thread has ended; a hold kept by its handle must not pass on."""
    lock = client.lock(name)
    seen: list[tuple[int, Any]] = []
    threads = [
        threading.Thread(target=lambda: seen.append((threading.get_ident(), lock.try_acquire()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
        thread.join()
    assert seen[0][1] is not None
    assert [hold for _, hold in seen[1:]] == [None, None, None]
    seen[0][1].release()


def test_a_child_task_is_another_owner(client: bandog.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)

        async def child() -> None:
            assert lock.count == 0
            assert await lock.try_acquire_async() is None
            with pytest.raises(bandog.NotOwner):
                await lock.release_async()

        async with lock:
            await asyncio.create_task(child())
            await asyncio.to_thread(lambda: lock.held() and pytest.fail("a thread is not the task"))
            assert lock.count == 1

    asyncio.run(main())


def test_a_task_is_one_owner_across_objects_and_sync_calls(url: str, name: str) -> None:
    async def main() -> None:
        client = bandog.connect(url, allow_blocking_in_loop=True)
        async with client.lock(name) as outer:
            with client.lock(name) as inner:
                assert inner.owner == outer.owner
        await client.close_async()

    asyncio.run(main())


def test_the_handle_works_from_any_task(client: bandog.Client, name: str) -> None:
    async def main() -> None:
        hold = await client.lock(name).acquire_async()
        await asyncio.create_task(hold.release_async())
        assert not await client.lock(name).locked_async()
        hold = await client.lock(name).acquire_async()
        level = await asyncio.create_task(hold.reenter_async())
        assert hold.count == 2
        await level.release_async()
        await hold.release_async()

    asyncio.run(main())


def test_a_block_may_be_left_by_another_task(client: bandog.Client, name: str) -> None:
    async def main() -> None:
        lock = client.lock(name)
        await asyncio.create_task(lock.__aenter__())
        await asyncio.create_task(lock.__aexit__(None, None, None))
        assert not await lock.locked_async()
        with pytest.raises(bandog.NotOwner, match="keep the handle"):
            await lock.__aexit__(None, None, None)

    asyncio.run(main())


def test_plain_greenlets_are_owners(client: bandog.Client, name: str) -> None:
    import greenlet

    lock = client.lock(name)
    with lock:
        assert greenlet.greenlet(lambda: lock.try_acquire()).switch() is None
        assert greenlet.greenlet(lambda: lock.count).switch() == 0
        assert lock.count == 1


def test_gevent_greenlets_take_turns_and_let_each_other_run(program: Callable[[str], Any], name: str) -> None:
    one = program(f"""
        from gevent import monkey; monkey.patch_all()
        import gevent
        lock = client.lock({name!r})
        inside, most, turns, ticks = 0, 0, 0, 0
        def tick():
            global ticks
            while turns < 20:
                ticks += 1
                gevent.sleep(0.001)
        def work():
            global inside, most, turns
            with lock:
                with lock:
                    inside += 1; most = max(most, inside)
                    gevent.sleep(0.005)
                    inside -= 1; turns += 1
        jobs = [gevent.spawn(work) for _ in range(20)]
        ticker = gevent.spawn(tick)
        gevent.joinall(jobs)
        print(most, turns, ticks > 20)
        with lock:
            killed = gevent.spawn(work)
            gevent.sleep(0.05)
            killed.kill()
        print(lock.locked())
        client.close()
    """)
    code, out, err = one.end()
    assert (code, out.split("\n")[:2], err) == (0, ["1 20 True", "False"], "")


def test_a_greenlet_that_ended_holds_nothing_for_long(program: Callable[[str], Any], name: str) -> None:
    one = program(f"""
        import gevent
        client = bandog.connect(url, watchdog=0.5)
        gevent.spawn(lambda: client.lock({name!r}).acquire() and None).join()
        print(client.lock({name!r}).try_acquire(wait=1.5) is not None)
    """)
    code, out, err = one.end()
    assert (code, out.strip(), err) == (0, "True", "")


@pytest.mark.parametrize("what", ["events", "close", "with"])
def test_gevent_runs_on_beside_events_and_close(own_server: Any, what: str) -> None:
    """The hub ticks while one greenlet waits for an event, or for a server that does not answer."""
    one = Program(
        own_server.url,
        f"""
        from gevent import monkey; monkey.patch_all()
        import gevent
        what, pid = {what!r}, {own_server.process.pid}
        client = bandog.connect(url, op_timeout=1)
        ticks = []
        def tick():
            while True:
                ticks.append(time.monotonic())
                gevent.sleep(0.005)
        lock = client.lock("x")
        lock.acquire()
        events = client.events()
        got = []
        def listen():
            for event in events: got.append(event.kind)
        if what == "events":
            readers = [gevent.spawn(listen) for _ in range(3)]
            ticker = gevent.spawn(tick)
            gevent.sleep(0.5)
            ahead = len(ticks)
            lock.release()
            lock.acquire()
            gevent.sleep(0.1)
            killed = readers.pop()
            killed.kill()
            events.close()
            gevent.joinall(readers, timeout=5, raise_error=True)
            assert sorted(got) == ["acquired", "released"], got
        else:
            os.kill(pid, 19)
            ticker = gevent.spawn(tick)
            gevent.sleep(0.01)
            if what == "close": client.close()
            else:
                with client: pass
            os.kill(pid, 18)
            ahead = len(ticks)
        # Without the hub there is none at all.
        assert ahead > 20, ahead
        print("fine")
        """,
    )
    assert one.end() == (0, "fine\n", "")
