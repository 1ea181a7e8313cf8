"""What a cell of the conformance table names: a request, its data, and what must come of them.

A :class:`Subject` fills its buffers for a round and checks what the round has brought; what it
compares with is computed by nothing of the package. :func:`make` makes the one that a cell names.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from halo_data import World, same
from kinds import KINDS, Kind, array, datatype, element, values
from mpi4py import MPI
from table import BOXES, EXCHANGES, IN_TURN, REDUCTIONS, Cell

from onesided import collectives
from onesided.collectives import (
    Get_status_all,
    Grid,
    HaloExchange,
    OnesidedError,
    Precv_init,
    Psend_init,
    Startall,
    Testall,
    Waitall,
    empty,
    exchange,
    free,
    pattern,
)
from onesided.collectives.context import Context
from onesided.collectives.halo import plan
from onesided.collectives.reduction import folds
from onesided.collectives.testing import sources, targets
from onesided.collectives.transports import mpi

GUARD, SCRIBBLE, EMPTY = 77, 99, 88  # what lies in gaps, in sent data after Wait, where data come
#: Keys of info that the options of a job say.
SAID = ("ranks_per_node", "progress")


class Buffer:
    """Blocks with a gap before each that has a displacement of its own."""

    def __init__(self, counts: list[int], form: str, kind: str, holes: bool,
                 make: Callable[[int], np.ndarray]) -> None:  # fmt: skip
        gap = 1 if form in ("vector", "types") else 0
        self.counts, self.form, self.step = counts, form, 2 if holes else 1
        self.displs, at = [], 0
        for count in counts:
            self.displs.append(at + gap)
            at += count + gap
        self.array = make(self.step * (at + 1))
        self.guard = values(kind, np.full(1, GUARD))
        self.array[:] = self.guard
        self.type, self.owned = (None, False)
        if holes or form == "types":
            basic, owned = datatype(kind)
            self.type, self.owned = basic, owned
            if holes:
                self.type = basic.Create_resized(0, 2 * self.array.itemsize).Commit()
                self.owned = True
                if owned:
                    basic.Free()

    def part(self, place: int) -> np.ndarray:
        start, stop = self.displs[place], self.displs[place] + self.counts[place]
        return self.array[self.step * start : self.step * stop : self.step]

    def spec(self) -> list[Any]:
        kind = [] if self.type is None else [self.type]
        if self.form == "vector":
            return [self.array, np.array(self.counts), np.array(self.displs), *kind]
        if self.form == "types":
            places = self.array.itemsize * self.step * np.array(self.displs, int)
            return [self.array, np.array(self.counts), places, kind * len(self.counts)]
        count = self.counts[0] if self.counts else 0
        if kind:
            return [self.array, count, *kind]
        return [self.array[: count * len(self.counts)]]

    def untouched(self, all_of_it: bool = False) -> bool:
        """Whether what belongs to no block is as it was, or all of it."""
        inside = np.zeros(len(self.array), bool)
        for start, count in zip(self.displs, self.counts, strict=True):
            inside[self.step * start : self.step * (start + count) : self.step] = not all_of_it
        rest = self.array[~inside]
        return same(rest, np.repeat(self.guard, len(rest)))

    def free(self) -> None:
        if self.owned:
            self.type.Free()


@contextlib.contextmanager
def in_pieces(cell: Cell, nbytes: int) -> Iterator[None]:
    """Data of so many bytes take several calls of MPI, where the cell wants it, or are more than
    its counts can say; what cannot be done about that before MPI 4.0 is refused."""
    wanted, able = "pieces" in cell.layout, MPI.VERSION >= 4 or "lltoallv" in cell.row
    piece = max(64, nbytes // 3 // 64 * 64)
    with pytest.MonkeyPatch.context() as patch:
        for module in (pattern, folds) if wanted else ():
            patch.setattr(module, "LARGEST_PIECE", piece)
        for module in (exchange, mpi) if wanted and able else ():
            patch.setattr(module, "INT_MAX", piece // 8)
        yield


class Subject:
    """A request with its data.

    ``window``: memory from empty, given back at the end. ``beside``: another one, whose
    communicator it uses and which is freed later; ``like``: that one's request is repeated.
    """

    request: Any
    window: np.ndarray | None = None
    graph: MPI.Distgraphcomm | None = None
    released = False  # whether others may write the next round

    def __init__(self, comm: MPI.Intracomm, cell: Cell, options: Mapping[str, str],
                 beside: Subject | None = None, like: bool = False) -> None:  # fmt: skip
        self.comm, self.cell, self.beside, self.like = comm, cell, beside, like
        self.rank, self.size = comm.rank, comm.size
        self.info = {key: options[key] for key in SAID if key in options} | dict(cell.said)
        if cell.memory == "slot":
            self.info["slots"] = "1"
        if cell.nodes == IN_TURN:  # what MPI tells of the nodes, before anybody has asked
            Context.of(comm)._firsts = np.arange(comm.size, dtype=np.int32) % 2
        elif cell.nodes:
            self.info["ranks_per_node"] = cell.nodes
        self.count = cell.length.elements(self.dtype.itemsize, comm.size)
        self.set_up()

    def set_up(self) -> None:
        """Collective. The data and the request."""
        raise NotImplementedError

    @functools.cached_property
    def dtype(self) -> np.dtype:
        return element(self.cell.kind)

    @property
    def requests(self) -> list[Any]:
        """Those that the library's functions for several of them take."""
        return [self.request]

    def memory(self, rank: int) -> str:
        """Into what a rank receives: own, plain, odd or window."""
        named = self.cell.memory
        if named == "mixed":
            return ("plain", "own", "window")[rank % 3]
        if named == "root":
            return "plain" if rank == self.cell.root else "own"
        return {"none": "own", "slot": "own"}.get(named, named)

    def room(self, length: int, dtype: Any = None) -> np.ndarray:
        """Collective. Memory of this rank's kind."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        kinds = [self.memory(rank) for rank in range(self.size)]
        mine = kinds[self.rank]
        if "window" in kinds:
            self.window = empty(self.comm, length if mine == "window" else 0, dtype)
        return self.window if mine == "window" else array(dtype, length, mine == "odd")

    def begin(self, name: str, buffers: tuple[Any, ...], *rest: Any, comm: Any = None,
              **more: Any) -> Any:  # fmt: skip
        """Collective. The request, or one like that of another subject."""
        init = getattr(collectives, f"{name}_init")
        options = {"method": self.cell.method, "info": self.info or None, **more}
        try:
            if self.like:
                return self.beside.request.like(*buffers)
            with in_pieces(self.cell, self.count * self.dtype.itemsize):
                return init(comm or self.comm, *buffers, *rest, **options)
        except (OnesidedError, MemoryError):  # on all ranks
            self.give_back()
            raise

    def fill(self, turn: int) -> None: ...

    def check(self, turn: int, got: Any) -> None: ...

    def scribble(self) -> None:
        """What the caller may do after Wait."""

    def round(self, turn: int) -> None:
        self.fill(turn)
        self.request.Start()
        self.check(turn, self.request.Wait())
        self.scribble()

    def free(self) -> None:
        """Collective."""
        self.request.Free()
        self.give_back()

    def give_back(self) -> None:
        if self.window is not None:
            window, self.window = self.window, None
            for name, value in list(vars(self).items()):
                if isinstance(value, np.ndarray):
                    setattr(self, name, None)
            value = None
            free(window)


# -- collectives -----------------------------------------------------------------------------------


class Exchanged(Subject):
    """One of the exchanges, or the broadcast."""

    def set_up(self) -> None:
        cell, rank, size, root = self.cell, self.rank, self.size, self.cell.root
        row = self.operation = EXCHANGES[cell.row]
        here = "some" not in cell.layout or rank % 2 == 1
        holes, in_place = "holes" in cell.layout and here, "place" in cell.layout and here
        self.held = row.in_place(rank, size, root) if in_place else None
        sends = self.counts(row.sends, rank)
        receives = self.counts(row.receives, rank)
        self.send = self.recv = None
        if sends is not None:
            odd = cell.memory == "odd"
            self.send = Buffer(sends, row.forms[0], cell.kind, holes,
                               lambda length: array(self.dtype, length, odd))  # fmt: skip
        if cell.row == "Bcast" and sends is not None:
            self.room(0)
        self.owns = self.memory(rank) == "own" and row.learns(rank, root) and not in_place
        if receives is not None:
            self.recv = Buffer(receives, row.forms[1], cell.kind, holes, self.room)
        elif cell.row != "Bcast":
            self.room(0)
        send = None if self.send is None else self.send.spec()
        recv = None if self.recv is None or self.owns else self.recv.spec()
        if self.held is not None:
            send, recv = (MPI.IN_PLACE, recv) if row.kept == "send" else (send, MPI.IN_PLACE)
        if row.on_graph and self.beside is not None:
            self.graph = self.beside.graph
        elif row.on_graph:
            around = sources(rank, size), targets(rank, size)
            self.graph = self.comm.Create_dist_graph_adjacent(*around)
        given = row.arguments(send, recv, root)
        buffers = 1 if cell.row == "Bcast" else 2
        self.request = self.begin(
            row.name, given[:buffers], *given[buffers:], comm=self.graph or self.comm)
        for spec in (send, recv):  # what has been given is the caller's again
            for part in spec[1:] if isinstance(spec, list) else []:
                if isinstance(part, np.ndarray):
                    part[:] = 99
        for buffer in (self.send, self.recv):
            assert buffer is None or buffer.untouched(all_of_it=True), "initialization writes"

    def counts(self, counts: Callable[..., list[int] | None], rank: int) -> list[int] | None:
        found = counts(rank, self.size, self.cell.root)
        n = self.count
        longer = {0: 0, 1: (n + 2) // 3, 2: max(n - 1, 0), 3: n}
        return None if found is None else [longer[count] for count in found]

    def numbers(self, turn: int, rank: int) -> list[np.ndarray] | None:
        counts = self.counts(self.operation.sends, rank)
        return None if counts is None else [
            values(self.cell.kind, (turn * self.size + rank) * 131 + place * 17 + np.arange(count))
            for place, count in enumerate(counts)
        ]  # fmt: skip

    def fill(self, turn: int) -> None:
        mine = self.numbers(turn, self.rank)
        if self.recv is not None and not self.released:
            for place in range(len(self.recv.counts)):
                self.recv.part(place)[:] = values(self.cell.kind, np.full(1, EMPTY))
        if mine is None:
            return
        if self.held is not None and self.operation.kept == "send":
            for place, which in self.held.items():
                self.recv.part(place)[:] = mine[which]
        else:
            for place, block in enumerate(mine):
                self.send.part(place)[:] = block

    def check(self, turn: int, got: Any) -> None:
        assert self.send is None or self.send.untouched(), "the send buffer was written"
        kept = self.held is not None and self.operation.kept == "recv"
        if self.recv is None or kept:
            assert got is None or self.cell.row == "Bcast", f"Wait returned {got!r}"
            return
        sent = [self.numbers(turn, rank) for rank in range(self.size)]
        want = self.operation.result(sent, self.rank, self.size, self.cell.root)
        if self.owns:
            whole = np.concatenate([*want, want[0][:0]]).astype(self.dtype)
            assert same(np.asarray(got).reshape(-1), whole), f"round {turn}"
            return
        for place, block in enumerate(want):
            alike(np.ascontiguousarray(self.recv.part(place)), block, turn, f", block {place}")
        assert self.recv.untouched(), "bytes outside of the blocks were written"

    def scribble(self) -> None:
        if self.send is not None and self.cell.row != "Bcast":
            for place in range(len(self.send.counts)):
                self.send.part(place)[:] = values(self.cell.kind, np.full(1, SCRIBBLE))

    def give_back(self) -> None:
        for buffer in (self.send, self.recv):
            if buffer is not None:
                buffer.free()
        self.send = self.recv = None
        super().give_back()
        if self.graph is not None and self.beside is None:
            self.graph.Free()


def alike(found: np.ndarray, want: np.ndarray, turn: int, where: str = "") -> None:
    """The same bytes, or an error that shows the first that differ."""
    if not same(found, want):
        wrong = np.flatnonzero(found.view(f"V{found.itemsize}") !=
                               want.view(f"V{found.itemsize}"))[:3]  # fmt: skip
        raise AssertionError(f"round {turn}{where}, wrong from {wrong}: "
                             f"{found.reshape(-1)[wrong]}, not {want.reshape(-1)[wrong]}")


class Reduced(Subject):
    """One of the reductions: every rank contributes, by its kind."""

    def set_up(self) -> None:
        cell, rank, size, kind = self.cell, self.rank, self.size, self.kind
        if cell.row == "Reduce_scatter_block":
            self.count = self.count // size * size
        n = self.count
        self.gets = cell.row != "Reduce" or rank == cell.root
        self.in_place = "place" in cell.layout and self.gets
        self.part = self.share(rank)
        own = self.part.stop - self.part.start
        self.odd = cell.memory == "odd"
        self.send, sent = self.bytes(np.empty, 0 if self.in_place else n)
        wanted = n if self.in_place else own
        self.recv, into = self.bytes(self.room, wanted if self.gets else 0)
        self.datatype, self.op = kind.datatype(), kind.op
        if not isinstance(self.op, MPI.Op):
            self.op = MPI.Op.Create(kind.op, commute=kind.commutes)
        send: Any = MPI.IN_PLACE if self.in_place else [sent, n, self.datatype]
        recv = [into, self.datatype]
        if cell.row == "Reduce_scatter_block":  # counts are those of a block
            send = send if self.in_place else [sent, n // size, self.datatype]
            recv.insert(1, n // size)
        rest: list[Any] = [self.op]
        if cell.row == "Reduce_scatter":
            each = [self.share(other) for other in range(size)]
            rest.insert(0, [part.stop - part.start for part in each])
        if cell.row == "Reduce":
            rest.append(cell.root)
        self.request = self.begin(cell.row, (send, recv if self.gets else None), *rest)

    @property
    def kind(self) -> Kind:
        return KINDS[self.cell.kind]

    @functools.cached_property
    def dtype(self) -> np.dtype:
        return self.kind.dtype

    def share(self, rank: int) -> slice:
        """What a rank gets of the vector: uneven shares, and one rank without any."""
        n, each = self.count, self.count // self.size
        if not self.cell.row.startswith("Reduce_scatter"):
            return slice(0, n)
        edges = [each * r for r in range(self.size)] + [n]
        if self.size > 2 and self.cell.row == "Reduce_scatter":
            edges[2] = edges[1]
        return slice(edges[rank], edges[rank + 1])

    def bytes(self, make: Callable[..., np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
        """Elements in memory with a guard behind them, at an odd address where that is wanted."""
        nbytes, skip = count * self.dtype.itemsize, int(self.odd)
        room = make(nbytes + 64, np.uint8)
        room[:] = GUARD
        data = room[skip : skip + nbytes]
        return data.view(self.dtype), data

    def contribution(self, turn: int, rank: int) -> np.ndarray:
        """The same data wherever they are asked for."""
        return self.kind.make(np.random.default_rng([turn, rank, self.count]), self.count)

    def fill(self, turn: int) -> None:
        mine = self.contribution(turn, self.rank)
        if "hole" in (self.dtype.names or ()):
            mine["hole"] = -turn
        (self.recv if self.in_place else self.send)[:] = mine
        if self.gets and not self.in_place:
            self.recv.view(np.uint8)[:] = GUARD
        self.before, self.mine = self.recv.copy(), self.send.tobytes()

    def check(self, turn: int, got: Any) -> None:
        assert self.send.tobytes() == self.mine, "the contribution was changed"
        over = {"Scan": self.rank + 1, "Exscan": self.rank}.get(self.cell.row, self.size)
        if not self.gets:
            return
        length = self.part.stop - self.part.start if over else 0
        want, found = self.before.copy(), self.recv
        if over:
            parts = [self.contribution(turn, rank)[self.part] for rank in range(over)]
            want[:length] = functools.reduce(self.kind.join, parts)
        if self.in_place and self.cell.row.startswith("Reduce_scatter"):
            found, want = found[:length], want[:length]  # MPI says nothing of what lies behind
        names = self.dtype.names or ()
        if "hole" in names:
            before = self.before["hole"][: len(found)]
            assert np.array_equal(found["hole"], before), "a hole was written"
        for field in [name for name in names if name != "hole"] or [...]:
            mine, right = found[field], want[field]
            nan = mine.dtype.kind in "fc"
            if not np.array_equal(mine, right, equal_nan=nan):
                raise AssertionError(f"round {turn}: {mine[:4]} instead of {right[:4]}")

    def give_back(self) -> None:
        if not isinstance(self.kind.op, MPI.Op):
            self.op.Free()
        if not self.datatype.is_predefined:
            self.datatype.Free()
        super().give_back()


class Met(Subject):
    """The barrier: whoever is through sees in a file that all ranks have come as often as it."""

    def set_up(self) -> None:
        handle, path = tempfile.mkstemp() if self.rank == 0 else (-1, "")
        path = self.comm.bcast(path)
        self.came = np.memmap(path, "i8", "r+", shape=self.size)
        self.comm.Barrier()
        if self.rank == 0:
            os.close(handle)
            os.unlink(path)
        self.request = self.begin("Barrier", ())

    def fill(self, turn: int) -> None:
        self.came[self.rank] += 1

    def check(self, turn: int, got: Any) -> None:
        assert self.came.min() >= self.came[self.rank], f"round {turn}: {self.came}"


class Boxed(Subject):
    """Rows to columns of an array of three axes, or of nine: no two ranks have as much. Of three,
    the last rank receives two axes as one."""

    def set_up(self) -> None:
        size, rank = self.size, self.rank
        self.rows = [slice(i * (i + 1) // 2, (i + 1) * (i + 2) // 2) for i in range(size)]
        self.cols = [slice(2 * i, 2 * i + 2) for i in range(size)]
        if size > 2:
            self.cols[1] = slice(2, 2)  # a rank without columns
        rest = (2,) * 6 if "9" in self.cell.row else ()
        deep = max(1, self.count // (2 * 2 ** len(rest)))
        self.shape = (self.rows[-1].stop, 2 * size, *rest, deep)
        mine = self.shape[1:]
        self.send = np.empty((self.rows[rank].stop - self.rows[rank].start, *mine), self.dtype)
        inside = (self.shape[0], self.cols[rank].stop - self.cols[rank].start, *self.shape[2:])
        out = [(slice(None), col) if col.stop > col.start else None for col in self.cols]
        empties = inside[1] == 0
        into = [None if empties else (row,) for row in self.rows]
        if not rest and rank == size - 1:
            inside = (inside[0], inside[1] * inside[2])
        kind = self.memory(rank)
        room = self.room(int(np.prod(inside)))
        self.recv = room.reshape(inside) if kind != "own" else None
        given = (inside, self.dtype) if self.recv is None else self.recv
        del room
        self.request = self.begin("Alltoallw", ([self.send, out], [given, into]))

    def whole(self, turn: int, *part: slice) -> np.ndarray:
        """A part of the whole array, as it is in this round."""
        count = int(np.prod(self.shape))
        numbers = np.arange(turn * 1001, turn * 1001 + count).reshape(self.shape)[part]
        return values(self.cell.kind, numbers.reshape(-1)).reshape(numbers.shape)

    def fill(self, turn: int) -> None:
        self.send[...] = self.whole(turn, self.rows[self.rank])

    def check(self, turn: int, got: Any) -> None:
        got = self.request.recvbuf if got is None else got
        want = self.whole(turn, slice(None), self.cols[self.rank]).reshape(np.shape(got))
        alike(np.ascontiguousarray(got), want, turn)


# -- halos -----------------------------------------------------------------------------------------

#: Staged or stored on the node, whatever the length, and messages between nodes.
WAYS = {"staged": (1 << 40, {}), "store": (-1, {}), "message": (0, {"ranks_per_node": "1"})}


@contextlib.contextmanager
def by(way: str) -> Iterator[dict[str, str]]:
    """Halos that are made in this way, and the info for it."""
    before = plan.SHORT
    plan.SHORT, info = WAYS[way]
    try:
        yield info
    finally:
        plan.SHORT = before


class Haloed(Subject):
    """Blocks of two axes, one of them decomposed, with ghosts on all sides; a third is whole."""

    def set_up(self) -> None:
        size, length = self.size, self.count // 4 + 1
        rows = tuple(3 + rank % 2 for rank in range(size))
        self.world = World((rows, (4,), (length,)), (True, False), ((1, 2), (1, 1), (0, 0)),
                           self.dtype.str)  # fmt: skip
        beside = self.beside
        self.cart = beside.cart if beside else self.comm.Create_cart((size, 1), (True, False))
        self.coords = (self.rank, 0)
        shape = self.world.shape(self.coords)
        holes = 1 + ("holes" in self.cell.layout)
        self.whole = self.room(holes * int(np.prod(shape))).reshape((*shape[:2], -1))
        self.array = self.whole[..., ::holes]
        self.whole[...] = self.world.guard()
        try:
            with by(self.cell.method) as info:
                self.request = HaloExchange(
                    self.cart, self.array, self.world.layers, info={**self.info, **info})
        except (OnesidedError, MemoryError):  # on all ranks
            self.give_back()
            raise

    def fill(self, turn: int) -> None:
        self.array[...] = self.world.before(self.coords, turn)

    def check(self, turn: int, got: Any) -> None:
        alike(np.ascontiguousarray(self.array), self.world.after(self.coords, turn), turn)

    def give_back(self) -> None:
        super().give_back()
        if self.beside is None:
            self.cart.Free()


class Gridded(Subject):
    """A field of a grid, with a number at the ends of one axis, and periodic along the other."""

    def set_up(self) -> None:
        beside, self.length = self.beside, self.count // 4 + 1
        shape = (3 * self.size + 1, 4)
        self.grid = beside.grid if beside else Grid(
            self.comm, shape, 1, periodic=(False, True), dims=(self.size, 1), boundary=7)
        self.field = self.grid.zeros(self.length, self.dtype)
        if self.memory(self.rank) == "plain":
            self.field = self.field.copy()
        try:
            with by(self.cell.method) as info:
                self.request = self.grid.halo(self.field, info={**self.info, **info})
        except (OnesidedError, MemoryError):  # on all ranks
            self.give_back()
            raise

    def whole(self, turn: int) -> np.ndarray:
        """With its ghosts."""
        count = self.length * int(np.prod(self.grid.shape))
        found = values(self.cell.kind, np.arange(turn * 1001, turn * 1001 + count))
        found = found.reshape(self.length, *self.grid.shape)
        found = np.pad(found, ((0, 0), (1, 1), (0, 0)), constant_values=7)
        return np.pad(found, ((0, 0), (0, 0), (1, 1)), mode="wrap")

    def fill(self, turn: int) -> None:
        self.field[...] = 55
        box = self.grid.box[0]
        mine = self.whole(turn)[:, box.start + 1 : box.stop + 1, 1:-1]
        self.field[self.grid.owned] = mine

    def check(self, turn: int, got: Any) -> None:
        box = self.grid.box[0]
        want = np.ascontiguousarray(self.whole(turn)[:, box.start : box.stop + 2])
        alike(np.ascontiguousarray(self.field), want, turn)

    def give_back(self) -> None:
        self.field = None
        if self.beside is None:
            self.grid.Free()


# -- what is no collective -------------------------------------------------------------------------


class Ring:
    """A partitioned send to the right and a receive from the left, with the verbs of a request."""

    def __init__(self, send: Any, receive: Any) -> None:
        self.send, self.receive = send, receive
        self.both = [receive, send]

    def Start(self) -> None:
        Startall(self.both)
        self.mark()

    def mark(self) -> None:
        """Every other partition first: no group is beside another then."""
        for first in (0, 1):
            for part in range(first, self.send.partitions, 2):
                self.send.Pready(part)

    def Wait(self) -> Any:
        return Waitall(self.both)[0]

    def Test(self) -> bool:
        return Testall(self.both)

    def Get_status(self) -> bool:
        return Get_status_all(self.both)

    def Free(self) -> None:
        for request in self.both:
            request.Free()

    @property
    def active(self) -> bool:
        return any(request.active for request in self.both)

    @property
    def state(self) -> str:
        return "active" if self.active else self.receive.state

    @property
    def recvbuf(self) -> Any:
        return self.receive.recvbuf


class Partitioned(Subject):
    """Both ends of a rank in a ring of partitioned sends; groups leave as they are ready."""

    def set_up(self) -> None:
        self.parts = 2 if self.count < 6 else 96
        count = self.count = max(1, self.count // self.parts) * self.parts
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        self.left = left
        self.send = array(self.dtype, count, self.cell.memory == "odd")
        self.recv = self.room(count)
        self.send[:] = self.recv[:] = values(self.cell.kind, [GUARD])
        options = {"method": self.cell.method, "aggregate": 0, "info": self.info or None}
        self.request = Ring(Psend_init(self.comm, self.send, self.parts, right, **options),
                            Precv_init(self.comm, self.recv, 2, left, **options))  # fmt: skip

    @property
    def requests(self) -> list[Any]:
        return self.request.both

    def numbers(self, turn: int, rank: int) -> np.ndarray:
        return values(self.cell.kind, (turn * self.size + rank) * 131 + np.arange(self.count))

    def fill(self, turn: int) -> None:
        self.send[:] = self.numbers(turn, self.rank)
        self.recv[:] = values(self.cell.kind, np.full(1, EMPTY))

    def check(self, turn: int, got: Any) -> None:
        alike(self.recv, self.numbers(turn, self.left), turn)

    def scribble(self) -> None:
        self.send[:] = values(self.cell.kind, np.full(1, SCRIBBLE))

    def give_back(self) -> None:
        self.comm.Barrier()  # Free is local
        super().give_back()


def make(
    comm: MPI.Intracomm, cell: Cell, options: Mapping[str, str] | None = None,
    beside: Subject | None = None, like: bool = False,
) -> Subject:  # fmt: skip
    """Collective. What a cell names; on the communicator of another one that is freed later."""
    forms: dict[str, Any] = {"Barrier": Met, "halo": Haloed, "grid": Gridded,
                             "partitioned": Partitioned}  # fmt: skip
    forms |= dict.fromkeys(REDUCTIONS, Reduced) | dict.fromkeys(BOXES, Boxed)
    return forms.get(cell.row, Exchanged)(comm, cell, options or {}, beside, like)
