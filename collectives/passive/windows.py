"""The windows of passive broadcasts: those that data are put into, those beside them, and a linear
broadcast, which needs no more.

MPI does not check where a Put goes: one beyond the window of its target corrupts the memory of
the target, or ends it, on both MPICH and Open MPI. So extents are learned from all ranks, and data
are checked against them before anything is sent.

*Beside the data* (paper 003, Figure 5) are descriptions, requests and done counters, all of them
64-bit integers. Every rank has one description and one request slot for each root. A slot belongs
to a root, not to a sender as in the paper: the sender then follows from the tree, and as a root has
one broadcast under way at a time, a description is never overwritten while it is needed. Requests
and done counters are numbers that only grow, so that nothing is ever reset: request n of a root
means that the data and the description of its n-th broadcast are here. Behind the requests there is
a warning of each root: data are about to come. Where MPI needs the target to move them, the target
then looks more often. Looking for what is new compares numbers in place and makes nothing, since a
rank that waits looks all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.buffers import as_number, as_vector
from onesided.collectives.context import Resources, acquired
from onesided.collectives.errors import PatternError, RequestError, UnsupportedError
from onesided.collectives.pattern import LARGEST_PIECE


@dataclass(frozen=True)
class Extents:
    """Of every rank: ``sizes``, the bytes of its window, and ``units``, those of a displacement.

    Examples
    --------
    >>> Extents((80, 64), (8, 8)).check(4, 32)  # 32 bytes at place 4 fit on both ranks
    """

    sizes: tuple[int, ...]
    units: tuple[int, ...]

    @cached_property
    def _least(self) -> dict[int, int]:
        """By unit, the least size with it: there are fewer than ranks."""
        found: dict[int, int] = {}
        for size, unit in zip(self.sizes, self.units, strict=True):
            found[unit] = min(size, found.get(unit, size))
        return found

    def check(self, displacement: int, nbytes: int) -> None:
        """Local. Raise :class:`PatternError` where so many bytes do not fit on every rank."""
        fits = all(displacement * unit + nbytes <= size for unit, size in self._least.items())
        if fits and displacement >= 0:
            return
        for rank, (size, unit) in enumerate(zip(self.sizes, self.units, strict=True)):
            if displacement < 0 or displacement * unit + nbytes > size:
                raise PatternError(
                    f"{nbytes} bytes at displacement {displacement} (of {unit} bytes) are not "
                    f"inside the window of rank {rank}, which has {size} bytes"
                )


def extents_of(comm: MPI.Comm, window: MPI.Win) -> Extents:
    """Collective. What a window on ``comm`` exposes on every rank.

    Raises on every rank: :class:`RequestError` where the window has been freed,
    :class:`PatternError` where its ranks are not those of ``comm`` in the same order,
    :class:`UnsupportedError` for a dynamic window, or one without the unified memory model.

    Examples
    --------
    >>> window = MPI.Win.Allocate(24, 1, comm=comm)
    >>> extents_of(comm, window).sizes[0]
    24
    >>> window.Free()
    """
    error: Exception | None = None
    mine = (0, 1)
    try:
        mine = _extent(comm, window)
    except Exception as problem:
        error = problem
    words = agree(comm, error, "extents of a window", mine)
    return Extents(tuple(size for size, _ in words), tuple(unit for _, unit in words))


def _extent(comm: MPI.Comm, window: MPI.Win) -> tuple[int, int]:
    """Local. Bytes and displacement unit of this rank's part of the window."""
    check_alive(window)
    group, ranks = window.Get_group(), comm.Get_group()
    same = MPI.Group.Compare(group, ranks) == MPI.IDENT
    ranks.Free()
    group.Free()
    if not same:
        raise PatternError("the ranks of the window are not those of the communicator, in order")
    if window.flavor == MPI.WIN_FLAVOR_DYNAMIC:
        raise UnsupportedError("a dynamic window has no displacements that all ranks share")
    if window.model != MPI.WIN_UNIFIED:
        raise UnsupportedError("this MPI has no unified memory model for this window")
    _, size, unit = window.attrs
    return int(size), int(unit)


def check_alive(window: MPI.Win) -> None:
    """Local. Raise for what is no window, or has been freed."""
    if not isinstance(window, MPI.Win):
        raise PatternError(f"{window!r:.60} is no window")
    if window == MPI.WIN_NULL:
        raise RequestError("the window has been freed")


def bytes_of(buf: Any) -> NDArray[np.uint8]:
    """Local. The memory of a contiguous buffer; :class:`PatternError` for any other."""
    return as_vector(buf, "broadcast").view(np.uint8)


def check_root(rank: int, root: Any) -> None:
    """Local. Raise :class:`PatternError` unless the caller is the root."""
    if rank != root:
        raise PatternError(
            f"rank {rank} broadcasts with root {root!r:.20}; a broadcast is called by its root "
            "alone"
        )


def put_bytes(
    window: MPI.Win, data: NDArray[np.uint8], target: int, displacement: int, unit: int
) -> None:
    """Local. Put ``data``, which the caller keeps, at ``displacement`` units of the target."""
    step = max(LARGEST_PIECE // unit, 1)  # in units, so that every piece begins at one
    for start in range(0, data.size, step * unit):
        piece = data[start : start + step * unit]
        place = (displacement + start // unit, piece.size, MPI.BYTE)
        window.Put([piece, piece.size, MPI.BYTE], target, place)


def memory_of(window: MPI.Win) -> NDArray[np.uint8]:
    """Local. This rank's part of the window; not to be kept beyond the window."""
    memory: Any = window.tomemory()
    return np.asarray(memoryview(memory), dtype=np.uint8)


def store(window: MPI.Win, data: NDArray[np.uint8], start: int) -> NDArray[np.uint8]:
    """Local, within an epoch. Store ``data`` from byte ``start`` of this rank's own part on.

    Returns that memory, which is to be sent instead of the data: they may overlap with it.
    """
    place = memory_of(window)[start : start + data.size]
    place[:] = data
    window.Sync()
    return place


@dataclass(frozen=True)
class Exposed:
    """A registered window: data may be put anywhere inside its extents."""

    window: MPI.Win
    extents: Extents

    def sync(self) -> None:
        """Local. Make what has been put here visible to loads, unless the window is gone."""
        if self.window != MPI.WIN_NULL:
            self.window.Sync()


class Registered:
    """The windows by their numbers, which are the same on all ranks."""

    def __init__(self) -> None:
        self._known: list[Exposed] = []

    def __getitem__(self, wid: int) -> Exposed:
        if not isinstance(wid, int | np.integer) or not 0 <= wid < len(self._known):
            raise PatternError(f"window {wid!r:.20} is not registered; {len(self._known)} are")
        return self._known[wid]

    def add(self, comm: MPI.Intracomm, window: MPI.Win) -> int:
        """Collective. Lock the window on all ranks, or on none; its number.

        All ranks know the window before any rank can name it in a broadcast.
        """
        extents = extents_of(comm, window)
        wid = len(self._known)
        try:
            with agreed(comm, ("register", wid)):
                if any(window == exposed.window for exposed in self._known):
                    raise RequestError("the window is registered already")
                _lock_all(window, MPI.MODE_NOCHECK)
                self._known.append(Exposed(window, extents))
        except Exception:
            if len(self._known) > wid:
                self._known.pop()
                window.Unlock_all()
            raise
        return wid

    def sync(self) -> None:
        """Local. Make what has been put into the windows of this rank visible to its loads."""
        for exposed in self._known:
            exposed.sync()

    def release(self) -> None:
        """Collective. Give the windows back to the caller; those that he has freed are gone."""
        while self._known:
            window = self._known.pop().window
            if window != MPI.WIN_NULL:
                window.Unlock_all()


# -- the linear broadcast --------------------------------------------------------------------------


def bcast_linear(
    window: MPI.Win, buf: Any, displacement: int, root: int, extents: Extents | None = None
) -> None:
    """Local. Called by the root alone: put ``buf`` into the window of every rank, its own too.

    The linear broadcast (paper 003, Figure 3): the root puts the data to one rank after another.

    ``buf`` is contiguous, of any type without Python objects, and may be reused at once.
    ``displacement`` counts displacement units of each target's window. When the function returns
    the data are in the memory of all ranks; another rank reads them after the root has told it so
    (by a message or a barrier) and a ``Win.Sync`` or a lock of its own. It needs no thread, so it
    is what programs without ``MPI_THREAD_MULTIPLE`` use. The MPI may need the targets to enter
    MPI before the function can return.

    ``extents`` are those that :func:`extents_of` learned from all ranks. Without them every rank
    is taken to have a window like the root's; data beyond the window of a rank corrupt its memory.

    Raises :class:`PatternError` where the caller is not the root, for a buffer that is not
    contiguous, and where the data do not fit; :class:`RequestError` for a freed window and for
    one with an open epoch. (The paper's loop runs from 0 to p; there are p ranks, 0 to p - 1.)

    Examples
    --------
    >>> window = MPI.Win.Allocate(24, 1, comm=comm)
    >>> if comm.rank == 0:
    ...     bcast_linear(window, np.arange(3.0), 0, 0)
    >>> comm.Barrier()
    >>> np.frombuffer(window.tomemory(), float).tolist()
    [0.0, 1.0, 2.0]
    >>> window.Free()
    """
    check_alive(window)
    group = window.Get_group()
    ranks, rank = group.Get_size(), group.Get_rank()
    group.Free()
    check_root(rank, root)
    if extents is None:
        _, size, unit = window.attrs
        extents = Extents((int(size),) * ranks, (int(unit),) * ranks)
    data, place = bytes_of(buf), as_number(displacement, "displacement")
    extents.check(place, data.size)
    _lock_all(window)
    try:
        data = store(window, data, place * extents.units[rank])
        for target in range(ranks):
            if target != rank:
                put_bytes(window, data, target, place, extents.units[target])
    finally:
        window.Unlock_all()


def _lock_all(window: MPI.Win, assertion: int = 0) -> None:
    try:
        window.Lock_all(assertion)
    except MPI.Exception as error:
        words = error.Get_error_string()
        raise RequestError(f"the window has an epoch open: MPI: {words}") from error


# -- beside the data ------------------------------------------------------------------------------


class Description(NamedTuple):
    """What a rank must know to pass a broadcast on: window, its epoch there, place, bytes."""

    wid: int
    epoch: int
    displacement: int
    nbytes: int


FIELDS = len(Description._fields)
WORD = 8

#: What an atomic read adds, whoever reads.
_NOTHING = np.zeros(1, np.int64)


class SideWindows:
    """The three windows of a runtime, locked from their creation to their release."""

    def __init__(self, comm: MPI.Intracomm, resources: Resources) -> None:
        """Collective. The windows are freed with ``resources``."""
        self._rank, self._size = comm.rank, comm.size
        self._descriptions = _locked(comm, FIELDS * comm.size, resources)
        self._requests = _locked(comm, 2 * comm.size, resources)
        self._done = _locked(comm, 1, resources)
        resources.on_release(self.forget)
        self._description: NDArray[np.int64] = _words(self._descriptions).reshape(-1, FIELDS)
        slots = _words(self._requests)
        self._request: NDArray[np.int64] = slots[: comm.size]
        self._warnings: NDArray[np.int64] = slots[comm.size :]
        self._accepted = np.zeros(comm.size, np.int64)
        self._differs = np.zeros(comm.size, np.bool_)
        self._words = np.zeros(FIELDS, np.int64)
        self._number = np.zeros(1, np.int64)
        self._warning = np.zeros(1, np.int64)
        self._one = np.ones(1, np.int64)

    def forget(self) -> None:
        """Local. Drop the views of the memory before the windows are freed."""
        self._description = np.zeros((0, FIELDS), np.int64)
        self._request = self._warnings = self._accepted = np.zeros(0, np.int64)
        self._differs = np.zeros(0, np.bool_)

    def warn(self, target: int, root: int, number: int) -> None:
        """Local. Tell the target that the data of broadcast ``number`` of ``root`` will come."""
        self._warning[0] = number
        self._requests.Accumulate(self._warning, target, self._size + root, MPI.REPLACE)

    def announce(self, target: int, root: int, number: int, description: Description) -> None:
        """Local, after ``warn``. Describe broadcast ``number`` of ``root``, whose data are there,
        then request it.

        Complete at the target when it returns; the MPI may need the target for that.
        """
        self._words[:] = description
        self._descriptions.Put(self._words, target, FIELDS * root)
        self._descriptions.Flush(target)  # the request must not overtake it
        self._number[0] = number
        self._requests.Accumulate(self._number, target, root, MPI.REPLACE)
        self._requests.Flush(target)

    def requested(self) -> list[tuple[int, int]]:
        """Local. Root and number of the requests that are new since they were last accepted.

        The slots are looked at in memory, which costs next to nothing; what looks new is then
        read by an atomic operation, because a load that races with an update may see half of it.
        """
        self._requests.Sync()
        np.not_equal(self._request, self._accepted, out=self._differs)
        if not self._differs.any():
            return []
        changed: list[int] = np.flatnonzero(self._differs).tolist()
        new = [(root, _read(self._requests, self._rank, root)) for root in changed]
        return [(root, number) for root, number in new if number > self._accepted[root]]

    def expecting(self) -> bool:
        """Local. True where there is a warning of a broadcast that has not been requested yet."""
        np.not_equal(self._warnings, self._request, out=self._differs)
        return bool(self._differs.any())

    def accept(self, root: int, number: int) -> None:
        self._accepted[root] = number

    def describe(self, root: int) -> Description:
        self._descriptions.Sync()
        return Description(*self._description[root].tolist())

    def count_done(self, root: int) -> None:
        """Local. Tell the root that this rank and those it serves directly have the data."""
        self._done.Accumulate(self._one, root, 0, MPI.SUM)
        self._done.Flush(root)

    def done(self) -> int:
        """Local. How many ranks have done their part, over all broadcasts of this rank."""
        return _read(self._done, self._rank, 0)


def _locked(comm: MPI.Intracomm, words: int, resources: Resources) -> MPI.Win:
    """Collective. A window of zeros under ``Lock_all``, for as long as the resources live."""
    window: MPI.Win = acquired(MPI.Win.Allocate, WORD * words, WORD, MPI.INFO_NULL, comm)
    resources.on_release(window.Free)
    window.Lock_all(MPI.MODE_NOCHECK)
    resources.on_release(window.Unlock_all)
    memory_of(window)[:] = 0
    window.Sync()
    return window


def _words(window: MPI.Win) -> NDArray[np.int64]:
    return memory_of(window).view(np.int64)


def _read(window: MPI.Win, rank: int, place: int) -> int:
    """Local. An atomic read of a word of this rank's own part."""
    word = np.empty(1, np.int64)  # threads may read at the same time
    window.Fetch_and_op(_NOTHING, word, rank, place, MPI.NO_OP)
    window.Flush(rank)
    return int(word[0])
