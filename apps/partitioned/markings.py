"""What one thread does in a round: compute, and mark its partitions ready, or receive them.

The loops are as short as Python allows: lists and bound methods are made beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onesided.apps.partitioned.orders import Order, Share
from onesided.apps.partitioned.runner import Runner

BLOCK = 2048  # numbers whose square roots are taken at a time; other threads run meanwhile
Compute = Callable[[], None] | None
#: What one thread does in a round; returns when its last partition was ready, by the clock.
Work = Callable[[], float]
clock = time.perf_counter


def busy(seconds: float) -> Compute:
    """Local. Work that keeps a core busy for so long; none for 0 seconds."""
    if seconds == 0:
        return None
    numbers = np.full(BLOCK, 1.5)
    root = np.sqrt

    def compute() -> None:
        end = clock() + seconds
        while clock() < end:
            root(numbers, numbers)

    return compute


def one_by_one(runner: Runner, share: Share, compute: Compute) -> Work | None:
    """Local. A call for every partition as soon as it is computed."""
    mark = runner.mark
    if mark is None:
        return None
    *most, last = share.indices

    def work() -> float:
        for index in most:
            mark(index)
        ready = clock()
        mark(last)
        return ready

    def computing_work(compute: Callable[[], None]) -> float:
        for index in most:
            compute()
            mark(index)
        compute()
        ready = clock()
        mark(last)
        return ready

    return work if compute is None else lambda: computing_work(compute)


def in_ranges(runner: Runner, share: Share, compute: Compute) -> Work | None:
    """Local. A call for every range of partitions as soon as all of it is computed."""
    mark = runner.mark_range
    if mark is None:
        return None
    *most, (low, high) = share.runs

    def work() -> float:
        for first, last in most:
            mark(first, last)
        ready = clock()
        mark(low, high)
        return ready

    def computing_work(compute: Callable[[], None]) -> float:
        for first, last in most:
            for _ in range(first, last + 1):
                compute()
            mark(first, last)
        for _ in range(low, high + 1):
            compute()
        ready = clock()
        mark(low, high)
        return ready

    return work if compute is None else lambda: computing_work(compute)


def not_at_all(runner: Runner, share: Share, compute: Compute) -> Work | None:
    """Local. Computing only: the buffer leaves as a whole, when all threads are done."""
    if compute is None:
        return None
    count = range(len(share.indices))

    def work() -> float:
        for _ in count:
            compute()
        return clock()

    return work


@dataclass(frozen=True)
class Marking:
    """A way of marking: its name, the orders it suits, and a thread's work."""

    name: str
    suits: Callable[[Order], bool]
    work: Callable[[Runner, Share, Compute], Work | None]


ONE_BY_ONE = Marking("one by one", lambda order: True, one_by_one)
BULK = Marking("in bulk", lambda order: order.in_runs, in_ranges)
WHOLE = Marking("-", lambda order: True, not_at_all)
