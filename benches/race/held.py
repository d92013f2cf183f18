"""Many locks held and renewed: what it costs the server and the client, and whether one is lost."""

from __future__ import annotations

import time
from typing import Any

from benches.race.contender import Contender
from benches.race.counts import Counting
from benches.race.process import Answer, Broken, Pin, end, finish, start
from benches.race.server import Server

# A slow log of every command would itself be what is measured.
COUNTED = 10_000
# Seconds in which the slowest takes its locks.
TAKEN_WITHIN = 120.0


def measure(contender: Contender, server: Server, pin: Pin, given: dict[str, Any]) -> Answer:
    counted = given["locks"] <= COUNTED
    window = given["window"]
    # One window is timed; a second one is counted, for a log of every command takes time.
    told = {key: given[key] for key in ("locks", "lease_ms", "name")} | {"seconds": window * (1 + counted) + 1}
    process = start(contender, "held", server, pin, told)
    try:
        deadline = time.monotonic() + TAKEN_WITHIN
        while server.link.dbsize() < given["locks"]:
            if process.poll() is not None:
                return finish(process)
            if time.monotonic() > deadline:
                raise Broken("the locks were not all taken")
            time.sleep(0.05)
        scripts = script_stats(server)
        time.sleep(window)
        calls, usec = (after - before for after, before in zip(script_stats(server), scripts, strict=True))
        answer: Answer = {"script_calls": calls, "script_usec": usec, "window": window}
        # At the end of a contender its locks may go with it.
        kept = server.link.dbsize()
        if counted:
            counting = Counting(server)
            counting.start()
            time.sleep(window)
            counts = counting.stop()
            answer |= {"sent": dict(counts.sent.most_common()), "inner": dict(counts.inner.most_common())}
        told_us = finish(process, told["seconds"] + TAKEN_WITHIN)
    finally:
        if process.poll() is None:
            end(process)
    # The library may say what it likes: the server knows which keys are there.
    gone = max(0, given["locks"] - kept)
    return told_us | answer | {"seconds": told["seconds"], "gone": gone}


def script_stats(server: Server) -> tuple[int, int]:
    stats = server.link.info("commandstats")
    scripts = [stats[name] for name in ("cmdstat_eval", "cmdstat_evalsha", "cmdstat_fcall") if name in stats]
    return sum(int(one["calls"]) for one in scripts), sum(int(one["usec"]) for one in scripts)
