"""The conformance table: any order of starts and waits, and progress wherever the program is."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import time
from dataclasses import replace

import numpy as np
import pytest
from cases import parameters, ranks
from columns import LATE, TAG, VERBS, looked, made
from filled_data import Turn
from subjects import make
from table import (
    ROWS,
    Cell,
    Length,
    any_order,
    cells,
    known,
    strict,
)

from onesided.collectives import (
    empty,
    free,
    interpreter,
    methods,
    progress,
)

#: Whose ranks can end no round while one of them is away.
OF_ALL = ("Alltoall", "Allgather", "Allreduce", "Barrier")


@parameters(cell=cells("alone", "beside others", keep=any_order))
def case_any_order_of_starts_and_waits(comm, cell, seed, options):
    """Every rank starts and completes its requests in an order of its own."""
    others = [cell, cell]
    if cell.way != "alone":
        others = [Cell("Allgather", "p2p"), Cell("Bcast", "mpi-persistent", memory="plain")]
    subjects = [make(comm, each, options) for each in (cell, *others)]
    rng = np.random.default_rng([seed, comm.rank])
    for turn in range(4):
        for subject in subjects:
            subject.fill(turn)
        for place in rng.permutation(3):
            subjects[place].request.Start()
        for place in rng.permutation(3):
            subjects[place].check(turn, subjects[place].request.Wait())
    for subject in subjects[::-1]:
        subject.free()


#: What else is active, and when a strictly ordered round is waited for.
STRICTLY = ["at once or at the end", "beside mpi", "beside one slot", "backwards", "driven"]


@ranks(at_least=2)
@parameters(cell=cells(*STRICTLY, keep=strict))
def case_strictly_ordered(comm, cell, options):
    """The same order of starts is all that ranks agree on: some wait at once, some at the end, or
    out of order, or something drives another request; the earlier rounds are completed first."""
    others = {"beside mpi": Cell("Alltoall", "mpi"),
              "beside one slot": Cell("Alltoall", "rma-fence", memory="plain")}  # fmt: skip
    if cell.row.startswith("Neighbor"):  # of another communicator, whose order is another one
        others = {}
    plain = replace(cell, way="")
    first, other = make(comm, plain, options), others.get(cell.way)
    subjects = [first, make(comm, other or plain, options, None if other else first),
                make(comm, plain, options, first)]  # fmt: skip
    for turn in range(4):
        odd = (comm.rank + turn) % 2
        at_once = odd and cell.way not in ("backwards", "driven")
        for subject in subjects:
            subject.fill(turn)
        for subject in subjects:
            subject.request.Start()
            if at_once:
                subject.check(turn, subject.request.Wait())
        if cell.way == "driven" and comm.rank == 0:
            progress.drive(comm.Iprobe, first.request)
        for subject in () if at_once else subjects[:: -1 if odd else 1]:
            subject.check(turn, subject.request.Wait())
    for subject in subjects[::-1]:
        subject.free()


@ranks(at_least=2)
@parameters(cell=cells("late rank", "slow reader", "fast sender", lengths=(
    Length(0, 3), Length(12_000, 1), Length(1 << 17, 1))))  # fmt: skip
def case_late_and_slow(comm, cell, options):
    """A rank comes late, another in each round, or keeps what it has got for a while."""
    subject, how = made(comm, cell, options), cell.way
    if subject is None:
        return
    for turn in range(40 if how == "fast sender" else 6):
        odd = turn % comm.size == comm.rank
        if how == "late rank" and odd:
            time.sleep(LATE)
        subject.fill(turn)
        if how == "fast sender" and comm.rank == comm.size - 1:
            time.sleep(2e-4)
        subject.request.Start()
        got = subject.request.Wait()
        if how == "slow reader" and odd:
            time.sleep(LATE)
        subject.check(turn, got)
    subject.free()


@ranks(at_least=2)
@parameters(cell=cells(*VERBS, keep=any_order, lengths=(Length(0, 3), Length(1 << 17, 1))))
def case_starting_and_looking_wait_for_nobody(comm, cell, options):
    """The last rank starts when all others say that they have started, and looked."""
    subject, last = make(comm, cell, options), comm.size - 1
    subject.round(0)
    for turn in (1, 2):
        subject.fill(turn)
        if comm.rank == last:
            for rank in range(last):
                assert comm.recv(source=rank, tag=TAG) == turn
            subject.request.Start()
        else:
            subject.request.Start()
            seen = [looked(subject, cell.way) for _ in range(3)]
            assert cell.row not in OF_ALL or not any(seen)
            comm.send(turn, last, tag=TAG)
        got = subject.request.Wait() if subject.request.active else subject.request.recvbuf
        subject.check(turn, got)
    subject.free()


@ranks(at_least=2)
@parameters(cell=cells("", rows=["Alltoallv", "Allgather", "Gatherv"], lengths=(
    Length(0, 3), Length(1 << 17, 1)), keep=lambda cell: cell.method == "rma-notify"))  # fmt: skip
def case_a_rank_computes_and_holds_the_interpreter_lock(comm, cell):
    """Rank 0 reads from a pipe without giving up the lock until rank 1 has its data."""
    if interpreter() != "compiled":
        pytest.skip("without the compiled core no thread runs while the interpreter lock is held")
    subject = make(comm, replace(cell, root=0))
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    pipe = os.path.join(folder, "pipe")
    if comm.rank == 0:
        os.mkfifo(pipe)
    comm.Barrier()
    file, byte = os.open(pipe, os.O_RDWR), ctypes.create_string_buffer(1)
    for turn in range(3):
        subject.fill(turn)
        time.sleep(LATE if comm.rank else 0)
        subject.request.Start()
        if comm.rank == 0:
            assert ctypes.PyDLL(None).read(file, byte, 1) == 1
        got = subject.request.Wait()
        if comm.rank == 1:
            os.write(file, b"x")
        subject.check(turn, got)
    os.close(file)
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder)
    subject.free()


BETWEEN = ["Barrier", "message", "Sendrecv", "long Sendrecv", "init", "empty", "Free"]


@ranks(at_least=2)
@parameters(cell=cells(*BETWEEN, keep=any_order))
def case_something_blocks_in_between(comm, cell, options):
    """Start and then a call that waits for ranks which complete their round before it."""
    subject, between = make(comm, cell, options), cell.way
    others = [make(comm, Cell("Allgather", "p2p"), options) for _ in range(4)]
    ack = np.zeros(1)
    sent = np.zeros(1 << 20 if between.startswith("long") else 1)
    into = np.empty_like(sent)
    for turn in range(4):
        subject.fill(turn)
        ahead = (comm.rank + turn) % 2 == 0

        def block(turn=turn, ahead=ahead):
            if between == "Barrier":
                comm.Barrier()
            elif between == "init":
                make(comm, Cell("Alltoall", "rma-notify"), options).free()
            elif between == "empty":
                free(empty(comm, 100))
            elif between == "Free":
                others.pop().free()
            elif between.endswith("Sendrecv"):
                comm.Sendrecv(sent, (comm.rank + 1) % comm.size, TAG, into,
                              (comm.rank - 1) % comm.size, TAG)  # fmt: skip
            elif ahead:
                for other in range(comm.size):
                    if (other + turn) % 2:
                        comm.Recv(ack, other, TAG)
            else:
                for other in range(comm.size):
                    if (other + turn) % 2 == 0:
                        comm.Send(ack, other, TAG)

        if ahead:
            subject.request.Start()
            block()
            subject.check(turn, subject.request.Wait())
        else:
            time.sleep(LATE * (turn < 2))
            subject.request.Start()
            subject.check(turn, subject.request.Wait())
            block()
    subject.free()
    while others:
        others.pop().free()


@ranks(at_least=2)
@parameters(row=["Alltoallv", "Bcast", "Allreduce"], method=["auto", "rma-notify", "p2p"])
def case_hundreds_of_late_rounds(comm, row, method, options):
    """However many rounds are late at once, all of them come to their end."""
    if method not in known(row):
        pytest.skip(f"{row} has no {method}")
    cell = Cell(row, method, Length(2048, 0), memory="slot" if row == "Alltoallv" else "plain")
    subjects = [make(comm, cell, options) for _ in range(600 // comm.size)]
    for turn in range(3):  # the second round of one slot needs what the first one gives
        for subject in subjects:
            subject.fill(turn)
        late = (comm.rank + turn) % 2
        if late:
            time.sleep(0.1)
        for subject in subjects:
            subject.request.Start()
        if not late:
            comm.Barrier()
        for subject in subjects:
            subject.check(turn, subject.request.Wait())
        if late:
            comm.Barrier()
    for subject in subjects:
        subject.free()


@ranks(at_least=2)
@parameters(cell=cells(
    *(f"{verb} beside {other}" for verb in ("Test", "Get_status", "Wait")
      for other in ("rma-fence", "rma-fence-hier", "mpi")), keep=any_order,
    rows=[*(row for row in ROWS if row != "boxes of 9 axes"), "halo", "partitioned"],
    lengths=(Length(0, 3), Length(1 << 17, 1))))  # fmt: skip
def case_looking_waits_for_no_strict_round(comm, cell, options):
    """A verb of an any-order request while a strictly ordered one is active, then a Sendrecv that
    the other ranks are in before they go on with either."""
    verb, _, other = cell.way.partition(" beside ")
    fence = make(comm, Cell("Alltoall", other), options)
    subject = make(comm, replace(cell, way=""), options)
    word = np.zeros(1)
    for turn in range(3):
        for each in (fence, subject):
            each.fill(turn)
            each.request.Start()
        if comm.rank == 0:
            if verb == "Wait":
                subject.check(turn, subject.request.Wait())
            else:
                getattr(subject.request, verb)()
            comm.Sendrecv(word, 1, TAG, word.copy(), 1, TAG)
        elif comm.rank == 1:
            comm.Sendrecv(word, 0, TAG, word.copy(), 0, TAG)
        for one in (subject, fence)[:: -1 if (comm.rank + turn) % 2 else 1]:
            got = one.request.Wait() if one.request.active else one.request.recvbuf
            one.check(turn, got)
    subject.free()
    fence.free()


# -- rounds that are filled ------------------------------------------------------------------------


def filling():
    """The methods whose rounds can be opened."""
    return [name for name in methods() if name in ("auto", "rma-notify", "rma-p2p", "p2p")
            or (name.startswith("rma-fence") and "paper" not in name)]  # fmt: skip


@ranks(at_least=2)
@parameters(method=filling, slots=["1", "2"], memory=["own", "window"])
def case_open_beside_a_long_message(comm, method, slots, memory):
    """Open waits with progress: the sender of a long message opens after it has been taken."""
    turned = Turn(comm, method, memory, cuts=2, info={"slots": slots})
    long = np.zeros(1 << 22)
    for turn in range(4):
        if comm.rank == 0:
            taken = comm.Irecv(long, 1, TAG)
        elif comm.rank == 1:
            comm.Send(long, 0, TAG)
        turned.begin(turn)
        turned.check(turn, turned.request.Wait())
        if comm.rank == 0:
            taken.Wait()
    turned.free()
