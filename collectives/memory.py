"""Memory that peers write: shared within a node, exposed to the rest by windows.

On a node a block is stored straight into the peer's memory, so receive memory is allocated by
MPI on the node communicator (``MPI.Win.Allocate_shared``). Ranks on other nodes Put through an
*overlay*: a window created over the same memory on the whole communicator, which belongs to one
request. The shared window is held under ``Lock_all`` from allocation to free, because
``Win.Sync`` is legal only inside an epoch (MPI-4.1 section 12.5.4); the overlay is the only
window that is fenced, posted or flushed.
"""

from __future__ import annotations

import os
import uuid
import weakref
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.boards import STEP, Boards
from onesided.collectives.context import Context, Node, Resources, refusal
from onesided.collectives.errors import (
    PatternError,
    RequestError,
    ResourceError,
    UnsupportedError,
)

#: Partitioned sends that may store into one array from :func:`empty` at a time.
LINKS = 32

#: Alignment of everything that is laid out in shared memory, in bytes: two cache lines.
ALIGNMENT = 128

_regions: dict[str, Region] = {}
_wide_regions: dict[str, Region] = {}


def aligned(nbytes: int) -> int:
    """Local. The next multiple of :data:`ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Region:
    """Node-shared memory: one segment per rank of a node, each visible to all of them.

    ``root`` is this rank's segment as an array of bytes; every array handed out is a view of it,
    so that a weak reference tells whether anybody still looks at the memory.
    """

    def __init__(self, context: Context, node: Node, nbytes: int, boards: int = 0) -> None:
        """Collective over the context. ``boards`` lie behind the ``nbytes`` of data."""
        self.context, self.node, self.nbytes = context, node, nbytes
        self.boards = Boards(aligned(nbytes), boards)
        room = nbytes if not boards else aligned(nbytes) + boards * STEP
        _require_space(context, node, room)
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        try:
            node.comm.Dup().Free()  # MPICH 5.0 crashes in Allocate_shared where this fails
            size = max(room, ALIGNMENT)
            self.window = MPI.Win.Allocate_shared(size, 1, info, node.comm)
        except MPI.Exception as error:
            raise refusal(error) from error
        finally:
            info.Free()
        self.window.Lock_all(MPI.MODE_NOCHECK)
        if self.window.model != MPI.WIN_UNIFIED:  # loads, stores and Puts must see one memory
            raise UnsupportedError("this MPI has no unified memory model for windows; use p2p")
        self.key: str = node.comm.bcast(uuid.uuid4().hex if node.comm.rank == 0 else None)
        self.wide: MPI.Win | None = None
        self.wide_key = ""
        self.users = 0
        self.freed = False
        root = self._map()
        self.address: int = root.ctypes.data
        self._root = weakref.ref(root)
        self._parts: dict[int, weakref.ref[NDArray[np.uint8]]] = {}
        self._first: NDArray[np.uint8] | None = root  # until somebody asks for it
        _regions[self.key] = self

    def take_root(self) -> NDArray[np.uint8]:
        """Local. This rank's segment; from now on it lives as long as a view of it."""
        root = self._root()
        if root is None:
            root = self._map()
            self._root = weakref.ref(root)
        self._first = None
        return root

    def _map(self) -> NDArray[np.uint8]:
        memory: Any = self.window.tomemory()
        return np.frombuffer(memory, dtype=np.uint8)

    def segment(self, node_rank: int) -> memoryview:
        """Local. The bytes of a rank of the node."""
        memory: Any = self.window.Shared_query(node_rank)[0]
        return memoryview(memory)

    def part(self, node_rank: int) -> NDArray[np.uint8]:
        """Local. The bytes of a rank of the node, mapped as long as a view of this array lives."""
        known = self._parts.get(node_rank)
        part = None if known is None else known()
        if part is None:
            part = np.frombuffer(self.segment(node_rank), dtype=np.uint8)
            self._parts[node_rank] = weakref.ref(part)
        return part

    def unused(self) -> bool:
        """Local. True where no array of this rank shows this memory any more."""
        looks = any(part() is not None for part in self._parts.values())
        return self._first is None and self._root() is None and not looks

    def widen(self) -> None:
        """Collective over the context. A window for ranks of other nodes, if there are any."""
        if self.node.alone:
            return
        comm = self.context.comm
        try:
            self.wide = MPI.Win.Create(self.segment(self.node.comm.rank), 1, MPI.INFO_NULL, comm)
        except MPI.Exception as error:
            raise refusal(error) from error
        self.wide.Lock_all(MPI.MODE_NOCHECK)
        self.wide_key = comm.bcast(uuid.uuid4().hex if comm.rank == 0 else None)
        _wide_regions[self.wide_key] = self

    def retire(self) -> None:
        """Local, in the same order on all ranks. Unmap later, when nobody looks any more."""
        self._first = None
        self.freed = True
        self.context.retired.append(self)

    def unmap(self) -> None:
        """Collective over the context."""
        _regions.pop(self.key, None)
        if self.wide is not None:
            _wide_regions.pop(self.wide_key)
            self.wide.Unlock_all()
            self.wide.Free()
        self.window.Unlock_all()
        self.window.Free()


def _require_space(context: Context, node: Node, nbytes: int) -> None:
    """Collective. MPI shares memory through files in ``/dev/shm``, which may be small.

    Writing to a full one is a bus error, so the space is asked for first, and agreed.
    """
    wanted = node.comm.allreduce(max(nbytes, ALIGNMENT) + (1 << 16))
    with agreed(context.comm, "allocation of shared memory"):
        try:
            status = os.statvfs("/dev/shm")
        except OSError:
            return  # this system shares memory in another way: MPI will tell
        free = status.f_bavail * status.f_frsize
        if wanted > free:
            raise ResourceError(
                f"{wanted:,} bytes of shared memory are wanted on one node and {free:,} are free "
                "in its /dev/shm; enlarge it, use fewer ranks on a node, a receive buffer of your "
                "own, or a method that needs no shared memory (p2p)"
            )


def find_region(array: NDArray[Any]) -> Region | None:
    """Local. The region that holds the memory of ``array``, None for plain memory."""
    start, end = np.lib.array_utils.byte_bounds(array)
    if array.size == 0:
        start = end = array.ctypes.data
    for region in _regions.values():
        inside = region.address <= start and end <= region.address + region.nbytes
        if inside and (array.size or start == region.address) and not region.freed:
            return region
    return None


def region_with_key(key: str | None) -> Region | None:
    """Local. The region with this key, where this rank has a part of it."""
    return None if key is None else _regions.get(key)


def wide_region(key: str) -> Region | None:
    """Local. The region whose window for ranks of other nodes has this key."""
    return _wide_regions.get(key)


def empty(
    comm: MPI.Comm,
    shape: int | tuple[int, ...],
    dtype: DTypeLike = float,
    *,
    links: int = LINKS,
) -> NDArray[Any]:
    """Collective. An uninitialized array in memory that MPI allocated for one-sided access.

    Shape and dtype may differ between ranks, zero sizes included. Given as ``recvbuf``, the array
    or any contiguous view of it is the fast way to receive: peers on the node store straight into
    it. ``links`` of :func:`Precv_init` at a time may receive into parts of it in this way. Give it
    back with :func:`free`; what is left is freed before Finalize.

    Raises :class:`ResourceError` on every rank where a node's shared memory does not suffice.
    """
    context = Context.of(comm)
    with agreed(context.comm, "empty"):
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise PatternError(f"dtype {kind} holds Python objects, which cannot be exchanged")
        count = int(np.prod(shape, dtype=object))
        if count < 0 or np.any(np.asarray(shape) < 0):
            raise PatternError(f"negative dimensions in shape {shape}")
        if not isinstance(links, int | np.integer) or links < 0:
            raise PatternError(f"links must be an integer of at least 0, not {links!r}")
    region = Region(context, context.node(), count * kind.itemsize, int(links))
    resources = Resources(context)
    resources.on_release(region.retire)
    try:
        with agreed(context.comm, "window of empty"):
            region.widen()
    except Exception:
        resources.release()
        raise
    region.context.allocations[region.key] = resources
    root = region.take_root()
    array: NDArray[Any] = root[: count * kind.itemsize].view(kind).reshape(shape)
    return array


def free(array: NDArray[Any]) -> None:
    """Collective. Give back an array from :func:`empty` (the array itself or a view of it).

    Refused on every rank with :class:`RequestError` while a request on any rank uses the memory.
    The memory stays mapped as long as the caller holds a view of it, so that a late look at it is
    no segmentation fault; it is unmapped by a later collective call on the communicator.
    """
    region = find_region(array)
    if region is None or region.key not in region.context.allocations:
        raise RequestError("free() was given an array that does not come from empty(), or twice")
    error = None
    if region.users:
        error = RequestError(f"{region.users} request(s) still use this memory; free them first")
    agree(region.context.comm, error, "free")
    region.context.allocations.pop(region.key).release()
