"""The time of every way over that of two-sided, by the number of ranks: Figure 8 of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI
from rich.table import Table

from onesided.apps.cli.failures import by_rank_0
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import NOTHING, Listing, Report, Row
from onesided.apps.miniapps.stages import STRONG, WEAK, Stage, deviation
from onesided.apps.report.chart import save
from onesided.apps.report.figure import Lines, Point
from onesided.apps.report.quantities import RANKS, RATIO
from onesided.apps.report.result import DEVIATION, REFERENCE, SECONDS

REMARK = (
    f"Overhead as in Figure 8 of the paper: the mean time of the runs over that of {REFERENCE} on "
    "as many ranks, +- their standard deviation over the same mean."
)
OVERHEAD = "overhead"  # what the name of its picture ends with

#: By way and number of ranks: the mean over that of the reference, the deviation over the same,
#: and the mean in seconds.
Overheads = Mapping[str, Mapping[int, tuple[float, float, float]]]


def ranks_of(row: Row) -> int:
    """Local. On how many ranks it was timed: its label, or what it keeps for JSON."""
    return int(row.labels.get("ranks", row.facts.get("ranks", 0)))


def by_scaling(rows: Sequence[Row]) -> dict[str, Overheads]:
    """Local. The overheads of each scaling, where both the way and the reference have times."""
    timed = [row for row in rows if not row.reason]
    means = {
        (row.labels.get("scaling", ""), ranks_of(row)): row.mean
        for row in timed
        if row.labels["method"] == REFERENCE
    }
    found: dict[str, dict[str, dict[int, tuple[float, float, float]]]] = {}
    for row in timed:
        scaling, ranks = row.labels.get("scaling", ""), ranks_of(row)
        if (scaling, ranks) in means:
            mean = means[scaling, ranks]
            mine = found.setdefault(scaling, {}).setdefault(row.labels["method"], {})
            mine[ranks] = row.mean / mean, deviation(row) / mean, row.mean
    return dict(found)


@dataclass
class OverheadTable(Listing):
    """A line for each way and a column for each number of ranks; JSON has both in every record."""

    found: Overheads = field(default_factory=dict)

    def records(self) -> list[dict[str, float | None]]:
        """Local. For JSON: by number of ranks, the overheads and the deviations of all ways."""
        return [
            {"ranks": ranks}
            | {
                name + ending: number
                for name, mine in self.found.items()
                if ranks in mine
                for ending, number in zip(("", DEVIATION, SECONDS), mine[ranks], strict=True)
            }
            for ranks in self._ranks()
        ]

    def table(self) -> Table:
        """Local. For a person."""
        table = Table(title=self.title, title_justify="left", min_width=len(self.title))
        table.add_column("method", no_wrap=True)
        for ranks in self._ranks():
            table.add_column(f"{ranks} rank{'s' if ranks > 1 else ''}", justify="right")
        for name, mine in self.found.items():
            cells = (
                f"{mine[ranks][0]:.3f} +- {mine[ranks][1]:.3f}" if ranks in mine else NOTHING
                for ranks in self._ranks()
            )
            table.add_row(name, *cells)
        return table

    def _ranks(self) -> list[int]:
        return list(dict.fromkeys(ranks for mine in self.found.values() for ranks in mine))


def listings(rows: Sequence[Row]) -> dict[str, Listing]:
    """Local. A table of overheads for each scaling of these rows, by its name in JSON."""
    return {
        f"overhead_{scaling}" if scaling else "overhead": OverheadTable(
            f"Time over that of {REFERENCE}, {f'{scaling} scaling' if scaling else 'all ranks'}",
            {},
            found=found,
        )
        for scaling, found in by_scaling(rows).items()
    }


def draw(options: Options, title: str, rows: Sequence[Row]) -> None:
    """Local. Where a picture is wanted of several numbers of ranks, a line for every way but the
    reference; of weak scaling where there is any."""
    if options.picture is None or not options.scaling:
        return
    every = by_scaling(rows)
    scaling = next((each for each in (WEAK, STRONG) if each in every), "")
    others = {name: mine for name, mine in every.get(scaling, {}).items() if name != REFERENCE}
    lines: dict[str, list[Point]] = {
        name: [(ranks, each[0]) for ranks, each in mine.items()] for name, mine in others.items()
    }
    spread = {
        name: {float(ranks): each[1] for ranks, each in mine.items()}
        for name, mine in others.items()
    }
    words = f"{title}, {scaling} scaling"
    over = RATIO.called(f"time over that of {REFERENCE}")
    panel = Lines(words, RANKS, over, lines, level=1.0, spread=spread)
    save(options.picture.of(OVERHEAD), words, [panel])


# What the commands of mini-applications end with.


def finish(comm: MPI.Intracomm, options: Options, report: Report, title: str) -> int:
    """Collective. Overheads, pictures, tables and JSON; the exit code, 1 where a result is wrong.

    ``title``: of the picture.
    """
    report.remarks.append(REMARK)
    report.listings |= listings(report.rows)
    by_rank_0(comm, lambda: draw(options, title, report.rows))
    return report.end(comm, options)


def told(every: Sequence[Stage], size: Callable[[Stage], dict[str, Any]]) -> list[dict[str, Any]]:
    """Local. The stages for JSON; ``size`` tells how large the problem of one is."""
    return [{"scaling": each.scaling, "ranks": each.ranks, **size(each)} for each in every]
