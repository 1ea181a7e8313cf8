"""What is legal with MPI's own requests and must not hang: a rank elsewhere between Start and Wait.

Every case is free of deadlocks by MPI's rules: Wait may wait for the starts of the other ranks, a
barrier for all ranks, a partitioned receive for the sender's marks, and for nothing else.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
import time

import numpy as np
from cases import parameters, ranks, skip, skip_if_known
from exchange_data import Vector, strict, tables
from mpi4py import MPI

from onesided.collectives import (
    Precv_init,
    Psend_init,
    UnsupportedError,
    empty,
    free,
    interpreter,
    partitioned_methods,
)

ROUNDS = 3
LATE = 0.01  # seconds, more than a time slice
TAG = 7  # not MPI.ANY_TAG, the default of Recv: it would take the letters of partitioned sends


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


def partitioned():
    """The methods that move data themselves; the MPI's own has the MPI's own progress."""
    return [name for name in partitioned_methods() if name not in ("mpi", "auto")]


# -- (b) marked data leave without another call of the library -------------------------------------


class Marks:
    """A partitioned send from rank 0 to the last one, with memory of any kind."""

    def __init__(self, comm, count, memory):
        self.comm, self.count, self.last = comm, count, comm.size - 1
        self.source = np.zeros(count, np.int64)
        inside = count if comm.rank == self.last else 0
        self.window = empty(comm, inside, np.int64) if memory == "window" else None
        self.target = np.zeros(inside, np.int64) if self.window is None else self.window
        self.request = None

    def init(self, method):
        try:
            if self.comm.rank == 0:
                self.request = Psend_init(self.comm, self.source, 4, self.last, method=method)
            else:
                self.request = Precv_init(self.comm, self.target, 2, 0, method=method)
        except UnsupportedError as error:
            skip_if_known(error, method)

    def want(self, turn):
        return np.arange(self.count) * 3 + 10**7 * (turn + 1)

    def send(self, turn):
        self.source[:] = self.want(turn)
        self.request.Start()
        for part in (2, 0, 3, 1):
            self.request.Pready(part)

    def receive(self, turn):
        self.request.Start()
        self.request.Wait()
        self.check(turn)

    def check(self, turn):
        np.testing.assert_array_equal(self.target, self.want(turn))
        self.target[:] = -1

    def free(self):
        if self.request is not None:
            self.request.Free()
        if self.window is not None:
            self.target = None
            free(self.window)


SIZES = [128, 1536, 1 << 17]  # elements: 1 KiB, 12 KiB, 1 MiB


def window_only(method):
    return method == "rma"


@ranks(at_least=2)
@parameters(method=partitioned, memory=["window", "plain"], count=SIZES)
def case_marks_before_the_receiver_exists(comm, method, memory, count):
    """The sender marks all and is then in a blocking receive until the data have been checked."""
    if window_only(method) and memory == "plain":
        skip("rma receives into memory from empty")
    marks = Marks(comm, count, memory)
    ack = np.zeros(1)
    for turn in range(ROUNDS):
        if comm.rank == 0:
            if turn == 0:
                marks.init(method)
            marks.send(turn)
            comm.Recv(ack, marks.last, TAG)
            marks.request.Wait()
            assert ack[0] == turn + 1
        elif comm.rank == marks.last:
            time.sleep(LATE)
            if turn == 0:
                marks.init(method)
            marks.receive(turn)
            ack[0] = turn + 1
            comm.Send(ack, 0, TAG)
    marks.free()


@ranks(at_least=2)
@parameters(method=partitioned, memory=["window", "plain"], count=SIZES)
def case_receiver_is_elsewhere_when_the_sender_comes(comm, method, memory, count):
    """The receiver starts, sends a message and is in a barrier; the sender waits before it."""
    if window_only(method) and memory == "plain":
        skip("rma receives into memory from empty")
    marks = Marks(comm, count, memory)
    word = np.zeros(1)
    for turn in range(ROUNDS):
        if comm.rank == marks.last:
            if turn == 0:
                marks.init(method)
            marks.request.Start()
            word[0] = turn + 1
            comm.Send(word, 0, TAG)
            comm.Barrier()
            marks.request.Wait()
            marks.check(turn)
        elif comm.rank == 0:
            comm.Recv(word, marks.last, TAG)
            assert word[0] == turn + 1
            if turn == 0:
                marks.init(method)
            marks.send(turn)
            marks.request.Wait()
            comm.Barrier()
        else:
            comm.Barrier()
    marks.free()


# -- (c), (d), (e) strictly ordered requests: the order of starts, on each communicator ------------


def rows_and_columns(comm):
    """Two communicators that cross each other."""
    if comm.size % 2 == 0 and comm.size > 2:
        return comm.Split(comm.rank // 2, comm.rank), comm.Split(comm.rank % 2, comm.rank)
    return comm.Dup(), comm.Dup()


@ranks(at_least=2)
@parameters(method=strict, memory=["own", "plain"])
def case_strict_requests_of_two_communicators(comm, method, memory):
    parts = rows_and_columns(comm)
    row, col = (Vector(part, tables(part.size)["uneven"] + 1, method, memory) for part in parts)
    for turn in range(ROUNDS):
        for moved in (row, col):
            moved.fill(turn)
            moved.request.Start()
        for moved in (col, row):
            moved.check(turn, moved.request.Wait())
    for moved in (row, col):
        moved.free()
    for part in parts:
        part.Free()


@ranks(at_least=2)
@parameters(method=strict)
def case_strict_requests_in_two_threads(comm, method):
    """Each thread has a communicator of its own, so neither knows of the other."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        skip("this MPI does not let several threads call it")
    parts = rows_and_columns(comm)
    both = [Vector(part, tables(part.size)["uneven"] + 1, method) for part in parts]
    errors, through = [], []

    def work(moved, pause):
        try:
            for turn in range(8):
                moved.fill(turn)
                moved.request.Start()
                time.sleep(pause * (turn % 3 == comm.rank % 3))
                moved.check(turn, moved.request.Wait())
            through.append(moved)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(moved, 0.002 * (1 + i)))
               for i, moved in enumerate(both)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert len(through) == 2
    for moved in both:
        moved.free()
    for part in parts:
        part.Free()


# -- (l) the library's own collective calls drive the rounds that are under way --------------------


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
