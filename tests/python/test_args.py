"""F41, F42: names, leases, waits and options from the tables, refused before any I/O."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

import bandog


@pytest.fixture
def nowhere() -> Iterator[bandog.Client]:
    """A client whose server does not exist: whatever gets through to I/O ends in Unreachable."""
    with bandog.connect("redis://127.0.0.1:1", connect_timeout=1) as client:
        yield client


BAD = [
    "5",
    "",
    b"5",
    True,
    False,
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -0.001,
    timedelta(seconds=-1),
    [],
    {},
    2**53,
    10**400,
]


@pytest.mark.parametrize("bad", [*BAD, 0, 0.001, 0.009], ids=repr)
def test_f42_leases(nowhere: bandog.Client, bad: Any) -> None:
    with pytest.raises(bandog.InvalidLease) as caught:
        nowhere.lock("x", lease=bad).acquire(wait=0)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 300
    with pytest.raises(bandog.InvalidLease):
        nowhere.lock("x").acquire(lease=bad)
    with pytest.raises(bandog.InvalidLease):
        nowhere.lock("x").try_acquire(lease=bad)
    with pytest.raises(bandog.InvalidLease):
        bandog.connect("redis://127.0.0.1:1", watchdog=bad)


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_f42_waits(nowhere: bandog.Client, bad: Any) -> None:
    with pytest.raises(bandog.InvalidOption) as caught:
        nowhere.lock("x", wait=bad).acquire()
    assert isinstance(caught.value, ValueError)
    with pytest.raises(bandog.InvalidOption):
        nowhere.lock("x").acquire(wait=bad)
    with pytest.raises(bandog.InvalidOption):
        nowhere.lock("x").try_acquire(wait=bad)


@pytest.mark.parametrize("option", ["op_timeout", "connect_timeout", "unreachable_after", "max_hold"])
@pytest.mark.parametrize("bad", [*BAD, 0], ids=repr)
def test_f42_options(option: str, bad: Any) -> None:
    with pytest.raises(bandog.InvalidOption, match=option):
        bandog.connect("redis://127.0.0.1:1", **{option: bad})


@pytest.mark.parametrize(
    "good", [0.01, 1, 2**31 / 1000, 2**32 / 1000, timedelta(days=1), decimal.Decimal("0.5")], ids=repr
)
def test_f42_good_leases(client: bandog.Client, raw: redis.Redis, name: str, good: Any) -> None:
    hold = client.lock(name).acquire(lease=good)
    assert raw.pttl(name) <= float(good.total_seconds() if isinstance(good, timedelta) else good) * 1000
    assert hold.name == name
    client.lock(name).force_release()


@pytest.mark.parametrize(
    "good",
    ["x", "a b", "a\r\nb", "a\0b", "\U0001f512", "e\u0301", "\u00e9", "{x}", "n" * 400, "lock*?[a]", "a'b\"c"],
    ids=repr,
)
def test_f41_names_are_kept_byte_for_byte(client: bandog.Client, raw: redis.Redis, name: str, good: str) -> None:
    text = f"{name}:{good}"
    with client.lock(text) as hold:
        assert hold.name == text
        assert raw.exists(text)
    assert not raw.exists(text)


@pytest.mark.parametrize(
    "bad",
    ["", "n" * 513, "n" * (1 << 20), "\ud800", "a\udfffb", b"x", 5, None, ["x"], "redisson_lock__channel:{x}"],
    ids=lambda value: repr(value)[:30],
)
def test_f41_bad_names(nowhere: bandog.Client, bad: Any) -> None:
    with pytest.raises(bandog.InvalidName) as caught:
        nowhere.lock(bad)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 400


def test_name_prefix_is_put_in_front(url: str, raw: redis.Redis, name: str) -> None:
    with bandog.connect(url, name_prefix="app:") as client, client.lock(name) as hold:
        assert hold.name == "app:" + name
        assert raw.exists("app:" + name)


@pytest.mark.parametrize("bad", ["", "localhost:6379", "http://x", "redis://:hunter2@h:port", 5, b"redis://x"])
def test_bad_urls_are_refused_without_being_quoted(bad: Any) -> None:
    with pytest.raises(bandog.InvalidUrl) as caught:
        bandog.connect(bad)
    assert "hunter2" not in str(caught.value)


def test_tls_settings_go_together() -> None:
    with pytest.raises(bandog.InvalidOption):
        bandog.connect("rediss://localhost", tls_certificate="x")
    with pytest.raises(bandog.InvalidOption):
        bandog.connect("redis://localhost", tls_ca="x")
    with pytest.raises(bandog.InvalidOption):
        bandog.connect("redis://localhost", tls_without_verification=True)


def test_the_default_client_reads_the_environment(monkeypatch: pytest.MonkeyPatch, url: str, name: str) -> None:
    from bandog import default

    monkeypatch.setattr(default, "_client", None)
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("BANDOG_URL", url)
    with bandog.lock(name) as hold:
        assert hold.valid
    first = bandog.default_client()
    assert bandog.default_client() is first
    first.close()
    assert bandog.default_client() is not first
    bandog.default_client().close()


def test_no_io_and_no_thread_before_the_first_call(program: Any) -> None:
    one = program("""
        bandog.connect("redis://192.0.2.1:6379").lock("x")
        print(len(os.listdir("/proc/self/task")))
    """)
    assert one.line() == "1"


def test_reprs_show_no_secret() -> None:
    with bandog.connect("redis://user:hunter2@127.0.0.1:1") as client:
        lock = client.lock("x")
        with client.events() as events:
            assert "hunter2" not in f"{client!r} {lock!r} {events!r}"
    assert repr(client) == "<bandog.Client closed>"


def test_a_hold_has_no_truth_of_its_own(client: bandog.Client, name: str) -> None:
    with client.lock(name) as hold:
        assert "__bool__" not in dir(hold)
        assert "__len__" not in dir(hold)
        assert repr(hold).startswith(f"<bandog.Hold '{name}'".replace("'", '"'))
        assert hold.owner not in repr(hold)


@pytest.mark.parametrize("bad", [0, -1, -(2**70), 2**70])
def test_capacities_that_cannot_work(nowhere: bandog.Client, bad: int) -> None:
    for events in (nowhere.events, nowhere.lock("x").events):
        with pytest.raises(bandog.InvalidOption, match="capacity"):
            events(capacity=bad)


@pytest.mark.parametrize("bad", ["\ud800", "x" * 512, "é" * 256], ids=["surrogate", "long", "long in bytes"])
def test_name_prefixes_that_cannot_work(bad: str) -> None:
    with pytest.raises(bandog.InvalidOption, match="name_prefix"):
        bandog.connect("redis://127.0.0.1:1", name_prefix=bad)
    with pytest.raises(TypeError):
        bandog.connect("redis://127.0.0.1:1", name_prefix=5)  # type: ignore[arg-type]
