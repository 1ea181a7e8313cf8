"""Items that move between the blocks of a grid, such as particles; numbers differ every time."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Context, Scoped
from onesided.collectives.errors import PatternError
from onesided.collectives.exchanges import Alltoallv_init
from onesided.collectives.request import Request

#: Room for so many times the items that there are, and for so many more.
SPARE, LEAST = 1.5, 16

#: The transport of both exchanges: stores on the node, messages between nodes.
METHOD = "rma-p2p"

#: What a rank says about its arguments beside the numbers: that they are odd, or that items are
#: nowhere; else what tells their form from others.
ODD, ASTRAY = -1, -2

#: By array, the shape of an item and its dtype; positions are the last one.
Form = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]


class Records(Scoped):
    """The persistent exchange of items of one form: an item is a record, its part of every array,
    one after the other. Two ranks have room for some records."""

    def __init__(self, comm: MPI.Comm, ranks: int, form: Form) -> None:
        """Local."""
        self._comm, self.form = comm, form
        self._widths = [math.prod(shape) * kind.itemsize for shape, kind in form]
        self._width = sum(self._widths)
        self.room_to, self._room_from = np.zeros(ranks, int), np.zeros(ranks, int)
        self._out = np.zeros((0, self._width), np.uint8)
        self._data: Request | None = None

    def plan(self, leaving: NDArray[Any], coming: NDArray[Any]) -> None:
        """Collective. More room where it does not suffice; both ranks of a pair come to the
        same."""
        for room, count in ((self.room_to, leaving), (self._room_from, coming)):
            more = count > room
            room[more] = np.ceil(SPARE * count[more]).astype(int) + LEAST
        self.Free()
        self._out = np.zeros((int(self.room_to.sum()), self._width), np.uint8)
        send = [self._out.reshape(-1), (self.room_to * self._width).tolist()]
        self._data = Alltoallv_init(self._comm, send, None, method=METHOD)

    def exchange(
        self, arrays: Sequence[NDArray[Any]], items: NDArray[Any], leaving: NDArray[Any],
        coming: NDArray[Any],
    ) -> list[NDArray[Any]]:
        """Collective in the sense of MPI. Items in the order of the ranks that get them; those that
        come."""
        came = np.zeros((0, self._width), np.uint8)
        if self._data is not None:
            rows, start = _rows(self.room_to, leaving), 0
            for array, width in zip(arrays, self._widths, strict=True):
                if width and len(items):
                    part = np.ascontiguousarray(array[items])
                    self._out[rows, start : start + width] = part.view(np.uint8).reshape(-1, width)
                start += width
            self._data.Start()
            came = self._data.Wait().reshape(-1, self._width)[_rows(self._room_from, coming)]
        found, start = [], 0
        for (shape, kind), width in zip(self.form, self._widths, strict=True):
            fresh = np.zeros((len(came), *shape), kind)
            if width and len(came):
                part = np.ascontiguousarray(came[:, start : start + width])
                fresh = part.view(kind).reshape(fresh.shape)
            found.append(fresh)
            start += width
        return found

    def Free(self) -> None:
        """Collective. Give the request back."""
        if self._data is not None:
            self._data.Free()
        self._data = None


class Migration(Scoped):
    """Items go to the ranks in whose blocks they are.

    A rank tells every other one how many items it sends, what form they have, and whether they fit
    into the room that the pair has; so all ranks know of what is wrong anywhere before anything
    moves, and whether the exchange of records has to be planned anew. ``plans`` counts that.
    """

    def __init__(
        self, context: Context, comm: MPI.Comm, edges: Sequence[NDArray[np.float64]],
        periodic: Sequence[bool],
    ) -> None:
        """Collective. ``edges``: where blocks begin, by axis, and the end."""
        self._comm, self._rank, self._size = comm, context.comm.rank, context.comm.size
        self._edges, self._periodic = list(edges), periodic
        self._said = np.zeros((self._size, 3), np.int64)
        self._heard = np.zeros((self._size, 3), np.int64)
        each = [3] * self._size
        self._numbers = Alltoallv_init(
            comm, [self._said.reshape(-1), each], [self._heard.reshape(-1), each], method=METHOD
        )
        self._records: dict[int, Records] = {}
        self.plans = 0

    def owners(self, positions: NDArray[Any]) -> NDArray[np.int64]:
        """Local. The rank of every position, -1 for what is nowhere; positions are wrapped, in
        place, along periodic axes."""
        dims = [len(edges) - 1 for edges in self._edges]
        places = []
        lost = ~np.isfinite(positions).all(axis=1)
        for axis, edges in enumerate(self._edges):
            x = positions[:, axis]
            if self._periodic[axis]:
                length = edges[-1] - edges[0]
                x -= length * np.floor((x - edges[0]) / length)
                x[(x < edges[0]) | (x >= edges[-1])] = edges[0]  # what rounding has done
            else:
                lost |= (x < edges[0]) | (x > edges[-1])
            place = np.searchsorted(edges, x, side="right") - 1
            places.append(np.clip(place, 0, dims[axis] - 1))
        found: NDArray[np.int64] = np.ravel_multi_index(places, dims).astype(np.int64)
        found[lost] = -1
        return found

    def move(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Collective. See :meth:`~.grid.Grid.migrate`."""
        given = [np.asarray(array) for array in arrays]
        form, owner = self._form(given), np.zeros(0, np.int64)
        state = ODD
        if form is not None:
            given[-1] = given[-1].copy()
            with np.errstate(invalid="ignore"):
                owner = self.owners(given[-1])
            state = zlib.crc32(repr(form).encode())
            if (owner < 0).any():
                state, owner = ASTRAY, owner[:0]
        leaving = np.bincount(owner, minlength=self._size)
        leaving[self._rank] = 0
        known = self._records.get(state)
        room = np.zeros(self._size, int) if known is None else known.room_to
        self._said[:, 0], self._said[:, 1] = leaving, state
        self._said[:, 2] = (leaving > room).any()
        self._numbers.Start()
        self._numbers.Wait()
        coming = self._heard[:, 0].copy()
        self._check(self._heard[:, 1])
        if known is None:
            known = self._records[state] = Records(self._comm, self._size, form or ())
        if self._heard[:, 2].any():
            self.plans += 1
            known.plan(leaving, coming)
        goes = np.flatnonzero(owner != self._rank)
        goes = goes[np.argsort(owner[goes], kind="stable")]
        came = known.exchange(given, goes, leaving, coming)
        stays = owner == self._rank
        return [np.concatenate([array[stays], fresh])
                for array, fresh in zip(given, came, strict=True)]

    def Free(self) -> None:
        """Collective. A second call does nothing."""
        for records in self._records.values():
            records.Free()
        self._records.clear()
        self._numbers.Free()

    # -- inside ----------------------------------------------------------------------------------

    def _form(self, arrays: Sequence[NDArray[Any]]) -> Form | None:
        """The form of items; None where arrays do not fit each other."""
        positions = arrays[-1]
        if positions.ndim != 2 or positions.shape[1] != len(self._edges):
            return None
        if positions.dtype.kind != "f" or any(array.dtype.hasobject for array in arrays):
            return None
        if any(not array.ndim or len(array) != len(positions) for array in arrays):
            return None
        return tuple((array.shape[1:], array.dtype) for array in arrays)

    def _check(self, states: NDArray[np.int64]) -> None:
        """The same on all ranks: everybody has heard everybody."""
        other = "gives arrays of another form than rank 0"
        odd = ("gives arrays that are not all as long as positions, which are rows of "
               f"{len(self._edges)} real numbers")
        for wrong, words in (
            (states == ODD, odd),
            (states == ASTRAY, "has items beyond an end of the grid, or at no number"),
            (states != states[0], other),
        ):
            ranks = np.flatnonzero(wrong)
            if len(ranks):
                raise PatternError(f"rank {ranks[0]} {words}; nothing has moved")


def _rows(rooms: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.int64]:
    """Local. The rows of records of which every rank has some at the beginning of its room."""
    starts = np.cumsum(rooms) - rooms
    return np.concatenate([
        np.arange(start, start + count)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]).astype(np.int64)  # fmt: skip
