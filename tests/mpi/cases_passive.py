"""The passive broadcast: only its root calls, and every byte is where it belongs."""

from __future__ import annotations

import contextlib
import random
import time

import numpy as np
from cases import parameters, ranks
from errors import agreed
from mpi4py import MPI

from onesided.collectives import (
    OneSidedBroadcast,
    UnsupportedError,
    bcast_linear,
    extents_of,
)
from onesided.collectives.passive.relay import Relay
from onesided.collectives.trees import orders

KINDS = ["create", "allocate", "shared"]
GUARD = 255  # no pattern has it


def pattern(root, number, nbytes):
    """The bytes of a broadcast: another place, root or number gives others."""
    return ((np.arange(nbytes) * 7 + 31 * root + 13 * number) % 251).astype(np.uint8)


class Exposed:
    """A window full of guards; `memory` is this rank's part."""

    def __init__(self, comm, nbytes, kind="allocate", unit=1):
        if kind == "create":
            self.memory = np.zeros(nbytes, np.uint8)
            self.window = MPI.Win.Create(self.memory, unit, comm=comm)
        else:
            node = comm.Split_type(MPI.COMM_TYPE_SHARED)
            alone = node.size == comm.size
            node.Free()
            make = MPI.Win.Allocate_shared if kind == "shared" and alone else MPI.Win.Allocate
            self.window = make(nbytes, unit, comm=comm)
            self.memory = np.asarray(memoryview(self.window.tomemory()), np.uint8)
        self.memory[:] = GUARD
        comm.Barrier()

    def free(self):
        self.memory = None
        self.window.Free()


@contextlib.contextmanager
def exposing(comm, nbytes, kind="allocate", unit=1):
    """A window that is freed at the end of the block; not after an exception."""
    exposed = Exposed(comm, nbytes, kind, unit)
    yield exposed
    exposed.free()


@contextlib.contextmanager
def slow_relay(seconds):
    """Relays wait before they pass a broadcast on."""
    serve = Relay.serve

    def slowly(self, root, number):
        time.sleep(seconds())
        serve(self, root, number)

    Relay.serve = slowly
    try:
        yield
    finally:
        Relay.serve = serve


@parameters(order=orders, timeouts=[(0.001, 0.001), (0, 0), (0.02, 0.01)])
def case_many_from_changing_roots(comm, order, timeouts, seed, options):
    """Roots do not wait for each other; memory is used again after everybody has checked it."""
    polls = timeouts == (0, 0)
    count, places, room = int(options.get("count", "60")), 16, 3000
    plan = random.Random(seed)
    turns = [(plan.randrange(comm.size), plan.randrange(room)) for _ in range(count)]
    delays = random.Random(seed + comm.rank)
    short = dict(zip(("waiter_timeout", "flush_timeout"), timeouts, strict=True))
    relayed = random.Random(seed + comm.size + comm.rank)  # a relay may be another thread
    with exposing(comm, places * room) as exposed, slow_relay(lambda: 0.002 * relayed.random()):
        with OneSidedBroadcast(comm, child_order=order, **short) as broadcast:
            wid = broadcast.register(exposed.window)
            epochs = [0] * comm.size
            for number, (root, nbytes) in enumerate(turns):
                if number % places == 0:
                    while polls and not broadcast.test():
                        time.sleep(0)
                    if not polls:
                        broadcast.flush()
                    comm.Barrier()
                    exposed.memory[:] = GUARD
                    comm.Barrier()
                if delays.random() < 0.2:
                    time.sleep(delays.random() * 0.004)
                place = number % places * room
                epochs[root] += 1
                if comm.rank == root:
                    data = pattern(root, number, nbytes)
                    assert broadcast.bcast(data, wid, place, root) == epochs[root]
                    data[:] = GUARD - 1  # the buffer is ours again
                elif delays.random() < 0.5:
                    continue  # looked at later, or never
                while polls and broadcast.received(wid, root) < epochs[root]:
                    time.sleep(0)
                if not polls:
                    broadcast.wait(wid, epochs[root], root)
                here = exposed.memory[place : place + room]
                assert np.array_equal(here[:nbytes], pattern(root, number, nbytes)), number
                assert (here[nbytes:] == GUARD).all(), number


@parameters(order=orders)
def case_several_windows(comm, order):
    """Of sizes and units of their own: a displacement counts units of the target."""
    units = [8, 1, comm.rank % 3 + 1]
    exposed = [Exposed(comm, 100 + 10 * comm.rank, kind, unit)
               for kind, unit in zip(["create", "allocate", "create"], units, strict=True)]
    with OneSidedBroadcast(comm, child_order=order) as broadcast:
        wids = [broadcast.register(one.window) for one in exposed]
        assert wids == [0, 1, 2]
        for number in range(1, 6):
            for wid in wids:
                root = (wid + number) % comm.size
                if comm.rank == root:
                    broadcast.bcast(pattern(root, number + wid, 64), wid, 3, root)
                    broadcast.flush()
            comm.Barrier()
            broadcast.flush()
            for wid, unit in enumerate(units):
                root, here = (wid + number) % comm.size, exposed[wid].memory
                assert np.array_equal(here[3 * unit : 3 * unit + 64],
                                      pattern(root, number + wid, 64))
                assert (here[: 3 * unit] == GUARD).all()
                assert (here[3 * unit + 64 :] == GUARD).all()
            comm.Barrier()
    for one in exposed:
        one.free()


@ranks(at_least=2)
@parameters(kind=KINDS)
def case_targets_compute(comm, kind):
    """Targets do not call MPI until they see in their memory what came after a flush."""
    with exposing(comm, 200_000, kind) as exposed:
        with OneSidedBroadcast(comm) as broadcast:
            wid = broadcast.register(exposed.window)
            memory, work = exposed.memory, np.linspace(0.0, 1.0, 20_000)
            comm.Barrier()
            if comm.rank == 0:
                broadcast.bcast(pattern(0, 1, 150_000), wid, 0, 0)
                broadcast.flush()  # a target that waits for its own call would hang us here
                broadcast.bcast(np.array([7], np.uint8), wid, 199_999, 0)
            while memory[199_999] != 7:
                np.sin(work, out=work)
            assert np.array_equal(memory[:150_000], pattern(0, 1, 150_000))
            broadcast.flush()
            comm.Barrier()


def case_the_buffer_may_be_the_window_itself(comm):
    root = comm.size - 1
    with exposing(comm, 64) as exposed, OneSidedBroadcast(comm) as broadcast:
        wid = broadcast.register(exposed.window)
        for number, (source, place) in enumerate([(8, 8), (0, 4), (20, 10)], 1):
            if comm.rank == root:
                exposed.memory[source : source + 30] = pattern(root, number, 30)
                broadcast.bcast(exposed.memory[source : source + 30], wid, place, root)
                broadcast.flush()
            broadcast.wait(wid, number, root)
            assert np.array_equal(exposed.memory[place : place + 30], pattern(root, number, 30))
            comm.Barrier()


def case_opened_and_closed_again_and_again(comm, options):
    """Nothing is left behind: MPICH has about 2,046 communicators and windows. There may be two at
    a time, whose ranks have other numbers, and the caller's own communicators may be freed."""
    with exposing(comm, 9) as exposed:
        for number in range(int(options.get("cycles", "5"))):
            own, backwards = comm.Dup(), comm.Split(0, -comm.rank)
            other, root = Exposed(backwards, 9), number % comm.size
            with OneSidedBroadcast(own) as broadcast, OneSidedBroadcast(backwards) as second:
                wids = broadcast.register(exposed.window), second.register(other.window)
                me = backwards.rank
                own.Free()
                backwards.Free()
                if comm.rank == root:
                    broadcast.bcast(pattern(root, number, 9), wids[0], 0, root)
                    second.bcast(pattern(root, number + 1, 9), wids[1], 0, me)
            assert np.array_equal(exposed.memory, pattern(root, number, 9))
            assert np.array_equal(other.memory, pattern(root, number + 1, 9))
            comm.Barrier()
            other.free()


def case_linear(comm):
    """Below MPI_THREAD_MULTIPLE there is no other one, which tells so."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        agreed(comm, UnsupportedError, lambda: OneSidedBroadcast(comm), "use bcast_linear(")
    unit = comm.rank % 2 + 1
    with exposing(comm, 60, "create", unit) as exposed:
        extents = extents_of(comm, exposed.window)
        assert extents.units == tuple(rank % 2 + 1 for rank in range(comm.size))
        for root in range(comm.size):
            exposed.memory[:] = GUARD
            comm.Barrier()
            if comm.rank == root:
                bcast_linear(exposed.window, pattern(root, 1, 20), 15, root, extents)
            comm.Barrier()
            exposed.window.Lock(comm.rank)
            here = exposed.memory.copy()
            exposed.window.Unlock(comm.rank)
            assert np.array_equal(here[15 * unit : 15 * unit + 20], pattern(root, 1, 20))
            assert (here[: 15 * unit] == GUARD).all()
            assert (here[15 * unit + 20 :] == GUARD).all()
            comm.Barrier()
