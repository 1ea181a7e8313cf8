"""MPI's own collective, called anew at every start: the baseline of every comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.context import Resources
from onesided.collectives.copies import allocate_slots
from onesided.collectives.datatypes import INT_MAX, box_type, element_type
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.exchange import Exchange
from onesided.collectives.pattern import Block
from onesided.collectives.request import PersistentRequest


class Alltoall(PersistentRequest):
    """``MPI_Alltoallv`` in ``Start``; ``MPI_Alltoallw`` with subarray types for boxes.

    On a communicator with a topology the neighborhood forms are called. Strictly ordered: the
    call blocks until all ranks have entered it. Large counts, for which the MPI-3 interface has
    no room, travel as one element of a derived type.
    """

    any_order = False

    def __init__(self, exchange: Exchange, resources: Resources) -> None:
        super().__init__(exchange, resources)
        self.serve(allocate_slots(exchange))
        calls = [prepare_call(exchange, array, resources) for array in self.arrays]
        self._calls = [(getattr(exchange.context.comm, name), args) for name, args in calls]

    def begin(self, slot: int) -> None:
        call, arguments = self._calls[slot]
        call(*arguments)

    def forget(self) -> None:
        self._calls = []


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
