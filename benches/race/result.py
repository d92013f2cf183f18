"""What a race found: every single answer, and where it was found. Saved as JSON, one answer a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benches.race.process import Answer


@dataclass(frozen=True)
class Sample:
    plan: str
    pin: str
    round: int
    contender: str
    answer: Answer


@dataclass
class Result:
    machine: dict[str, str]
    versions: dict[str, str]
    # What was asked for, by plan.
    given: dict[str, dict[str, Any]]
    # Languages that sat out.
    absent: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def of(self, plan: str, contender: str, pin: str | None = None) -> list[Sample]:
        return [
            one
            for one in self.samples
            if one.plan == plan and one.contender == contender and (pin is None or one.pin == pin)
        ]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        head = {"machine": self.machine, "versions": self.versions, "given": self.given, "absent": self.absent}
        samples = ",\n".join(json.dumps(rounded(asdict(one))) for one in self.samples)
        path.write_text(json.dumps(head, indent=1)[:-2] + ',\n "samples": [\n' + samples + "\n]}\n")

    def replaced_by(self, other: Result) -> Result:
        """This run, with the plans that the other has measured anew in their place."""
        return Result(
            other.machine,
            self.versions | other.versions,
            self.given | other.given,
            [language for language in self.absent if language in other.absent],
            [one for one in self.samples if one.plan not in other.given] + other.samples,
        )

    @classmethod
    def load(cls, path: Path) -> Result:
        read = json.loads(path.read_text())
        samples = [Sample(**one) for one in read.pop("samples")]
        return cls(**read, samples=samples)


def rounded(value: Any) -> Any:
    """Figures with as many digits as mean something."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return value


def rounds(samples: list[Sample]) -> Iterator[tuple[int, Answer]]:
    for one in samples:
        if "unsupported" not in one.answer and "failed" not in one.answer:
            yield one.round, one.answer
