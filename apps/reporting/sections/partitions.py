"""``bench partitioned``: Figures 3 to 6 of paper 004, bandwidth over the size of a partition."""

from __future__ import annotations

from collections.abc import Sequence

from onesided.apps.reporting.figure import NOTHING, Figure
from onesided.apps.reporting.quantities import RATE, SIZE
from onesided.apps.reporting.result import METHOD, Entry
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.sweep import Sweep, split

PART = "partition_bytes"
PANELS = ("order", "threads")
MARKED = "marked"
NAMES = (METHOD, "aggregate")
MOST_FIGURES = 12


class Partitions(Kind):
    """Partitioned sends."""

    def figures(self) -> list[Figure]:
        """Local. By the order, the threads and the way of marking: a line for every mechanism."""
        timed = self.result.timed
        sweep = Sweep(PART, SIZE.called("bytes of a partition"), rate, RATE, NAMES)
        found: list[Figure] = []
        for words, entries in split(timed, PANELS).items():
            for marking, marked in by_marking(entries).items():
                found += sweep.figures(f"Bandwidth: {words}, marked {marking}", marked, timed)
        return found[:MOST_FIGURES] + self._threads(timed)

    def _threads(self, timed: Sequence[Entry]) -> list[Figure]:
        """Local. One by one with every number of threads, if there are several."""
        if len({entry.label("threads") for entry in timed}) < 2:
            return []
        names = (*NAMES, "threads")
        sweep = Sweep(PART, SIZE.called("bytes of a partition"), rate, RATE, names)
        chosen = [e for e in timed if e.method in ("persistent", "psend")]
        found: list[Figure] = []
        for words, entries in split(chosen, ("order", MARKED)).items():
            found += sweep.figures(f"Threads: {words}", entries)
        return found[:MOST_FIGURES]


def by_marking(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Local. Rows by the way of marking; what is not marked at all belongs to every way."""
    ways = list(dict.fromkeys(e.label(MARKED) for e in entries if e.label(MARKED) != NOTHING))
    return {way: [e for e in entries if e.label(MARKED) in (way, NOTHING)] for way in ways}


def rate(entry: Entry) -> float | None:
    """Local. GB/s by the mean time, as paper 004 has it; None for wrong data."""
    speed = entry.number("mean_gigabytes_per_s") or entry.number("gigabytes_per_s")
    wrong = entry.values.get("verified") is False
    return None if wrong or speed is None or speed <= 0 else speed
