"""``onesided bench alltoallv``: benchmark 1 of paper 000, uniform exchanges by every method.

Every rank sends equal blocks, filled with its own number, to all ranks, itself included. The first
2, 4, 8 ... ranks of the job exchange while the others sleep: the same number of bytes per rank
(weak scaling), or the same for all of them together (strong scaling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpi4py import MPI

from onesided.apps.bench.ranks import among, counted
from onesided.apps.bench.selection import BASELINE, chosen
from onesided.apps.bench.store import Parts
from onesided.apps.cli.options import Options, doubling
from onesided.apps.cli.progress import progress
from onesided.apps.cli.report import Report, byte_count
from onesided.apps.papers.exchange import REMARK, Contest, uniform, wrong_elements
from onesided.apps.papers.figures import Figure, draw
from onesided.apps.report.quantities import RANKS, TIME
from onesided.apps.report.result import METHOD, Entry
from onesided.apps.report.sections import Sweep, median_time, times_over_bytes
from onesided.apps.report.sections_papers import by_memory

# What benchmark 1 measures: which numbers of ranks exchange how many bytes, and in which series.
#
# Pure: no MPI call. One place may belong to several series and is measured once.

ITEM = 8  # bytes of an element


@dataclass(frozen=True, order=True)
class Place:
    """So many ranks, each of which sends so many elements to every rank, itself included."""

    ranks: int
    count: int

    @classmethod
    def nearest(cls, ranks: int, nbytes: int) -> Place:
        """Local. Where a rank sends about so many bytes; at least one element to every rank."""
        return cls(ranks, max(1, round(nbytes / ITEM / ranks)))

    @property
    def nbytes(self) -> int:
        """Local. Bytes that each rank sends."""
        return self.count * self.ranks * ITEM


@dataclass(frozen=True)
class Series:
    """Places over the numbers of ranks; ``nbytes`` per rank if weak, of all together if strong."""

    scaling: str
    nbytes: int
    places: tuple[Place, ...]

    def record(self) -> dict[str, Any]:
        """Local. For JSON."""
        places = [{"ranks": each.ranks, "bytes": each.nbytes} for each in self.places]
        return {"scaling": self.scaling, "bytes": self.nbytes, "places": places}


def weak(counts: Sequence[int], nbytes: int) -> Series:
    """Local. The same number of bytes per rank on every number of ranks."""
    return Series("weak", nbytes, tuple(Place.nearest(ranks, nbytes) for ranks in counts))


def strong(counts: Sequence[int], nbytes: int) -> Series:
    """Local. What the smallest number of ranks sends together, ``nbytes`` each, split up.

    Left out: other numbers of ranks among which less than an element per block would be left.
    """
    least = min(counts)
    total = nbytes * least
    enough = [ranks for ranks in counts if ranks == least or total >= ITEM * ranks * ranks]
    return Series("strong", total, tuple(Place.nearest(ranks, total // ranks) for ranks in enough))


def series(scalings: Sequence[str], counts: Sequence[int], sizes: Sequence[int]) -> list[Series]:
    """Local. All series that were asked for."""
    known = {"weak": weak, "strong": strong}
    return [known[name](counts, size) for name in dict.fromkeys(scalings) for size in sizes]


def places(every: Sequence[Series]) -> list[Place]:
    """Local. All different places, by number of ranks and of bytes."""
    return sorted({place for each in every for place in each.places})


# Figures 1 and 2 of paper 000: times over the number of ranks, and over bytes.

PAPERS_BYTES = 2 << 20  # of Figure 1
OVER_RANKS = Sweep("ranks", RANKS, median_time, TIME, [METHOD])


def _figure(name: str, title: str, sweep: Sweep, places: Sequence[Place]) -> Figure:
    """Local. Medians at some places; for every kind of memory that is received into a panel."""
    here = {(each.ranks, each.nbytes) for each in places}

    def takes(row: Entry) -> bool:
        return (row.number("ranks"), row.number("bytes")) in here

    def panels(rows: Sequence[Entry]) -> dict[str, list[Entry]]:
        return {f"into {memory!r} memory": mine for memory, mine in by_memory(rows).items()}

    return Figure(name, title, sweep, takes, panels)


def scaling_figures(every: Sequence[Series]) -> list[Figure]:
    """Local. Those that a sweep has data for.

    1: weak scaling at the paper's 2 MiB per rank, or the size next to it; ``strong`` at that size,
    too; 2: over the sizes, on the largest number of ranks.
    """
    found = []
    for scaling, name in (("weak", "1"), ("strong", "strong")):
        mine = [each for each in every if each.scaling == scaling and len(each.places) > 1]
        if mine:
            each = min(mine, key=lambda one: abs(one.places[0].nbytes - PAPERS_BYTES))
            title = f"{scaling} scaling, {byte_count(each.nbytes)} " + (
                "per rank (as Figure 1)" if name == "1" else "of all ranks together"
            )
            found.append(_figure(name, title, OVER_RANKS, each.places))
    largest = max(place.ranks for each in every for place in each.places)
    over = sorted({p for each in every for p in each.places if p.ranks == largest})
    if len(over) > 1:
        title = f"Alltoallv, {largest} ranks (as Figure 2)"
        found.append(_figure("2", title, times_over_bytes(METHOD), over))
    return found


BYTES_REMARK = (
    "Bytes are what a rank sends in one iteration, its own block included; GB/s: these bytes per "
    "second."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    names = [name for name in chosen(options.comm) if name != BASELINE]
    counts = counted(comm.size, options.ranks_list, doubling(2, comm.size))
    every = series(options.scaling, counts, sorted(set(options.sizes)))
    table = places(every)
    report = Report(
        "bench alltoallv",
        options.settings(),
        {
            "ranks": comm.size,
            "blocks": "uniform",
            "counts": counts,
            "series": [each.record() for each in every],
        },
        remarks=[BYTES_REMARK, REMARK],
    )
    share = options.seconds / len(table)
    parts = Parts(comm, report, options.json)
    with progress(comm, options, "exchanging", len(table) * options.iterations) as tick:
        def compare(sub: MPI.Intracomm) -> None:
            for place in table:
                if place.ranks == sub.size:
                    labels = {"ranks": str(place.ranks), "bytes": byte_count(place.nbytes)}
                    contest = Contest(sub, options, names, labels, share)
                    measure = partial(contest.add, uniform(sub, place.count), tick)
                    parts.add(f"{place.ranks} {place.count}", measure)

        for count in counts:
            among(comm, range(count), compare)
    draw(comm, options.picture, scaling_figures(every), report.rows)
    report.remarks.append(wrong_elements(report.rows, "the number of the rank that sent it"))
    return report.end(comm, options)
