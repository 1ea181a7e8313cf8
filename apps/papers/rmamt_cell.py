"""A cell of the matrix: what is measured there, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from itertools import groupby
from pathlib import Path

from onesided.apps.cli.failures import CommandError, words
from onesided.apps.cli.options import Options, size
from onesided.apps.cli.report import byte_count
from onesided.apps.papers.options import LARGEST, QUICK_SIZES, WINDOWS
from onesided.apps.report.threads import MAIN as MAIN
from onesided.apps.report.threads import MULTIPLE as MULTIPLE
from onesided.apps.report.threads import SEND as SEND
from onesided.apps.report.threads import SINGLE as SINGLE
from onesided.apps.report.threads import TWO_SIDED as TWO_SIDED

# The four patterns: who transfers to or from whom, and how many messages there are in an epoch.


@dataclass(frozen=True)
class Route:
    """The ranks that a rank puts to or gets from, and those that do so with it, slot by slot.

    Slot k of a rank's window belongs to the rank ``incoming[k]``, whose ``outgoing[k]`` it is.
    """

    outgoing: Sequence[int] = ()
    incoming: Sequence[int] = ()

    @property
    def slots(self) -> int:
        """Local. How many there are."""
        return max(len(self.outgoing), len(self.incoming))


@dataclass(frozen=True)
class Pattern:
    """``many``: an epoch has many messages of every thread, not one.

    ``flush``: under ``lock_all`` every operation is flushed. ``ranks``: of a job, where so many
    were asked for; ``route``: of a rank of so many, with so many neighbors. ``from_one``: sizes
    between 1 and 16 bytes are measured, too.
    """

    name: str
    many: bool
    flush: bool
    from_one: bool
    ranks: Callable[[int], int]
    route: Callable[[int, int, int], Route]


def paired(rank: int, ranks: int, neighbors: int) -> Route:
    """Local. The first half of the ranks transfers, each with one of the second half."""
    half = ranks // 2
    if rank < half:
        return Route(outgoing=[rank + half])
    return Route(incoming=[rank - half])


def surrounded(rank: int, ranks: int, neighbors: int) -> Route:
    """Local. Every rank transfers with the ranks at distances 1, -1, 2, -2 ... around a ring.

    Where there are fewer others than neighbors, they come again, each time with a slot of its own.
    """
    steps = distances(ranks, neighbors)
    return Route(
        [(rank + step) % ranks for step in steps],
        [(rank - step) % ranks for step in steps],
    )


def distances(ranks: int, neighbors: int) -> list[int]:
    """Local. How far the neighbors of every rank are, all of them other ranks."""
    near = dict.fromkeys(
        step % ranks for far in range(1, ranks) for step in (far, -far) if step % ranks
    )
    order = list(near)
    return [order[number % len(order)] for number in range(neighbors)]


#: By name, in the order of the paper.
PATTERNS: Mapping[str, Pattern] = {
    each.name: each
    for each in (
        Pattern("latency", False, False, False, lambda asked: 2, paired),
        Pattern("bandwidth", True, False, False, lambda asked: 2, paired),
        Pattern("rate-pairs", True, True, True, lambda asked: asked - asked % 2, paired),
        Pattern("rate-halo", True, True, True, lambda asked: asked, surrounded),
    )
}


#: What transfers in a cell: mpi4py's calls on its threads; the same calls on the main thread alone;
#: a loop in C on its threads, outside of Python's lock; that loop on the main thread alone.
THREADS, ALONE, RELEASED, C = "threads", "alone", "released", "c"


@dataclass(frozen=True)
class Cell:
    """``threads`` is 0 where the main thread transfers; ``size``: bytes of a message.

    ``level``: the thread level that MPI is initialized with.
    """

    pattern: str
    sync: str
    op: str
    threads: int
    size: int
    level: str

    @property
    def name(self) -> str:
        """Local. No other cell has it."""
        return " ".join(map(str, astuple(self)))

    @property
    def labels(self) -> dict[str, str]:
        """Local. For a report."""
        return {
            "pattern": self.pattern,
            "sync": self.sync,
            "op": self.op,
            "threads": str(self.threads or MAIN),
            "level": self.level,
            "message": byte_count(self.size),
        }

    @property
    def is_two_sided(self) -> bool:
        """Local. Whether it is a baseline of sends and receives."""
        return self.op == SEND


@dataclass(frozen=True)
class Run:
    """Seconds of a round in one run: mean and median of all its rounds."""

    mean: float
    median: float


@dataclass
class Outcome:
    """What came of a cell: ``kind`` of failure and ``reason``, both empty where it was measured.

    ``messages`` and ``nbytes`` are those of a round, all ranks together; ``ways``: how many
    messages follow each other in a round, of which a latency is one; ``wrong``: messages with
    wrong data; ``loops``: the runs of everything that transfers, by name.
    """

    messages: int = 0
    nbytes: int = 0
    ways: int = 1
    rounds: int = 0
    wrong: int = 0
    loops: dict[str, list[Run]] = field(default_factory=dict)
    kind: str = ""
    reason: str = ""


# What every cell of a sweep is measured with, and the file that tells a job its cells.


@dataclass(frozen=True)
class Plan:
    """``messages``: of a thread in an epoch, fewer where a window would have more than ``window``
    bytes; ``neighbors``: of a halo.

    ``runs``: how often a cell is measured with new threads and a new window, each time at most
    ``iterations`` rounds and about ``seconds``. ``limit``: seconds after which a cell hangs.
    """

    messages: int
    window: int
    neighbors: int
    runs: int
    iterations: int
    seconds: float
    limit: float


@dataclass(frozen=True)
class Task:
    """The cells of a job, one after the other; ``library``: the loop in C, empty without one."""

    cells: Sequence[Cell]
    plan: Plan
    library: str

    def write(self, path: Path) -> None:
        """Local."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Task:
        """Local. :class:`CommandError` for a file that :meth:`write` has not written."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            cells = [Cell(**each) for each in content["cells"]]
            return cls(cells, Plan(**content["plan"]), content["library"])
        except OSError as error:
            raise CommandError(words(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise CommandError(f"{path}: no cells of bench rma-mt: {words(error)}") from error


# The cells of a sweep: patterns, synchronizations, operations, threads, sizes, thread levels.

FROM = 16  # bytes from which on all powers of two are measured in every pattern


@dataclass(frozen=True)
class Batch:
    """Cells of the same number of ranks and the same thread level, for one job."""

    ranks: int
    level: str
    cells: Sequence[Cell]


def plan_of(options: Options) -> Plan:
    """Local. What the cells are measured with."""
    return Plan(
        messages=options.messages,
        window=options.window or size(WINDOWS[options.quick]),
        neighbors=options.neighbors,
        runs=options.repeats,
        iterations=options.iterations,
        seconds=options.run_seconds,
        limit=options.limit,
    )


def cells_of(options: Options) -> list[Cell]:
    """Local. All cells, in the order in which they are measured."""
    counts = sorted(set(options.threads))
    found = []
    for name in dict.fromkeys(options.patterns):
        sizes = _sizes(options, PATTERNS[name])
        for level in dict.fromkeys(options.thread_levels):
            found += [Cell(name, TWO_SIDED, SEND, 0, nbytes, level) for nbytes in sizes]
            found += [
                Cell(name, sync, op, threads, nbytes, level)
                for sync in dict.fromkeys(options.syncs)
                for op in dict.fromkeys(options.ops)
                for threads in (counts if level == MULTIPLE else [0])
                for nbytes in sizes
            ]
    return found


def check(cells: Sequence[Cell], options: Options) -> None:
    """Local. :class:`CommandError` where a message has no place in a window that was asked for.

    A window that was not asked for has at least a message of every thread to every neighbor.
    """
    for cell in cells if options.window else ():
        pattern = PATTERNS[cell.pattern]
        ranks = pattern.ranks(options.ranks)
        slots = pattern.route(0, ranks, options.neighbors).slots
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


def _sizes(options: Options, pattern: Pattern) -> list[int]:
    """Local. Bytes of the messages of a pattern, ascending."""
    if options.sizes:
        return sorted(set(options.sizes))
    if options.quick:
        return [size(text) for text in QUICK_SIZES.split()]
    powers = [1 << power for power in range(size(LARGEST).bit_length())]
    return [each for each in powers if each == 1 or each >= FROM or pattern.from_one]
