"""``bench alltoallv``: Figures 1 and 2 of paper 000, and times over that of the plain call.

``bench collectives``: the same of every collective."""

from __future__ import annotations

from collections.abc import Sequence

from onesided.apps.reporting.figure import Figure
from onesided.apps.reporting.quantities import RANKS, RATIO, SIZE, TIME
from onesided.apps.reporting.result import METHOD, Entry, known
from onesided.apps.reporting.sections.kind import Kind
from onesided.apps.reporting.sections.rows import records
from onesided.apps.reporting.sections.sweep import (
    Sweep,
    largest,
    median_time,
    ratios_over_bytes,
    times_over_bytes,
)
from onesided.apps.selection import BASELINE

MEMORY = "memory"


class Exchanges(Kind):
    """Uniform exchanges."""

    def figures(self) -> list[Figure]:
        """Local. By the memory received into: over the bytes, then over the ranks."""
        timed = self.result.timed
        found: list[Figure] = []
        for memory, entries in by_memory(timed).items():
            told = f"receiving into {memory!r} memory"
            most = largest(entries, "ranks")
            found += times_over_bytes(METHOD).figures(f"Time over bytes, {told}", most, timed)
            ratios = ratios_over_bytes("MPI_Alltoallv", METHOD)
            found += ratios.figures(f"Time over that of MPI_Alltoallv, {told}", most, timed)
        for memory, entries in by_memory(timed).items():
            found += self._scaling(memory, entries)
        return found

    def _scaling(self, memory: str, entries: Sequence[Entry]) -> list[Figure]:
        """Local. Over the ranks, for the most bytes of every series that the command measured."""
        chosen: dict[str, tuple[float, set[tuple[float | None, float | None]]]] = {}
        for series in records(self.result.pattern.get("series")):
            scaling, nbytes = str(series.get("scaling")), known(series.get("bytes"))
            places = {
                (known(place.get("ranks")), known(place.get("bytes")))
                for place in records(series.get("places"))
            }
            if nbytes and len(places) > 1 and nbytes > chosen.get(scaling, (0.0, places))[0]:
                chosen[scaling] = nbytes, places
        sweep = Sweep("ranks", RANKS, median_time, TIME, [METHOD])
        found: list[Figure] = []
        for scaling, (nbytes, places) in chosen.items():
            rows = [e for e in entries if (e.number("ranks"), e.number("bytes")) in places]
            told = f"receiving into {memory!r} memory"
            title = f"Time over ranks, {scaling} scaling, {SIZE.show(nbytes)}, {told}"
            found += sweep.figures(title, rows, self.result.timed)
        return found


class Collectives(Kind):
    """All collectives: ratios to the MPI's blocking call."""

    def figures(self) -> list[Figure]:
        """Local. One for every operation."""
        timed = self.result.timed
        over = RATIO.called("time over that of the blocking call")
        sweep = Sweep("bytes", SIZE, lambda entry: entry.ratio(BASELINE), over, [METHOD], level=1.0)
        found: list[Figure] = []
        for name in dict.fromkeys(entry.label("operation") for entry in timed):
            mine = [entry for entry in timed if entry.label("operation") == name]
            found += sweep.figures(f"{name}, time over that of MPI_{name}", mine, timed)
        return found


def by_memory(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Local. Rows by the memory of the request; what needs no set-up belongs to all of them."""
    others = [entry for entry in entries if entry.number("setup_s") is None]
    kinds = dict.fromkeys(e.label(MEMORY) for e in entries if e.number("setup_s") is not None)
    found = {
        kind: [
            *others,
            *(e for e in entries if e.number("setup_s") is not None and e.label(MEMORY) == kind),
        ]
        for kind in kinds
    }
    return found or {"plain": others}
