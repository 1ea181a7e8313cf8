"""Memory that peers write: shared within a node, exposed to the rest by windows.

On a node a block is stored straight into the peer's memory, so receive memory is a mapping that
the ranks of the node have in common (:mod:`.node_memory`). Ranks on other nodes Put into the memory
of requests through an *overlay*: a window created over it on the whole communicator.

A *region* is one such allocation. Requests do not make their own, so that they cost no window
(:mod:`.arena`). A rank that is alone on its node shares memory with nobody: its regions are
mappings of its own. Mappings live as long as somebody looks at them, whatever has been given back.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import math
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.agreement import agree, agreed, words_of_all
from onesided.collectives.buffers import read_form
from onesided.collectives.context import Context, Node, Resources, acquired
from onesided.collectives.errors import (
    OnesidedError,
    PatternError,
    RequestError,
    ResourceError,
    UnsupportedError,
    in_forked_child,
)
from onesided.collectives.node_memory import (
    FINE,
    FOLDER,
    NAMED,
    SHORT,
    WAYS,
    Mapping,
    Outcome,
    shared,
)
from onesided.collectives.program import ENTRIES, ROOM

#: Partitioned sends that may store into one array from :func:`empty` at a time.
LINKS = 32
MOST_LINKS = 1 << 20

#: Alignment of everything that is laid out in shared memory, in bytes: two cache lines.
ALIGNMENT = 128

#: Bytes of an array from which on memory is given back to the system after it.
LONG = 1 << 22
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc

#: Bytes from one board of a partitioned send to the next.
BOARD = -(-(ENTRIES + ROOM) * 8 // ALIGNMENT) * ALIGNMENT

#: Seconds for which somebody else may be allocating memory of a node.
PATIENCE = 2.0

#: More bytes than anybody has, and a number that MPI and the system can be given.
MOST = 1 << 62

_regions: dict[str, Region] = {}


def give_back(nbytes: int) -> None:
    """Local. Between arrays of so many bytes, if these are many: let the system have what the C
    library keeps of freed ones, as a gap among others is often too short for the next array."""
    if nbytes >= LONG and _trim is not None:
        _trim(0)


def aligned(nbytes: int) -> int:
    """Local. The next multiple of :data:`ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Region:
    """Memory of a node: one segment per rank, each visible to all of them."""

    def __init__(self, context: Context, node: Node, nbytes: int, boards: int = 0) -> None:
        """Collective over the context: all ranks get one, or all raise. ``boards`` lie behind the
        ``nbytes`` of data."""
        self.context, self.node, self.nbytes = context, node, nbytes
        room = nbytes if not boards else aligned(nbytes) + boards * BOARD
        #: Where in bytes the boards lie that nobody uses. A board is the words by which the two
        #: ranks of a partitioned send tell each other what has come: the receiver writes the number
        #: of the round that it has begun, and how many entries it has read; the sender entries, how
        #: many there are, and of how many groups they have told. Every word only ever grows.
        self.boards = list(range(aligned(nbytes), room, BOARD))[::-1]
        self._segments: list[memoryview] = []  # by rank of the node
        error: Exception | None = None
        try:
            self._allocate(max(room, ALIGNMENT))
        except Exception as problem:  # on all ranks of the node
            error = problem
        self.key, *_ = node.comm.bcast([uuid.uuid4().hex] if node.comm.rank == 0 else None)
        agree(context.comm, error, "shared memory")
        self.wide: MPI.Win | None = None
        self.users = 0
        #: What callers may receive in: from where to where, in bytes of this rank's segment.
        self.lent = [(0, nbytes)]
        self.address: int = self.own().ctypes.data
        _regions[self.key] = self

    def _allocate(self, nbytes: int) -> None:
        """Collective over the node. This rank's segment has so many bytes."""
        comm, node = self.node.comm, self.node
        if comm.size == 1:
            try:
                self._segments = [np.asarray(Mapping(None, min(nbytes, MOST))).data]
            except OSError as error:
                raise ResourceError(f"{nbytes:,} bytes of memory: {error.strerror}") from error
            return
        nbytes = min(nbytes, MOST)
        of_all = words_of_all(comm.size, np.int64)
        comm.Allgather(np.array([nbytes], np.int64), of_all)
        sizes: list[int] = of_all.tolist()
        # from the look at what is free to the claim nobody else takes any, of those that wait:
        # who has the lock waits for nobody who is elsewhere
        with _file_lock(comm.rank == 0):
            for way in range(node.way, WAYS):
                got = shared(comm, sizes, way)
                if got.state == FINE:
                    node.way, self._segments = way, got.memory
                    return
                if got.state == SHORT:
                    break
        raise _too_little(sum(sizes), got, f" in its {FOLDER}" if way == NAMED else "")

    def seen_by(self, context: Context, rank: int) -> bool:
        """Local. Whether a rank of a communicator is one of those that see this memory."""
        if context is not self.context:
            (rank,) = MPI.Group.Translate_ranks(context.group, [rank], self.context.group)
        return rank in self.node.rank_of  # MPI.UNDEFINED is not

    def own(self) -> NDArray[np.uint8]:
        """Local. This rank's segment."""
        return self.part(self.node.comm.rank)

    def part(self, node_rank: int) -> NDArray[np.uint8]:
        """Local. The bytes of a rank of the node."""
        return np.frombuffer(self.segment(node_rank), np.uint8)

    def segment(self, node_rank: int) -> memoryview:
        """Local. The same, not as an array."""
        return self._segments[node_rank]

    def borrow(self) -> Callable[[], object]:
        """Local. It cannot be freed until what is returned is called."""
        self.users += 1

        def give_back() -> None:
            self.users -= 1

        return give_back

    def widen(self) -> None:
        """Collective over the context: all ranks get it, or all raise. A window for the ranks of
        other nodes, emulated ones too."""
        if self.wide is not None:
            return
        comm = self.context.comm
        error: Exception | None = None
        try:
            memory = self.segment(self.node.comm.rank)
            self.wide = acquired(MPI.Win.Create, memory, 1, MPI.INFO_NULL, comm)
            self.wide.Lock_all(MPI.MODE_NOCHECK)
            if self.wide.model != MPI.WIN_UNIFIED:  # loads, stores and Puts must see one memory
                raise UnsupportedError("this MPI has no unified memory model for windows; use p2p")
        except (MPI.Exception, OnesidedError) as problem:
            error = problem
        try:
            agree(comm, error, "window of shared memory")
        except Exception:
            self._narrow()
            raise

    def _narrow(self) -> None:
        if self.wide is not None:
            self.wide.Unlock_all()
            self.wide.Free()
            self.wide = None

    def release(self) -> None:
        """Collective over the context. Give it back; what is looked at stays as long as it is."""
        _regions.pop(self.key, None)
        self._narrow()
        self._segments = []


def _too_little(total: int, got: Outcome, where: str) -> ResourceError:
    """Local. ``where``: what may be enlarged."""
    if got.state != SHORT:
        has = "its ranks cannot share any"
    elif got.free < total:
        has = f"{got.free:,} are free{where}"
    else:
        has = f"it does not have them{where}"
    return ResourceError(
        f"{total:,} bytes of shared memory are wanted on one node and {has}; "
        f"{'enlarge it, ' if where else ''}use fewer ranks on a node, a receive buffer of your "
        "own, or a method that needs no shared memory (p2p)"
    )


_warned = False


def warn_of_plain_memory(comm: MPI.Comm, error: ResourceError) -> None:
    """Local. Rank 0 says once that memory which was to be shared is not."""
    global _warned
    if comm.rank == 0 and not _warned:
        _warned = True
        warnings.warn(
            f"plain memory is used, into which peers cannot store: {error}", RuntimeWarning,
            stacklevel=4,
        )  # fmt: skip


@contextlib.contextmanager
def _file_lock(wanted: bool) -> Iterator[None]:
    """Local. One process of this node at a time, of those that want it, goes on; all do where no
    file can be locked, or who has the lock does not go on (a job that was stopped)."""
    file = -1
    with contextlib.suppress(OSError):
        name = os.path.join(FOLDER, f"onesided-{os.getuid()}.lock")
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if wanted else -1
        deadline = time.monotonic() + PATIENCE
        while file >= 0 and not _locked(file) and time.monotonic() < deadline:
            time.sleep(0.001)
    try:
        yield
    finally:
        if file >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # a child may have it open as well
            os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_region(array: NDArray[Any]) -> Region | None:
    """Local. The region that holds the memory of ``array``, None for plain memory.

    Memory from :func:`empty` counts, and what an arena has lent: the rest of it is not the
    caller's to receive in.
    """
    if not _regions:
        return None
    start, end = np.lib.array_utils.byte_bounds(array)
    if array.size == 0:
        start = end = array.ctypes.data
    for region in list(_regions.values()):
        for first, last in region.lent:
            begin = region.address + first
            inside = begin <= start and end <= region.address + last
            if inside and (array.size or start == begin):
                return region
    return None


def hold(resources: Resources, *buffers: object) -> None:
    """Local. What is from :func:`empty` cannot be freed before the resources are released."""
    for buffer in buffers:
        array = np.asarray(buffer) if isinstance(buffer, np.ndarray | memoryview) else None
        region = None if array is None else find_region(array)
        if region is not None:
            resources.on_release(region.borrow())


def region_with_key(key: str | None) -> Region | None:
    """Local. The region with this key, where this rank has a part of it."""
    return None if key is None else _regions.get(key)


# -- memory of the caller's -----------------------------------------------------------------------


def empty(
    comm: MPI.Comm,
    shape: int | Iterable[int],
    dtype: DTypeLike = float,
    *,
    links: int = LINKS,
) -> NDArray[Any]:
    """Collective. An uninitialized array in memory that peers on the node see.

    Shape and dtype may differ between ranks, zero sizes included. Given as ``recvbuf``, the array
    or any contiguous view of it is the fast way to receive: peers on the node store straight into
    it. ``links`` of :func:`Precv_init` at a time may receive into parts of it in this way. Where
    ranks share it, its pages have been touched by this rank. Give it back with :func:`free`; what
    is left is freed before Finalize.

    Raises :class:`ResourceError` on every rank where a node's memory does not suffice.

    Examples
    --------
    >>> memory = empty(comm, (2, comm.size))
    >>> memory.shape == (2, comm.size)
    True
    >>> free(memory)
    """
    context = Context.of(comm)
    with agreed(context.comm, "empty"):
        form, kind = read_form(shape, dtype, "the array")
        count = math.prod(form)
        if not isinstance(links, int | np.integer) or not 0 <= links <= MOST_LINKS:
            raise PatternError(f"links must be an integer from 0 to {MOST_LINKS}, not {links!r}")
    region = Region(context, context.node(), count * kind.itemsize, int(links))
    resources = Resources(context)
    resources.on_release(region.release)
    region.context.allocations[region.key] = resources
    array: NDArray[Any] = region.own()[: count * kind.itemsize].view(kind).reshape(form)
    return array


def free(array: NDArray[Any]) -> None:
    """Collective. Give back an array from :func:`empty` (the array itself or a view of it).

    Refused on every rank with :class:`RequestError` while a request on any rank uses the memory.
    The memory stays mapped as long as the caller holds a view of it, so that a late look at it is
    no segmentation fault.

    Examples
    --------
    >>> memory = empty(comm, 100)
    >>> free(memory)  # on all ranks
    """
    if in_forked_child():
        raise RequestError("memory belongs to the parent of this forked child")
    region = find_region(array)
    if region is None or region.key not in region.context.allocations:
        raise RequestError("free() was given an array that does not come from empty(), or twice")
    error = None
    if region.users:
        error = RequestError(f"{region.users} request(s) still use this memory; free them first")
    agree(region.context.comm, error, "free")
    region.context.allocations.pop(region.key).release()
