"""``bench broadcast``: Figures 13 to 16 of paper 003, LogGP beside them, and the crossovers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onesided.apps.reporting.figure import NOTHING, Figure
from onesided.apps.reporting.lines import Lines, Point
from onesided.apps.reporting.quantities import RANKS, SIZE, TIME, Quantity
from onesided.apps.reporting.result import METHOD, Entry
from onesided.apps.reporting.section import Block
from onesided.apps.reporting.sections.kind import Kind
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
OVER: Mapping[str, tuple[Quantity, Quantity]] = {"bytes": (RANKS, SIZE), "ranks": (SIZE, RANKS)}


class Broadcasts(Kind):
    """One rank's data to all."""

    def figures(self) -> list[Figure]:
        """Local. Over the bytes on most ranks, over the ranks with most bytes, and the model."""
        timed = self.result.timed
        most = largest(timed, "ranks")
        ranks = RANKS.show(most[0].number("ranks") or 0.0) if most else ""
        found = times_over_bytes(*NAMES).figures(f"Broadcast on {ranks} ranks", most)
        found += ratios_over_bytes(*NAMES).figures(f"Over MPI_Bcast on {ranks} ranks", most)
        if len({entry.label("ranks") for entry in timed}) > 1:
            size = largest(timed, "bytes")
            told = SIZE.show(size[0].number("bytes") or 0.0)
            sweep = Sweep("ranks", RANKS, median_time, TIME, NAMES)
            found += sweep.figures(f"Broadcast of {told}", size)
        return found + _predicted(f"LogGP beside the times on {ranks} ranks", most)

    def tables(self) -> list[Block]:
        """Local. First where a tree overtakes the linear broadcast."""
        crossings = self.result.pattern.get("crossings")
        rows = [_crossing(each) for each in crossings or ()] if isinstance(crossings, list) else []
        columns = ["tree", "overtakes", "at", "from here on", "from here on, by LogGP"]
        first: list[Block] = [Table("Crossovers", columns, rows, heads=2)] if rows else []
        return first + super().tables()


def _crossing(record: Mapping[str, Any]) -> list[str]:
    at, over = OVER.get(str(record.get("over")), (SIZE, RANKS))

    def told(value: Any) -> str:
        return "nowhere" if not isinstance(value, int | float) else over.show(value)

    order = str(record.get("order") or "").replace(NOTHING, "")
    model = told(record.get("predicted")) if record.get("modelled") else "no model"
    held = at.show(float(record.get("at") or 0)) + (" ranks" if at is RANKS else "")
    tree = f"{record.get('method')} {order}".strip()
    return [tree, str(record.get("other")), held, told(record.get("measured")), model]


def _predicted(title: str, entries: Sequence[Entry]) -> list[Figure]:
    lines: dict[str, list[Point]] = {}
    for entry in entries:
        parts = entry.values.get("parts")
        predicted = parts.get("predicted") if isinstance(parts, dict) else None
        nbytes, median = entry.number("bytes"), entry.median
        if isinstance(predicted, int | float) and nbytes is not None and median is not None:
            name = named(entry, NAMES)
            lines.setdefault(name, []).append((nbytes, median))
            lines.setdefault(f"{name}, LogGP", []).append((nbytes, float(predicted)))
    if not lines:
        return []
    ordered = {name: sorted(points) for name, points in sorted(lines.items())}
    words = f"Lines over the bytes, measured and by the model LogGP: {', '.join(ordered)}."
    return [Lines(title, words, SIZE, TIME, ordered)]
