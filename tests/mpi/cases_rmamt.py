"""RMA-MT on several ranks: right data in every kind of cell, and wrong data that are seen."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from cases import parameters, skip
from mpi4py import MPI

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.papers import rmamt_epochs
from onesided.apps.papers.rmamt_cell import (
    ALONE,
    PATTERNS,
    RELEASED,
    SEND,
    THREADS,
    TWO_SIDED,
    C,
    Cell,
    Plan,
)
from onesided.apps.papers.rmamt_compiled import Compiled, build
from onesided.apps.papers.rmamt_epochs import OPERATIONS, SYNCHRONISATIONS
from onesided.apps.papers.rmamt_worker import LEAST, outcome, refusal

PLAN = Plan(5, 1 << 16, 6, 2, 4, 0.05, 60.0)


def fitting(comm, pattern):
    if PATTERNS[pattern].ranks(comm.size) != comm.size:
        skip(f"{pattern} does not take {comm.size} ranks")


@functools.cache
def folder():
    """One of this process, removed at its end."""
    return tempfile.TemporaryDirectory(prefix="rma-loop-")


@functools.cache
def library():
    """The loop in C; None without a compiler."""
    path = Path(folder().name, "rma_loop.so")
    try:
        build(path)
    except ForeignError:
        return None
    return Compiled(str(path))


@parameters(
    pattern=list(PATTERNS), sync=list(SYNCHRONISATIONS), op=list(OPERATIONS), threads=[0, 2]
)
def case_every_message_comes(comm, pattern, sync, op, threads):
    fitting(comm, pattern)
    compiled = library()
    for size in (1, 24, 5000):
        cell = Cell(pattern, sync, op, threads, size, "multiple")
        found = outcome(comm, cell, PLAN, compiled)
        assert (found.kind, found.wrong) == ("", 0), found
        names = {THREADS} | ({ALONE} if threads else set())
        if compiled is not None:
            names |= {C} | ({RELEASED} if threads else set())
        assert set(found.loops) == names
        assert all(len(runs) == PLAN.runs for runs in found.loops.values())
        assert all(run.mean > 0 and run.median > 0 for runs in found.loops.values() for run in runs)
        assert PLAN.runs * LEAST <= found.rounds <= PLAN.runs * PLAN.iterations
        messages = PLAN.messages if PATTERNS[pattern].many else 1
        origins = comm.size * 6 if pattern == "rate-halo" else comm.size // 2
        if size < 5000:
            assert found.messages == origins * max(1, threads) * messages
        assert found.nbytes == found.messages * size


@parameters(pattern=list(PATTERNS))
def case_the_baseline_sends(comm, pattern):
    fitting(comm, pattern)
    for size in (1, 24, 5000):
        found = outcome(comm, Cell(pattern, TWO_SIDED, SEND, 0, size, "multiple"), PLAN, None)
        assert (found.kind, found.wrong) == ("", 0), found
        assert list(found.loops) == [THREADS]
        assert found.ways == (2 if pattern == "latency" else 1)


@parameters(op=list(OPERATIONS), threads=[0, 2])
def case_a_lost_message_is_seen(comm, op, threads):
    """One of five messages of a thread is not put, or not gotten."""
    fitting(comm, "bandwidth")
    real = OPERATIONS[op]

    def forgetful(win):
        call, number = real.call(win), [0]

        def some(origin, rank, target):
            number[0] += 1
            if number[0] % PLAN.messages:
                call(origin, rank, target)

        return some

    faulty = {op: replace(real, call=forgetful)}
    before, rmamt_epochs.OPERATIONS = rmamt_epochs.OPERATIONS, faulty
    try:
        found = outcome(comm, Cell("bandwidth", "fence", op, threads, 24, "multiple"), PLAN, None)
    finally:
        rmamt_epochs.OPERATIONS = before
    assert found.kind == "wrong data"
    assert found.wrong >= PLAN.runs * max(1, threads)


def case_a_message_to_the_wrong_place_is_seen(comm):
    fitting(comm, "bandwidth")
    real = OPERATIONS["put"]

    def shifted(win):
        def call(origin, rank, target):
            place, size, kind = target
            win.Put(origin, rank, (max(0, place - size), size, kind))

        return call

    before, rmamt_epochs.OPERATIONS = rmamt_epochs.OPERATIONS, {"put": replace(real, call=shifted)}
    try:
        found = outcome(comm, Cell("bandwidth", "pscw", "put", 0, 24, "multiple"), PLAN, None)
    finally:
        rmamt_epochs.OPERATIONS = before
    assert found.kind == "wrong data"


def case_a_level_that_is_too_low_is_refused(comm):
    many = Cell("latency", "fence", "put", 2, 8, "multiple")
    enough = MPI.Query_thread() == MPI.THREAD_MULTIPLE
    assert (refusal(many) == "") == enough
    assert "2 threads need the thread level multiple" in refusal(replace(many, level="single"))
    assert refusal(replace(many, threads=0, level="single")) == ""


def case_nothing_of_mpi_is_left(comm):
    """Many cells one after the other: windows and groups are given back."""
    fitting(comm, "rate-halo")
    plan = replace(PLAN, runs=1, iterations=2)
    for turn in range(60):
        sync = list(SYNCHRONISATIONS)[turn % len(SYNCHRONISATIONS)]
        cell = Cell("rate-halo", sync, "put", 2, int(np.int64(1) << (turn % 8)), "multiple")
        assert outcome(comm, cell, plan, None).kind == ""
