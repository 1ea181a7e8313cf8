"""What all ways of bringing ghosts up to date have in common: who sends which entries to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.team import Team, Work
from onesided.apps.miniapps.way import REFERENCE, Way, by_name
from onesided.collectives import (
    HaloExchange,
    OnesidedError,
    ResourceError,
    UnsupportedError,
    agree,
    agreed,
    empty,
    free,
    methods,
)
from onesided.sparse import Halo, HaloPattern

# Threads that drive the traffic to one neighbor each, beside the one that computes.

LEVELS = {
    MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE",
    MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED",
    MPI.THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED",
}


def check_threads(comm: MPI.Intracomm) -> None:
    """Collective. ``UnsupportedError`` on every rank where one has too low a thread level."""
    with agreed(comm):
        level = MPI.Query_thread()
        if level < MPI.THREAD_MULTIPLE:
            raise UnsupportedError(
                "a thread for every neighbor needs MPI_THREAD_MULTIPLE, this MPI runs with "
                f"{LEVELS.get(level, level)}"
            )


def team_of(comm: MPI.Intracomm, neighbors: int) -> Team:
    """Collective. The calling thread and one for every neighbor.

    ``ResourceError`` on every rank where one cannot make so many.
    """
    team, error = Team(1), None
    try:
        team = Team(1 + neighbors)
    except RuntimeError as failure:
        error = ResourceError(f"{neighbors} threads: {failure}")
    try:
        agree(comm, error)
    except ResourceError:
        team.close()
        raise
    return team


def beside(puts: Sequence[Work]) -> list[Work]:
    """Local. Works of a team whose caller has none."""
    return [_nothing, *puts]


def _nothing() -> None:
    """Local. The work of the thread that computes."""


# The halos by name: the only place where one is chosen. A new one is a file and a line here.

_HERE = "onesided.apps.miniapps.halos"
_WAYS = (
    Way(REFERENCE, f"{_HERE}:TwoSided"),
    Way("fence", f"{_HERE}:Fence"),
    Way("fence-threads", f"{_HERE}:FenceThreads"),
    Way("lock-all-threads", f"{_HERE}:LockAllThreads"),
    Way("halo", f"{_HERE}:Exchange"),
)


def ways() -> dict[str, Way]:
    """Local. By name; the methods of persistent exchanges at the end."""
    where = f"{_HERE}:Persistent"
    return by_name([*_WAYS, *(Way(name, where, {"method": name}) for name in methods())])


@dataclass(frozen=True)
class Need:
    """Who needs which entries of a distributed vector, and what the user told the methods.

    ``comm`` is borrowed, and has to outlive the halos that are made of this.
    """

    comm: MPI.Intracomm
    pattern: HaloPattern
    dtype: np.dtype[Any]
    info: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Neighbor:
    """A rank to exchange with: what of the packed entries it gets, and which ghosts it sends.

    """

    rank: int
    sent: slice
    ghosts: slice


def neighbors(pattern: HaloPattern) -> list[Neighbor]:
    """Local. By rank; one with nothing to send or to receive has an empty slice."""
    sent, received = _parts(pattern.send_counts), _parts(pattern.recv_counts)
    pairs = enumerate(zip(sent, received, strict=True))
    return [
        Neighbor(rank, out, ghosts)
        for rank, (out, ghosts) in pairs
        if out.stop > out.start or ghosts.stop > ghosts.start
    ]


def _parts(counts: NDArray[np.int64]) -> list[slice]:
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]


class Packed:
    """Collective. The entries that neighbors need, packed for all of them one after the other.

    ``MemoryError`` on every rank where one has no memory for them.
    """

    k = 1

    def __init__(self, need: Need) -> None:
        self._index = need.pattern.send_index
        with agreed(need.comm):
            self._packed: NDArray[Any] = np.zeros(len(self._index), need.dtype)

    def _pack(self, x: NDArray[Any]) -> None:
        np.take(x, self._index, out=self._packed, mode="clip")


# Ghosts by :class:`~onesided.collectives.HaloExchange`, with a list of the neighbors.
#
# One array has the ghosts, to which neighbors write, and behind them the packed entries.


class Exchange(Packed):
    """Collective. ``label``: the ways in which entries come and leave."""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        ghosts, packed = len(need.pattern.ghosts), len(self._packed)
        self._memory = empty(need.comm, ghosts + packed, need.dtype, links=0)
        self._memory[...] = 0
        self._ghosts, self._packed = self._memory[:ghosts], self._memory[ghosts:]
        table = [
            (each.rank, [(ghosts + each.sent.start, ghosts + each.sent.stop)], (each.ghosts,))
            for each in neighbors(need.pattern)
        ]
        try:
            self._halo = HaloExchange(
                need.comm, self._memory, None, neighbors=table, info=dict(need.info)
            )
        except OnesidedError:  # the same on every rank
            free(self._memory)
            raise
        self.label = self._halo.method
        self._freed = False

    def start(self, x: NDArray[Any]) -> None:
        """Local."""
        self._pack(x)
        self._halo.Start()

    def finish(self) -> NDArray[Any]:
        """Local in the sense of MPI. The ghosts, when they are there."""
        self._halo.Wait()
        return self._ghosts

    def Free(self) -> None:
        """Collective. A second time has no effect."""
        if self._freed:
            return
        self._freed = True
        self._halo.Free()
        self._ghosts = self._packed = self._ghosts[:0].copy()
        free(self._memory)


# Ghosts by messages, as the mini-applications of the Mantevo suite exchange them.
#
# Receives are posted first, then all entries are packed, then sent by one blocking send to every
# neighbor, and the receives are waited for.

TAG = 99


class TwoSided(Packed):
    """Collective. ``label``: nothing is chosen here, so it is empty."""

    label = ""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        with agreed(need.comm):
            self._ghosts: NDArray[Any] = np.zeros(len(need.pattern.ghosts), need.dtype)
        self._comm = need.comm.Dup()
        near = neighbors(need.pattern)
        ghosts = [(self._ghosts[each.ghosts], each.rank) for each in near]
        sent = [(self._packed[each.sent], each.rank) for each in near]
        self._receives = [pair for pair in ghosts if len(pair[0])]
        self._sends = [pair for pair in sent if len(pair[0])]
        self._requests: list[MPI.Request] = []
        self._freed = False

    def start(self, x: NDArray[Any]) -> None:
        """Local in the sense of MPI: a send may wait for the receive of its neighbor."""
        comm = self._comm
        self._requests = [comm.Irecv(part, rank, TAG) for part, rank in self._receives]
        self._pack(x)
        for part, rank in self._sends:
            comm.Send(part, rank, TAG)

    def finish(self) -> NDArray[Any]:
        """Local in the sense of MPI. The ghosts, when they are there."""
        MPI.Request.Waitall(self._requests)
        return self._ghosts

    def Free(self) -> None:
        """Collective. A second time has no effect."""
        if not self._freed:
            self._comm.Free()
            self._freed = True


# Ghosts by one persistent request, of any method of :func:`onesided.collectives.methods`.


class Persistent(Halo):
    """Collective. ``label``: the method that ``auto`` has chosen."""

    def __init__(self, need: Need, method: str) -> None:
        super().__init__(need.comm, need.pattern, need.dtype, method=method, info=dict(need.info))
        used = self.request.method
        self.label = "" if used == method else used


# Memory of every rank that others put ghosts to.


class Landing:
    """A window of so many elements on each rank, in a communicator of its own, 0 at first.

    ``memory`` has those of this rank; who keeps views of it lets them go before ``free``.
    """

    def __init__(self, comm: MPI.Intracomm, count: int, dtype: np.dtype[Any]) -> None:
        """Collective. ``ResourceError`` on every rank where one has no memory for a window.

        ``UnsupportedError`` where the two copies of a window are not one: a rank reads and writes
        some elements while others come.
        """
        self.comm = comm.Dup()
        self.window = MPI.WIN_NULL
        self.memory: NDArray[Any] = np.empty(0, dtype)
        try:
            self.window = _allocated(self.comm, max(1, count) * dtype.itemsize, dtype.itemsize)
            _check_model(self.comm, self.window)
        except OnesidedError:  # the same on every rank
            self.free()
            raise
        memory: Any = self.window.tomemory()
        self.memory = np.frombuffer(memory, dtype, max(1, count))[:count]
        self.memory[:] = 0

    def places(self, near: list[Neighbor], shift: int = 0) -> Mapping[int, int]:
        """Collective. By neighbor, the element of its window where this rank's entries go.

        ``shift``: where the ghosts begin, on this rank.
        """
        mine = np.zeros(self.comm.size, np.int64)
        for each in near:
            mine[each.rank] = each.ghosts.start + shift
        found = np.empty_like(mine)
        self.comm.Alltoall(mine, found)
        return {each.rank: int(found[each.rank]) for each in near}

    def free(self) -> None:
        """Collective."""
        if self.window != MPI.WIN_NULL:
            self.memory = self.memory[:0].copy()
            self.window.Free()
        self.comm.Free()


def _allocated(comm: MPI.Intracomm, nbytes: int, item: int) -> MPI.Win:
    """Collective."""
    window, error = MPI.WIN_NULL, None
    try:
        window = MPI.Win.Allocate(nbytes, item, comm=comm)
    except MPI.Exception as failure:
        error = ResourceError(f"no window of {nbytes} bytes: {failure.Get_error_string()}")
    agree(comm, error)
    return window


def _check_model(comm: MPI.Intracomm, window: MPI.Win) -> None:
    """Collective."""
    error = None
    if window.Get_attr(MPI.WIN_MODEL) != MPI.WIN_UNIFIED:
        error = UnsupportedError("windows of this MPI have not the unified memory model")
    agree(comm, error)


# Ghosts by Put between two fences.
#
# This is how the paper on multi-threaded one-sided communication changed MiniFE: a Put where the
# original has a send. Puts that follow the first fence reach a rank after it has called its own
# (MPI-4.1 section 12.5.1), which it does when it reads its ghosts no more; the second fence tells
# that all are there. Both are called by the thread that computes.


class Fence(Packed):
    """Collective. All Puts by the calling thread; errors are those of :class:`.Landing`."""

    label = ""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        self._landing = Landing(need.comm, len(need.pattern.ghosts), need.dtype)
        self._window, self._ghosts = self._landing.window, self._landing.memory
        near = neighbors(need.pattern)
        places = self._landing.places(near)
        self._puts: list[Work] = [
            partial(self._window.Put, self._packed[each.sent], each.rank, places[each.rank])
            for each in near
            if each.sent.stop > each.sent.start
        ]
        self._freed = False

    def start(self, x: NDArray[Any]) -> None:
        """Collective: all ranks wait for all, and then put."""
        self._pack(x)
        self._window.Fence(MPI.MODE_NOPRECEDE)
        self._put()

    def finish(self) -> NDArray[Any]:
        """Collective. The ghosts, when those of all ranks are there."""
        self._window.Fence(MPI.MODE_NOSUCCEED)
        return self._ghosts

    def Free(self) -> None:
        """Collective. Give the window back; a second time has no effect."""
        if self._freed:
            return
        self._freed = True
        self._puts, self._ghosts = [], self._ghosts[:0].copy()
        self._landing.free()

    def _put(self) -> None:
        """Local. Give every neighbor what it needs."""
        for put in self._puts:
            put()


# Ghosts by Put between two fences, with one thread for every neighbor, as in the paper.
#
# Every thread drives the traffic to its neighbor only; the fences are called by the thread that
# computes. The threads are made once, before anything is timed.


class FenceThreads(Fence):
    """Collective. ``UnsupportedError`` on every rank where threads may not call this MPI."""

    def __init__(self, need: Need) -> None:
        check_threads(need.comm)
        super().__init__(need)
        self._works = beside(self._puts)
        try:
            self._team = team_of(need.comm, len(self._puts))
        except OnesidedError:  # the same on every rank
            self._works = []
            super().Free()
            raise

    def Free(self) -> None:
        """Collective. End the threads, then give the window back; once more has no effect."""
        if not self._freed:
            self._team.close()
            self._works = []
        super().Free()

    def _put(self) -> None:
        """Local. Returns when all threads have called Put."""
        self._team.run(self._works)


# Ghosts by Put, with MPI_Win_lock_all, MPI_Win_unlock_all and one thread for every neighbor.
#
# This is how the paper on multi-threaded one-sided communication changed HPCCG: every thread drives
# the traffic to its neighbor only, by a Put of what the original sends there; the thread that
# computes synchronises the window. The threads are made once, before anything is timed.
#
# The paper does not say how a rank learns that its ghosts are there. Here all ranks meet in a
# barrier after MPI_Win_unlock_all, which has completed the Puts at their targets. The window has
# room for the ghosts of two rounds, used in turn: who writes to one of them again has left the
# barrier of the round between, which its owner entered after reading. So one barrier a round is
# enough.

SLOTS = 2


class LockAllThreads(Packed):
    """Collective. ``UnsupportedError`` on every rank where threads may not call this MPI.

    An epoch is open from the making on, and the next one is opened where one ends, so that
    MPI_Win_sync can be called before ghosts are read (MPI-4.1 section 12.5.4).
    """

    label = ""

    def __init__(self, need: Need) -> None:
        pattern = need.pattern
        super().__init__(need)
        check_threads(need.comm)
        self._landing = Landing(need.comm, SLOTS * len(pattern.ghosts), need.dtype)
        self._window = self._landing.window
        self._slots = np.split(self._landing.memory, SLOTS)
        near, count = neighbors(pattern), len(pattern.ghosts)
        shifts = (slot * count for slot in range(SLOTS))
        self._works = [self._slot_works(near, self._landing.places(near, by)) for by in shifts]
        try:
            self._team = team_of(need.comm, len(self._works[0]) - 1)
        except OnesidedError:  # the same on every rank
            self._works, self._slots = [], []
            self._landing.free()
            raise
        self._slot = 0
        self._freed = False
        self._window.Lock_all()
        self._window.Sync()
        self._landing.comm.Barrier()  # nobody puts before all have cleared their memory

    def _slot_works(self, near: list[Neighbor], places: Mapping[int, int]) -> list[Work]:
        """Local. What the calling thread and those of the neighbors do in a round."""
        puts: list[Work] = [
            partial(self._window.Put, self._packed[each.sent], each.rank, places[each.rank])
            for each in near
            if each.sent.stop > each.sent.start
        ]
        return beside(puts)

    def start(self, x: NDArray[Any]) -> None:
        """Local in the sense of MPI. Returns when all threads have called Put."""
        self._pack(x)
        self._slot = 1 - self._slot
        self._team.run(self._works[self._slot])

    def finish(self) -> NDArray[Any]:
        """Collective. The ghosts, when they are there: all ranks wait for all."""
        window = self._window
        window.Unlock_all()
        self._landing.comm.Barrier()
        window.Lock_all()
        window.Sync()
        return self._slots[self._slot]

    def Free(self) -> None:
        """Collective. End the threads, then give the window back; once more has no effect."""
        if self._freed:
            return
        self._freed = True
        self._team.close()
        self._works, self._slots = [], []
        self._window.Unlock_all()
        self._landing.free()
