"""Items that move between the blocks of a grid, such as particles; numbers differ every time.

Among the ranks whose blocks touch there is a persistent exchange of records with room for some
items; before the items a record tells how many there are. A call in which an item goes farther, or
more of them go than there is room for, exchanges its records by itself, so that a burst leaves no
room behind that later calls would have to send.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.context import Context, Scoped
from onesided.collectives.errors import PatternError
from onesided.collectives.exchanges import Alltoallv_init
from onesided.collectives.halo.decomposition import Decomposition
from onesided.collectives.halo.exchange import complete_round
from onesided.collectives.halo.faces import block_faces
from onesided.collectives.reduction.operation import Allreduce_init
from onesided.collectives.request import Request

#: The transport of all exchanges: stores on the node, messages between nodes.
METHOD = "rma-p2p"

#: Room for so many times the items that there are, and for so many more.
SPARE, LEAST = 1.5, 16

#: Calls after which room that has not been used is given up, where it is so many times too much.
REVIEW, TOO_MUCH = 64, 4

#: Items that are looked at together.
PIECE = 1 << 14

#: Bytes of the number at the beginning of a record that tells how many items follow.
COUNT = 8

#: What is done with items beyond an end of the grid.
OUTSIDE = ("raise", "drop")

#: By array, the shape of an item and its dtype; positions are the last one.
Form = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
Arrays = Sequence[NDArray[Any]]


class Records(Scoped):
    """Items of one form on their way: an item is a record, which has a field for every array.
    ``room`` has the items that can go to each rank by the persistent exchange."""

    def __init__(self, comm: MPI.Comm, form: Form, neighbors: list[int], info: Any) -> None:
        """Local."""
        self._context, self._comm, self._info = Context.of(comm), comm, info
        self._form, self._near = form, neighbors
        kinds = [np.dtype((kind, shape)) if shape else kind for shape, kind in form]
        ends = np.cumsum([kind.itemsize for kind in kinds])
        self._kind = np.dtype({  # what tells a count lies over the fields
            "names": ["count", *map(str, range(len(kinds)))], "formats": [np.int64, *kinds],
            "offsets": [0, 0, *ends[:-1].tolist()], "itemsize": max(COUNT, int(ends[-1])),
        })  # fmt: skip
        self.room = np.zeros(comm.Get_size(), int)
        self.most = np.zeros(comm.Get_size(), int)  # since the room was looked at last
        self.late = False  # there was too little room in the call before
        self.calls = 0
        self._data: Request | None = None

    def plan(self, counts: NDArray[Any]) -> None:
        """Collective. Room for so many items to each neighbor, and some more; none where that
        fails."""
        self.Free()
        self.most[:], self.late = counts, False
        near, room = self._near, np.zeros((2, len(counts)), int)
        room[0, near] = np.ceil(SPARE * counts[near]).astype(int) + LEAST
        self._context.comm.Alltoall(room[0], room[1])
        ends = np.cumsum(room[:, near] + 1, axis=1)
        #: By neighbor, the records that tell how many go there, and how many come.
        self._heads = ends - room[:, near] - 1
        with agreed(self._context.comm, "room for items"):
            self._out = np.zeros(int(room[0].sum()) + len(near), self._kind)
        each = np.zeros(len(counts), int)
        each[near] = (room[0, near] + 1) * self._kind.itemsize
        self._data = Alltoallv_init(self._comm, [self._out.view(np.uint8), each.tolist()], None,
                                    method=METHOD, info=self._info)
        self.room = room[0]

    def by_request(self, parts: Arrays, counts: NDArray[Any]) -> list[NDArray[Any]]:
        """Collective in the sense of MPI. The items that come; ``parts`` are those that go, by
        array, in the order of the ranks that get them."""
        if self._data is None:
            return self._unpacked(np.zeros(0, self._kind))
        leaving = counts[self._near]
        self._out["count"][self._heads[0]] = leaving
        self._pack(parts, self._out, _rows(self._heads[0] + 1, leaving))
        came = complete_round(self._data).view(self._kind)
        return self._unpacked(came.take(_rows(self._heads[1] + 1, came["count"][self._heads[1]])))

    def at_once(self, parts: Arrays, counts: NDArray[Any]) -> list[NDArray[Any]]:
        """Collective. The same, to any rank, by an exchange of this call alone."""
        coming = np.zeros_like(counts)
        self._context.comm.Alltoall(counts, coming)
        with agreed(self._context.comm, "memory for items"):
            out = np.empty(len(parts[0]), self._kind)
            self._pack(parts, out, slice(None))
            came = np.empty(int(coming.sum()), self._kind)
        record = MPI.BYTE.Create_contiguous(self._kind.itemsize).Commit()
        try:
            self._context.comm.Alltoallv([out.view(np.uint8), counts.tolist(), record],
                                         [came.view(np.uint8), coming.tolist(), record])
        finally:
            record.Free()
        return self._unpacked(came)

    def _pack(self, parts: Arrays, out: NDArray[Any], rows: Any) -> None:
        for number, part in enumerate(parts):
            if len(part):  # a rank without items may have other dtypes
                out[str(number)][rows] = part

    def _unpacked(self, came: NDArray[Any]) -> list[NDArray[Any]]:
        return [np.array(came[str(number)], order="C") for number in range(len(self._form))]

    def Free(self) -> None:
        """Collective. Give the request back."""
        if self._data is not None:
            self._data.Free()
        self._data = None
        self.room = np.zeros_like(self.room)


class Migration(Scoped):
    """Items go to the ranks in whose blocks they are. Before anything moves the ranks agree, in a
    reduction of a few words, on errors, on the form of items and on the exchange to be used;
    ``plans`` counts how often the persistent one has been planned."""

    def __init__(self, comm: MPI.Comm, blocks: Decomposition, info: Any = None) -> None:
        """Collective."""
        self._context, self._comm, self._blocks, self._info = Context.of(comm), comm, blocks, info
        self._rank, self._size = self._context.comm.rank, self._context.comm.size
        self._edges = [blocks.edges(axis) for axis in range(len(blocks.shape))]
        self._order = np.array(blocks.order, np.int64)
        touching = block_faces(blocks.links([(1, 1)] * len(blocks.shape)), (), (), blocks.place)
        self._neighbors = sorted({face.rank for face in touching} - {self._rank})
        self._near = np.zeros(self._size, bool)
        self._near[[*self._neighbors, self._rank]] = True
        self._words, self._most = np.zeros(9, np.int64), np.zeros(9, np.int64)
        self._agree = Allreduce_init(comm, self._words, self._most, MPI.MAX, method=METHOD,
                                    info=info)
        self._counts = np.zeros(self._size, np.int64)
        self._records: dict[int, Records] = {}
        self.plans = 0

    def move(self, arrays: Any, positions: Any, outside: str) -> list[NDArray[Any]]:
        """Collective. See :meth:`~.grid.Grid.migrate`."""
        form: Any = None
        error: Exception | None = None
        given: list[NDArray[Any]] = []
        parts: list[NDArray[Any]] = []
        counts = self._counts
        counts[:] = 0
        try:
            given = [np.asarray(array) for array in (*arrays, positions)]
            form = self._form(given, outside)
            with np.errstate(all="ignore"):
                away, wrapped, owner = self._away(given[-1])
            if outside == "raise" and (owner < 0).any():
                error = PatternError("items beyond an end of the grid, or at no number; nothing "
                                     "has moved")
            stays = owner == self._rank
            goes = np.flatnonzero((owner >= 0) & ~stays)
            goes = goes[np.argsort(owner[goes], kind="stable")]
            parts = [*(array[away[goes]] for array in given[:-1]), wrapped[goes]]
            counts[:] = np.bincount(owner[goes], minlength=self._size)
        except MemoryError:
            error = MemoryError("no memory for items; nothing has moved")
        except Exception as problem:  # NumPy refuses them, each in its own way
            error = PatternError(
                "arrays that are not all as long as positions, which are rows of "
                f"{len(self._edges)} real numbers, or an outside that is none of "
                f"{', '.join(OUTSIDE)}; nothing has moved"
            )
            error.__cause__ = problem
        count = len(given[-1]) if error is None else 0
        records, alone, again = self._agreed(error, form, outside, count, counts)
        if records is None:
            return given
        records.most = np.maximum(records.most, counts)
        if again:
            self.plans += 1
            records.plan(counts if alone else records.most)
        elif records.calls % REVIEW == 0:
            records.most[:] = 0
        way = records.at_once if alone else records.by_request
        came, gone, back = way(parts, counts), away[~stays], away[stays]
        found = [_kept(array, gone, fresh) for array, fresh in zip(given, came, strict=True)]
        found[-1][back - np.searchsorted(gone, back)] = wrapped[stays]
        return found

    def Free(self) -> None:
        """Collective. A second call does nothing."""
        for records in self._records.values():
            records.Free()
        self._records.clear()
        self._agree.Free()

    def _away(self, positions: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any], Any]:
        """Local. The items that are not in this block, their positions, wrapped along periodic
        axes, and their ranks then: -1 for what is nowhere."""
        edges = [edge.astype(positions.dtype) for edge in self._edges]
        ends = [edge[at : at + 2] for edge, at in zip(edges, self._blocks.coords, strict=True)]
        items = _outside(positions, np.array(ends, positions.dtype).T)
        rows = positions[items]
        lost, places = ~np.isfinite(rows).all(axis=1), []
        for axis, edge in enumerate(edges):
            x = rows[:, axis]
            if self._blocks.periodic[axis]:
                low, high = self._edges[axis][[0, -1]]  # the dtype may not have their distance
                beyond = (x < edge[0]) | (x >= edge[-1])
                wide = x[beyond].astype(np.result_type(x, low)) % (high - low)
                x[beyond] = low + (wide - low % (high - low)) % (high - low)
                x[(x < edge[0]) | (x >= edge[-1])] = edge[0]  # what rounding has done
            else:
                lost |= (x < edge[0]) | (x > edge[-1])
            block = np.searchsorted(edge, x, side="right") - 1
            last = max(0, int(np.searchsorted(edge, edge[-1])) - 1)  # that is not empty
            places.append(np.clip(block, 0, last))
        owner = np.ravel_multi_index(places, [len(edge) - 1 for edge in edges]).astype(np.int64)
        if len(self._order):
            owner = self._order[owner]
        owner[lost] = -1
        return items, rows, owner

    def _agreed(
        self, error: Exception | None, form: Any, outside: str, count: int,
        leaving: NDArray[Any],
    ) -> tuple[Records | None, bool, bool]:
        """Collective. The records of this form, whether they go by an exchange of this call alone,
        and whether the persistent one is planned anew; no records where nobody has items. A rank
        without items has no say in their dtypes. Raises the ``error`` of any rank on every rank."""
        shapes = _name((outside, None if form is None else [shape for shape, _ in form]))
        name = _name(form) if count else 0
        known = self._records.get(name)
        room: Any = 0 if known is None else known.room
        short = bool((leaving > room)[self._near].any())
        again = short and known is not None and known.late
        if known is not None and (known.calls + 1) % REVIEW == 0:
            used = SPARE * known.most + LEAST * (room > 0)
            again |= bool(room.sum() > TOO_MUCH * used.sum())
        self._words[:] = (
            error is not None, shapes, -shapes, name, -name if name else -(1 << 40),
            bool(leaving[~self._near].any()), short, again, -self._rank if name else -self._size,
        )  # fmt: skip
        told = complete_round(self._agree).tolist()
        failed, shape, other, most, least, far, short, again, first = told
        if failed or shape != -other or (most and most != -least):
            if not failed and (shapes != shape or name not in (0, most)):
                error = PatternError("arrays of another form than others give; nothing has moved")
            agree(self._context.comm, error, "migrate")
        if not most:
            return None, False, False
        if most not in self._records:
            form = self._context.comm.bcast(form, -first)
            self._records[most] = Records(self._comm, form, self._neighbors, self._info)
        records = self._records[most]
        records.late = bool(short)
        records.calls += 1
        return records, bool(far or short), bool(again)

    def _form(self, arrays: Arrays, outside: str) -> Form:
        """The form of items; :class:`ValueError` where arrays do not fit each other."""
        positions = arrays[-1]
        fits = positions.ndim == 2 and positions.shape[1] == len(self._edges)
        fits &= positions.dtype.kind == "f" and outside in OUTSIDE
        if not fits or any(array.dtype.hasobject or not array.ndim or len(array) != len(positions)
                           for array in arrays):
            raise ValueError("arrays that do not fit each other")
        return tuple((array.shape[1:], array.dtype) for array in arrays)


def _name(what: Any) -> int:
    """Local. A positive number that stands for a form."""
    return zlib.crc32(repr(what).encode()) + 1


def _outside(positions: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.int64]:
    """Local. The rows that are not between two others, or no numbers; by pieces, for the cache."""
    axes, found = positions.shape[1], [np.zeros(0, np.int64)]
    low, high = np.tile(ends, min(PIECE, len(positions)))
    for start in range(0, len(positions), PIECE):
        values = positions[start : start + PIECE].reshape(-1)
        inside = (values >= low[: len(values)]) & (values < high[: len(values)])
        if not inside.all():
            found.append(start + np.unique(np.flatnonzero(~inside) // axes))
    return np.concatenate(found)


def _kept(array: NDArray[Any], gone: NDArray[Any], fresh: NDArray[Any]) -> NDArray[Any]:
    """Local. What is left of an array without some items, and what has come behind it."""
    if not len(array):
        return fresh
    count = len(array) - len(gone)
    found = np.empty((count + len(fresh), *array.shape[1:]), array.dtype)
    if len(gone) > len(array) // 64:
        stays = np.ones(len(array), bool)
        stays[gone] = False
        found[:count] = array[stays]
    else:  # in runs: few copies of many items
        start = place = 0
        for stop in (*gone.tolist(), len(array)):
            found[place : place + stop - start] = array[start:stop]
            place, start = place + stop - start, stop + 1
    found[count:] = fresh
    return found


def _rows(starts: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.int64]:
    """Local. The numbers of so many records from each start on."""
    found: NDArray[np.int64] = np.repeat(starts + counts - np.cumsum(counts), counts)
    return found + np.arange(len(found))
