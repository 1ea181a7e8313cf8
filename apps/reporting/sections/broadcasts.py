"""``bench broadcast``: Figures 13 to 16 of paper 003, LogGP beside them, and the crossovers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onesided.apps.reporting.figure import NOTHING, Figure
from onesided.apps.reporting.fold import Fold
from onesided.apps.reporting.lines import Lines, Point
from onesided.apps.reporting.quantities import RANKS, SIZE, TIME
from onesided.apps.reporting.result import METHOD, Entry, known
from onesided.apps.reporting.section import Block
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.rows import records
from onesided.apps.reporting.sections.sweep import (
    Sweep,
    largest,
    median_time,
    named,
    ratios_over_bytes,
    times_over_bytes,
)
from onesided.apps.reporting.table import Table

NAMES = (METHOD, "order")
FAR = float(1 << 50)  # bytes: what a model says beyond this is rounding


class Broadcasts(Kind):
    """One rank's data to all."""

    def figures(self) -> list[Figure]:
        """Local. Over the bytes on most ranks, over the ranks with most bytes, and the model."""
        timed = self.result.timed
        most = largest(timed, "ranks")
        ranks = RANKS.show(most[0].number("ranks") or 0.0) if most else ""
        times = times_over_bytes(*NAMES)
        found = times.figures(f"Broadcast on {ranks} ranks", most, timed)
        ratios = ratios_over_bytes("MPI_Bcast", *NAMES)
        found += ratios.figures(f"Time over that of MPI_Bcast on {ranks} ranks", most, timed)
        if len({entry.label("ranks") for entry in timed}) > 1:
            size = largest(timed, "bytes")
            told = SIZE.show(size[0].number("bytes") or 0.0)
            sweep = Sweep("ranks", RANKS, median_time, TIME, NAMES)
            found += sweep.figures(f"Broadcast of {told}", size, timed)
        return found + _predicted(f"LogGP beside the times on {ranks} ranks", most)

    def tables(self) -> list[Block]:
        """Local. First where a tree overtakes the linear broadcast."""
        crossings = self.result.pattern.get("crossings")
        rows = [_crossing(each) for each in records(crossings)]
        columns = ["tree", "overtakes", "at", "from here on", "from here on, by LogGP"]
        crossed = Table("Where a tree overtakes the linear broadcast", columns, rows, heads=2)
        first: list[Block] = [Fold("Crossovers", crossed)] if rows else []
        return first + super().tables()


def _crossing(record: Mapping[str, Any]) -> list[str]:
    over, at = _OVER.get(str(record.get("over")), (_ranks, _bytes))

    def told(value: Any) -> str:
        place = known(value)
        return "nowhere" if place is None or not 0 < place < FAR else over(place)

    tree = f"{record.get('method')} {record.get('order')}".removesuffix(NOTHING).strip()
    model = told(record.get("predicted")) if record.get("modelled") else "no model"
    held = at(known(record.get("at")) or 0.0)
    return [tree, str(record.get("other")), held, told(record.get("measured")), model]


def _bytes(number: float) -> str:
    return SIZE.show(number)


def _ranks(number: float) -> str:
    return f"{number:.3g} ranks"


#: How what is found and what is held fixed are written.
_OVER: Mapping[str, tuple[Callable[[float], str], Callable[[float], str]]] = {
    "bytes": (_bytes, _ranks),
    "ranks": (_ranks, _bytes),
}


def _predicted(title: str, entries: Sequence[Entry]) -> list[Figure]:
    lines: dict[str, list[Point]] = {}
    for entry in entries:
        parts = entry.values.get("parts")
        predicted = known(parts.get("predicted")) if isinstance(parts, dict) else None
        nbytes, median = entry.number("bytes"), entry.median
        if predicted is not None and nbytes is not None and median is not None:
            name = named(entry, NAMES)
            lines.setdefault(name, []).append((nbytes, median))
            lines.setdefault(f"{name}, LogGP", []).append((nbytes, predicted))
    if not lines:
        return []
    ordered = {name: sorted(points) for name, points in sorted(lines.items())}
    words = f"Lines over the bytes, measured and by the model LogGP: {', '.join(ordered)}."
    return [Lines(title, words, SIZE, TIME, ordered)]
