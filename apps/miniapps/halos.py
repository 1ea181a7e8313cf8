"""Ways of bringing ghosts up to date: who sends which entries to whom, and what carries them; and
scaling runs of a mini-application by several of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided import collectives
from onesided.apps.bench.choices import counted, ways_of
from onesided.apps.bench.sweep import Case, Make, sweep
from onesided.apps.bench.team import Team, Work
from onesided.apps.bench.timing import nothing
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options, doubling
from onesided.apps.cli.report import METHOD, Report
from onesided.collectives import OnesidedError, ResourceError, UnsupportedError, agreed, methods
from onesided.sparse import Halo, HaloPattern
from onesided.sparse.halo import Ghosts

#: The messages of the original, with which all other ways are compared.
REFERENCE = "two-sided"
TAG = 99  # of its messages


def ways() -> dict[str, Callable[[Need], Any]]:
    """Local. What makes a halo, by its name in ``--comm``: the only place where one is chosen. A
    new one is a class and a line here. The methods of persistent exchanges are at the end."""
    return {
        REFERENCE: TwoSided,
        "fence": Fence,
        "fence-threads": partial(Fence, threads=True),
        "lock-all-threads": LockAll,
        "halo": Exchange,
        **{name: partial(Persistent, method=name) for name in methods()},
    }


@dataclass(frozen=True)
class Need:
    """Who needs which entries of a distributed vector, and what the user told the methods. ``comm``
    is borrowed, and has to outlive the halos that are made of this."""

    comm: MPI.Intracomm
    pattern: HaloPattern
    dtype: np.dtype[Any]
    info: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Neighbor:
    """A rank to exchange with: what of the packed entries it gets, and which ghosts it sends."""

    rank: int
    sent: slice
    ghosts: slice


def neighbors(pattern: HaloPattern) -> list[Neighbor]:
    """Local. By rank; one with nothing to send or to receive has an empty slice."""
    sent, received = parts(pattern.send_counts), parts(pattern.recv_counts)
    ranks = np.flatnonzero(pattern.send_counts + pattern.recv_counts).tolist()
    return [Neighbor(rank, sent[rank], received[rank]) for rank in ranks]


def parts(counts: NDArray[np.int64]) -> list[slice]:
    """Local. Where so many for each rank are, one after the other."""
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]


class Packed(Ghosts):
    """The entries that neighbors need, packed for all of them one after the other. ``label``: what
    the way has chosen itself, if anything; ``_resources``: what is to be freed."""

    k = 1
    label = ""

    def __init__(self, need: Need) -> None:
        """Collective. ``MemoryError`` on every rank where one has no memory for them."""
        self._index, self._resources = need.pattern.send_index, ExitStack()
        with agreed(need.comm):
            self._packed: NDArray[Any] = np.zeros(len(self._index), need.dtype)

    def _pack(self, x: NDArray[Any]) -> None:
        np.take(x, self._index, out=self._packed, mode="clip")

    def Free(self) -> None:
        """Collective. Give everything back; a second time has no effect."""
        self._resources.close()


class Exchange(Packed):
    """Ghosts by :class:`~onesided.collectives.HaloExchange`, with a list of the neighbors. One
    array has the ghosts, to which neighbors write, and behind them the packed entries. ``label``:
    the ways in which entries come and leave."""

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        ghosts, packed = len(need.pattern.ghosts), len(self._packed)
        memory = collectives.empty(need.comm, ghosts + packed, need.dtype, links=0)
        self._resources.callback(collectives.free, memory)
        memory[...] = 0
        self._ghosts, self._packed = memory[:ghosts], memory[ghosts:]
        near = [
            (each.rank, slice(ghosts + each.sent.start, ghosts + each.sent.stop), each.ghosts)
            for each in neighbors(need.pattern)
        ]
        try:
            self._halo = collectives.HaloExchange(
                need.comm, memory, neighbors=near, info=dict(need.info)
            )
        except OnesidedError:  # the same on every rank
            self.Free()
            raise
        self._resources.callback(self._halo.Free)
        self.label = self._halo.method

    def start(self, x: NDArray[Any]) -> None:
        self._pack(x)
        self._halo.Start()

    def finish(self) -> NDArray[Any]:
        self._halo.Wait()
        return self._ghosts


class TwoSided(Packed):
    """Ghosts by messages, as the mini-applications of the Mantevo suite exchange them. Receives are
    posted first, then all entries are packed, then sent by one blocking send to every neighbor, and
    the receives are waited for."""

    def __init__(self, need: Need, apart: MPI.Intracomm | None = None) -> None:
        """Collective. ``apart``: a communicator that nobody else uses meanwhile; else a new one."""
        super().__init__(need)
        with agreed(need.comm):
            self._ghosts: NDArray[Any] = np.zeros(len(need.pattern.ghosts), need.dtype)
        self._comm = need.comm.Dup() if apart is None else apart
        if apart is None:
            self._resources.callback(self._comm.Free)
        near = neighbors(need.pattern)
        ghosts = [(self._ghosts[each.ghosts], each.rank) for each in near]
        sent = [(self._packed[each.sent], each.rank) for each in near]
        self._receives = [pair for pair in ghosts if len(pair[0])]
        self._sends = [pair for pair in sent if len(pair[0])]
        self._requests: list[MPI.Request] = []

    def start(self, x: NDArray[Any]) -> None:
        """Local in the sense of MPI: a send may wait for the receive of its neighbor."""
        comm = self._comm
        self._requests = [comm.Irecv(part, rank, TAG) for part, rank in self._receives]
        self._pack(x)
        for part, rank in self._sends:
            comm.Send(part, rank, TAG)

    def finish(self) -> NDArray[Any]:
        MPI.Request.Waitall(self._requests)
        return self._ghosts


class Persistent(Halo):
    """Ghosts by one persistent request, of any method of :func:`onesided.collectives.methods`.
    ``label``: the method that works, which ``auto`` may have chosen."""

    def __init__(self, need: Need, method: str) -> None:
        super().__init__(need.comm, need.pattern, need.dtype, method=method, info=dict(need.info))
        self.label = self.request.method


def _allocated(comm: MPI.Intracomm, nbytes: int, item: int) -> MPI.Win:
    """Collective."""
    try:
        return MPI.Win.Allocate(nbytes, item, comm=comm)
    except MPI.Exception as error:
        words = error.Get_error_string()
        raise ResourceError(f"no window of {nbytes} bytes: {words}") from error


def _check_model(window: MPI.Win) -> None:
    if window.Get_attr(MPI.WIN_MODEL) != MPI.WIN_UNIFIED:
        raise UnsupportedError("windows of this MPI have not the unified memory model")


class _Puts(Packed):
    """Ghosts by Put, of the calling thread or of one thread for every neighbor. Threads are made
    once, before anything is timed, and drive the traffic to their neighbor only. The window has
    room for the ghosts of so many rounds, its slots, 0 at first."""

    def __init__(self, need: Need, *, threads: bool = False, slots: int = 1) -> None:
        """Collective. On every rank where one has no memory for a window, or cannot make so many
        threads, ``ResourceError``.

        ``UnsupportedError`` where threads may not call this MPI, and where the two copies of a
        window are not one: a rank reads and writes some elements while others come.
        """
        comm, count, item = need.comm, len(need.pattern.ghosts), need.dtype.itemsize
        super().__init__(need)
        self._comm = comm.Dup()
        self._resources.callback(self._comm.Free)
        try:
            with agreed(comm):
                self._window = _allocated(self._comm, max(1, slots * count) * item, item)
            self._resources.callback(self._window.Free)
            with agreed(comm):
                _check_model(self._window)
            memory: Any = self._window.tomemory()
            landed = np.frombuffer(memory, need.dtype, max(1, slots * count))[: slots * count]
            landed[:] = 0
            self._slots: list[NDArray[Any]] = np.split(landed, slots)
            near = neighbors(need.pattern)
            puts = [self._puts(near, slot * count) for slot in range(slots)]
            self._works = [[nothing, *each] if threads else [partial(_all, each)] for each in puts]
            calling = "a thread for every neighbor" if threads else ""
            self._team = Team.of_all(comm, len(self._works[0]), calling)
            self._resources.callback(self._team.close)
        except OnesidedError:  # the same on every rank
            self.Free()
            raise

    def _puts(self, near: list[Neighbor], start: int) -> list[Work]:
        """Collective. What puts to every neighbor its part of the packed entries; ``start``: where
        the ghosts begin in the memory of this rank."""
        mine = np.zeros(self._comm.size, np.int64)
        for each in near:
            mine[each.rank] = start + each.ghosts.start
        theirs = np.empty_like(mine)
        self._comm.Alltoall(mine, theirs)
        return [
            partial(self._window.Put, self._packed[each.sent], each.rank, int(theirs[each.rank]))
            for each in near
            if each.sent.stop > each.sent.start
        ]

    def _put(self, slot: int = 0) -> None:
        """Local in the sense of MPI. Returns when all threads have called Put."""
        self._team.run(self._works[slot])


def _all(works: list[Work]) -> None:
    for work in works:
        work()


class Fence(_Puts):
    """Ghosts by Put between two fences, which are called by the thread that computes.

    This is how the paper on multi-threaded one-sided communication changed MiniFE: a Put where the
    original has a send. Puts that follow the first fence reach a rank after it has called its own
    (MPI-4.1 section 12.5.1), which it does when it reads its ghosts no more; the second fence
    tells that all are there.
    """

    def start(self, x: NDArray[Any]) -> None:
        """Collective: all ranks wait for all, and then put."""
        self._pack(x)
        self._window.Fence(MPI.MODE_NOPRECEDE)
        self._put()

    def finish(self) -> NDArray[Any]:
        """Collective. The ghosts, when those of all ranks are there."""
        self._window.Fence(MPI.MODE_NOSUCCEED)
        return self._slots[0]


class LockAll(_Puts):
    """Ghosts by Put of a thread for every neighbor, between lock-all and unlock-all.

    This is how the paper on multi-threaded one-sided communication changed HPCCG. The paper does
    not say how a rank learns that its ghosts are there. Here all ranks meet in a barrier after
    MPI_Win_unlock_all, which has completed the Puts at their targets. The two slots are used in
    turn: who writes to one of them again has left the barrier of the round between, which its
    owner entered after reading. So one barrier a round is enough.

    An epoch is open from the making on, and the next one is opened where one ends, so that
    MPI_Win_sync can be called before ghosts are read (MPI-4.1 section 12.5.4).
    """

    def __init__(self, need: Need) -> None:
        super().__init__(need, threads=True, slots=2)
        self._slot = 0
        self._window.Lock_all()
        self._resources.callback(self._window.Unlock_all)
        self._window.Sync()
        self._comm.Barrier()  # nobody puts before all have cleared their memory

    def start(self, x: NDArray[Any]) -> None:
        """Local in the sense of MPI. Returns when all threads have called Put."""
        self._pack(x)
        self._slot = 1 - self._slot
        self._put(self._slot)

    def finish(self) -> NDArray[Any]:
        """Collective. The ghosts, when they are there: all ranks wait for all."""
        window = self._window
        window.Unlock_all()
        self._comm.Barrier()
        window.Lock_all()
        window.Sync()
        return self._slots[self._slot]


# -- a mini-application on the first so many ranks of a job, by several ways -----------------------

REMARK = (
    f"vs {REFERENCE}: the overhead as in Figure 8 of paper 002, by the rounds in which both took "
    "their turn; exchange: what the ranks spend with their ghosts, waiting included, on average."
)


class Stage(NamedTuple):
    """One run: on ``ranks`` ranks, with the problem of ``shares`` ranks; ``scaling`` is empty where
    nothing is scaled."""

    scaling: str
    ranks: int
    shares: int


def stages(size: int, options: Options) -> list[Stage]:
    """Local. What ``--scaling`` and ``--ranks-list`` mean in a job of ``size`` ranks. Strong
    scaling cuts the problem of the largest number of ranks into fewer parts. :class:`CommandError`
    for more ranks than the job has, and for a list without a scaling."""
    if not options.scaling:
        if options.ranks_list:
            raise CommandError("--ranks-list is for --scaling weak or strong")
        return [Stage("", size, size)]
    counts = counted(size, options.ranks_list, doubling(1, size))
    return [
        Stage(scaling, count, count if scaling == "weak" else max(counts))
        for scaling in dict.fromkeys(options.scaling)
        for count in counts
    ]


def run_stages(
    comm: MPI.Intracomm, options: Options, report: Report,
    opened: Callable[[Stage], Callable[..., Make]], rest: str = "",
) -> None:
    """Collective. The rows of every way in every stage. ``opened``: gives what opens the case of a
    stage; ``rest``: how the rest of a time is called."""
    every = stages(comm.size, options)
    variants = [{METHOD: name} for name in ways_of(options.comm, ways(), REFERENCE)]
    cases = []
    for stage in every:
        scaling = {"scaling": stage.scaling} if stage.scaling else {}
        labels = {**scaling, "ranks": str(stage.ranks)}
        cases.append(Case(labels, variants, opened(stage), stage.ranks, (REFERENCE,), rest=rest))
    report.pattern = {**report.pattern, "stages": [stage._asdict() for stage in every]}
    report.baseline, report.by = REFERENCE, "ranks"
    runs = options.but(iterations=options.repeats, seconds=inf)
    sweep(comm, runs, report, cases, report.command)
    report.remarks.append(REMARK)
