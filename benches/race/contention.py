"""Many who want one lock: eight tasks of a process, or eight processes."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from benches.race.contender import Contender
from benches.race.counts import Counting
from benches.race.process import Answer, Broken, Pin, end, finish, start
from benches.race.server import Server

# Counting starts this long before the window does.
EARLY = 0.02
LONGEST_BOOT = 30.0


class Late(Broken):
    """A contender was not warm when the window began."""


def measure(contender: Contender, server: Server, pin: Pin, given: dict[str, Any]) -> Answer:
    # They are started together and have two cores between them.
    boot = contender.boot * (1 + given["processes"] / 4)
    while True:
        try:
            return window(contender, server, pin, given, boot)
        except Late:
            # A slow machine, or a busy one. Nothing was measured yet.
            boot *= 2
            if boot > LONGEST_BOOT:
                raise


def window(contender: Contender, server: Server, pin: Pin, given: dict[str, Any], boot: float) -> Answer:
    processes = given["processes"]
    begin = time.time() + boot
    told = {key: given[key] for key in ("tasks", "hold_ms", "seconds", "name")} | {"start_at": begin}
    counting = Counting(server)
    started = [start(contender, "contend", server, pin, told) for _ in range(processes)]
    try:
        time.sleep(max(0.0, begin - EARLY - time.time()))
        counting.start()
        time.sleep(max(0.0, begin + given["seconds"] - time.time()))
        counts = counting.stop()
        answers = [answer(process) for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                end(process)
    unsupported = next((answer for answer in answers if "unsupported" in answer), None)
    if unsupported:
        return unsupported
    late = max(answer.get("late_ms", 0.0) for answer in answers)
    if late > 0:
        raise Late(f"not warm when the window began: {late:.0f} ms late")
    return {
        "acquired": [count for answer in answers for count in answer["acquired"]],
        "held_ms": sum(span for answer in answers for span in answer["held_ms"]),
        "longest_wait_ms": max(wait for answer in answers for wait in answer["longest_wait_ms"]),
        "sent": dict(counts.sent.most_common()),
        "inner": dict(counts.inner.most_common()),
    }


def answer(process: subprocess.Popen[str]) -> Answer:
    try:
        return finish(process)
    except Broken as why:
        # What contenders in other languages say.
        raise (Late(str(why)) if "ready only after the start" in str(why) else why) from None
