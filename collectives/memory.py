"""Memory that peers write: shared within a node, exposed to the rest by windows.

On a node a block is stored straight into the peer's memory, so receive memory is allocated by
MPI on the node communicator (``MPI.Win.Allocate_shared``). Ranks on other nodes Put through an
*overlay*: a window created over the same memory on the whole communicator. The shared window is
held under ``Lock_all`` from allocation to free, because ``Win.Sync`` is legal only inside an epoch
(MPI-4.1 section 12.5.4).

A *region* is one such allocation. Requests do not make their own, so that they cost no window
(:mod:`.arena`). A rank that is alone on its node shares memory with nobody: its regions are
mappings of its own, which live as long as somebody looks at them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import tempfile
import time
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.agreement import agree, agreed, words_of_all
from onesided.collectives.context import Context, Node, Resources, refusal, world_ranks
from onesided.collectives.errors import (
    PatternError,
    RequestError,
    ResourceError,
    UnsupportedError,
)
from onesided.collectives.program import ENTRIES, ROOM

#: Partitioned sends that may store into one array from :func:`empty` at a time.
LINKS = 32

#: Alignment of everything that is laid out in shared memory, in bytes: two cache lines.
ALIGNMENT = 128

#: Bytes of a page, which is touched by its owner before anybody else can.
PAGE = 4096

#: Bytes from one board of a partitioned send to the next.
BOARD = -(-(ENTRIES + ROOM) * 8 // ALIGNMENT) * ALIGNMENT

#: Seconds for which somebody else may be allocating memory of a node.
PATIENCE = 10.0

#: Memory of a rank that is alone on its node.
ALONE = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS

#: Where MPIs share memory.
SHARED = "/dev/shm"

_regions: dict[str, Region] = {}


def aligned(nbytes: int) -> int:
    """Local. The next multiple of :data:`ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Boards:
    """Which boards of an array are in use; they lie side by side from ``start``, in bytes.

    A board is the words by which the two ranks of a partitioned send tell each other what has
    come: it belongs to the receiving end and lies behind the data of an array from :func:`empty`.
    The receiver writes the number of the round that it has begun, and how many entries it has
    read; the sender entries, how many there are, and of how many groups they have told. Every word
    only ever grows.
    """

    def __init__(self, start: int, count: int) -> None:
        self._free = dict.fromkeys(start + BOARD * number for number in reversed(range(count)))

    def take(self) -> int | None:
        """Local. The place of a board that nobody uses, in bytes; None where all are in use."""
        try:  # no lock, which what interrupts this thread could want
            return self._free.popitem()[0]
        except KeyError:
            return None

    def give(self, place: int) -> None:
        """Local. Nobody uses this board any more."""
        self._free[place] = None


class Region:
    """Node-shared memory: one segment per rank of a node, each visible to all of them.

    Every array handed out is a view of :meth:`part`, so that weak references tell whether anybody
    still looks at the memory.
    """

    def __init__(self, context: Context, node: Node, nbytes: int, boards: int = 0) -> None:
        """Collective over the context: all ranks get one, or all raise. ``boards`` lie behind the
        ``nbytes`` of data."""
        self.context, self.node, self.nbytes = context, node, nbytes
        self.boards = Boards(aligned(nbytes), boards)
        room = nbytes if not boards else aligned(nbytes) + boards * BOARD
        self.window: MPI.Win = MPI.WIN_NULL
        self._own: memoryview | None = None  # of a rank that is alone on its node
        lock, self.key, error = _space(node, max(room, ALIGNMENT))
        try:
            if error is None:
                try:
                    self._allocate(max(room, ALIGNMENT))
                except Exception as problem:
                    error = problem
            if not node.alone:  # other nodes have their own lock, which somebody else may hold
                node.comm.Barrier()
                lock.release()
            agree(context.comm, error, "shared memory")
        except Exception:
            if self.window != MPI.WIN_NULL:
                self.window.Unlock_all()
                self.window.Free()
            raise
        finally:
            lock.release()
        self.wide: MPI.Win | None = None
        self.users = 0
        #: What callers may receive in: from where to where, in bytes of this rank's segment.
        self.lent = [(0, nbytes)]
        self.members = frozenset(world_ranks(context.group, node.ranks).tolist())
        self._parts: dict[int, weakref.ref[NDArray[np.uint8]]] = {}
        root = self.part(node.comm.rank)
        self.address: int = root.ctypes.data
        self._untaken: NDArray[np.uint8] | None = root
        _regions[self.key] = self

    def _allocate(self, nbytes: int) -> None:
        """Collective over the node. The window, its pages touched by their owners."""
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        comm = self.node.comm
        try:
            comm.Dup().Free()  # MPICH 5.0 crashes in Allocate_shared where this fails
            if comm.size == 1:
                self._own = memoryview(mmap.mmap(-1, nbytes, ALONE))
                self.window = MPI.Win.Create(self._own, 1, MPI.INFO_NULL, comm)
            else:
                self.window = MPI.Win.Allocate_shared(nbytes, 1, info, comm)
        except MPI.Exception as error:
            raise refusal(error) from error
        except OSError as error:
            raise ResourceError(f"{nbytes:,} bytes of memory: {error.strerror}") from error
        finally:
            info.Free()
        self.window.Lock_all(MPI.MODE_NOCHECK)
        if self.window.model != MPI.WIN_UNIFIED:  # loads, stores and Puts must see one memory
            raise UnsupportedError("this MPI has no unified memory model for windows; use p2p")
        if self._own is None:  # space that is promised is given out twice until it is touched
            np.frombuffer(self.segment(self.node.comm.rank), np.uint8)[:nbytes:PAGE] = 0

    def take_root(self) -> NDArray[np.uint8]:
        """Local. This rank's segment; from now on it lives as long as a view of it."""
        self._untaken = None
        return self.part(self.node.comm.rank)

    def segment(self, node_rank: int) -> memoryview:
        """Local. The bytes of a rank of the node."""
        if self._own is not None:
            return self._own
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
        looks = any(part() is not None for part in list(self._parts.values()))
        return self._untaken is None and not looks

    def widen(self, always: bool = False) -> None:
        """Collective over the context: all ranks get it, or all raise. A window for the ranks of
        other nodes, if there are any, or ``always``: nodes may be emulated."""
        if (self.node.alone and not always) or self.wide is not None:
            return
        comm = self.context.comm
        error: Exception | None = None
        try:
            self.wide = MPI.Win.Create(self.segment(self.node.comm.rank), 1, MPI.INFO_NULL, comm)
            self.wide.Lock_all(MPI.MODE_NOCHECK)
        except MPI.Exception as problem:
            error = refusal(problem)
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

    def retire(self) -> None:
        """Local, in the same order on all ranks. Unmap later, when nobody looks any more."""
        self._untaken = None
        self.lent.clear()
        self.context.retired.append(self)

    def unmap(self, looked_at: bool = False) -> None:
        """Collective over the context. ``looked_at``: arrays of this rank show its own segment,
        other than by :meth:`part`; what is looked at stays mapped to the end of the process."""
        _regions.pop(self.key, None)
        seen = {rank for rank, part in self._parts.items() if part() is not None}
        seen |= {self.node.comm.rank} if looked_at else set()
        kept = [Kept(self.segment(rank)) for rank in sorted(seen)] if self._own is None else []
        self._narrow()
        self.window.Unlock_all()
        self.window.Free()
        self._own = None
        for memory in kept:
            memory.restore()


class Kept:
    """Shared memory that is where it was, with what is in it, after MPI has unmapped it.

    At the end of MPI a program may hold arrays of a round, or from :func:`empty`. Where the system
    cannot move mappings (it is not Linux), looking at them is a segmentation fault.
    """

    _MAYMOVE, _FIXED = 1, 2

    def __init__(self, memory: memoryview) -> None:
        """Local. A second mapping of the same pages."""
        start = np.frombuffer(memory, np.uint8).ctypes.data if len(memory) else 0
        page = os.sysconf("SC_PAGESIZE")
        self._start = start // page * page
        self._size = -(-(start + len(memory) - self._start) // page) * page
        self._second: int | None = None
        self._remap: Any = getattr(ctypes.CDLL(None), "mremap", None)
        if self._remap is not None and len(memory):
            self._remap.restype = ctypes.c_void_p
            self._second = self._moved(self._start, 0, self._MAYMOVE)

    def restore(self) -> None:
        """Local. Move it to where the first one was."""
        if self._second is not None:
            self._moved(self._second, self._size, self._MAYMOVE | self._FIXED, self._start)

    def _moved(self, start: int, size: int, *how: int) -> int | None:
        there: Any = self._remap(*map(ctypes.c_size_t, (start, size, self._size, *how)))
        return None if there == ctypes.c_void_p(-1).value else int(there)


def _space(node: Node, nbytes: int) -> tuple[_FileLock, str, Exception | None]:
    """Collective over the node. MPI shares memory through files in ``/dev/shm``, which may be
    small, and writing to a full one is a bus error.

    Free space does not count pages that are promised and not yet touched. So all ranks of the node
    come together, ask for what they want together, allocate and touch it, and until then no other
    communicator of the node does the same: one rank holds a lock of the file system. It takes the
    lock when all are here, so nobody who holds it waits for anybody who is elsewhere.

    Returns the lock, which is to be released when all have touched their memory, a key that nothing
    else has, and, on every rank of the node, the error where there is too little memory.
    """
    if node.comm.size == 1:
        return _FileLock(False), uuid.uuid4().hex, None
    words = words_of_all(2, np.int64)  # this rank's, and what all want
    words[0] = nbytes + (1 << 16)
    node.comm.Reduce(words[:1], words[1:], MPI.SUM, 0)
    lock = _FileLock(node.comm.rank == 0)
    free, key = -1, ""
    if node.comm.rank == 0:
        key = uuid.uuid4().hex
        with contextlib.suppress(OSError):  # memory is shared in another way: MPI will tell
            status = os.statvfs(SHARED)
            free = status.f_bavail * status.f_frsize
    free, total, key = node.comm.bcast((free, int(words[1]), key))
    if not 0 <= free < total:
        return lock, key, None
    return lock, key, ResourceError(
        f"{total:,} bytes of shared memory are wanted on one node and {free:,} are free "
        f"in its {SHARED}; enlarge it, use fewer ranks on a node, a receive buffer of your "
        "own, or a method that needs no shared memory (p2p)"
    )


class _FileLock:
    """Local. One process of this node at a time, of those that want it; none where no file can be
    locked, or who has the lock does not go on (a job that was stopped)."""

    def __init__(self, wanted: bool) -> None:
        self._file: Any = None
        if not wanted:
            return
        with contextlib.suppress(OSError):
            folder = SHARED if os.path.isdir(SHARED) else tempfile.gettempdir()
            name = os.path.join(folder, f"onesided-{os.getuid()}.lock")
            self._file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            deadline = time.monotonic() + PATIENCE
            while not self._locked() and time.monotonic() < deadline:
                time.sleep(0.001)

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


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


def region_with_key(key: str | None) -> Region | None:
    """Local. The region with this key, where this rank has a part of it."""
    return None if key is None else _regions.get(key)


# -- memory of the caller's -----------------------------------------------------------------------


def empty(
    comm: MPI.Comm,
    shape: int | Sequence[int],
    dtype: DTypeLike = float,
    *,
    links: int = LINKS,
) -> NDArray[Any]:
    """Collective. An uninitialized array in memory that MPI allocated for one-sided access.

    Shape and dtype may differ between ranks, zero sizes included. Given as ``recvbuf``, the array
    or any contiguous view of it is the fast way to receive: peers on the node store straight into
    it. ``links`` of :func:`Precv_init` at a time may receive into parts of it in this way. Where
    ranks share it, its pages have been touched by this rank. Give it back with :func:`free`; what
    is left is freed before Finalize.

    Raises :class:`ResourceError` on every rank where a node's memory does not suffice.
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
