"""Exchanges that are filled chunk by chunk, or started, as it comes; and what must arrive."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

from onesided.collectives import Alltoallw_init, empty, free

SHAPE = (7, 6, 4)


class Turn:
    """Rows to columns, or back (``turned``), in a memory that is given or the exchange's own.

    An element is its index in the global array plus a million for every round.
    """

    def __init__(self, comm, method, memory="window", *, axis=2, cuts=None, turned=False,
                 shape=SHAPE, info=None, into=None, permute=False):
        self.comm, self.shape = comm, shape
        rows, cols = split(shape[0], comm.size), split(shape[1], comm.size)
        self.rows, self.cols = rows[comm.rank], cols[comm.rank]
        across, along = (self.rows,), (slice(None), self.cols)
        by_row = [(slice(None), part) if part.stop > part.start else None for part in cols]
        by_col = [(part,) for part in rows]
        self.source, self.target = (along, across) if turned else (across, along)
        sends, recvs = (by_col, by_row) if turned else (by_row, by_col)
        self.send = np.full(extents(self.source, shape), -1, np.int64)
        stops = self.stops(sends, axis, cuts)
        self.window, spec = None, (extents(self.target, shape), np.int64)
        if into is not None:
            spec = into[: np.prod(spec[0])].reshape(spec[0])
        elif memory != "own":
            order = (1, 0, 2) if permute else (0, 1, 2)
            inside = tuple(spec[0][i] for i in order)
            window = memory == "window"
            raw = empty(comm, inside, np.int64) if window else np.empty(inside, np.int64)
            self.window = raw if window else None
            spec = raw.transpose(order)
        self.request = Alltoallw_init(
            comm, [self.send, sends], [spec, recvs], method=method, info=info,
            chunks=None if stops is None else (axis, stops),
        )
        self.chunks = 1 if stops is None else len(stops)
        self.opened = 0

    def stops(self, boxes, axis, cuts):
        """Uneven cuts of the boxes of this rank, ``cuts`` of them."""
        if cuts is None:
            return None
        extents = {self.send[box].shape[axis] for box in boxes if box is not None}
        extents -= {0} if len(extents) > 1 else set()
        if len(extents) != 1:
            return None  # boxes of different extents: one chunk
        extent = extents.pop()
        if not extent:
            return None
        return sorted({max(1, extent * (i + 1) ** 2 // cuts**2) for i in range(cuts)})

    def whole(self, turn):
        count = np.prod(self.shape)
        return np.arange(count, dtype=np.int64).reshape(self.shape) + turn * 10**6

    def begin(self, turn, opens=True, order=None, pause=None, starts=True):
        """Open if it is wanted and possible, else Start; true where the round was opened."""
        data = self.whole(turn)[self.source]
        if opens and self.request.Open():
            self.opened += 1
            outlets = self.request.outlets
            assert len(outlets) == self.chunks
            for chunk in order or range(self.chunks):
                for _, part, array in outlets[chunk]:
                    array[...] = data[part]
                if pause is not None:
                    pause()
                self.request.Ready(chunk)
            return True
        if starts:
            self.send[...] = data
            self.request.Start()
        return False

    def check(self, turn, got=None):
        got = self.request.recvbuf if got is None else got
        np.testing.assert_array_equal(got, self.whole(turn)[self.target], err_msg=f"round {turn}")

    def free(self):
        self.request.Free()
        if self.window is not None:
            free(self.window)


def split(length, parts):
    """Uneven blocks, empty ones where there are more parts than elements."""
    edges = [(length * i + parts - 1) // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def extents(box, shape):
    """The shape of a box of an array."""
    return np.broadcast_to(np.int8(0), shape)[box].shape


def read_slowly(exchange, turn, delay):
    """The data that Wait returned must stay until Release or the next start."""
    got = exchange.request.Wait()
    exchange.check(turn, got)
    time.sleep(delay)
    exchange.check(turn, got)
    return got
