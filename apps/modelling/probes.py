"""What is timed to find the parameters of one level: two ranks that do the same at the same time.

Every operation goes both ways at once, as in an exchange, and is timed as benchmarks time methods:
from a barrier on, by the slower rank, all of them in turn in every round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

SHORT = 8  # bytes
IN_A_ROW = 8
ISSUES = 40
SPINS = 200

Call = Callable[[], object]


def places(sizes: Sequence[int]) -> tuple[dict[int, tuple[int, int]], int]:
    """Local. By size where its two places begin, and the bytes of all.

    Each has memory of its own, and they take turns, as slots of requests do: what is measured of
    one size finds no more of its memory in the cache than a method does whose rounds alternate
    with those of others.
    """
    at, end = {}, 0
    for nbytes in sizes:
        at[nbytes] = (end, end + nbytes)
        end += 2 * nbytes
    return at, end


def _putter(
    window: MPI.Win, target: int, data: NDArray[np.uint8], starts: Sequence[int] = (0,)
) -> Call:
    """Local. Puts the data, to these places in turn."""
    origin = [data, MPI.BYTE]
    targets = cycle([[start, data.size, MPI.BYTE] for start in starts])
    return lambda: window.Put(origin, target, next(targets))


class Puts:
    """Puts from each of two ranks to the other, in a passive epoch.

    ``calls`` are by name: ``"puts 1024"`` and short ones, all flushed; ``"notice"`` is a short one
    and a flag.
    """

    def __init__(
        self, pair: MPI.Intracomm, sizes: Sequence[int], stack: ExitStack, *, allocated: bool
    ) -> None:
        """Collective. The window, of memory that MPI allocates or of our own, goes with the stack,
        which is left collectively."""
        self._pair, other = pair, 1 - pair.rank
        at, end = places(sizes)
        if allocated:
            window = MPI.Win.Allocate(end, 1, comm=pair)
        else:
            window = MPI.Win.Create(np.zeros(end, np.uint8), 1, comm=pair)
        stack.callback(window.Free)
        window.Lock_all()
        stack.callback(window.Unlock_all)
        data = np.ones(max(*sizes, SHORT), np.uint8)
        short = _putter(window, other, data[:SHORT])
        word, place = [data[:SHORT], 1, MPI.INT64_T], [0, 1, MPI.INT64_T]

        def flushed(put: Call, times: int = 1) -> None:
            for _ in range(times):
                put()
            window.Flush(other)

        def notice() -> None:
            flushed(short)
            window.Accumulate(word, other, place, MPI.REPLACE)
            window.Flush(other)

        self.calls: dict[str, Call] = {
            f"puts {nbytes}": partial(flushed, _putter(window, other, data[:nbytes], at[nbytes]))
            for nbytes in sizes
        }
        self.calls["put"] = partial(flushed, short)
        self.calls["puts in a row"] = partial(flushed, short, IN_A_ROW)
        self.calls["notice"] = notice
        self._issue: tuple[Call, Call] = (short, partial(window.Flush, other))

    def overhead(self) -> float:
        """Collective. Seconds that the call of a short Put takes, by the slower rank."""
        put, flush = self._issue
        times = []
        for _ in range(ISSUES):
            self._pair.Barrier()
            began = time.perf_counter()
            put()
            times.append(time.perf_counter() - began)
            flush()
        self._pair.Barrier()
        slower: float = self._pair.allreduce(median(times), MPI.MAX)
        return slower


class Probes:
    """The operations between the two ranks of a communicator, and the windows they need.

    ``calls`` are by name; those that have a size are named ``"messages 1024"``.
    """

    def __init__(
        self, pair: MPI.Intracomm, sizes: Sequence[int], stack: ExitStack, own: bool
    ) -> None:
        """Collective. Windows and requests are freed with the stack, which is left collectively.

        ``own``: MPI's collective sends as much to each rank itself as to the other.
        """
        self._pair, self._stack = pair, stack
        self._other = 1 - pair.rank
        self._sizes = list(sizes)
        self._own = own
        longest = max(2 * max(sizes), IN_A_ROW * SHORT)
        self._places, end = places([*sizes, *(2 * nbytes for nbytes in sizes)])
        self._out = np.ones(longest, np.uint8)
        self._into = np.zeros(max(longest, end), np.uint8)
        self.puts = Puts(pair, sizes, stack, allocated=False)
        self.calls: dict[str, Call] = dict(self.puts.calls)
        self._messages()
        self._done()
        self._fences()
        self._epochs()
        self._locks()

    def _window(self) -> MPI.Win:
        """A window of its own for every kind of synchronization."""
        window = MPI.Win.Create(np.zeros(SHORT, np.uint8), 1, MPI.INFO_NULL, self._pair)
        self._stack.callback(window.Free)
        return window

    def _putter(self, window: MPI.Win) -> Call:
        return _putter(window, self._other, self._out[:SHORT])

    def _messages(self) -> None:
        pair, other = self._pair, self._other
        for nbytes in self._sizes:
            out = [self._out, nbytes, MPI.BYTE]
            starts = self._places[nbytes]
            turn = cycle([[self._into[at : at + nbytes], nbytes, MPI.BYTE] for at in starts])

            def exchange(out: Any = out, turn: Any = turn) -> None:
                pair.Sendrecv(out, other, 1, next(turn), other, 1)

            self.calls[f"messages {nbytes}"] = exchange
            self.calls[f"collective {nbytes}"] = self._alltoallv(nbytes)
        self.calls["barrier"] = pair.Barrier
        for name, count, nbytes in (
            ("signal", 1, 0), ("message", 1, SHORT), ("stream", IN_A_ROW, SHORT)
        ):
            self.calls[name] = self._started(count, nbytes)

    def _alltoallv(self, nbytes: int) -> Call:
        """The collective, with or without a block for the rank itself."""
        counts = np.full(2, nbytes, np.intc)
        if not self._own:
            counts[self._pair.rank] = 0
        layout = (counts, np.array([0, nbytes], np.intc))
        out = [self._out, layout, MPI.BYTE]
        starts = self._places[2 * nbytes]
        turn = cycle([[self._into[at : at + 2 * nbytes], layout, MPI.BYTE] for at in starts])
        return lambda: self._pair.Alltoallv(out, next(turn))

    def _started(self, count: int, nbytes: int) -> Call:
        requests = []
        for number in range(count):
            part = slice(number * SHORT, number * SHORT + nbytes)
            requests.append(self._pair.Recv_init([self._into[part], MPI.BYTE], self._other, 2))
            requests.append(self._pair.Send_init([self._out[part], MPI.BYTE], self._other, 2))
        for request in requests:
            self._stack.callback(request.Free)

        def call() -> None:
            MPI.Prequest.Startall(requests)
            pending = len(requests)
            while pending:
                pending -= len(MPI.Request.Testsome(requests) or ())

        return call

    def _done(self) -> None:
        put, exchange_signals = self.calls["put"], self._started(1, 0)

        def done() -> None:
            put()
            exchange_signals()

        self.calls["done"] = done

    def _fences(self) -> None:
        window = self._window()
        window.Fence(MPI.MODE_NOPRECEDE)
        self._stack.callback(window.Fence, MPI.MODE_NOSUCCEED)
        put, fence = self._putter(window), window.Fence

        def fenced() -> None:
            put()
            fence()

        self.calls["fence"] = fenced
        self.calls["empty fence"] = fence
        alone = self._window()
        alone.Fence(MPI.MODE_NOPRECEDE)
        self._stack.callback(alone.Fence, MPI.MODE_NOSUCCEED)
        self.calls["opening"] = lambda: alone.Fence(MPI.MODE_NOPRECEDE)

    def _epochs(self) -> None:
        window = self._window()
        everyone = self._pair.Get_group()
        group = everyone.Incl([self._other])
        everyone.Free()
        self._stack.callback(group.Free)
        put, ready = self._putter(window), self._started(1, 0)

        def epoch() -> None:
            window.Post(group)
            ready()
            window.Start(group)
            put()
            window.Complete()
            while not window.Test():
                pass

        self.calls["epoch"] = epoch

    def _locks(self) -> None:
        window, rank, barrier = self._window(), self._pair.rank, self._pair.Barrier
        window.Lock(rank, MPI.LOCK_EXCLUSIVE)
        self._stack.callback(window.Unlock, rank)
        put = self._putter(window)

        def relock() -> None:
            window.Unlock(rank)
            window.Lock_all()
            put()
            window.Unlock_all()
            barrier()
            window.Lock(rank, MPI.LOCK_EXCLUSIVE)
            barrier()

        self.calls["relock"] = relock


class SharedProbes:
    """Copies into memory that the ranks of a node share, and a counter in it.

    Every rank copies into the part of the next one.
    """

    def __init__(self, node: MPI.Intracomm, sizes: Sequence[int], stack: ExitStack) -> None:
        """Collective over ranks of one node, possibly one alone."""
        longest = max(sizes)
        at, end = places(sizes)
        window = MPI.Win.Allocate_shared(end + SHORT, 1, MPI.INFO_NULL, node)
        stack.callback(window.Free)
        window.Lock_all(MPI.MODE_NOCHECK)
        stack.callback(window.Unlock_all)
        self._node, self._sync = node, window.Sync
        theirs = _bytes_of(window, (node.rank + 1) % node.size)
        mine = _bytes_of(window, node.rank)
        ones: Any = np.ones(longest, np.uint8)
        out = memoryview(ones)
        self.calls: dict[str, Call] = {}
        for nbytes in sizes:
            turn = cycle([theirs[start : start + nbytes] for start in at[nbytes]])
            self.calls[f"stores {nbytes}"] = self._store(turn, out[:nbytes])
        few = [theirs[i * SHORT : (i + 1) * SHORT] for i in range(IN_A_ROW)]
        data = out[:SHORT]

        def in_a_row() -> None:
            for place in few:
                place[:] = data

        self.calls["stores in a row"] = in_a_row
        self._flag = theirs[end:].cast("q")
        self._seen = mine[end:].cast("q")
        self._round = 0
        if node.size > 1:
            self.calls["counter"] = self._notify

    @staticmethod
    def _store(turn: Any, data: memoryview) -> Call:
        def store() -> None:
            next(turn)[:] = data

        return store

    def _notify(self) -> None:
        self._round += 1
        self._sync()
        self._flag[0] = self._round
        spins = 0
        while self._seen[0] < self._round:
            spins += 1
            if spins % SPINS == 0:
                os.sched_yield()
        self._sync()


def _bytes_of(window: MPI.Win, rank: int) -> memoryview:
    """The part of a rank of this node in a shared window."""
    part: Any = window.Shared_query(rank)[0]
    return memoryview(part).cast("B")
