"""``bench patterns``: Figures 3 and 4 of paper 000, times and counts of irregular exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onesided.apps.reporting.bars import Bars
from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.grid import Squares
from onesided.apps.reporting.quantities import COUNT, TIME
from onesided.apps.reporting.result import known
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.sweep import split

CASE = ("matrix", "pattern")
MOST_RANKS = 64  # of a picture of counts


class Patterns(Kind):
    """Exchanges with the patterns of sparse matrices."""

    def figures(self) -> list[Figure]:
        """Local. For every matrix and pattern the times, then the counts."""
        found: list[Figure] = []
        for words, entries in split(self.result.timed, CASE).items():
            groups: dict[str, dict[str, float]] = {}
            for entry in entries:
                groups.setdefault(entry.method, {})[entry.label("memory")] = entry.median or 0.0
            told = f"Bars of the time of an exchange: {', '.join(groups)}."
            found.append(Bars(f"Time: {words}", told, TIME, groups, "method"))
        return found + [
            Squares(
                f"Elements from rank to rank: {name}, {pattern}",
                f"A square for every pair of {len(counts)} ranks, darker where more is sent.",
                "from rank",
                "to rank",
                [str(rank) for rank in range(len(counts))],
                [str(rank) for rank in range(len(counts))],
                counts,
                COUNT.called("elements"),
            )
            for name, pattern, counts in self._counts()
            if len(counts) <= MOST_RANKS
        ]

    def _counts(self) -> Iterator[tuple[str, str, list[list[float]]]]:
        matrices = self.result.pattern.get("matrices")
        for name, matrix in matrices.items() if isinstance(matrices, dict) else ():
            patterns = matrix.get("patterns") if isinstance(matrix, dict) else None
            for pattern, record in patterns.items() if isinstance(patterns, dict) else ():
                counts = record.get("counts") if isinstance(record, dict) else None
                if counts is not None and _is_square(counts):
                    yield str(name), str(pattern), counts


def _is_square(counts: Any) -> bool:
    """Whether these are as many rows as columns of numbers."""
    return (
        isinstance(counts, list)
        and bool(counts)
        and all(isinstance(row, list) and len(row) == len(counts) for row in counts)
        and all(known(each) is not None for row in counts for each in row)
    )
