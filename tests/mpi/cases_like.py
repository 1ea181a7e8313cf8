"""The same pattern on other buffers: ``request.like``."""

from __future__ import annotations

import numpy as np
import pytest
from cases import parameters, ranks
from mpi4py import MPI
from operations import MEMORY, OPERATIONS, Trial

from onesided import collectives
from onesided.collectives import PatternError, RequestError, agreement, exchange
from onesided.collectives.tuning import race


class Forbidden:
    """Nobody asks who has something for whom, and nothing is raced."""

    def __init__(self, monkeypatch):
        def fail(*words, **names):
            raise AssertionError("matched or raced again")

        monkeypatch.setattr(exchange, "told", fail)
        monkeypatch.setattr(race.Race, "run", fail)


def another(trial, comm, memory):
    """A trial of the same pattern in other memory, whose request is made like that of this one."""
    made = []

    class Like:
        def init(self, comm, send, recv, root, **options):
            made.append(trial.request.like(*trial.operation.arguments(send, recv, root)[:2]))
            return made[0]

        def __getattr__(self, name):
            return getattr(trial.operation, name)

    return Trial(comm, Like(), "auto", memory, in_place=trial.held is not None, root=trial.root,
                 scale=trial.scale, holes=trial.holes)  # fmt: skip


@parameters(operation=[name for name in OPERATIONS if name != "Bcast"], first=MEMORY, then=MEMORY,
            method=["auto", "rma-notify"])
def case_other_memory(comm, operation, first, then, method):
    with pytest.MonkeyPatch.context() as patch:
        trial = Trial(comm, OPERATIONS[operation], method, first)
        Forbidden(patch)
        other = another(trial, comm, then)
        assert other.request.method == trial.request.method
        for turn in range(3):
            for each in (trial, other):
                each.fill(turn)
                each.request.Start()
            for each in (other, trial):
                each.check(turn, each.request.Wait())
                each.scribble()
        trial.free()
        third = another(other, comm, first)
        third.round(5)
        other.free()
        third.free()


@parameters(operation=["Gather", "Allgatherv", "Alltoallv", "Scatter"], holes=[False, True])
def case_in_place_and_holes(comm, operation, holes):
    trial = Trial(comm, OPERATIONS[operation], "p2p", in_place=True, holes=holes)
    other = another(trial, comm, "plain")
    for each in (trial, other):
        each.round(1)
        each.free()


@ranks(at_least=2)
@parameters(what=["more", "type", "freed"])
def case_another_pattern_is_refused_on_all_ranks(comm, what):
    last = comm.rank == comm.size - 1
    sent, counts = np.ones(8 * comm.size), [8] * comm.size
    with collectives.Alltoallv_init(comm, [sent, counts], None, method="p2p") as request:
        if what == "more" and last:
            counts = [7, *counts[1:]]
        if what == "type" and last:
            sent = sent.astype(np.int64)
        if what == "freed":
            request.Free()
            with pytest.raises(RequestError, match="freed"):
                request.like([sent, counts], None)
            return
        with pytest.raises(PatternError, match="blocks are others"):
            request.like([sent, counts], None)
        with request.like([np.full(8 * comm.size, 2.0), [8] * comm.size], None) as other:
            other.Start()
            assert np.all(other.Wait() == 2)


@parameters(method=["auto", "mpi-persistent"])
def case_broadcasts_and_reductions(comm, method):
    data, other = np.arange(5.0) * (comm.rank == 0), np.arange(5.0) + 3 * (comm.rank == 0)
    with (
        collectives.Bcast_init(comm, data, 0, method=method) as first,
        first.like(other) as second,
        collectives.Allreduce_init(comm, data, np.empty(5), MPI.SUM, method=method) as total,
    ):
        assert second.method == first.method
        for request in (second, first):
            request.Start()
            request.Wait()
        assert np.array_equal(data, np.arange(5.0))
        assert np.array_equal(other, np.arange(5.0) + 3)
        with total.like(other, np.empty(5)) as like:
            like.Start()
            assert np.array_equal(like.Wait(), comm.size * other)
        with pytest.raises(PatternError):
            first.like(np.zeros(6))
        with pytest.raises(PatternError):
            total.like(np.zeros(6), np.empty(6))


@ranks(at_least=2)
def case_neighbors_are_told_of_other_memory_alone(comm):
    """What peers know already is not told again."""
    counts = [4] * comm.size
    heard = []

    def counted(*words):
        heard.append(words)
        return agreement.swapped(*words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "swapped", counted)
        sent = np.ones(4 * comm.size)
        with collectives.Alltoallv_init(
            comm, [sent, counts], [np.empty(4 * comm.size), counts], method="p2p"
        ) as request:
            with request.like([sent.copy(), counts], [np.empty(4 * comm.size), counts]):
                assert not heard
            mine = None if comm.rank else [np.empty(4 * comm.size), counts]
            with request.like([sent.copy(), counts], mine):
                assert len(heard) == 1
