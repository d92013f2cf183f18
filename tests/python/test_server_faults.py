"""F04, F07, F08, F10, F36, F37, F39, F40 at the moments that matter: the typed error of H1, nothing lost, nothing left
without an expiry, and the watchdog of everything else goes on."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import bandog
from conftest import Server, eventually, free_port
from support.proxy import ROOT
from support.redisserver import until_waiting

ANOTHER = "285475da-9152-4c83-822a-67ee2f116a79:52"

MARKER = "marker-hunter2"

# The rule that the README prints. A fence and a name for the connection are asked for, and can be done without.
_PRINTED = re.search(r"^ACL SETUSER worker .*?^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
assert _PRINTED is not None
RULE = [word for word in _PRINTED[0].split() if word[0] in "+~&"]
OPTIONAL = ["+client|kill", "+client|info", "+client|setname", "+unsubscribe"]


@pytest.fixture
def raw(own_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_server.url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
def client(own_server: Server) -> Iterator[bandog.Client]:
    with bandog.connect(own_server.url, watchdog=0.9) as client:
        yield client


def journey(client: bandog.Client, raw: redis.Redis, harm: Callable[[], object]) -> None:
    """Harm before the acquire, while another waits, during renewals, and before the release."""
    with ThreadPoolExecutor(1) as pool:
        harm()
        outer = client.lock("lk:x").acquire()
        harm()
        inner = client.lock("lk:x").acquire()
        waiting = pool.submit(lambda: client.lock("lk:x").acquire())
        time.sleep(0.02)
        harm()
        for _ in range(10):
            time.sleep(0.1)
            harm()
            assert outer.valid
            assert raw.pttl("lk:x") > 0
        assert raw.hgetall("lk:x") == {outer.owner: "2"}
        inner.release()
        harm()
        assert raw.hgetall("lk:x") == {outer.owner: "1"}
        outer.release()
        harm()
        last = waiting.result(5)
        assert raw.hgetall("lk:x") == {last.owner: "1"}
        harm()
        last.release()
    assert raw.dbsize() == 0


@pytest.mark.parametrize("kind", ["normal", "pubsub", "both"])
def test_f04_connections_killed(client: bandog.Client, raw: redis.Redis, kind: str) -> None:
    kinds = ["normal", "pubsub"] if kind == "both" else [kind]
    journey(client, raw, lambda: [raw.client_kill_filter(_type=one, skipme=True) for one in kinds])


def test_f07_scripts_gone(client: bandog.Client, raw: redis.Redis) -> None:
    journey(client, raw, raw.script_flush)


def test_f06_server_busy(client: bandog.Client, raw: redis.Redis) -> None:
    journey(client, raw, lambda: raw.execute_command("DEBUG", "SLEEP", "0.2"))


def test_f08_s15_out_of_memory(client: bandog.Client, raw: redis.Redis) -> None:
    """What is held is entered again, renewed and released; what is free is not to be had."""
    lock = client.lock("lk:x")
    with lock as hold:
        raw.config_set("maxmemory", "1")
        with lock:
            assert raw.hget("lk:x", hold.owner) == "2"
        for wait in (0, 0.3):
            with pytest.raises(bandog.OutOfMemory) as caught:
                client.lock("lk:other").acquire(wait=wait)
            assert caught.value.name == "lk:other"
        time.sleep(1.2)
        assert hold.valid
        assert raw.pttl("lk:x") > 450
    assert raw.dbsize() == 0
    raw.config_set("maxmemory", "0")
    with lock:
        pass


def test_f10_turned_replica_while_held_and_waited_for(own_server: Server, raw: redis.Redis) -> None:
    with bandog.connect(own_server.url, watchdog=0.6) as client, ThreadPoolExecutor(1) as pool:
        hold = client.lock("lk:x").acquire()
        waiting = pool.submit(client.lock("lk:x").acquire)
        until_waiting(raw, "lk:x")
        raw.replicaof("127.0.0.1", str(free_port()))
        start = time.monotonic()
        with pytest.raises(bandog.ReadOnly):
            client.lock("lk:y").acquire(wait=1)
        eventually(lambda: hold.lost, 2)
        assert time.monotonic() - start < 0.6 + 0.1
        with pytest.raises((bandog.LockLost, bandog.ReadOnly)):
            hold.release()
        with pytest.raises(bandog.ReadOnly):
            waiting.result(5)
        raw.replicaof("NO", "ONE")
        with client.lock("lk:z") as fresh:
            assert fresh.valid


class Attempts:
    """What a user who lacks one entry of the rule lives through; users side by side on one server."""

    def __init__(self, server: Server, raw: redis.Redis, number: int, missing: str | None) -> None:
        self.errors: list[bandog.LockError] = []
        self.user = f"worker{number}"
        rule = (entry for entry in RULE if entry != missing)
        raw.execute_command(
            "ACL", "SETUSER", self.user, "on", f">{MARKER}", "resetkeys", "resetchannels", "-@all", *rule
        )
        url = server.url.replace("redis://", f"redis://{self.user}:{MARKER}@")
        with bandog.connect(url, watchdog=0.6) as client, client.events() as events:
            self.lock = client.lock(f"lk:{number}")
            self.attempt(self.nested)
            raw.delete(self.lock.name)
            raw.hset(self.lock.name, ANOTHER, 1)
            raw.pexpire(self.lock.name, 300)
            # Where the subscription is denied, by time alone.
            self.attempt(lambda: self.lock.acquire(wait=2).release())
            raw.hset(f"lk:{number}:2", ANOTHER, 1)
            raw.pexpire(f"lk:{number}:2", 60_000)
            self.attempt(client.lock(f"lk:{number}:2").force_release)
            self.attempt(self.lock.locked)
            threading.Timer(0.05, events.close).start()
            self.warnings = [event.text or "" for event in events if event.kind == "warning"]
        self.immortal = [key for key in raw.keys(f"lk:{number}*") if raw.pttl(key) == -1]

    def attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except bandog.LockError as error:
            self.errors.append(error)

    def nested(self) -> None:
        with self.lock, self.lock:
            # Past the deadline of what is not renewed.
            time.sleep(0.6)

    def warned(self, of: str) -> bool:
        return any(of in warning for warning in self.warnings)


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str | None, Attempts]]:
    server = Server(tmp_path_factory.mktemp("redis"))
    cases: list[str | None] = [None, *RULE]
    with redis.Redis.from_url(server.url, decode_responses=True) as raw, ThreadPoolExecutor(len(cases)) as pool:
        # Who may do everything goes first, and loads the scripts.
        found: dict[str | None, Attempts] = {None: Attempts(server, raw, 0, None)}
        each = pool.map(lambda case: Attempts(server, raw, cases.index(case), case), RULE)
        yield found | dict(zip(RULE, each, strict=True))
    server.stop()


@pytest.mark.parametrize("missing", [None, *RULE])
def test_f36_x8_one_right_missing(attempts: dict[str | None, Attempts], missing: str | None) -> None:
    """Denied in so many words, or done without; nothing is left without an expiry, nothing crashes."""
    found = attempts[missing]
    kinds = {type(error) for error in found.errors}
    assert found.immortal == []
    assert MARKER not in " ".join([f"{error} {error!r}" for error in found.errors] + found.warnings)
    # Scripts that somebody else has loaded need no EVAL.
    if missing in (None, "+eval", *OPTIONAL):
        assert found.errors == []
    elif missing == "+subscribe":
        assert found.errors == []
        assert found.warned("subscription")
    elif missing in ("+hexists", "+time"):
        assert kinds == {bandog.LockLost}
        assert found.warned("cannot be renewed")
        assert found.warned("rights")
    else:
        assert bandog.PermissionDenied in kinds
        assert kinds <= {bandog.PermissionDenied, bandog.LockLost}
        assert found.warned("subscription") == (missing == "&redisson_lock__channel:{lk:*")


def test_f36_without_eval_where_nobody_has_loaded_the_scripts(own_server: Server, raw: redis.Redis) -> None:
    raw.execute_command(
        "ACL", "SETUSER", "worker", "on", "nopass", "-@all", *(entry for entry in RULE if entry != "+eval")
    )
    with bandog.connect(own_server.url.replace("//", "//worker:x@")) as client:
        with pytest.raises(bandog.PermissionDenied, match="rights"):
            client.lock("lk:x").acquire()
    assert raw.dbsize() == 0


def test_f37_password_rotated_and_user_killed_while_held(own_server: Server, raw: redis.Redis) -> None:
    raw.acl_setuser("ann", enabled=True, passwords=["+hunter2"], keys="*", channels="*", commands=["+@all"])
    with bandog.connect(own_server.url.replace("//", "//ann:hunter2@"), watchdog=0.9, op_timeout=0.5) as client:
        told: list[str] = []
        hold = client.lock("lk:x").acquire()
        hold.on_lost(lambda: told.append(str(hold.lost)))
        raw.acl_setuser("ann", enabled=True, reset_passwords=True, passwords=["+other"], keys="*", commands=["+@all"])
        raw.client_kill_filter(user="ann")
        with pytest.raises(bandog.PermissionDenied) as caught:
            client.lock("lk:y").acquire(wait=1)
        assert "hunter2" not in f"{caught.value} {caught.value!r}"
        eventually(lambda: told, 2)
        assert told == ["expired"]
        with pytest.raises(bandog.LockError) as last:
            hold.release()
        assert "hunter2" not in f"{last.value}"
        # Given back in time for the next who asks.
        raw.acl_setuser("ann", enabled=True, passwords=["+hunter2"], keys="*", channels="*", commands=["+@all"])
        with client.lock("lk:z"):
            pass


PLANTS: dict[str, Callable[[redis.Redis, str], object]] = {
    "string": lambda raw, key: raw.set(key, "x"),
    "list": lambda raw, key: raw.rpush(key, "x"),
    "set": lambda raw, key: raw.sadd(key, "x"),
    "zset": lambda raw, key: raw.zadd(key, {"x": 1}),
    "stream": lambda raw, key: raw.xadd(key, {"x": "1"}),
    "hash of something": lambda raw, key: raw.hset(key, "name", "ann"),
    "big hash": lambda raw, key: raw.hset(key, mapping={f"f{n}": n for n in range(10_000)}),
    "read-write lock": lambda raw, key: raw.hset(key, mapping={"mode": "read", ANOTHER: "1"}),
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("moment", ["before", "while held"])
def test_f39_wrong_type(client: bandog.Client, raw: redis.Redis, plant: str, moment: str) -> None:
    lock = client.lock("lk:x")
    hold = lock.acquire() if moment == "while held" else None
    with client.lock("lk:beside") as beside:
        raw.delete("lk:x")
        PLANTS[plant](raw, "lk:x")
        kind, size = raw.type("lk:x"), raw.memory_usage("lk:x")
        if hold is not None:
            eventually(lambda: hold.lost, 0.9)
            assert hold.lost in ("taken", "overwritten")
            with pytest.raises(bandog.LockLost):
                hold.release()
        else:
            for action in (lock.acquire, lock.try_acquire, lock.locked, lock.force_release):
                with pytest.raises(bandog.WrongType) as caught:
                    action()
                assert caught.value.name == "lk:x"
        assert (raw.type("lk:x"), raw.memory_usage("lk:x")) == (kind, size)
        assert raw.pttl("lk:x") == -1
        assert beside.valid


TAMPERING: dict[str, tuple[Callable[[redis.Redis, str], object], bool]] = {
    # What is done, and whether the hold is still ours then.
    "deleted": (lambda raw, owner: raw.delete("lk:x"), False),
    "renamed": (lambda raw, owner: raw.rename("lk:x", "lk:away"), False),
    "field removed": (lambda raw, owner: raw.hdel("lk:x", owner), False),
    "owner replaced": (lambda raw, owner: (raw.hdel("lk:x", owner), raw.hset("lk:x", ANOTHER, 1)), False),
    "cut to 1 ms": (lambda raw, owner: raw.pexpire("lk:x", 1), False),
    "persisted": (lambda raw, owner: raw.persist("lk:x"), True),
    "a year": (lambda raw, owner: raw.expire("lk:x", 31_536_000), True),
    "cut by half": (lambda raw, owner: raw.pexpire("lk:x", 500), True),
    "count raised": (lambda raw, owner: raw.hset("lk:x", owner, 7), True),
    "count lowered": (lambda raw, owner: raw.hset("lk:x", owner, 0), True),
    "count spoilt": (lambda raw, owner: raw.hset("lk:x", owner, "many"), True),
    "field added": (lambda raw, owner: raw.hset("lk:x", "other", "1"), True),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_f40_key_tampered_with(client: bandog.Client, raw: redis.Redis, how: str) -> None:
    tamper, ours = TAMPERING[how]
    lock = client.lock("lk:x")
    hold = lock.acquire()
    tamper(raw, hold.owner)
    if not ours:
        # Within a third of the lease.
        eventually(lambda: hold.lost, 0.3 + 0.1)
        assert hold.lost == "taken"
        with pytest.raises(bandog.LockLost):
            hold.release()
        raw.delete("lk:x", "lk:away")
        with lock:
            pass
        return
    time.sleep(0.45)
    assert hold.valid
    ttl = raw.pttl("lk:x")
    # A renewal never shortens; an expiry that is gone or too short is put back to the lease.
    assert 500 < ttl <= 900 or how == "a year"
    hold.release()
    left = raw.hgetall("lk:x")
    assert left == ({"other": "1"} if how == "field added" else {})


def test_f40_persisted_and_its_holder_gone(raw: redis.Redis, client: bandog.Client) -> None:
    """Who waits gives it an expiry, and gets it then."""
    raw.hset("lk:x", ANOTHER, 1)
    start = time.monotonic()
    with client.lock("lk:x", wait=3):
        assert 0.8 < time.monotonic() - start < 0.9 + 0.2


def test_many_faults_one_after_the_other_lose_nothing(own_server: Server, raw: redis.Redis) -> None:
    """Four threads take turns at one lock while the server is hit by whatever passes."""
    harms: list[Callable[[], object]] = [
        raw.script_flush,
        lambda: raw.client_kill_filter(_type="normal", skipme=True),
        lambda: raw.client_kill_filter(_type="pubsub", skipme=True),
        lambda: raw.execute_command("DEBUG", "SLEEP", "0.05"),
        lambda: raw.execute_command("CLIENT", "PAUSE", "60", "WRITE"),
    ]
    with bandog.connect(own_server.url, watchdog=1.5) as client, ThreadPoolExecutor(4) as pool:
        total = 0

        def work() -> int:
            nonlocal total
            for _ in range(60):
                with client.lock("lk:x"):
                    seen = total
                    time.sleep(0.001)
                    total = seen + 1
            return 60

        working = [pool.submit(work) for _ in range(4)]
        for harm in itertools.cycle(harms):
            if all(one.done() for one in working):
                break
            time.sleep(0.04)
            harm()
        assert sum(one.result() for one in working) == total == 240
    assert raw.dbsize() == 0
