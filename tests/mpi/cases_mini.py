"""What mini-applications share, inside a job: halos among any neighbors at any speed, faults."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest
from cases import parameters, ranks, skip, skip_if_known
from mpi4py import MPI

from onesided.apps.miniapps import halos
from onesided.apps.miniapps.halos import Fence, Need, ways
from onesided.collectives import ResourceError, UnsupportedError, methods
from onesided.sparse import HaloPattern

OWN = [name for name in ways() if name not in methods()]
THREADED = ("fence-threads", "lock-all-threads")


def need_level(way):
    if way in THREADED and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        skip("threads that call MPI need MPI_THREAD_MULTIPLE")


def _counts(kind, size):
    """Entries that every rank (a row) sends to every other."""
    counts = np.zeros((size, size), int)
    rng = np.random.default_rng(size)
    if kind == "ring":  # who sends to a rank gets nothing from it
        for rank in range(size):
            counts[rank, (rank + 1) % size] = 3 + rank
    elif kind == "star":
        counts[0, 1:] = np.arange(1, size)
    elif kind == "lonely":
        counts[: size - 1, : size - 1] = rng.integers(0, 4, (size - 1, size - 1))
    elif kind == "all":
        counts[:] = rng.integers(1, 3000, (size, size))
    np.fill_diagonal(counts, 0)
    return counts


class Traffic:
    """A pattern of this rank, with the ghosts that it must find in every round."""

    def __init__(self, comm, kind):
        self.comm, counts = comm, _counts(kind, comm.size)
        self.owns = [3 + 2 * rank + 5 * counts[rank].sum() for rank in range(comm.size)]
        rng = np.random.default_rng(7)
        index = [
            [rng.permutation(self.owns[rank])[: counts[rank, to]] for to in range(comm.size)]
            for rank in range(comm.size)
        ]
        self._from = [index[rank][comm.rank] for rank in range(comm.size)]
        self.pattern = HaloPattern(
            self.owns[comm.rank],
            np.arange(counts[:, comm.rank].sum()),
            np.concatenate(index[comm.rank]).astype(np.intp),
            counts[comm.rank].astype(np.int64),
            counts[:, comm.rank].astype(np.int64),
        )

    def x(self, rank, number):
        return np.arange(self.owns[rank], dtype=float) + 1e6 * rank + 1e8 * number

    def ghosts(self, number):
        return np.concatenate(
            [self.x(rank, number)[index] for rank, index in enumerate(self._from)]
        )


KINDS = ("ring", "star", "lonely", "none", "all")


def rounds(comm, traffic, halo, dice, count):
    """Ranks that are late at any place; x is spoiled at once, ghosts are read twice."""

    def dawdle():
        if dice.random() < 0.3:
            time.sleep(dice.random() * 0.004)

    for number in range(count):
        x = traffic.x(comm.rank, number)
        dawdle()
        halo.start(x)
        x[:] = -1
        dawdle()
        ghosts = halo.finish()
        expected = traffic.ghosts(number)
        assert np.array_equal(ghosts, expected), number
        dawdle()
        assert np.array_equal(ghosts, expected), f"overwritten in round {number}"


def hesitating(work, dice):
    """A thread that comes late with its Put."""

    def late():
        time.sleep(dice.random() * 0.002)
        work()

    return late


@parameters(way=OWN)
def case_any_neighbors_at_any_speed(comm, way):
    _any_neighbors(comm, way)


@ranks(at_least=4)
@parameters(way=list(methods()))
def case_any_neighbors_of_an_exchange(comm, way):
    _any_neighbors(comm, way)


def _any_neighbors(comm, way):
    """One-sided neighbors, none at all, and orders of the neighbors that differ by rank."""
    need_level(way)
    dice = random.Random(comm.rank)
    plain = halos.neighbors

    def shuffled(pattern):
        found = plain(pattern)
        dice.shuffle(found)
        return found

    halos.neighbors = shuffled
    try:
        for kind in KINDS:
            traffic = Traffic(comm, kind)
            try:
                halo = ways()[way](Need(comm, traffic.pattern, np.dtype(float)))
            except UnsupportedError as error:
                skip_if_known(error, way)
            if way in THREADED:
                for works in halo._works:
                    works[1:] = [hesitating(work, dice) for work in works[1:]]
            rounds(comm, traffic, halo, dice, 12)
            halo.Free()
            halo.Free()
    finally:
        halos.neighbors = plain


@parameters(way=THREADED)
@ranks(at_least=2)
def case_an_error_of_a_thread_is_raised_after_the_others(comm, way):
    """On its rank; the halo can be freed, for no thread is at work any more."""
    need_level(way)
    traffic = Traffic(comm, "all")
    halo = ways()[way](Need(comm, traffic.pattern, np.dtype(float)))

    def fail():
        raise RuntimeError("a thread fails")

    for works in halo._works:
        works[1] = fail
    with pytest.raises(RuntimeError, match="a thread fails"):
        halo.start(traffic.x(comm.rank, 0))
    if isinstance(halo, Fence):
        halo.finish()
    halo.Free()


@parameters(way=THREADED)
def case_threads_that_cannot_be_made(comm, way):
    """On one rank; what all have made before is given back on all."""
    need_level(way)
    traffic = Traffic(comm, "all")
    freed = []
    release, start = halos.Packed.Free, threading.Thread.start

    def refused(thread):
        if thread.name == "team" and comm.rank == comm.size - 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        patch.setattr(halos.Packed, "Free", lambda self: (freed.append(self), release(self)))
        if comm.size == 1:
            ways()[way](Need(comm, traffic.pattern, np.dtype(float))).Free()
        else:
            with pytest.raises(ResourceError, match="threads: can't start new thread"):
                ways()[way](Need(comm, traffic.pattern, np.dtype(float)))
    assert len(freed) == 1


@parameters(way=[*OWN, "rma-notify"])
def case_no_memory_on_one_rank(comm, way):
    """The halo of a matrix is asked, too: it is what the persistent ways are."""
    need_level(way)
    traffic = Traffic(comm, "all")
    wanted = Need(comm, traffic.pattern, np.dtype(float))

    def none(*given, **more):
        raise MemoryError("no memory for entries")

    with pytest.MonkeyPatch.context() as patch:
        if comm.rank == comm.size - 1:
            patch.setattr(np, "zeros", none)
        with pytest.raises(MemoryError, match="no memory for entries"):
            ways()[way](wanted)
    halo = ways()[way](wanted)
    rounds(comm, traffic, halo, random.Random(comm.rank), 2)
    halo.Free()


@parameters(way=THREADED)
def case_one_rank_with_too_low_a_level(comm, way):
    query = MPI.Query_thread
    if comm.rank == comm.size - 1:
        MPI.Query_thread = lambda: MPI.THREAD_FUNNELED
    try:
        with pytest.raises(UnsupportedError, match="MPI_THREAD_FUNNELED"):
            ways()[way](Need(comm, Traffic(comm, "all").pattern, np.dtype(float)))
    finally:
        MPI.Query_thread = query
