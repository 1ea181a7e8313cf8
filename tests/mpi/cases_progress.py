"""A rank holds the interpreter lock after Start; the others must not wait for it."""

from __future__ import annotations

import ctypes
import os
import tempfile
import time

from cases import parameters, ranks, skip
from exchange_data import Vector, tables

from onesided.collectives import (
    interpreter,
)

ROUNDS = 3
LATE = 0.01  # seconds, more than a time slice


def info_of(options, kind=""):
    """Emulated nodes where the options ask for them, and the slots of a kind of memory."""
    info = {key: options[key] for key in ("ranks_per_node",) if key in options}
    if "slot" in kind:
        info["slots"] = kind.split()[1]
    return info or None


def exchange(comm, method, kind, options, factor=1):
    """A dense exchange whose blocks differ in size; ``factor`` makes them longer."""
    table = (tables(comm.size)["uneven"] + 1) * factor
    return Vector(comm, table, method, kind.split(",")[0], info_of(options, kind))


@ranks(at_least=2)
@parameters(kind=["own, 1 slot", "window, long", "plain"])
def case_a_rank_computes_and_holds_the_interpreter_lock(comm, kind, options):
    """Rank 0 reads from a pipe without giving up the lock until rank 1 has its data."""
    if interpreter() != "compiled":
        skip("without the compiled core no thread runs while the interpreter lock is held")
    if "ranks_per_node" in options:
        skip("off the node MPI has to be called, which takes the interpreter lock")
    moved = exchange(comm, "rma-notify", kind, options, 20_000 if "long" in kind else 1)
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    pipe = os.path.join(folder, "pipe")
    if comm.rank == 0:
        os.mkfifo(pipe)
    comm.Barrier()
    file = os.open(pipe, os.O_RDWR)
    for turn in range(ROUNDS):
        moved.fill(turn)
        if comm.rank == 0:
            moved.request.Start()
            byte = ctypes.create_string_buffer(1)
            assert ctypes.PyDLL(None).read(file, byte, 1) == 1
            got = moved.request.Wait()
        else:
            time.sleep(LATE)
            moved.request.Start()
            if comm.rank == 1:
                got = moved.request.Wait()
                os.write(file, b"x")
            else:
                got = moved.request.Wait()
        moved.check(turn, got)
    os.close(file)
    comm.Barrier()
    if comm.rank == 0:
        os.unlink(pipe)
        os.rmdir(folder)
    moved.free()
