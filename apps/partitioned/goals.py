"""What partitioned sends have to reach, and in which cases: the numbers of ``--targets``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from mpi4py import MPI

from onesided.apps.comparison import comparison, conclusions
from onesided.apps.options import settings
from onesided.apps.partitioned.contestants import AUTO, NATIVE, SINGLE, Entry
from onesided.apps.partitioned.markings import BULK, ONE_BY_ONE, Marking
from onesided.apps.partitioned.options import AGGREGATES, EVERY
from onesided.apps.partitioned.orders import LEFT_TO_RIGHT
from onesided.apps.partitioned.rows import compared, facts, reasons
from onesided.apps.partitioned.runner import RANKS
from onesided.apps.partitioned.sweep import Place, Result, Sweep
from onesided.apps.report import Report, Row, byte_count
from onesided.apps.targets import Target

KIBI = 1024
BUFFER = 1 << 20  # for which the targets hold
REMARK = (
    "Reached: the median over the rounds of how many times as fast ours is. One thread, from left "
    "to right; psend, the MPI's own, is marked in the same way as ours."
)


@dataclass(frozen=True)
class Goal:
    """A bound for partitions of ``least`` bytes and more, below ``below``.

    ``marking``: of ours, None for any; ``mpi``: the MPI for which it holds, "" for any.
    """

    opponent: str
    bound: float
    least: int
    below: int = 1 << 62
    marking: Marking | None = None
    mpi: str = ""

    def holds(self, part: int, entry: Entry, vendor: str) -> bool:
        """Local. Whether a measurement has this target."""
        marked = self.marking is None or entry.marking is self.marking
        return self.least <= part < self.below and marked and self.mpi in ("", vendor)


GOALS = (
    Goal(SINGLE.method, 0.85, 64, marking=BULK),
    Goal(SINGLE.method, 0.85, 16 * KIBI, marking=ONE_BY_ONE),
    Goal(SINGLE.method, 0.60, 4 * KIBI, 16 * KIBI, ONE_BY_ONE),
    Goal(NATIVE.method, 1.8, 64 * KIBI, mpi="MPICH"),
    Goal(NATIVE.method, 50.0, 256, 257, mpi="Open MPI"),
    Goal(NATIVE.method, 0.95, 4 * KIBI),
)


def bound(opponent: str, part: int, entry: Entry, vendor: str) -> float | None:
    """Local. The highest bound that holds; None where there is no target."""
    bounds = [
        goal.bound
        for goal in GOALS
        if goal.opponent == opponent and goal.holds(part, entry, vendor)
    ]
    return max(bounds, default=None)


def narrowed(options: Namespace) -> Namespace:
    """Local. The options of the cases that have targets; ``all`` becomes what a user gets."""
    asked = AUTO if options.comm == EVERY else options.comm
    changed = {
        "comm": f"{NATIVE.method},{asked}",
        "orders": [LEFT_TO_RIGHT],
        "threads": [1],
        "aggregates": [AGGREGATES[-1]],
        "compute": 0.0,
    }
    return Namespace(**(vars(options) | changed))


def goal_report(sweep: Sweep) -> Report:
    """Local. A row for every size of partitions, marking and opponent of ours."""
    options = sweep.options
    pattern = {"ranks": RANKS, "buffer_bytes": options.buffer, **facts(sweep.results)}
    report = Report("bench partitioned --targets", settings(options), pattern, remarks=[REMARK])
    for place, found in sweep.results.items():
        for result in found:
            report.rows += _rows(place, result, found, options.buffer)
    report.rows += [_without_place(row) for row in reasons(sweep)]
    wrong = {each.entry.name for found in sweep.results.values() for each in found if each.wrong}
    report.remarks += [f"WRONG data: {name}" for name in sorted(wrong)]
    nothing = f"no targets are set for a buffer of {byte_count(options.buffer)}"
    report.remarks += conclusions(report.rows, nothing)
    return report


def _without_place(row: Row) -> Row:
    """Local. A reason without order and threads, of which there is one."""
    labels = {name: text for name, text in row.labels.items() if name not in ("order", "threads")}
    return Row(labels, reason=row.reason)


def _rows(place: Place, result: Result, others: list[Result], nbytes: int) -> Iterator[Row]:
    contestant = result.entry.contestant
    labels = {"partition": byte_count(place.part), **result.entry.labels}
    if contestant.aggregate is None or not result.times:
        return
    vendor = MPI.get_vendor()[0]
    for opponent, times in compared(result, others).items():
        rounds = min(len(times), len(result.times))
        found = bound(opponent, place.part, result.entry, vendor)
        least = None if contestant.python else found
        yield comparison(
            labels,
            result.times[:rounds],
            times[:rounds],
            Target(opponent, 1.0 if least is None else least),
            wanted=least is not None and nbytes == BUFFER,
            nbytes=nbytes,
        )
