"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are figures."""
    if not rows:
        return ""
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + " |"
        for row in [head, *rows]
    ]
    rule = "|" + "|".join("---" if at == 0 else "---:" for at in range(len(head))) + "|"
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def number(value: float | None) -> str:
    """As many digits as a reader can use."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"
