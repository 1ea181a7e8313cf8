"""Halos: mistakes, which every rank learns of, and what is left behind."""

from __future__ import annotations

import gc
import warnings
from unittest import mock

import numpy as np
from cases import parameters, ranks
from errors import agreed
from mpi4py import MPI

from onesided.collectives import (
    HaloExchange,
    MismatchError,
    PatternError,
    ResourceError,
)
from onesided.collectives.arena import Arena
from onesided.collectives.context import Context
from onesided.collectives.halo import exchange

WHOLE = (slice(0, 1), slice(0, 8))


def everywhere(comm, kind, text, *arguments, **options):
    agreed(comm, kind, lambda: HaloExchange(comm, *arguments, **options), text)


def grid(comm, periodic=True):
    return comm.Create_cart((comm.size, 1), (periodic, periodic))


@parameters(culprit=["all", "last"])
def case_bad_arguments(comm, culprit):
    """Of all ranks, or of one: nobody is left behind."""
    cart, wrong = grid(comm), culprit == "all" or comm.rank == comm.size - 1
    good = np.zeros((6, 6))
    fixed = np.zeros((6, 6))
    fixed.flags.writeable = False
    for bad, text in [
        ([1, 2], "needs a NumPy array"), (np.array(1.0), "one axis at least"),
        (np.array([[None] * 6] * 6), "no fixed size"), (fixed, "cannot be written"),
        (np.zeros((6, 6), "V0"), "no fixed size"), (np.zeros(6), "a grid of 2 axes"),
        (np.zeros((2, 6)), "0 layers of its own"), (np.zeros((1, 6)), "1 and 1 ghost layers"),
    ]:
        everywhere(cart, PatternError, text, bad if wrong else good, 1)
    for name, bad, kind, text in [
        ("ghosts", "some", PatternError, "ghosts is 'some', not one of faces, edges, all"),
        ("corners", "some", PatternError, "corners is 'some', not one of direct, axes"),
        ("info", {"ranks_per_node": "0"}, PatternError, "ranks_per_node"),
        ("neighbors", 7, PatternError, "the neighbors are 7"),
        ("neighbors", [(comm.size, WHOLE, None)], PatternError, f"there are {comm.size} ranks"),
    ]:
        given = (good,) if wrong and name == "neighbors" else (good, 1)
        everywhere(cart, kind, text, *given, **({name: bad} if wrong else {}))
    for bad in (-1, "wide", (1, 2, 3), None):
        everywhere(cart, PatternError, "width", good, bad if wrong else 1)
    everywhere(cart, PatternError, "a width, and neighbors", good, 1, neighbors=[])
    everywhere(comm, PatternError, "no Cartesian topology", good, 1)
    cart.Free()


@ranks(at_least=2)
def case_ranks_that_disagree(comm):
    cart = grid(comm, periodic=False)
    mine = comm.rank == 0
    everywhere(cart, PatternError, "rank 1 sends a box of shape (1, 6) of float64 (direction "
               "(-1, 0)) to rank 0, which expects a box of shape (1, 5) of float64 (direction "
               "(1, 0))",
               np.zeros((6, 7 if mine else 8)), 1)
    everywhere(cart, PatternError, "rank 1 sends a box of shape (1, 6) of float64",
               np.zeros((6, 8), "f4" if mine else "f8"), 1)
    everywhere(cart, PatternError, "which expects", np.zeros((9, 8)), 2 if mine else 1)
    everywhere(cart, MismatchError, "rank 0 is in",
               [np.zeros((9, 8)) for _ in range(1 + mine)], 1)
    cart.Free()
    array, out, into = np.zeros((4, 8)), (slice(1, 2),), (slice(0, 1),)
    last = comm.size - 1
    everywhere(comm, PatternError, "rank 0 sends a box of shape (1, 8) of float64 (tag 0) to rank "
               f"{last}, which expects nothing", array, None,
               neighbors=[(last, out, None)] if mine else [])
    everywhere(comm, PatternError, f"rank {last} sends nothing to rank 0, which expects "
               "a box of shape (1, 8) of float64 (tag 7)", array, None,
               neighbors=[(last, None, into, 7)] if mine else [])
    everywhere(comm, PatternError, "rank 0: ", array, None,
               neighbors=[(0, out, into, 1), (0, None, out, 2)] if mine else [])


def case_nobody(comm):
    """No neighbors, or MPI.PROC_NULL: everything completes."""
    out, into = (slice(1, 2),), (slice(0, 1),)
    for neighbors in ([], [(MPI.PROC_NULL, out, into), (MPI.PROC_NULL, out, None)]):
        array = np.zeros((4, 8))
        with HaloExchange(comm, array, neighbors=neighbors) as halo:
            assert len(halo.faces) == len(neighbors)
            halo.Start()
            assert halo.Test()
            assert halo.exchange() is array
            assert (array == 0).all()


def case_too_little_shared_memory(comm):
    """Then messages come in plain memory."""
    cart = grid(comm)
    array = np.full((6, 6), float(comm.rank))

    def full(*_, **__):
        raise ResourceError("no shared memory is left")

    grow, Arena._grow = Arena._grow, full
    try:
        halo = HaloExchange(cart, array, 1)
    finally:
        Arena._grow = grow
    assert halo.method == ("message" if comm.size > 1 else "copies")
    halo.exchange()
    assert (array[0, 1:-1] == (comm.rank - 1) % comm.size).all()
    halo.Free()
    cart.Free()


def case_a_program_that_one_rank_cannot_load(comm):
    cart = grid(comm)
    load = exchange.load if comm.rank else short
    with mock.patch.object(exchange, "load", load):
        everywhere(cart, MemoryError, "no memory", np.zeros((6, 6)), 1)
    cart.Free()


def short(*_):
    raise MemoryError("no memory")


@parameters(corners=["direct", "axes"])
def case_what_an_active_halo_lacks(comm, corners):
    """Others, never the rank itself."""
    cart = grid(comm)
    with HaloExchange(cart, np.zeros((6, 6)), 1, corners=corners) as halo:
        if comm.rank == 0:
            halo.Start()
            late = sorted({1, comm.size - 1} - {0})
            assert halo.waiting_for() == "data from " + (
                ", ".join(f"rank {each}" for each in late if comm.size > 1) or "nobody")
        comm.Barrier()
        if comm.rank:
            halo.Start()
        halo.Wait()
    cart.Free()


def case_dropped_in_the_middle_of_a_round(comm):
    """It is kept, so that the end of the program can complete it."""
    cart, array = grid(comm), np.full((6, 6), float(comm.rank))
    halo = HaloExchange(cart, array, 1, info={"ranks_per_node": "1"})
    halo.Start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del halo
        gc.collect()
    (kept,) = Context.of(cart).requests()
    kept.Wait()
    assert (array[0, 1:-1] == (comm.rank - 1) % comm.size).all()
    kept.Free()
    cart.Free()


def case_many_cycles(comm, options):
    """More halos than MPI has windows and communicators, one after the other."""
    cart, array = grid(comm), np.zeros((6, 6))
    for cycle in range(int(options.get("cycles", 20))):
        array[1:-1, 1:-1] = 10 * cycle + comm.rank
        with HaloExchange(cart, array, 1) as halo:
            halo.exchange()
        assert (array[0, 1:-1] == 10 * cycle + (comm.rank - 1) % comm.size).all()
        if cycle == 1:
            tags = len(Context.of(cart)._spare_tags)
    assert len(Context.of(cart)._spare_tags) == tags, "something is left of a halo"
    cart.Free()
