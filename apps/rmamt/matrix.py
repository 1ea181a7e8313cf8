"""The cells of a sweep: patterns, synchronizations, operations, threads, sizes, thread levels."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from onesided.apps.failures import CommandError
from onesided.apps.options import size
from onesided.apps.report import byte_count
from onesided.apps.rmamt.cell import MULTIPLE, SEND, TWO_SIDED, Cell
from onesided.apps.rmamt.options import LARGEST, QUICK_SIZES, QUICK_THREADS, THREADS, USUAL
from onesided.apps.rmamt.patterns import PATTERNS, Pattern
from onesided.apps.rmamt.plan import Plan

FROM = 16  # bytes from which on all powers of two are measured in every pattern


@dataclass(frozen=True)
class Batch:
    """Cells of the same number of ranks and the same thread level, for one job."""

    ranks: int
    level: str
    cells: Sequence[Cell]


def plan_of(options: Namespace) -> Plan:
    """Local. What the cells are measured with."""
    return Plan(
        messages=int(usual(options, "messages")),
        window=int(usual(options, "window")),
        neighbours=options.neighbours,
        runs=int(usual(options, "runs")),
        iterations=int(usual(options, "iterations")),
        seconds=usual(options, "seconds"),
        limit=usual(options, "limit"),
    )


def usual(options: Namespace, name: str) -> int | float:
    """Local. An option as it was given, or what it is where it was not."""
    given: int | float | None = getattr(options, name)
    return USUAL[name][options.quick] if given is None else given


def cells_of(options: Namespace) -> list[Cell]:
    """Local. All cells, in the order in which they are measured."""
    counts = sorted(set(options.threads or (QUICK_THREADS if options.quick else THREADS)))
    found = []
    for name in dict.fromkeys(options.patterns):
        sizes = _sizes(options, PATTERNS[name])
        for level in dict.fromkeys(options.levels):
            found += [Cell(name, TWO_SIDED, SEND, 0, nbytes, level) for nbytes in sizes]
            found += [
                Cell(name, sync, op, threads, nbytes, level)
                for sync in dict.fromkeys(options.syncs)
                for op in dict.fromkeys(options.ops)
                for threads in (counts if level == MULTIPLE else [0])
                for nbytes in sizes
            ]
    return found


def check(cells: Sequence[Cell], options: Namespace) -> None:
    """Local. :class:`CommandError` where a message has no place in a window that was asked for.

    A window that was not asked for has at least a message of every thread to every neighbour.
    """
    for cell in cells if options.window else ():
        pattern = PATTERNS[cell.pattern]
        ranks = pattern.ranks(options.job_ranks)
        slots = pattern.route(0, ranks, options.neighbours).slots
        needed = slots * max(1, cell.threads) * cell.size
        if needed > options.window:
            raise CommandError(
                f"{cell.pattern} of {cell.threads or 1} threads and messages of "
                f"{byte_count(cell.size)}: the last target, bytes {needed - cell.size} to "
                f"{needed}, lies outside of a window of {byte_count(options.window)} (--window)"
            )


def batches(cells: Sequence[Cell], asked: int, most: int) -> list[Batch]:
    """Local. Cells in order, cut so that a job has ``most`` at most.

    ``asked``: how many ranks were asked for.
    """

    def needs(cell: Cell) -> tuple[int, str, str]:
        return PATTERNS[cell.pattern].ranks(asked), cell.level, cell.pattern

    found = []
    for (ranks, level, _), group in groupby(cells, needs):
        each = list(group)
        found += [
            Batch(ranks, level, each[start : start + most]) for start in range(0, len(each), most)
        ]
    return found


def _sizes(options: Namespace, pattern: Pattern) -> list[int]:
    """Local. Bytes of the messages of a pattern, ascending."""
    if options.sizes:
        return sorted(set(options.sizes))
    if options.quick:
        return [size(text) for text in QUICK_SIZES.split()]
    powers = [1 << power for power in range(size(LARGEST).bit_length())]
    return [each for each in powers if each == 1 or each >= FROM or pattern.from_one]
