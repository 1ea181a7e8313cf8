"""The time of every way over that of two-sided, by the number of ranks: Figure 8 of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI
from rich.console import Console
from rich.table import Table

from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import NOTHING, Listing, Report
from onesided.apps.miniapps.way import REFERENCE, STRONG, WEAK, MiniRow, Stage
from onesided.apps.report.chart import save
from onesided.apps.report.figure import Point, drawn
from onesided.apps.report.quantities import RANKS, RATIO
from onesided.apps.report.result import DEVIATION, SECONDS
from onesided.collectives import agreed

REMARK = (
    f"Overhead as in Figure 8 of the paper: the mean time of the runs over that of {REFERENCE} on "
    "as many ranks, +- their standard deviation over the same mean."
)


@dataclass(frozen=True)
class Overhead:
    """Of one way on so many ranks: mean and deviation over the mean of the reference.

    ``mean_s`` has the seconds, of what the rows of the mini-application time.
    """

    ranks: int
    name: str
    mean: float
    deviation: float
    mean_s: float

    @classmethod
    def of(cls, row: MiniRow, reference: MiniRow) -> Overhead:
        """Local."""
        return cls(
            ranks_of(row),
            row.labels["method"],
            row.mean / reference.mean,
            row.deviation / reference.mean,
            row.mean,
        )


def overheads(rows: Sequence[MiniRow]) -> list[Overhead]:
    """Local. Of the rows of one scaling, where both the way and the reference have times."""
    timed = [row for row in rows if not row.reason]
    references = {ranks_of(row): row for row in timed if row.labels["method"] == REFERENCE}
    return [
        Overhead.of(row, references[ranks_of(row)]) for row in timed if ranks_of(row) in references
    ]


def ranks_of(row: MiniRow) -> int:
    """Local. On how many ranks it was timed: its label, or what it keeps for JSON."""
    return int(row.labels.get("ranks", row.facts.get("ranks", 0)))


@dataclass
class OverheadTable(Listing):
    """A line for each way and a column for each number of ranks; JSON has both in every record."""

    found: list[Overhead] = field(default_factory=list)

    def records(self) -> list[dict[str, float | None]]:
        """Local. For JSON: by number of ranks, the overheads and the deviations of all ways."""
        records = []
        for ranks in self._ranks():
            record: dict[str, float | None] = {"ranks": ranks}
            for each in self.found:
                if each.ranks == ranks:
                    record |= {
                        each.name: each.mean,
                        f"{each.name}{DEVIATION}": each.deviation,
                        f"{each.name}{SECONDS}": each.mean_s,
                    }
            records.append(record)
        return records

    def table(self) -> Table:
        """Local. For a person."""
        table = Table(title=self.title, title_justify="left", min_width=len(self.title))
        table.add_column("method", no_wrap=True)
        for ranks in self._ranks():
            table.add_column(f"{ranks} rank{'s' if ranks > 1 else ''}", justify="right")
        for name in dict.fromkeys(each.name for each in self.found):
            mine = {each.ranks: each for each in self.found if each.name == name}
            table.add_row(name, *(_cell(mine.get(ranks)) for ranks in self._ranks()))
        return table

    def _ranks(self) -> list[int]:
        return list(dict.fromkeys(each.ranks for each in self.found))


def _cell(each: Overhead | None) -> str:
    return NOTHING if each is None else f"{each.mean:.3f} +- {each.deviation:.3f}"


def listings(rows: Sequence[MiniRow]) -> dict[str, Listing]:
    """Local. A table of overheads for each scaling of these rows, by its name in JSON."""
    found: dict[str, Listing] = {}
    for scaling in _scalings(rows):
        mine = overheads(_of_scaling(rows, scaling))
        name = f"{scaling} scaling" if scaling else "all ranks"
        key = f"overhead_{scaling}" if scaling else "overhead"
        found[key] = OverheadTable(f"Time over that of {REFERENCE}, {name}", {}, found=mine)
    return found


def _scalings(rows: Sequence[MiniRow]) -> list[str]:
    return list(dict.fromkeys(row.labels.get("scaling", "") for row in rows))


def _of_scaling(rows: Sequence[MiniRow], scaling: str) -> list[MiniRow]:
    return [row for row in rows if row.labels.get("scaling", "") == scaling]


def draw(options: Options, title: str, rows: Sequence[MiniRow]) -> None:
    """Local. Where a picture is wanted of several numbers of ranks, a line for every way but the
    reference; of weak scaling where there is any."""
    if options.picture is None or not options.scaling:
        return
    scalings = _scalings(rows)
    scaling = next((each for each in (WEAK, STRONG) if each in scalings), "")
    lines: dict[str, list[Point]] = {}
    spread: dict[str, dict[float, float]] = {}
    for each in overheads(_of_scaling(rows, scaling)):
        if each.name != REFERENCE:
            lines.setdefault(each.name, []).append((each.ranks, each.mean))
            spread.setdefault(each.name, {})[each.ranks] = each.deviation
    words = f"{title}, {scaling} scaling" if scaling else title
    over = RATIO.called(f"time over that of {REFERENCE}")
    panel = drawn(words, RANKS, over, lines, level=1.0, spread=spread)
    save(options.picture.of(OVERHEAD), words, [panel])


# What the commands of mini-applications begin and end with.

ROOT = 0
OVERHEAD = "overhead"  # what the name of its picture ends with
ITERATION_REMARK = (
    "Times are those of an iteration of conjugate gradients, the mean over a run, by the slowest "
    "rank; exchange: what the ranks spend with their ghosts, waiting included; product: the local "
    "one; sums: the two reductions; vectors: the rest."
)


@contextmanager
def solving(
    comm: MPI.Intracomm, options: Options, steps: int
) -> Iterator[tuple[Console | None, Callable[[], None]]]:
    """Collective. Yields the console of rank 0, and what to call after each of so many steps."""
    out = console(options.terminal) if comm.rank == ROOT else None
    with progress(out, "solving", steps) as tick:
        yield out, tick


@contextmanager
def drawing(comm: MPI.Intracomm) -> Iterator[None]:
    """Collective. What rank 0 draws in the block; where it cannot, that is every rank's error."""
    with user_errors(), agreed(comm):
        yield


def finish(
    comm: MPI.Intracomm,
    options: Options,
    out: Console | None,
    report: Report,
    rows: Sequence[MiniRow],
    title: str,
) -> int:
    """Collective. Overheads, pictures, tables and JSON; the exit code, 1 where a result is wrong.

    ``title``: of the picture.
    """
    report.rows = list(rows)
    report.remarks.append(REMARK)
    report.listings = {**report.listings, **listings(rows)}
    with drawing(comm):
        if comm.rank == ROOT:
            draw(options, title, rows)
    report.finish(comm, out, options.json)
    return report.code(comm)


def staged(every: Sequence[Stage], size: Callable[[Stage], dict[str, Any]]) -> list[dict[str, Any]]:
    """Local. The stages for JSON; ``size`` tells how large the problem of one is."""
    return [{"scaling": each.scaling, "ranks": each.ranks, **size(each)} for each in every]
