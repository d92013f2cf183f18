"""The tables of a race in Markdown, and their place in docs/performance.md."""

from __future__ import annotations

from dataclasses import dataclass

from benches.race.contender import FIELD, ROOT, Contender
from benches.race.figures import figures
from benches.race.goals import judge
from benches.race.process import PINS
from benches.race.result import Result
from benches.race.table import number, table

PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- Tables: `python -m benches.race report` writes them. -->"
END = "<!-- End of tables. -->"


@dataclass(frozen=True)
class Section:
    """One table: a plan, and the figures of it that are shown."""

    plan: str
    title: str
    columns: tuple[tuple[str, str], ...]


RATE = (("pairs/s", "pairs_per_s"), ("of the floor", "ratio"))
WAIT = (
    ("acquisitions/s", "per_s"),
    ("of the time held", "share"),
    ("Jain", "jain"),
    ("longest wait, ms", "longest_wait_ms"),
    ("requests", "requests"),
    ("inner commands", "inner"),
)
HELD = (
    ("requests/s", "requests_per_s"),
    ("server, us", "server_us"),
    ("client CPU, us", "client_us"),
    ("bytes a lock", "bytes"),
    ("lost", "lost"),
    ("taken in, s", "took_s"),
)
SECTIONS = [
    Section(
        "pair",
        "A pair of acquire and release",
        (("p50, us", "p50_us"), ("of the floor", "ratio"), ("p99, us", "p99_us")),
    ),
    Section("storm-1", "Pairs a second, 1 in flight", RATE),
    Section("storm-100", "Pairs a second, 100 in flight", RATE),
    Section("storm-1000", "Pairs a second, 1,000 in flight", RATE),
    Section(
        "handoff", "Handoff to one waiter", (("p50, us", "p50_us"), ("of the floor", "ratio"), ("p99, us", "p99_us"))
    ),
    Section("reenter", "Local re-entry", (("p50, us", "p50_us"), ("p99, us", "p99_us"))),
    Section("count", "Requests of a pair", (("requests", "requests"), ("inner commands", "inner"))),
    Section("contend-tasks", "Eight tasks of one process, holds of 20 ms", WAIT),
    Section("contend-processes", "Eight processes, holds of 20 ms", WAIT),
    Section("held-1000", "1,000 locks held", HELD),
    Section("held-100000", "100,000 locks held", HELD),
]


def text(result: Result) -> str:
    parts = [conditions(result), *(shown(result, section) for section in SECTIONS), blocked(result), goals(result)]
    return "\n".join(part for part in parts if part)


def conditions(result: Result) -> str:
    machine = result.machine
    rows = [f"{name} {version}" for name, version in result.versions.items() if name != "bandog"]
    return (
        f"Measured on {machine['date']}: {machine['cpu']}, {machine['cores']} cores, {machine['kernel']}, "
        f"Redis {machine['redis']}; Bandog {result.versions['bandog']} at {machine['commit']}"
        f"{'; load average when it began: ' + machine['load'] if 'load' in machine else ''}.\n"
        f"Against {', '.join(rows)}.\n"
        + (f"Not raced, for want of {', '.join(result.absent)}.\n" if result.absent else "")
    )


def shown(result: Result, section: Section) -> str:
    pins = list(dict.fromkeys(one.pin for one in result.samples if one.plan == section.plan))
    head = ["contender"]
    for pin in pins:
        prefix = f"{PINS[pin].label}: " if len(pins) > 1 else ""
        head += [prefix + title for title, _ in section.columns]
    rows = []
    for contender in FIELD:
        row = [cell for pin in pins for cell in cells(result, section, contender, pin)]
        if any(row):
            rows.append([name(contender), *row])
        if "piped_per_s" in (piped := figures(result, section.plan, contender.key)):
            rows.append(
                [
                    f"{name(contender)}, pipelined",
                    *(c for pin in pins for c in pipelined(result, section, contender, pin)),
                ]
            )
            del piped
    return f"### {section.title}\n\n{rounds(result, section.plan)}\n\n{table(head, rows)}" if rows else ""


def rounds(result: Result, plan: str) -> str:
    count = len({one.round for one in result.samples if one.plan == plan})
    return f"Medians of {count} rounds." if count > 1 else "One round."


def cells(result: Result, section: Section, contender: Contender, pin: str) -> list[str]:
    samples = result.of(section.plan, contender.key, pin)
    if samples and all("failed" in one.answer for one in samples):
        return ["failed", *[""] * (len(section.columns) - 1)]
    found = figures(result, section.plan, contender.key, pin)
    return [number(found.get(key)) for _, key in section.columns]


def pipelined(result: Result, section: Section, contender: Contender, pin: str) -> list[str]:
    found = figures(result, section.plan, contender.key, pin)
    return [number(found.get("piped_per_s")), number(found.get("piped_ratio"))]


def name(contender: Contender) -> str:
    return f"**{contender.label}**" if contender.ours else contender.label


def blocked(result: Result) -> str:
    rows = []
    for contender in FIELD:
        for one in result.of("blocked", contender.key):
            if "kept" in one.answer:
                lost = f"lost after {one.answer.get('lost_after_ms', 0):,.0f} ms"
                rows.append([name(contender), "kept" if one.answer["kept"] else lost])
    return f"### Loop or GIL blocked for three leases\n\n{table(['contender', 'the lock was'], rows)}" if rows else ""


def goals(result: Result) -> str:
    rows = [
        [
            verdict.goal.what,
            f"{verdict.goal.better} {number(verdict.goal.goal)}",
            "" if verdict.goal.limit is None else number(verdict.goal.limit),
            number(verdict.measured),
            verdict.word,
        ]
        for verdict in judge(result)
    ]
    return f"### Figures to hold\n\n{table(['figure', 'goal', 'hard limit', 'measured', ''], rows)}" if rows else ""


def write(result: Result) -> None:
    PAGE.write_text(page(PAGE.read_text(), result))


def page(now: str, result: Result) -> str:
    before, rest = now.split(BEGIN)
    return f"{before}{BEGIN}\n\n{text(result)}\n{END}{rest.split(END)[1]}"
