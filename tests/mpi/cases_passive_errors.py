"""The passive broadcast used wrongly, or left by an exception: errors, and never a hang."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from typing import Any
from unittest import mock

import numpy as np
import pytest
from cases import parameters, ranks
from cases_passive import Exposed, exposing, pattern, slow_relay
from mpi4py import MPI

from onesided.collectives import (
    BroadcastError,
    MethodError,
    MismatchError,
    OneSidedBroadcast,
    PatternError,
    RequestError,
    UnsupportedError,
    bcast_linear,
    extents_of,
)
from onesided.collectives.passive import runtime
from onesided.collectives.passive.relay import Relay


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "onesided-broadcaster"]


def still_works(comm, broadcast, wid, memory, epoch=1):
    comm.Barrier()
    if comm.rank == 0:
        assert broadcast.bcast(pattern(0, epoch, 8), wid, 0, 0) == epoch
        broadcast.flush()
    broadcast.wait(wid, epoch, 0)
    assert np.array_equal(memory[:8], pattern(0, epoch, 8))
    comm.Barrier()


def case_mistakes_of_the_root(comm):
    """Found at the root, before anything is sent; the last rank has the smallest window. The linear
    broadcast has no more than these."""
    size = 64 if comm.rank == comm.size - 1 else 80
    good = np.zeros(8)
    mistakes = [
        ((good, 0, 0, (comm.rank + 1) % comm.size), "called by its root alone"),
        ((good, 0, 0, None), "called by its root alone"),
        ((good, 1, 0, comm.rank), "window 1 is not registered; 1 are"),
        ((good, -1, 0, comm.rank), "window -1 is not registered"),
        ((good, "0", 0, comm.rank), "window '0' is not registered"),
        ((good, 0, 1, comm.rank), f"window of rank {comm.size - 1}, which has 64 bytes"),
        ((np.zeros(65, "u1"), 0, 0, comm.rank), "65 bytes at displacement 0"),
        ((good, 0, 1 << 40, comm.rank), "not inside the window of rank 0"),
        ((good, 0, -1, comm.rank), "at displacement -1"),
        ((good, 0, 0.5, comm.rank), "displacement is 0.5, not an integer"),
        ((np.zeros((4, 4))[:, :2], 0, 0, comm.rank), "not contiguous"),
        ((np.array([None, 1]), 0, 0, comm.rank), "Python objects"),
        ((None, 0, 0, comm.rank), "is None"),
        ((7, 0, 0, comm.rank), "no buffer"),
    ]
    if comm.size == 1:
        mistakes = mistakes[1:]
    with (
        exposing(comm, size) as exposed, exposing(comm, size) as other,
        OneSidedBroadcast(comm) as broadcast,
    ):  # fmt: skip
        wid, extents = broadcast.register(exposed.window), extents_of(comm, other.window)
        for (data, which, *place), words in mistakes:
            with pytest.raises(PatternError, match=words):
                broadcast.bcast(data, which, *place)
            if which == 0:
                with pytest.raises(PatternError, match=words):
                    bcast_linear(other.window, data, *place, extents)
        assert (other.memory == 255).all()
        for verb in (broadcast.received, lambda w, r: broadcast.wait(w, 1, r)):
            with pytest.raises(PatternError, match="window 3 is not registered"):
                verb(3, 0)
            with pytest.raises(PatternError, match=f"root {comm.size} of"):
                verb(0, comm.size)
        assert (exposed.memory == 255).all()
        still_works(comm, broadcast, wid, exposed.memory)


def case_windows_that_cannot_be_registered(comm):
    dynamic = MPI.Win.Create_dynamic(comm=comm)
    freed = MPI.Win.Create(np.zeros(8), comm=comm)
    freed.Free()
    locked = MPI.Win.Create(np.zeros(8), comm=comm)
    locked.Lock_all()
    backwards = comm.Split(0, -comm.rank)
    other = MPI.Win.Create(np.zeros(8), comm=backwards)
    with exposing(comm, 80) as exposed, OneSidedBroadcast(comm) as broadcast:
        wid = broadcast.register(exposed.window)
        mistakes = [
            (dynamic, UnsupportedError, "dynamic"),
            (freed, RequestError, "has been freed"),
            (locked, RequestError, "epoch open"),
            (exposed.window, RequestError, "registered already"),
            ("window", PatternError, "is no window"),
        ]
        if comm.size > 1:
            mistakes.append((other, PatternError, "ranks of the window"))
        for window, kind, words in mistakes:
            with pytest.raises(kind, match=words):
                broadcast.register(window)
        if comm.size > 1:  # wrong on one rank alone: an error on all
            with pytest.raises(RequestError, match="rank 0: the window has been freed"):
                broadcast.register(freed if comm.rank == 0 else locked)
        still_works(comm, broadcast, wid, exposed.memory)
    locked.Unlock_all()
    for window in (dynamic, locked, other):
        window.Free()
    backwards.Free()


def case_bad_arguments_of_the_runtime(comm):
    before = len(threads())
    for kind, words, arguments in [
        (MethodError, "largest-first, low-bit-first", {"child_order": "random"}),
        (PatternError, "waiter_timeout is -1", {"waiter_timeout": -1}),
        (PatternError, "flush_timeout is inf", {"flush_timeout": float("inf")}),
        (PatternError, "flush_timeout is 'x'", {"flush_timeout": "x"}),
    ]:
        with pytest.raises(kind, match=words):
            OneSidedBroadcast(comm, **(arguments if comm.rank == comm.size - 1 else {}))
    if comm.size > 1:
        order = "low-bit-first" if comm.rank else "largest-first"
        with pytest.raises(MismatchError):
            OneSidedBroadcast(comm, child_order=order)
    assert len(threads()) == before


def case_a_closed_runtime(comm):
    before = len(threads())
    with exposing(comm, 80) as exposed:
        with OneSidedBroadcast(comm) as broadcast:
            wid = broadcast.register(exposed.window)
            assert len(threads()) == before + 1
        assert len(threads()) == before
        broadcast.close()
        for verb in (
            lambda: broadcast.register(exposed.window),
            lambda: broadcast.bcast(np.zeros(1), wid, 0, comm.rank),
            broadcast.flush,
            broadcast.test,
            lambda: broadcast.received(wid, 0),
            lambda: broadcast.wait(wid, 0, 0),
            broadcast.__enter__,
        ):
            with pytest.raises(RequestError, match="closed"):
                verb()
        exposed.window.Lock_all()  # the window is the caller's again
        exposed.window.Unlock_all()


def case_a_window_that_is_freed(comm):
    """MPICH refuses to free it, Open MPI frees it: then the root is told."""
    exposed = Exposed(comm, 80)
    with OneSidedBroadcast(comm) as broadcast:
        wid = broadcast.register(exposed.window)
        still_works(comm, broadcast, wid, exposed.memory)
        try:
            exposed.free()
            freed = True
        except MPI.Exception:
            freed = False
        assert len(set(comm.allgather(freed))) == 1
        if freed:
            with pytest.raises(RequestError, match="has been freed"):
                broadcast.bcast(np.zeros(1), wid, 0, comm.rank)
            assert broadcast.test()
    if not freed:
        exposed.free()


def case_windows_of_a_linear_broadcast(comm):
    with exposing(comm, 64) as exposed:
        window, data, me = exposed.window, np.zeros(8), comm.rank
        for given, words in ((data, "is no window"), (window, "not inside the window")):
            with pytest.raises(PatternError, match=words):
                bcast_linear(given, data, 8, me)
        with OneSidedBroadcast(comm) as broadcast:
            wid = broadcast.register(window)
            with pytest.raises(RequestError, match="epoch open"):
                bcast_linear(window, data, 0, me)
            still_works(comm, broadcast, wid, exposed.memory)
        comm.Barrier()
        bcast_linear(window, data, 0, me, extents_of(comm, window))  # no epoch is left open
        comm.Barrier()
    gone = MPI.Win.Create(None, comm=comm)
    gone.Free()
    with pytest.raises(RequestError, match="has been freed"):
        bcast_linear(gone, np.zeros(1), 0, comm.rank)


class Only(Exception):
    """What one rank raises."""


def finish(comm, broadcast, exposed):
    """All ranks have survived the failure: together they can give everything back."""
    with pytest.raises(RequestError, match="closed"):
        broadcast.flush()
    broadcast.close()  # does nothing
    broadcast.release()
    exposed.window.Lock_all()  # the window is the caller's again
    exposed.window.Unlock_all()
    exposed.free()


@contextlib.contextmanager
def interrupted_close(comm, broadcast, wanted, when):
    """By an exception between what this rank tells and what it waits for, or behind that; or while
    rank 0, which has heard all, is slow to decide."""
    relay, notices, flag = broadcast._relay, broadcast._relay.notices, None
    wait_for, decide, grace = relay.wait_for, notices._decide, runtime.GRACE
    if when == "while":
        here = tempfile.mkdtemp() if comm.rank == 0 else None
        flag = os.path.join(comm.bcast(here), "decides")

    def interrupted(*given, whatever_fails=False, **more):
        if when == "after" or not whatever_fails:
            wait_for(*given, whatever_fails=whatever_fails, **more)
        while whatever_fails and flag is not None and not os.path.exists(flag):
            time.sleep(0.001)
        if whatever_fails:
            raise Only("only here")

    def slow():
        if comm.rank == 0 and len(notices._heard) == comm.size - 1:
            os.makedirs(flag, exist_ok=True)
            time.sleep(0.3)
        decide()

    if wanted:
        relay.wait_for = interrupted
    if when == "while":
        notices._decide, runtime.GRACE = slow, 0.001
    try:
        yield
    finally:
        relay.wait_for, notices._decide, runtime.GRACE = wait_for, decide, grace
        if flag is not None and comm.rank == 0:
            shutil.rmtree(os.path.dirname(flag))


@ranks(at_least=2)
@parameters(who=["first", "last"], when=["before", "while", "after"])
def case_a_close_is_interrupted(comm, who, when):
    """Where all have learned that all close, they do, this rank too; else nobody does. Rank 0 may
    decide so before it hears that another one, which closes, has failed."""
    before, mine = len(threads()), comm.rank == (0 if who == "first" else comm.size - 1)
    decided = when == "after" or (when == "while" and who == "last")
    exposed = Exposed(comm, 80)
    broadcast = OneSidedBroadcast(comm)
    wid = broadcast.register(exposed.window)
    still_works(comm, broadcast, wid, exposed.memory)
    with interrupted_close(comm, broadcast, mine, when):
        if not mine:
            time.sleep(0.1 if when == "before" else 0.0)
        if mine or not decided:
            with pytest.raises(Only if mine else BroadcastError, match="only here"):
                broadcast.close()
        else:
            broadcast.close()
    assert len(threads()) == before
    assert bool(broadcast._relay.windows._known) is not decided
    comm.Barrier()
    finish(comm, broadcast, exposed)


@parameters(doing=["close", "flush", "wait", "bcast", "the same"])
def case_ranks_leave_by_an_exception(comm, doing):
    """The last one alone: the others learn of it in whatever they are in, and nobody waits for
    anybody. Or all, with broadcasts of all roots under way."""
    if comm.size == 1 and doing != "the same":
        pytest.skip("one rank has no others")
    before, last = len(threads()), comm.size - 1
    exposed = Exposed(comm, 8 * max(10, comm.size))
    broadcast = OneSidedBroadcast(comm)
    wid = broadcast.register(exposed.window)

    def spread():
        broadcast.bcast(pattern(0, 1, 8), wid, 8 * comm.rank, comm.rank)

    def flush():
        spread()
        broadcast.flush()
        broadcast.wait(wid, 1, last)

    def bcast():
        while True:
            spread()

    others = {"close": broadcast.test, "flush": flush, "bcast": bcast}
    others["wait"] = lambda: broadcast.wait(wid, 1, last)

    def leave():
        with broadcast:
            if doing == "the same":
                spread()
                raise Only("only here")
            if comm.rank == last:
                time.sleep(0.0 if doing == "close" else 0.05)
                raise Only("only here")
            others[doing]()

    kind: Any = Only if comm.rank == last else BroadcastError
    if doing == "the same":  # one that is late hears it in its broadcast
        kind = (Only, BroadcastError)
    with slow_relay(lambda: 0.01 if doing == "the same" else 0.3 * (comm.rank == last)):
        with pytest.raises(kind, match="only here"):
            leave()
    assert len(threads()) == before
    comm.Barrier()
    finish(comm, broadcast, exposed)


@ranks(at_least=2)
@parameters(kind=["create", "allocate"])
def case_one_rank_leaves_while_long_data_come(comm, kind):
    """It serves the root until they are there, where MPI needs it; then it calls MPI no more."""
    here = tempfile.mkdtemp() if comm.rank == 0 else None
    gone = os.path.join(comm.bcast(here), "gone")
    before, last = len(threads()), comm.size - 1
    exposed = Exposed(comm, 16 << 20, kind)
    broadcast = OneSidedBroadcast(comm)
    wid = broadcast.register(exposed.window)
    data = np.ones(16 << 20, np.uint8) if comm.rank == 0 else None
    comm.Barrier()

    def leave():
        with broadcast:
            if comm.rank == last:
                while not broadcast._relay.expecting and not broadcast.received(wid, 0):
                    time.sleep(0.0005)
                raise Only("only here")
            if comm.rank == 0:
                broadcast.bcast(data, wid, 0, 0)
            broadcast.wait(wid, 2, 0)

    with (
        mock.patch.object(runtime, "GRACE", 0.001),
        pytest.raises(Only if comm.rank == last else BroadcastError, match="only here"),
    ):
        leave()
    if comm.rank == 0:
        os.mkdir(gone)
    while not os.path.exists(gone):  # without MPI until the root is out of its broadcast
        time.sleep(0.01)
    assert len(threads()) == before
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(here)
    finish(comm, broadcast, exposed)


def failing(self, root, number):
    raise Only("in the thread")


@ranks(at_least=2)
def case_a_relay_fails(comm, monkeypatch):
    """What goes wrong in the thread of the last rank is raised there, and told to the root."""
    last, before = comm.size - 1, len(threads())
    exposed = Exposed(comm, 80)
    broadcast = OneSidedBroadcast(comm)
    wid = broadcast.register(exposed.window)
    if comm.rank == last:
        monkeypatch.setattr(Relay, "serve", failing)
    comm.Barrier()

    def spread():
        broadcast.bcast(pattern(0, 1, 8), wid, 0, 0)
        broadcast.flush()

    if comm.rank == 0:
        with pytest.raises(BroadcastError, match=f"rank {last} has failed: Only: in the thread"):
            spread()
        with pytest.raises(BroadcastError, match="in the thread"):
            broadcast.test()
    with pytest.raises(BroadcastError, match="in the thread") as caught:
        broadcast.wait(wid, 2, 0)
    if comm.rank == last:
        assert isinstance(caught.value.__cause__, Only)
    with pytest.raises(BroadcastError, match="in the thread"):
        broadcast.bcast(pattern(0, 1, 8), wid, 0, comm.rank)
    with pytest.raises(BroadcastError):
        broadcast.close()
    assert len(threads()) == before
    comm.Barrier()
    finish(comm, broadcast, exposed)


def case_a_dropped_runtime_warns(comm):
    """It goes on until the program ends: nothing collective happens where it is collected."""
    broadcast = OneSidedBroadcast(comm)
    with pytest.warns(ResourceWarning, match="dropped without close"):
        del broadcast
