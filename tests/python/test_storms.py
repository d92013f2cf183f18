"""R2, R3, L10: forks, closes and exits in the middle of everything, many times over: nothing hangs, nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import bandog
from conftest import Server, eventually

Start = Callable[[str], Any]


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)"])
def test_r3_forks_while_eight_threads_are_at_it(program: Start, raw: redis.Redis, name: str, ending: str) -> None:
    """Whatever the threads held locked at the fork, the child works; and the parent goes on as if nothing had been."""
    one = program(f"""
        import signal
        name = {name!r}
        stop = threading.Event()
        watched = bandog.connect(url, watchdog=0.9)
        held = watched.lock(name + ":held").acquire()
        turns = [0] * 8

        def work(n):
            while not stop.is_set():
                with client.lock(f"{{name}}:{{n % 3}}"):
                    turns[n] += 1

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads: thread.start()
        children = []
        for n in range(40):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                try: held.release()
                except bandog.ForkedHandle: pass
                else: os._exit(3)
                with client.lock(name + ":child") as own, client.lock(name + ":child"):
                    if not own.valid or own.count != 2: os._exit(4)
                if watched.lock(name + ":held").try_acquire() is not None: os._exit(5)
                if n % 2: client.close()
                {ending}
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        stop.set()
        for thread in threads: thread.join()
        assert codes == [0] * 40, codes
        assert min(turns) > 0
        held.check()
        held.release()
        print("fine")
    """)
    assert one.end(40) == (0, "fine\n", "")
    assert raw.keys(f"{name}*") == []


def test_r3_a_child_that_lives_on_keeps_no_connection_of_its_parent(own_server: Server, program: Start) -> None:
    with redis.Redis.from_url(own_server.url, decode_responses=True) as raw:
        one = program(f"""
            client = bandog.connect({own_server.url!r}, watchdog=0.6)
            hold = client.lock("x").acquire()
            with client.lock("warm"): pass
            time.sleep(0.4)
            if os.fork() == 0:
                print("child")
                sys.stdin.readline()
                os._exit(0)
            os.kill(os.getpid(), 9)
        """)
        assert one.line() == "child"
        one.process.wait(5)
        # Nothing is connected but this test, and nobody renews.
        eventually(lambda: [each for each in raw.client_list() if each["name"].startswith("bandog")] == [], 1)
        eventually(lambda: not raw.exists("x"), 0.6 + 0.2)
        one.process.stdin.write("go\n")
        one.process.stdin.flush()


OVER = (bandog.Closed, bandog.LockLost, bandog.NotOwner)


def take_turns(client: bandog.Client, name: str) -> bool:
    try:
        while True:
            with client.lock(name):
                pass
    except OVER:
        return True


async def take_turns_async(client: bandog.Client, name: str) -> bool:
    try:
        while True:
            async with client.lock(name):
                await asyncio.sleep(0)
    except OVER:
        return True


async def tasks(client: bandog.Client, name: str) -> bool:
    return all(await asyncio.gather(*(take_turns_async(client, f"{name}:{n % 5}") for n in range(15))))


def test_l10_closed_while_thirty_threads_and_tasks_are_at_it(url: str, raw: redis.Redis, name: str) -> None:
    """Each call of theirs ends, as it should or because of the close; what was held is free."""
    for again in range(10):
        client = bandog.connect(url)
        with ThreadPoolExecutor(16) as pool:
            working = [pool.submit(take_turns, client, f"{name}:{n % 5}") for n in range(15)]
            working.append(pool.submit(asyncio.run, tasks(client, name)))
            time.sleep(0.02 + 0.005 * again)
            start = time.monotonic()
            client.close()
            assert time.monotonic() - start < 1
            assert all(one.result(5) for one in working)
        eventually(lambda: raw.keys(f"{name}:*") == [], 1)


def test_threads_and_tasks_of_two_clients_count_together(client: bandog.Client, url: str, name: str) -> None:
    """Three event loops and ten threads."""
    total = 0
    lucky = random.Random(7)

    def step(seen: int) -> int:
        time.sleep(0)
        return seen + 1

    def work(lock: bandog.Lock) -> None:
        nonlocal total
        for _ in range(20):
            with lock, lock:
                total = step(total)

    async def work_async(lock: bandog.Lock) -> None:
        nonlocal total
        for _ in range(20):
            async with lock:
                seen = total
                await asyncio.sleep(0)
                total = seen + 1

    async def loop(lock: bandog.Lock) -> None:
        await asyncio.gather(*(work_async(lock) for _ in range(5)))

    with bandog.connect(url) as second, ThreadPoolExecutor(13) as pool:
        locks = [client.lock(name), second.lock(name)]
        working = [pool.submit(work, lucky.choice(locks)) for _ in range(10)]
        working += [pool.submit(asyncio.run, loop(lucky.choice(locks))) for _ in range(3)]
        for one in working:
            one.result(50)
    assert total == 10 * 20 + 3 * 5 * 20


def test_r1_no_thread_or_descriptor_is_left_of_a_hundred_clients(url: str, name: str) -> None:
    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def once(n: int) -> None:
        with bandog.connect(url) as client, client.lock(f"{name}:{n}") as hold:
            hold.on_lost(print)

    once(0)
    eventually(lambda: threading.active_count() < 50)
    before = count()
    for n in range(100):
        once(n)
    eventually(lambda: count() <= before, 3)
