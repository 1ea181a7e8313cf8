"""MPI's own collectives: called anew at every start (the baseline), and persistent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Resources
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.exchange import Exchange, ExchangeTransport
from onesided.collectives.pattern import Block
from onesided.collectives.program import Plan, call

#: Largest count or displacement of the MPI-3 interface.
INT_MAX = 2**31 - 1


class Alltoall(ExchangeTransport):
    """``MPI_Alltoallv`` in ``Start``; ``MPI_Alltoallw`` with subarray types for boxes.

    On a communicator with a topology the neighborhood forms are called. Strictly ordered: the
    call blocks until all ranks have entered it. Large counts, for which the MPI-3 interface has
    no room, travel as one element of a derived type.
    """

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        self.serve(self.plain_arrays())
        calls = [prepare_call(self.exchange, array, resources) for array in self.arrays]
        comm = self.exchange.context.comm
        self._calls = [partial(getattr(comm, name), *args) for name, args in calls]

    def needs_mpi_thread(self) -> bool:
        return False

    def plans(self) -> list[Plan]:
        return [[[call(each)]] for each in self._calls]

    def forget(self) -> None:
        self._calls, self.arrays, self.answers = [], [], []


class PersistentAlltoall(ExchangeTransport):
    """``MPI_Alltoallv_init`` once per receive slot, or ``MPI_Ialltoallv`` at every start.

    MPI progresses both by itself. The nonblocking form is matched by the order of the calls, so it
    runs on a communicator of the request's own: MPI-4.1 section 7.13 asks no less of an
    implementation.
    """

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        self.serve(self.plain_arrays())
        self._calls = [prepare_call(self.exchange, array, resources) for array in self.arrays]
        self._handles: list[MPI.Prequest] = []
        self._open: MPI.Request = MPI.REQUEST_NULL
        self._comm: MPI.Comm = self.exchange.context.comm
        persistent = all([self._initialize(call) for call in self._calls])
        if not persistent:
            self._comm = self.exchange.context.comm.Dup()
            resources.on_release(self._comm.Free)

    def _initialize(self, call: Call) -> bool:
        name, arguments = call
        start = getattr(self._comm, f"{name}_init", None)
        if start is None:
            return False
        try:
            handle = start(*arguments)
        except NotImplementedError:
            return False
        self._handles.append(handle)
        self.resources.on_release(handle.Free)
        return True

    def needs_mpi_thread(self) -> bool:
        return False

    def plans(self) -> list[Plan]:
        if self._handles:
            return [[[call(each.Start), call(each.Test, False)]] for each in self._handles]
        return [
            [[call(partial(self.begin, slot)), call(self.advance, False)]]
            for slot in range(len(self._calls))
        ]

    def begin(self, slot: int) -> None:
        name, arguments = self._calls[slot]
        nonblocking = name.replace("Neighbor_a", "Ineighbor_a").replace("Alltoall", "Ialltoall")
        self._open = getattr(self._comm, nonblocking)(*arguments)

    def advance(self) -> bool:
        return self._open.Test()

    def waiting_for(self, number: int) -> str:
        return "MPI's own collective"

    def forget(self) -> None:
        self._calls, self._handles, self.arrays, self.answers = [], [], [], []


Call = tuple[str, tuple[Any, Any]]


def prepare_call(exchange: Exchange, array: NDArray[Any], resources: Resources) -> Call:
    """Local. The name and cached arguments of the collective that performs the exchange."""
    _refuse_swapped_neighbors(exchange)
    form = _typed
    flat = exchange.send.array is not None and exchange.send.array.ndim == 1 and array.ndim == 1
    if flat and _fits(exchange, array):
        form = _vector
    sides = ((exchange.send.array, exchange.send.blocks), (array, exchange.recv.blocks))
    name, arguments = form(exchange, sides, resources)
    return ("Neighbor_a" if exchange.neighborhood else "A") + name, arguments


def _refuse_swapped_neighbors(exchange: Exchange) -> None:
    """Open MPI 5.0 departs from MPI-4.1 section 8.6 where both neighbors along an axis are one
    rank: the blocks from the two sides change places."""
    comm = exchange.context.comm
    if not exchange.neighborhood or not isinstance(comm, MPI.Cartcomm):
        return
    if "Open MPI" in MPI.Get_library_version():
        peers = [peer for peer in exchange.edges[0][0] if peer != MPI.PROC_NULL]
        if len(set(peers)) < len(peers):
            raise UnsupportedError(
                "Open MPI delivers blocks of a periodic Cartesian axis of extent 1 or 2 to the "
                "wrong side; use p2p or an rma method"
            )


def _fits(exchange: Exchange, array: NDArray[Any]) -> bool:
    contiguous = array.flags.c_contiguous
    longest = array.size
    if exchange.send.array is not None:
        contiguous &= exchange.send.array.flags.c_contiguous
        longest = max(longest, exchange.send.array.size)
    return contiguous and longest <= INT_MAX


Sides = tuple[tuple[Any, tuple[Block, ...]], tuple[Any, tuple[Block, ...]]]
Form = Callable[[Exchange, Sides, Resources], Call]


def _vector(exchange: Exchange, sides: Sides, resources: Resources) -> Call:
    specs = []
    for role, (array, blocks) in enumerate(sides):
        places = _places(exchange, blocks, role)
        counts = [0 if block is None else block.size for block in places]
        displs = [0 if block is None else block.box[0].start for block in places]
        specs.append([array, counts, displs, element_type(array.dtype, resources)])
    return "lltoallv", (specs[0], specs[1])


def _typed(exchange: Exchange, sides: Sides, resources: Resources) -> Call:
    specs = []
    for role, (array, blocks) in enumerate(sides):
        places = _places(exchange, blocks, role)
        element = element_type(array.dtype, resources)
        types = [box_type(b, array.shape, array.strides, element, resources) for b in places]
        counts = [0 if block is None else 1 for block in places]
        memory = array.reshape(-1) if array.flags.c_contiguous else MPI.memory.fromaddress(
            array.ctypes.data, 0
        )
        resources.keep.append(array)
        specs.append([_base(array, memory), counts, [0] * len(counts), types])
    return "lltoallw", (specs[0], specs[1])


def _base(array: NDArray[Any], memory: Any) -> Any:
    """A buffer that starts where the array's first element is; types reach out from there."""
    return memory if array.size else bytearray(1)


def _places(
    exchange: Exchange, blocks: tuple[Block, ...], role: int
) -> list[Block | None]:
    """One entry per argument of the collective: per rank, or per edge of the topology."""
    if not exchange.neighborhood:
        found = {block.peer: block for block in blocks}
        return [found.get(rank) for rank in range(exchange.context.comm.size)]
    peers, keys = exchange.edges[role]
    edges = {(block.peer, block.key): block for block in blocks}
    return [edges.get(edge) for edge in zip(peers, keys, strict=True)]


# -- types ---------------------------------------------------------------------------------------


def element_type(dtype: np.dtype[Any], resources: Resources) -> MPI.Datatype:
    """Local. The MPI type of an element; bytes where MPI has none (they are moved as they are)."""
    if dtype.fields is None and dtype.isnative and dtype.kind in "?biufc":
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return MPI.Datatype.fromcode(dtype.char)  # a predefined one: nothing to free
    kind = MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()
    resources.on_release(kind.Free)
    return kind


def box_type(
    block: Block | None,
    shape: Sequence[int],
    strides: Sequence[int],
    element: MPI.Datatype,
    resources: Resources,
) -> MPI.Datatype:
    """Local. The type that picks a box out of an array with these strides (in bytes).

    Strides of any size and order are possible; offsets are bytes from the array's first element.
    """
    if block is None:
        return MPI.BYTE
    kind, offset = element, 0
    for axis in reversed(range(len(shape))):
        kind = _replace(kind, _repeated(kind, block.shape[axis], strides[axis]), element)
        offset += block.box[axis].start * strides[axis]
    kind = _replace(kind, kind.Create_hindexed_block(1, [offset]), element)
    resources.on_release(kind.Commit().Free)
    return kind


def _repeated(kind: MPI.Datatype, count: int, stride: int) -> MPI.Datatype:
    """``count`` elements ``stride`` bytes apart; in two levels where the count is no int."""
    if count <= INT_MAX:
        return kind.Create_hvector(count, 1, stride)
    pieces, rest = divmod(count, INT_MAX)
    piece = kind.Create_hvector(INT_MAX, 1, stride)
    parts = [piece.Create_hvector(pieces, 1, INT_MAX * stride)]
    if rest:
        parts.append(kind.Create_hvector(rest, 1, stride))
    offsets = [0, pieces * INT_MAX * stride][: len(parts)]
    whole = MPI.Datatype.Create_struct([1] * len(parts), offsets, parts)
    for part in (piece, *parts):
        part.Free()
    return whole


def _replace(old: MPI.Datatype, new: MPI.Datatype, element: MPI.Datatype) -> MPI.Datatype:
    if old is not element:
        old.Free()
    return new
