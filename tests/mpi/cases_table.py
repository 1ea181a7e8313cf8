"""The conformance table, column by column: what every collective keeps, by every method.

What a column does is legal with MPI's own persistent requests (MPI-4.1 sections 6.13, 7.13 and
11.5): Wait may wait for the starts of the other ranks, and for nothing else.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cases import parameters, ranks
from filled_data import Turn
from mpi4py import MPI
from table import (
    BOXES,
    OPERATIONS,
    REDUCTIONS,
    ROWS,
    Cell,
    Length,
    any_order,
    cells,
    data_cells,
    make,
    strict,
    thresholds,
)

from onesided import collectives
from onesided.collectives import (
    OnesidedError,
    Precv_init,
    Psend_init,
    RequestError,
    Startall,
    Testall,
    Testany,
    Testsome,
    Waitall,
    Waitany,
    Waitsome,
    empty,
    free,
    methods,
    partitioned_methods,
)  # fmt: skip

TAG = 7
LATE = 0.01  # seconds, more than a time slice


# -- data -----------------------------------------------------------------------------------------


@parameters(cell=data_cells)
def case_data(comm, cell, options):
    """Right data in three rounds, and nothing else is written."""
    subject = make(comm, cell, options)
    for turn in range(3):
        subject.round(turn)
    subject.free()


# -- completion -----------------------------------------------------------------------------------


def finished(request, verb):
    """One look at a request by one of the verbs."""
    if verb == "Test":
        return request.Test()
    if verb == "Testall":
        return Testall([request])
    if verb == "Testany":
        return Testany([request])[1]
    if verb == "Testsome":
        return bool(Testsome([request]))
    return request.Get_status() and request.Test()


@parameters(cell=cells("Test", "Testall", "Testany", "Testsome", "Get_status"))
def case_polls(comm, cell, options):
    """A round ends by looking at it, whatever the verb, for strictly ordered ones, too."""
    subject = make(comm, cell, options)
    for turn in range(2):
        subject.fill(turn)
        subject.request.Start()
        while not finished(subject.request, cell.way):
            pass
        subject.check(turn, subject.request.recvbuf)
        assert not subject.request.active
    subject.free()


@parameters(cell=cells(
    "Waitall", "Waitany", "Waitsome", keep=any_order, lengths=(Length(0, 3), Length(1 << 17, 1))))
def case_mixed_with_requests_of_mpi4py(comm, cell, options):
    """All of one list end, whichever verb waits for them."""
    subject = make(comm, cell, options)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    verb = {"Waitall": Waitall, "Waitany": Waitany, "Waitsome": Waitsome}[cell.way]
    for turn in range(3):
        subject.fill(turn)
        sent, come = np.full(3, turn), np.zeros(3, int)
        theirs = [comm.Irecv(come, left, TAG), comm.Isend(sent, right, TAG)]
        own = subject.request
        Startall([own])
        requests = [theirs[0], own, theirs[1]]
        if verb is Waitall:
            verb(requests)
        else:
            for _ in range(100):
                if not own.active and all(r == MPI.REQUEST_NULL for r in requests if r is not own):
                    break
                verb(requests)
        subject.check(turn, own.recvbuf)
        assert come.tolist() == [turn] * 3
    subject.free()


@parameters(cell=cells("", lengths=(Length(0, 3), Length(1 << 15, 1))))
def case_life(comm, cell, options):
    """States and what they refuse; what is refused does no harm."""
    make(comm, cell, options).free()  # never started
    subject = make(comm, cell, options)
    request = subject.request
    assert not request.active
    request.Wait()
    assert request.Test() is True
    subject.fill(1)
    request.Start()
    assert request.active
    with pytest.raises(RequestError, match="active request cannot be started"):
        request.Start()
    with pytest.raises(RequestError, match=r"nothing has been started|active|twice"):
        Startall([request, request])
    with pytest.raises(RequestError, match="active request cannot be freed"):
        request.Free()  # on all ranks
    with pytest.raises(RequestError, match="cancel"):
        request.Cancel()
    status = MPI.Status()
    subject.check(1, request.Wait(status))
    assert status.Get_error() == MPI.SUCCESS
    assert not status.Is_cancelled()
    subject.round(2)
    subject.free()
    request.Free()
    for verb in (request.Start, request.Wait, request.Test, request.Get_status):
        with pytest.raises(RequestError, match="freed request"):
            verb()


@parameters(cell=cells("", memory=("none", "slot")))
def case_memory_outlives_the_request(comm, cell, options):
    """What Wait returned stays as long as somebody looks at it."""
    subject = make(comm, cell, options)
    subject.fill(1)
    subject.request.Start()
    got = subject.request.Wait()
    kept = None if got is None else np.array(got, copy=True).tobytes()
    subject.request.Free()
    gc.collect()
    make_room = [empty(comm, 1 << 12) for _ in range(3)]
    for array in make_room:
        array[:] = 1e300
    if got is not None:
        assert np.array(got, copy=True).tobytes() == kept
    del array
    while make_room:
        free(make_room.pop())
    subject.give_back()


# -- order and progress ---------------------------------------------------------------------------


@parameters(cell=cells("", keep=any_order))
def case_any_order_of_starts_and_waits(comm, cell, seed, options):
    """Every rank starts and completes its requests in an order of its own."""
    subjects = [make(comm, cell, options) for _ in range(3)]
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


@ranks(at_least=2)
@parameters(cell=cells("", keep=strict))
def case_strictly_ordered_waits_in_any_order(comm, cell, options):
    """Starts in one order on a communicator; a Wait out of order completes the earlier rounds."""
    first = make(comm, cell, options)
    subjects = [first, *(make(comm, cell, options, first) for _ in range(2))]
    for turn in range(3):
        for subject in subjects:
            subject.fill(turn)
            subject.request.Start()
        for subject in subjects[:: -1 if (comm.rank + turn) % 2 else 1]:
            subject.check(turn, subject.request.Wait())
    for subject in subjects[::-1]:
        subject.free()


@ranks(at_least=2)
@parameters(cell=cells("late rank", "slow reader", "fast sender"))
def case_late_and_slow(comm, cell, options):
    """A rank comes late, another in each round, or keeps what it has got for a while."""
    subject, how = make(comm, cell, options), cell.way
    for turn in range(40 if how == "fast sender" else 6):
        odd = turn % comm.size == comm.rank
        subject.fill(turn)
        if how == "late rank" and odd:
            time.sleep(LATE)
        elif how == "fast sender" and comm.rank == comm.size - 1:
            time.sleep(2e-4)
        subject.request.Start()
        got = subject.request.Wait()
        if how == "slow reader" and odd:
            time.sleep(LATE)
        subject.check(turn, got)
    subject.free()


BETWEEN = ["Barrier", "message", "Sendrecv", "init", "empty", "Free"]


@ranks(at_least=2)
@parameters(cell=cells(*BETWEEN, keep=any_order))
def case_something_blocks_in_between(comm, cell, options):
    """Start and then a call that waits for ranks which complete their round before it."""
    subject, between = make(comm, cell, options), cell.way
    others = [make(comm, Cell("Allgather", "p2p"), options) for _ in range(4)]
    ack = np.zeros(1)
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
            elif between == "Sendrecv":
                comm.Sendrecv(ack.copy(), (comm.rank + 1) % comm.size, TAG, ack,
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
def case_three_hundred_late_rounds(comm, row, method, options):
    """However many rounds are late at once, all of them come to their end."""
    if method not in methods("broadcast" if row == "Bcast" else "exchange"):
        pytest.skip(f"{row} has no {method}")
    kind = methods("reduction" if row == "Allreduce" else "exchange")
    if row == "Allreduce" and method not in kind:
        pytest.skip(f"{row} has no {method}")
    cell = Cell(row, method, Length(2048, 0), memory="slot" if row == "Alltoallv" else "plain")
    subjects = [make(comm, cell, options) for _ in range(300)]
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
    "Test", "Get_status", keep=any_order,
    rows=["Alltoallv", "Allgather", "Bcast", "Allreduce", "boxes"],
    lengths=(Length(0, 3), Length(1 << 17, 1))))  # fmt: skip
def case_looking_waits_for_no_strict_round(comm, cell, options):
    """Test of an any-order request while a strictly ordered one is active, beside a Sendrecv."""
    fence = make(comm, Cell("Alltoall", "rma-fence"), options)
    subject = make(comm, cell, options)
    for turn in range(3):
        for each in (fence, subject):
            each.fill(turn)
            each.request.Start()
        if comm.rank == 0:
            getattr(subject.request, cell.way)()
            comm.Send(np.zeros(1), 1, TAG)
        elif comm.rank == 1:
            comm.Recv(np.zeros(1), 0, TAG)
        each = (subject, fence)
        for one in each[:: -1 if (comm.rank + turn) % 2 else 1]:
            one.check(turn, one.request.Wait())
    subject.free()
    fence.free()


# -- what goes wrong ------------------------------------------------------------------------------


def agreed(comm, call, kind=OnesidedError):
    """The call raises this kind of error, with the same words on every rank."""
    text = ""
    try:
        call()
    except kind as error:
        text = f"{type(error).__name__}: {error}"
    texts = comm.allgather(text)
    assert texts[0], f"nothing was raised on some rank: {texts}"
    assert len(set(texts)) == 1, texts


@ranks(at_least=2)
@parameters(cell=cells(
    "count", "type", "method", "root", lengths=(Length(0, 3),),
    rows=[row for row in ROWS if row != "Barrier"],
    memory=("plain",)))  # fmt: skip
def case_one_rank_is_mistaken(comm, cell, options):
    """Initialization raises on all ranks alike, and the next one works."""
    last, wrong = comm.rank == comm.size - 1, cell.way
    if comm.size == 2:
        cell = replace(cell, root=0)  # the first rank has empty blocks, and the mistake no partner
    mistaken = {
        "count": {"length": Length(0, 6)},
        "type": {"kind": "c16", "length": Length(16 * 3, 0)},
        "method": {"method": "p2p" if cell.method != "p2p" else "rma-notify"},
        "root": {"root": 1 - min(cell.root, 1)},
    }[wrong]
    if wrong == "root" and cell.row not in ("Gather", "Gatherv", "Scatter", "Scatterv", "Bcast",
                                            "Reduce"):  # fmt: skip
        pytest.skip("no root")
    if wrong == "method" and mistaken["method"] not in methods(
            "reduction" if cell.row in REDUCTIONS else
            "broadcast" if cell.row == "Bcast" else "exchange"):  # fmt: skip
        pytest.skip("no other method")
    if cell.row in BOXES and wrong == "count":
        pytest.skip("boxes say how many")
    other = replace(cell, **mistaken) if last else cell
    agreed(comm, lambda: make(comm, other, options))
    subject = make(comm, cell, options)
    subject.round(1)
    subject.free()


class Injected(Exception):
    """What an unlucky program raises."""


def raising_at(number, call):
    """Call, with an exception at the n-th Python function of the package that it enters."""
    left = [number]

    def look(frame, event, argument):
        if event == "call" and "onesided" in frame.f_globals.get("__name__", ""):
            left[0] -= 1
            if left[0] < 0:
                sys.setprofile(None)
                raise Injected

    sys.setprofile(look)
    try:
        return call()
    finally:
        sys.setprofile(None)


AT = [f"{verb} {number}" for verb in ("Start", "Wait") for number in (0, 1, 2, 3, 5, 8)]


@parameters(cell=cells(
    *AT, lengths=(Length(0, 3), Length(1 << 17, 1)),
    rows=["Alltoallv", "Alltoallw", "Allgather", "Bcast", "Allreduce", "Scan", "boxes"],
))  # fmt: skip
def case_an_exception_at_every_hook(comm, cell, options):
    """On all ranks: the round has not begun, or is whole, or the request is broken and says so."""
    subject = make(comm, cell, options)
    request = subject.request
    verb, number = cell.way.split()[0], int(cell.way.split()[1])
    subject.round(0)
    subject.fill(1)
    raised = False
    try:
        if verb == "Start":
            raising_at(number, request.Start)
        else:
            request.Start()
            raising_at(number, request.Wait)
    except Injected:
        raised = True
    except RequestError as error:
        raised = True
        assert isinstance(error.__cause__, Injected), error
    states = comm.allgather((raised, request.state))
    if not any(raised for raised, _ in states):
        if request.active:
            request.Wait()
        subject.check(1, request.recvbuf)
        subject.round(2)
        subject.free()
    elif all(state == "inactive" for _, state in states):
        subject.round(2)
        subject.free()
    elif any(state == "broken" for _, state in states):
        if request.state == "broken":
            with pytest.raises(RequestError, match="broken"):
                request.Wait()
        subject.free()  # the round is given up on all ranks
    elif all(state == "active" for _, state in states):
        subject.check(1, request.Wait())
        subject.free()
    else:
        with pytest.raises(RequestError):  # it can be completed
            request.Free()


def withdrawn(cell):
    """What MPI itself has started cannot be withdrawn."""
    return any_order(cell) and cell.method not in ("mpi-persistent", "auto")


@ranks(at_least=2)
@parameters(cell=cells("", keep=withdrawn, lengths=(Length(0, 3), Length(1 << 17, 1))))
def case_an_interrupt_in_wait(comm, cell, options):
    """Ctrl-C while a rank waits for one that does not come: broken, freed, and the next works."""
    subject = make(comm, cell, options)
    subject.round(0)
    subject.fill(1)
    earlier = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    try:
        if comm.rank == 0:
            subject.request.Start()
            comm.Barrier()
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR2))
            timer.start()
            try:
                subject.request.Wait()
                time.sleep(0.2)
            except KeyboardInterrupt:
                pass
            timer.join()
        else:
            comm.Barrier()
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGUSR2, earlier)
    states = comm.allgather(subject.request.state)
    assert set(states[1:]) == {"inactive"}
    # who needs nobody has completed its round; on a busy machine Wait had not begun
    assert states[0] in ("broken", "inactive", "active")
    if subject.request.state == "broken":
        with pytest.raises(RequestError, match="broken"):
            subject.request.Wait()
    if states[0] != "broken":
        if comm.rank:
            subject.request.Start()
        if comm.rank or states[0] == "active":
            subject.check(1, subject.request.Wait())
        subject.round(2)
    subject.free()
    other = make(comm, cell, options)
    other.round(3)
    other.free()


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


@parameters(method=filling, number=[0, 1, 2, 3, 5, 8], verb=["first Open", "Open", "Ready", "code"])
def case_an_exception_in_a_round_that_is_filled(comm, method, number, verb):
    """On all ranks, in a verb or in the caller's own code: the request can be freed, or goes on."""
    turned = Turn(comm, method, "window", cuts=2)
    request, raised = turned.request, False
    if verb != "first Open":
        turned.begin(0)
        turned.check(0, request.Wait())
    try:
        if "Open" in verb:
            opened = raising_at(number, request.Open)
        else:
            opened = request.Open()
        if opened and verb == "Ready":
            raising_at(number, lambda: request.Ready(0))
    except Injected:
        raised, opened = True, False
    states = comm.allgather((raised, opened, request.state))
    again = all(state == "inactive" for _, _, state in states)
    if again:
        for turn in range(1, 4):
            turned.begin(turn)
            turned.check(turn, request.Wait())
    turned.free()  # of what is broken or has been given up, too
    after = Turn(comm, method, "window", cuts=2)
    for turn in range(3):
        after.begin(turn)
        after.check(turn, after.request.Wait())
    after.free()


# -- partitioned sends ----------------------------------------------------------------------------


@ranks(at_least=2)
@parameters(method=lambda: [name for name in partitioned_methods() if name != "mpi"],
            aggregate=[0, 64], count=[8, 768])  # fmt: skip
def case_marks_while_both_are_elsewhere(comm, method, aggregate, count):
    """More groups than a board holds leave while the sender is in a plain receive; the receiver is
    made after the sender has started."""
    source, target, word = np.zeros(4 * count), empty(comm, 4 * count), np.zeros(1)
    request = None
    for turn in range(3):
        if comm.rank == 0:
            if request is None:
                request = Psend_init(comm, source, count, 1, method=method, aggregate=aggregate)
            source[:] = np.arange(4 * count) + turn
            request.Start()
            comm.Send(word, 1, TAG)
            comm.Recv(word, 1, TAG)
            for part in (*range(0, count, 2), *range(1, count, 2)):
                request.Pready(part)
            comm.Recv(word, 1, TAG)
            request.Wait()
        elif comm.rank == 1:
            comm.Recv(word, 0, TAG)
            if request is None:
                request = Precv_init(comm, target, 4, 0, method=method)
            request.Start()
            comm.Send(word, 0, TAG)
            time.sleep(LATE)
            request.Wait()
            assert np.array_equal(target, np.arange(4 * count) + turn)
            comm.Send(word, 0, TAG)
    if request is not None:
        request.Free()
    comm.Barrier()
    free(target)


# -- the table itself ------------------------------------------------------------------------------


def case_rows_are_all_the_collectives(comm):
    names = {name[:-5] for name in dir(collectives) if name.endswith("_init")}
    rows = {row for row in (*OPERATIONS, *REDUCTIONS, "Barrier")}
    assert names - {"Psend", "Precv"} == rows
    assert len(rows) == 22


def case_every_threshold_is_crossed(comm):
    """Each number of bytes that the code names has cells below it, at it and above it."""
    job = SimpleNamespace(ranks=2, name="full")
    crossed = {(cell.length.nbytes, cell.length.more) for cell in data_cells.__wrapped__(job)}
    assert thresholds(), "the code names no threshold"
    for name, at in thresholds().items():
        assert {(at, more) for more in (-1, 0, 1)} <= crossed, f"{name} = {at}"

