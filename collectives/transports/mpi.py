"""MPI's own collectives: called anew at every start (the baseline), and persistent."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed
from onesided.collectives.buffers import Side
from onesided.collectives.context import Resources, acquired
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.exchange import Exchange, ExchangeTransport
from onesided.collectives.pattern import INT_MAX, Block
from onesided.collectives.steps import Plan, call
from onesided.collectives.transport import Transport

#: A collective of mpi4py by the name of its blocking form, and its arguments.
Call = tuple[str, tuple[Any, ...]]


class _OwnCalls(Transport):
    """Rounds that are calls of MPI: subclasses say which, by slot."""

    as_given = True

    def __init__(self, operation: Any, resources: Resources) -> None:
        super().__init__(operation, resources)
        with agreed(operation.context.comm, "MPI's own collective"):
            self._calls = self.own_calls()

    def own_calls(self) -> list[list[Call]]:
        """Local. By slot, the calls of a round, one after the other."""
        return [[]]


class Blocking(_OwnCalls):
    """The blocking collective in ``Start``.

    Strictly ordered: the call may wait until all ranks have entered it.
    """

    waits_in_start = True

    def __init__(self, operation: Any, resources: Resources) -> None:
        super().__init__(operation, resources)
        self._comm = operation.context.for_blocking()

    def plans(self) -> list[Plan]:
        return [
            [[call(partial(getattr(self._comm, name), *arguments), once=True)
              for name, arguments in calls]]
            for calls in self._calls
        ]


class Persistent(_OwnCalls):
    """The persistent collective, initialized once per slot, or the nonblocking one at every start.

    MPI progresses both by itself. The nonblocking form is matched by the order of the calls, so it
    runs on a communicator of the request's own: MPI-4.1 section 7.13 asks no less of an
    implementation.
    """

    def __init__(self, operation: Any, resources: Resources) -> None:
        super().__init__(operation, resources)
        self._handles: list[list[MPI.Prequest]] = []
        self._open: list[MPI.Request] = []
        self._comm: MPI.Comm = operation.context.comm
        if not all([self._initialize(calls) for calls in self._calls]):
            self._handles = []
            self._comm = acquired(operation.context.comm.Dup)
            resources.on_release(self._comm.Free, in_step=True)

    def _initialize(self, calls: Sequence[Call]) -> bool:
        handles: list[MPI.Prequest] = []
        for name, arguments in calls:
            try:
                handles.append(getattr(self._comm, f"{name}_init")(*arguments))
            except NotImplementedError:
                return False
            self.resources.on_release(handles[-1].Free, in_step=True)
        self._handles.append(handles)
        return True

    def plans(self) -> list[Plan]:
        if self._handles:  # one after the other: MPICH 5.0 refuses persistent ones in MPI_Testall
            return [
                [[call(each.Start, once=True), call(each.Test, False)] for each in handles]
                for handles in self._handles
            ]
        return [
            [[call(partial(self.begin, slot), once=True), call(self.advance, False)]]
            for slot in range(len(self._calls))
        ]

    def begin(self, slot: int) -> None:
        self._open = [
            getattr(self._comm, f"I{name[0].lower()}{name[1:]}")(*arguments)
            for name, arguments in self._calls[slot]
        ]

    def advance(self) -> bool:
        return MPI.Request.Testall(self._open)

    def waiting_for(self, number: int) -> str:
        return "MPI's own collective"


# -- exchanges -----------------------------------------------------------------------------------

ONE, EVEN, VECTOR, TYPED = "one block for all", "even blocks", "blocks", "boxes"

#: How a collective describes what is sent, and what is received.
FORMS = {
    "Gather": (ONE, EVEN), "Gatherv": (ONE, VECTOR),
    "Scatter": (EVEN, ONE), "Scatterv": (VECTOR, ONE),
    "Allgather": (ONE, EVEN), "Allgatherv": (ONE, VECTOR),
    "Alltoall": (EVEN, EVEN), "Alltoallv": (VECTOR, VECTOR), "Alltoallw": (TYPED, TYPED),
}  # fmt: skip


class _Exchanging(ExchangeTransport):
    """An exchange by the collective that the caller has named.

    On a communicator with a topology the neighborhood forms are called. Large counts, for which
    the MPI-3 interface has no room, travel as one element of a derived type.
    """

    def own_calls(self) -> list[list[Call]]:
        """Local. The collective, once per slot; all ranks have as many, as MPI matches them."""
        exchange = self.operation
        _refuse_swapped_neighbors(exchange)
        if exchange.mixed:
            raise UnsupportedError(
                "MPI.IN_PLACE on some ranks only; MPI wants it on all of them or on none"
            )
        arrays: Sequence[NDArray[Any] | None] = [None] * exchange.least_slots
        if exchange.recv.native is None:
            arrays = self.plain_arrays()[: exchange.least_slots]
        self.serve([array for array in arrays if array is not None])
        return [[_call(exchange, array, self.resources)] for array in arrays]


class BlockingExchange(_Exchanging, Blocking):
    """``MPI_Alltoallv``, or what else was initialized, in ``Start``."""


class PersistentExchange(_Exchanging, Persistent):
    """``MPI_Alltoallv_init``, or what else was initialized, or its nonblocking form."""


def _call(exchange: Exchange, array: NDArray[Any] | None, resources: Resources) -> Call:
    """Local. The name and the arguments of the collective that performs the exchange."""
    name, forms = exchange.call, FORMS[exchange.call.removeprefix("Neighbor_").capitalize()]
    sides = ((exchange.send, exchange.send.array), (exchange.recv, array))
    if forms != (TYPED, TYPED) and exchange.beyond_vectors:
        if forms == (VECTOR, VECTOR):
            name, forms = name[:-1] + "w", (TYPED, TYPED)
        elif MPI.VERSION < 4:
            raise UnsupportedError(f"{name} with counts beyond {INT_MAX} on this MPI")
    arguments = tuple(
        _argument(exchange, role, form, memory, resources)
        for role, (form, (_, memory)) in enumerate(zip(forms, sides, strict=True))
    )
    return name, arguments if exchange.root is None else (*arguments, exchange.root)


def _argument(
    exchange: Exchange, role: int, form: str, array: NDArray[Any] | None, resources: Resources
) -> Any:
    """One side as mpi4py takes it; None where this rank has none, which is not the root."""
    side = (exchange.send, exchange.recv)[role]
    if form in (EVEN, VECTOR) and exchange.root not in (None, exchange.rank):
        return None
    if side.native is not None:
        vector = form == TYPED and isinstance(side.native, list) and len(side.native) == 3
        return (_each_typed if vector else held)(side.native, resources)
    if array is None:
        array = np.empty(side.shape, side.dtype)
    if form == TYPED:
        return _typed(exchange, side, array, role, resources)
    kind = element_type(array.dtype, resources)
    places = _places(exchange, side, role)
    if form == VECTOR:
        counts = [0 if block is None else block.size for block in places]
        displs = [0 if block is None else block.box[0].start for block in places]
        return [array, counts, displs, kind]
    for place, block in enumerate(places):
        if block is not None:
            before = place * block.size if form == EVEN else 0
            return [array, block.size, block.box[0].start - before, kind]
    return [array, 0, 0, kind]


def held(native: Any, resources: Resources) -> Any:
    """The caller's own arguments; types live as long as the request."""
    if isinstance(native, list):
        return [held(part, resources) for part in native]
    if not isinstance(native, MPI.Datatype) or native.is_predefined:
        return native
    kind = native.Dup()
    resources.on_release(kind.Free)
    return kind


def _each_typed(native: Any, resources: Resources) -> list[Any]:
    """The same with a type for every block, in which its displacement is: in bytes it may be more
    than fits beside the counts."""
    data, (counts, displs), kind = native
    types = []
    for count, displ in zip(counts, displs, strict=True):
        made = MPI.BYTE
        if count:
            made = MPI.Datatype.Create_struct([count], [displ * kind.extent], [kind]).Commit()
            resources.on_release(made.Free)
        types.append(made)
    return [data, [int(count > 0) for count in counts], [0] * len(types), types]


def _refuse_swapped_neighbors(exchange: Exchange) -> None:
    """Open MPI 5.0 departs from MPI-4.1 section 8.6 where both neighbors along an axis are one
    rank: the blocks from the two sides change places."""
    comm = exchange.context.comm
    if not exchange.call.startswith("Neighbor_alltoall") or not isinstance(comm, MPI.Cartcomm):
        return
    if "Open MPI" in MPI.Get_library_version():
        peers = [peer for peer in exchange.edges[0][0] if peer != MPI.PROC_NULL]
        if len(set(peers)) < len(peers):
            raise UnsupportedError(
                "Open MPI delivers blocks of a periodic Cartesian axis of extent 1 or 2 to the "
                "wrong side; use p2p or an rma method"
            )


def _typed(
    exchange: Exchange, side: Side, array: NDArray[Any], role: int, resources: Resources
) -> list[Any]:
    places = _places(exchange, side, role)
    element = element_type(array.dtype, resources)
    types = [box_type(b, array.shape, array.strides, element, resources) for b in places]
    counts = [0 if block is None else 1 for block in places]
    dense = array.flags.c_contiguous  # else types reach out from the first element
    memory: Any = array.reshape(-1) if dense else MPI.memory.fromaddress(array.ctypes.data, 0)
    resources.keep.append(array)
    return [memory if array.size else bytearray(1), counts, [0] * len(counts), types]


def _places(exchange: Exchange, side: Side, role: int) -> list[Block | None]:
    """One entry per argument of the collective: per rank, or per edge of the topology."""
    blocks = (*side.blocks, *([] if side.kept is None else [side.kept]))
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
    longer = piece.Create_hvector(pieces, 1, INT_MAX * stride)
    parts = [longer, kind.Create_hvector(rest, 1, stride)]
    whole = MPI.Datatype.Create_struct([1, 1], [0, pieces * INT_MAX * stride], parts)
    for part in (piece, *parts):
        part.Free()
    return whole


def _replace(old: MPI.Datatype, new: MPI.Datatype, element: MPI.Datatype) -> MPI.Datatype:
    if old is not element:
        old.Free()
    return new
