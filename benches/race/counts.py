"""What clients sent to the server, and what their scripts called inside.

`INFO commandstats` counts both under the same names. What a script calls stands in the slow log with no client's
address, so that a log of every command tells the two apart exactly. It costs the server about a microsecond a command:
nothing is timed in microseconds meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from benches.race.server import Server

NOBODY = b"?:0"


@dataclass(frozen=True)
class Counts:
    """Commands by name: `set`, `evalsha`, `client|kill`."""

    sent: Counter[str]
    inner: Counter[str]


def commands(stats: Mapping[str, Mapping[str, float]]) -> Counter[str]:
    return Counter({name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()})


class Counting:
    """Counts from `start` to `stop`, down to the command."""

    def __init__(self, server: Server) -> None:
        self._link = server.link
        self._before: Counter[str] = Counter()

    def start(self) -> None:
        self._link.config_set("slowlog-log-slower-than", 0)
        self._link.slowlog_reset()
        self._before = commands(self._link.info("commandstats"))

    def stop(self) -> Counts:
        after = commands(self._link.info("commandstats"))
        log = self._link.slowlog_get(-1)
        self._link.config_set("slowlog-log-slower-than", -1)
        self._link.slowlog_reset()
        inner = Counter(name(entry["command"], after) for entry in log if entry["client_address"] == NOBODY)
        # The question at the start is counted by itself, and answered before it is.
        ours = Counter({"info": 1})
        return Counts(sent=after - self._before - inner - ours, inner=inner)


def name(command: bytes, known: Mapping[str, int]) -> str:
    """As commandstats calls it: with the subcommand, where there is one."""
    words = command.decode(errors="replace").lower().split(" ", 2)
    whole = "|".join(words[:2])
    return whole if whole in known else words[0]
