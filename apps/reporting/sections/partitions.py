"""``bench partitioned``: Figures 3 to 6 of paper 004, bandwidth over the size of a partition."""

from __future__ import annotations

from collections.abc import Sequence

from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.quantities import RATE, SIZE
from onesided.apps.reporting.result import METHOD, Entry
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.sweep import Sweep, split

PART = "partition_bytes"
PANELS = ("order", "threads", "marked")
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
            found += sweep.figures(f"Bandwidth: {words}", entries, timed)
        return found[:MOST_FIGURES] + self._threads(timed)

    def _threads(self, timed: Sequence[Entry]) -> list[Figure]:
        """Local. One by one with every number of threads, if there are several."""
        if len({entry.label("threads") for entry in timed}) < 2:
            return []
        names = (*NAMES, "threads")
        sweep = Sweep(PART, SIZE.called("bytes of a partition"), rate, RATE, names)
        chosen = [e for e in timed if e.method in ("persistent", "psend")]
        found: list[Figure] = []
        for words, entries in split(chosen, ("order", "marked")).items():
            found += sweep.figures(f"Threads: {words}", entries)
        return found[:MOST_FIGURES]


def rate(entry: Entry) -> float | None:
    """Local. GB/s by the mean time, as paper 004 has it; None for wrong data."""
    if entry.values.get("verified") is False:
        return None
    return entry.number("mean_gigabytes_per_s") or entry.number("gigabytes_per_s")
