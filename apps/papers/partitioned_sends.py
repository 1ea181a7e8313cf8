"""Who takes part in ``onesided bench partitioned``, the only place where one is chosen, and in
which order threads mark partitions ready."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.selection import named
from onesided.apps.bench.timing import nothing
from onesided.apps.cli.options import ALL
from onesided.apps.cli.report import byte_count
from onesided.collectives import Precv_init, Psend_init, UnsupportedError, partitioned_methods

# A variant that is ready to run, on one side of the transfer.

SENDER, RECEIVER = 0, 1
RANKS = 2


@dataclass(frozen=True)
class Lane:
    """What all variants have in common: two ranks, a buffer on each, and its partitions.

    ``tag``: of the variant's own messages, where it sends one for all partitions.
    """

    comm: MPI.Intracomm
    message: NDArray[np.uint8]
    partitions: int
    tag: int = 0

    @property
    def is_sender(self) -> bool:
        return self.comm.rank == SENDER

    @property
    def peer(self) -> int:
        """Local. The other rank."""
        return RECEIVER if self.is_sender else SENDER

    def pieces(self) -> list[Any]:
        """Local, alike on both ranks. The partitions of this side, as MPI takes them;
        ``UnsupportedError`` where not each can have a tag of its own."""
        bound = self.comm.Get_attr(MPI.TAG_UB)
        if isinstance(bound, int) and self.partitions - 1 > bound:
            raise UnsupportedError(f"{self.partitions} message tags, this MPI has {bound + 1}")
        return [[piece, MPI.BYTE] for piece in self.message.reshape(self.partitions, -1)]


@dataclass
class Runner:
    """The steps of one side: Listing 1's start, loop over partitions, and wait.

    ``mark`` sends or receives one partition, ``mark_range`` those from the first to the last, both
    included; None where this side, or this way, does nothing of the kind.
    """

    start: Callable[[], object] = nothing
    mark: Callable[[int], object] | None = None
    mark_range: Callable[[int, int], object] | None = None
    wait: Callable[[], object] = nothing
    free: Callable[[], object] = nothing


# Variants that send a message for every partition, and the one that sends a single message.
#
# As Tables 1 and 2 of the paper have them; a partition's number is its tag, so that threads on both
# sides find each other.


def single(lane: Lane) -> Runner:
    """Local. The whole buffer by one blocking message, when everything is ready."""
    transfer = lane.comm.Send if lane.is_sender else lane.comm.Recv
    return Runner(wait=partial(transfer, [lane.message, MPI.BYTE], lane.peer, lane.tag))


def blocking(lane: Lane) -> Runner:
    """Local. Send and Recv."""
    transfer = lane.comm.Send if lane.is_sender else lane.comm.Recv
    pieces, peer = lane.pieces(), lane.peer
    return Runner(mark=lambda index: transfer(pieces[index], peer, index))


def persistent(lane: Lane) -> Runner:
    """Local. Send_init and Recv_init beforehand, Start, Waitall."""
    make = lane.comm.Send_init if lane.is_sender else lane.comm.Recv_init
    requests: list[Any] = [make(each, lane.peer, k) for k, each in enumerate(lane.pieces())]
    starts = [request.Start for request in requests]

    def free() -> None:
        for request in requests:
            request.Free()

    wait = partial(MPI.Request.Waitall, requests)
    return Runner(mark=lambda index: starts[index](), wait=wait, free=free)


def immediate(lane: Lane) -> Runner:
    """Local. Isend and Irecv, Waitall."""
    begin = lane.comm.Isend if lane.is_sender else lane.comm.Irecv
    pieces, peer = lane.pieces(), lane.peer
    requests = [MPI.REQUEST_NULL for _ in pieces]

    def mark(index: int) -> None:
        requests[index] = begin(pieces[index], peer, index)

    return Runner(mark=mark, wait=partial(MPI.Request.Waitall, requests))


# Variants that send the buffer as one partitioned message: the MPI's own, and ours.


def native(lane: Lane) -> Runner:
    """Local. ``MPI_Psend_init`` and ``MPI_Precv_init`` as they are.

    :class:`UnsupportedError` where this MPI has none. It is not asked whether they work: wrong data
    are for the verification to find.
    """
    init = lane.comm.Psend_init if lane.is_sender else lane.comm.Precv_init
    try:
        request = init([lane.message, MPI.BYTE], lane.partitions, lane.peer, lane.tag)
    except (MPI.Exception, NotImplementedError) as error:
        raise UnsupportedError(f"no partitioned send in this MPI: {error}") from error
    return _runner(lane, request)


def ours(method: str, aggregate: int) -> Callable[[Lane], Runner]:
    """Local. What makes a variant of one of our methods."""

    def make(lane: Lane) -> Runner:
        """Local. The handshake comes with the first round, and with it the method's refusal."""
        init: Any = Psend_init if lane.is_sender else Precv_init
        request = init(
            lane.comm, lane.message, lane.partitions, lane.peer, lane.tag,
            method=method, aggregate=aggregate,
        )
        return _runner(lane, request)

    return make


def _runner(lane: Lane, request: Any) -> Runner:
    runner = Runner(request.Start, wait=request.Wait, free=request.Free)
    if lane.is_sender:
        runner.mark, runner.mark_range = request.Pready, request.Pready_range
    return runner


# In which order partitions are marked ready, and by which thread: geometry without any MPI.
#
# The loop schemes of section 4.2 of the paper on partitioned communication in Open MPI.

#: What each thread marks, of so many partitions, threads and a seed.
Order = Callable[[int, int, int], list[list[int]]]


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Local. The same in as few ranges as keep the order: first and last of each."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and index == found[-1][1] + 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def left_to_right(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. Every thread has a part of its own, and marks it from its lowest partition on."""
    return _split(list(range(partitions)), threads)


def randomized(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. All partitions in one random order, of which every thread has a part."""
    shuffled: list[int] = np.random.default_rng(seed).permutation(partitions).tolist()
    return _split(shuffled, threads)


def neighborhood(partitions: int, threads: int, seed: int) -> list[list[int]]:
    """Local. Partitions are the cells of a grid, row by row, and every thread has a tile of it.

    A thread begins with the border of its tile, for which neighbors wait (the first row, the two
    ends of every other row, the last row), and goes on with the rows inside.
    """
    rows, columns = rectangle(partitions)
    down, across = rectangle(threads)
    return [
        [row * columns + column for row, column in _tile(top, bottom, left, right)]
        for top, bottom in _cuts(rows, down)
        for left, right in _cuts(columns, across)
    ]


ORDERS: Mapping[str, Order] = {
    "left-to-right": left_to_right, "randomized": randomized, "neighborhood": neighborhood,
}  # fmt: skip
SCATTERED = ("randomized",)  # no partitions beside each other follow each other: ranges do not pay


def rectangle(cells: int) -> tuple[int, int]:
    """Local. Rows and columns of the grid of so many cells that is closest to a square."""
    rows = next(rows for rows in range(math.isqrt(cells), 0, -1) if cells % rows == 0)
    return rows, cells // rows


def _tile(top: int, bottom: int, left: int, right: int) -> Iterable[tuple[int, int]]:
    """Row and column of every cell, the border first."""
    columns = range(left, right)
    for row in range(top, bottom):
        inner = top < row < bottom - 1
        ends = dict.fromkeys((left, right - 1)) if columns else ()
        yield from ((row, column) for column in (ends if inner else columns))
    for row in range(top + 1, bottom - 1):
        yield from ((row, column) for column in range(left + 1, right - 1))


def _cuts(length: int, parts: int) -> list[tuple[int, int]]:
    ends = [part * length // parts for part in range(parts + 1)]
    return list(pairwise(ends))


def _split(indices: list[int], parts: int) -> list[list[int]]:
    return [indices[start:end] for start, end in _cuts(len(indices), parts)]


#: What one thread does in a round; returns when its last partition was ready, by the clock.
Work = Callable[[], float]
ONE_BY_ONE, BULK, WHOLE = "one by one", "in bulk", ""


def marks(runner: Runner, marking: str, indices: Sequence[int]) -> Work | None:
    """Local. A call for every partition, or for every range of them; None where there is nothing to
    mark. The loop is as short as Python allows."""
    known: dict[str, tuple[Callable[..., object] | None, Sequence[tuple[int, ...]]]] = {
        ONE_BY_ONE: (runner.mark, [(index,) for index in indices]),
        BULK: (runner.mark_range, runs(indices)),
    }
    call, ranges = known.get(marking, (None, []))
    if call is None:
        return None
    *most, last = ranges
    clock = time.perf_counter

    def work() -> float:
        for each in most:
            call(*each)
        ready = clock()
        call(*last)
        return ready

    return work


AUTO = "auto"

#: Bytes of the groups to which ours join partitions: not at all, and the default.
AGGREGATES = (0, 65536)


@dataclass(frozen=True)
class Sending:
    """A way of sending a buffer in partitions, and how it can be marked.

    ``aggregate``: of ours, bytes of a group. ``multiple``: several threads that mark are
    several that call MPI.
    """

    method: str
    make: Callable[[Lane], Runner]
    markings: Sequence[str]
    aggregate: int | None = None
    multiple: bool = True

    def labels(self, marking: str) -> dict[str, str]:
        """Of a row."""
        grouped = {"aggregate": byte_count(self.aggregate)} if self.aggregate else {}
        marked = {"marked": marking} if marking else {}
        return {"method": self.method, **grouped, **marked}


SINGLE = Sending("single", single, [WHOLE], multiple=False)
NATIVE = Sending("psend", native, [ONE_BY_ONE, BULK])
_OTHERS = (
    SINGLE,
    Sending("send", blocking, [ONE_BY_ONE]),
    Sending("persistent", persistent, [ONE_BY_ONE]),
    Sending("isend", immediate, [ONE_BY_ONE]),
    NATIVE,
)


def sendings(text: str) -> list[Sending]:
    """Local. Those that ``--comm`` means, the single message first.

    ``all``: the mechanisms of the paper and every method of ours with every aggregation; ``auto``
    is no method of its own, but can be asked for. :class:`CommandError` for an unknown name.
    """
    known = {each.method: [each] for each in _OTHERS}
    for method in (*partitioned_methods(), AUTO):
        known[method] = [
            Sending(method, ours(method, size), [ONE_BY_ONE, BULK], size, multiple=False)
            for size in AGGREGATES
        ]
    asked = [name for name in known if name != AUTO] if text == ALL else named(text, known)
    return [each for name in dict.fromkeys([SINGLE.method, *asked]) for each in known[name]]
