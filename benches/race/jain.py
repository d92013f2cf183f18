"""How evenly something was shared out."""

from __future__ import annotations

from collections.abc import Sequence


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 when all have the same, 1/n when one of n has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0
