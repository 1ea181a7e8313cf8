"""What one thread has to reach beside the same loop in C, and what a thread of its own costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onesided.apps.report import byte_count
from onesided.apps.rmamt.cell import SINGLE, Cell, Outcome
from onesided.apps.rmamt.rows import shares

BANDWIDTH = 0.95  # of that of C, at least, at messages of :data:`LARGE` bytes
LARGE = 1 << 20
RATE = 0.9  # of that of a bare loop, at least, of a thread that is woken for many messages


@dataclass(frozen=True)
class Goal:
    """A sentence about Put, with a number for each synchronization.

    ``share``: which of :func:`.shares`, or with ``over`` one over it. ``threads``: 0 for the main
    thread of a job without others. ``size``: of the messages, 0 for the smallest that there are.
    """

    words: str
    pattern: str
    threads: int
    share: str
    over: bool
    size: int = 0

    def sentence(self, outcomes: Mapping[Cell, Outcome]) -> str:
        """Local. Empty where there are no data for it."""
        size = self.size or min((cell.size for cell in outcomes), default=0)
        found = {}
        for cell, each in outcomes.items():
            ratio = shares(each).get(self.share) if self._takes(cell, size) else None
            if ratio:
                found[cell.sync] = 1.0 / ratio if self.over else ratio
        told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.items())
        return f"{self.words.format(size=byte_count(size))}: {told}." if found else ""

    def _takes(self, cell: Cell, size: int) -> bool:
        alone = self.threads > 0 or cell.level == SINGLE
        wanted = (self.pattern, "put", self.threads, size)
        return alone and (cell.pattern, cell.op, cell.threads, cell.size) == wanted


GOALS = (
    Goal(
        "Bandwidth of Put at {size}, one thread, over that of the same loop in C (at least "
        f"{BANDWIDTH})",
        "bandwidth",
        0,
        "alone_over_c",
        over=True,
        size=LARGE,
    ),
    Goal(
        "Message rate of Put at {size}, one thread: C's is so many times that of mpi4py",
        "rate-pairs",
        0,
        "alone_over_c",
        over=False,
    ),
    Goal(
        "Message rate of Put at {size}, one thread that the main thread wakes, over that of a "
        f"bare loop of mpi4py's calls on the main thread (at least {RATE})",
        "rate-pairs",
        1,
        "over_alone",
        over=True,
    ),
)


def goals(outcomes: Mapping[Cell, Outcome]) -> list[str]:
    """Local. A sentence for each goal that there are data for."""
    good = {cell: each for cell, each in outcomes.items() if not each.kind}
    return [words for goal in GOALS if (words := goal.sentence(good))]
