"""F29-F31, R2, R3: fork, exit and Ctrl-C in every ugly way."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

import bandog
from conftest import eventually
from support.redisserver import until_waiting

Start = Callable[[str], Any]


@pytest.mark.parametrize("moment", ["before use", "after connect", "while held", "while waiting"])
def test_f29_fork(program: Start, name: str, moment: str) -> None:
    one = program(f"""
        name, moment = {name!r}, {moment!r}
        lock = client.lock(name)
        holder = bandog.connect(url)
        hold = None
        if moment == "after connect":
            with lock: pass
        if moment == "while held":
            hold = lock.acquire()
            hold.on_lost(print, "never")
        if moment == "while waiting":
            outer = holder.lock(name).acquire()
            thread = threading.Thread(target=lambda: lock.acquire().release())
            thread.start()
            time.sleep(0.1)
        child = os.fork()
        if child == 0:
            try:
                if hold is not None:
                    for use in (hold.check, hold.release, lambda: hold.valid, lambda: hold.extend(5)):
                        try: use()
                        except bandog.ForkedHandle: pass
                        else: os._exit(3)
                    assert lock.count == 0
                if moment in ("while held", "while waiting"):
                    assert lock.try_acquire() is None
                with client.lock(name + ":child") as own:
                    assert own.valid
                client.close()
            except BaseException as error:
                print(repr(error)); os._exit(4)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        if hold is not None:
            assert hold.valid
            hold.release()
        if moment == "while waiting":
            outer.release()
            thread.join()
        with lock as again: assert again.valid
        print("fine")
    """)
    assert one.end() == (0, "fine\n", "")


def test_f29_a_child_that_exits_leaves_the_parents_hold(program: Start, name: str) -> None:
    one = program(f"""
        hold = client.lock({name!r}).acquire()
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        hold.check()
        hold.release()
        print("fine")
    """)
    assert one.end() == (0, "fine\n", "")


def in_a_process(url: str, name: str, out: Any) -> None:
    with bandog.connect(url) as client, client.lock(name) as hold:
        out.put(hold.owner)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_f29_multiprocessing(url: str, name: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    out = context.Queue()
    processes = [context.Process(target=in_a_process, args=(url, name, out)) for _ in range(2)]
    for process in processes:
        process.start()
    assert len({out.get(timeout=20).split(":")[0] for _ in processes}) == 2
    for process in processes:
        process.join()
        assert process.exitcode == 0
    out.close()
    out.join_thread()


def test_f29_multiprocessing_fork(program: Start, name: str) -> None:
    one = program(f"""
        import multiprocessing, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        lock = client.lock({name!r})
        def work(out):
            with lock as hold: out.put(hold.owner)
        with lock:
            context = multiprocessing.get_context("fork")
            out = context.SimpleQueue()
            jobs = [context.Process(target=work, args=(out,)) for _ in range(3)]
            for job in jobs: job.start()
            time.sleep(0.1)
        owners = {{out.get().split(":")[0] for _ in jobs}}
        for job in jobs: job.join()
        print(len(owners), [job.exitcode for job in jobs])
    """)
    assert one.end() == (0, "3 [0, 0, 0]\n", "")


ENDINGS = {
    "the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise SystemExit(4)", 4),
    "os._exit": ("os._exit(5)", 5),
    "sigterm": ("os.kill(os.getpid(), 15)", -15),
    "sigkill": ("os.kill(os.getpid(), 9)", -9),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_f30_exit_while_held(program: Start, raw: redis.Redis, name: str, ending: str) -> None:
    code, expected = ENDINGS[ending]
    one = program(f"""
        hold = client.lock({name!r}).acquire()
        hold.on_lost(print)
        print("held")
        {code}
    """)
    assert one.line() == "held"
    start = time.monotonic()
    assert one.end() == (expected, "", "")
    assert time.monotonic() - start < 2
    # A clean exit releases; the others leave it to the lease.
    assert bool(raw.exists(name)) == (ending in ("os._exit", "sigterm", "sigkill"))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("where", ["thread", "task", "callback", "listener"])
def test_f30_exit_while_busy(program: Start, client: bandog.Client, name: str, ending: str, where: str) -> None:
    code, expected = ENDINGS[ending]
    body = {
        "thread": "run(lambda: client.lock(name).acquire())",
        "task": "import asyncio; run(lambda: asyncio.run(take()))",
        "callback": (
            "hold = client.lock(name + ':x', lease=0.05).acquire(); hold.on_lost(time.sleep, 60); time.sleep(0.1)"
        ),
        "listener": "events = client.events(); run(lambda: list(events))",
    }[where]
    with client.lock(name):
        one = program(f"""
            name = {name!r}
            async def take(): await client.lock(name).acquire_async()
            def run(what):
                threading.Thread(target=what, daemon=True).start()
                time.sleep(0.1)
            {body}
            print("busy")
            {code}
        """)
        assert one.line() == "busy"
        start = time.monotonic()
        code_, _, err = one.end()
        assert time.monotonic() - start < 2
        assert code_ == expected
        assert "panic" not in err
        assert "abort" not in err.lower()
        assert "Fatal" not in err


@pytest.mark.parametrize("where", ["globals", "builtins", "a module"])
def test_f30_used_in_del_while_the_interpreter_goes(program: Start, name: str, where: str) -> None:
    """No class of error is imported that late: what comes out is an exception and never a panic."""
    one = program(f"""
        import builtins
        class Late:
            def __init__(self):
                self.hold = client.lock({name!r}).acquire()
                self.lock = client.lock({name!r})
                self.write, self.base = os.write, BaseException
            def __del__(self):
                for use in (self.hold.release, self.lock.acquire, self.hold.check, self.lock.release):
                    try: use()
                    except self.base as error: self.write(1, type(error).__name__.encode() + b"\\n")
        late = Late()
        if {where!r} == "builtins": builtins.late = late; del late
        if {where!r} == "a module": sys.late = late; del late
        print("made")
    """)
    code, out, err = one.end()
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "made"
    assert len(out.splitlines()) == 5
    assert "Panic" not in out


@pytest.mark.parametrize("face", ["acquire", "with", "coroutine", "decorator", "caught"])
def test_f30_exit_is_quiet_beside_threads_that_wait(
    program: Start, client: bandog.Client, raw: redis.Redis, name: str, face: str
) -> None:
    with client.lock(name):
        one = program(f"""
            import asyncio
            lock = client.lock({name!r})
            def acquire(): lock.acquire()
            def block():
                with lock: pass
            async def main():
                async with lock: pass
            @bandog.locked({name!r}, client=client)
            def decorated(): pass
            def caught():
                while True:
                    try: lock.acquire()
                    except bandog.LockError: pass
            jobs = {{"acquire": acquire, "with": block, "coroutine": lambda: asyncio.run(main()),
                    "decorator": decorated, "caught": caught}}
            for _ in range(3): threading.Thread(target=jobs[{face!r}], daemon=True).start()
            print("waiting")
            sys.stdin.readline()
        """)
        assert one.line() == "waiting"
        until_waiting(raw, name)
        time.sleep(0.1)
        assert one.end() == (0, "", "")


def test_r2_exit_with_a_server_that_does_not_answer(own_server: Any) -> None:
    from conftest import Program

    one = Program(
        own_server.url,
        """
        hold = client.lock("x").acquire()
        print("held")
        sys.stdin.readline()
        """,
    )
    assert one.line() == "held"
    own_server.process.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    code, _, err = one.end()
    took = time.monotonic() - start
    own_server.process.send_signal(signal.SIGCONT)
    assert (code, err) == (0, "")
    assert took < 1


def test_r2_two_hundred_clients_never_closed(program: Start) -> None:
    one = program("""
        clients = [bandog.connect(url) for _ in range(200)]
        print("made")
    """)
    start = time.monotonic()
    assert one.end()[0] == 0
    assert time.monotonic() - start < 2


def interrupt_after(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))


@pytest.fixture
def alarms() -> Any:
    def ring(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarms")
def test_f31_interrupts_while_waiting(client: bandog.Client, other: bandog.Client, raw: redis.Redis, name: str) -> None:
    for step in range(50):
        held = other.lock(name).acquire()
        try:
            interrupt_after(step / 1000)
            with client.lock(name):
                pytest.fail("another holds it")
        except KeyboardInterrupt:
            pass
        start = time.monotonic()
        held.release()
        eventually(lambda: not raw.exists(name), 1)
        assert time.monotonic() - start < 0.5


@pytest.mark.usefixtures("alarms")
@pytest.mark.parametrize("face", ["with", "acquire"])
def test_f31_interrupts_at_every_point(client: bandog.Client, raw: redis.Redis, name: str, face: str) -> None:
    """Acquire and release over and over; each interrupt must leave neither a hold nor a count."""
    lock = client.lock(name)

    def with_blocks() -> None:
        for _ in range(40):
            with lock:
                pass

    def with_handles() -> None:
        for _ in range(40):
            hold = None
            try:
                hold = lock.acquire()
            finally:
                if hold is not None:
                    hold.release()

    run = {"with": with_blocks, "acquire": with_handles}[face]
    caught = 0
    for step in range(1000):
        try:
            interrupt_after(step * 1.3e-6)
            run()
        except KeyboardInterrupt:
            caught += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            eventually(lambda: not raw.exists(name), 1)
        except AssertionError:
            # Python itself may be interrupted between `finally` and `release`: no lock can help that.
            assert face == "acquire"
            assert lock.count == 1
            lock.release()
        assert lock.count == 0
    assert caught > 500


def test_f31_a_signal_that_does_not_raise_does_not_end_the_wait(
    client: bandog.Client, other: bandog.Client, name: str
) -> None:
    rings: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rings.append(1))
    held = other.lock(name).acquire()
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    threading.Timer(0.3, held.release).start()
    with client.lock(name):
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert len(rings) > 5


def test_f31_ctrl_c_ends_a_wait_at_once(program: Start, client: bandog.Client, name: str) -> None:
    took = []
    with client.lock(name):
        one = program(f"""
            for _ in range(5):
                try:
                    print("waiting")
                    client.lock({name!r}).acquire()
                except KeyboardInterrupt:
                    print("interrupted")
        """)
        for _ in range(5):
            assert one.line() == "waiting"
            time.sleep(0.1)
            start = time.monotonic()
            os.kill(one.process.pid, signal.SIGINT)
            assert one.line() == "interrupted"
            took.append(time.monotonic() - start)
        assert one.end()[0] == 0
    assert statistics.median(took) < 0.1
    assert max(took) < 1
