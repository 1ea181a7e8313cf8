"""The conformance table, column by column: data, completion, life and memory of every row.

What a column does is legal with MPI's own persistent requests (MPI-4.1 sections 6.13, 7.13 and
11.5): Wait may wait for the starts of the other ranks, and for nothing else. Columns about order
and progress are in ``cases_table_order``, those about what goes wrong in ``cases_table_failures``.
"""

from __future__ import annotations

import atexit
import gc
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cases import parameters, ranks, skip
from columns import TAG, VERBS, looked, made, together
from mpi4py import MPI
from subjects import Exchanged, make
from table import (
    BOXES,
    EXCHANGES,
    OTHERS,
    REDUCTIONS,
    ROWS,
    Length,
    allowed,
    any_order,
    cells,
    data_cells,
    known,
    thresholds,
)

from onesided import collectives
from onesided.collectives import (
    OnesidedError,
    RequestError,
    Startall,
    Testall,
    Testany,
    Testsome,
    Waitall,
    Waitany,
    Waitsome,
    empty,
    exchange,
    free,
    methods,
)
from onesided.collectives.errors import _abort
from onesided.collectives.tuning import race

SHORT = (Length(0, 3), Length(1 << 15, 1))

# -- data -----------------------------------------------------------------------------------------


@parameters(cell=data_cells)
def case_data(comm, cell, options):
    """Right data in three rounds, and nothing else is written."""
    subject = made(comm, cell, options)
    for turn in range(3 if subject else 0):
        subject.round(turn)
    if subject:
        subject.free()


@parameters(cell=cells("", rows=["Bcast"], lengths=(Length(123_457, 1),)))
def case_a_broadcast_in_many_segments(comm, cell, options):
    subject = make(comm, replace(cell, said=(("segment_bytes", "1000"),)), options)
    for turn in range(3):
        subject.round(turn)
    subject.free()


#: What may be said to ``auto`` beside: nothing may be measured, nothing is worth it.
SAID = {"measure": (), "estimate": (("effort", "estimate"),),
        "once": (("expected_iterations", "1"),)}  # fmt: skip


@ranks(at_least=2)
@parameters(cell=cells(*SAID, rows=ROWS, keep=lambda cell: cell.method == "auto", lengths=tuple(
    Length(at, more, whole) for at in (1 << 14, 1 << 15) for more in (-1, 0, 1)
    for whole in (False, True))))  # fmt: skip
def case_auto_takes_one_method(comm, cell, options):
    """The same on all ranks, whatever each receives into, around the lengths that it looks at."""
    subject = make(comm, replace(cell, said=SAID[cell.way]), options)
    assert len(set(comm.allgather(subject.request.method))) == 1
    for turn in range(2):
        subject.round(turn)
    subject.free()


# -- completion -----------------------------------------------------------------------------------


@parameters(cell=cells(*VERBS))
def case_polls(comm, cell, options):
    """A round ends by looking at it, whatever the verb, for strictly ordered ones, too."""
    subject = made(comm, cell, options)
    if subject is None:
        return
    for turn in range(2):
        subject.fill(turn)
        subject.request.Start()
        while not looked(subject, cell.way):
            pass
        subject.check(turn, subject.request.recvbuf)
        assert not subject.request.active
    subject.free()


@parameters(cell=cells("Waitall", "Waitany", "Waitsome", "Testall", "Testany", "Testsome",
                       keep=any_order,
                       lengths=(Length(0, 3), Length(1 << 17, 1))))  # fmt: skip
def case_mixed_with_requests_of_mpi4py(comm, cell, options):
    """All of one list end, whichever verb completes them."""
    subject = make(comm, cell, options)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    verb = {"Waitall": Waitall, "Waitany": Waitany, "Waitsome": Waitsome, "Testall": Testall,
            "Testany": Testany, "Testsome": Testsome}[cell.way]  # fmt: skip
    sent, come = np.zeros(3, int), np.zeros(3, int)
    idle = comm.Send_init(sent, right, TAG + 1)
    own = subject.requests
    for turn in range(3):
        subject.fill(turn)
        sent[:] = turn
        theirs = [comm.Irecv(come, left, TAG), comm.Isend(sent, right, TAG)]
        if cell.row == "partitioned":
            subject.request.Start()
        else:
            Startall(own)
        requests = [theirs[0], idle, *own, MPI.REQUEST_NULL, theirs[1]]
        seen = []
        while True:
            found = verb(requests)
            if cell.way == "Waitall" or found is True:
                break
            if found in (None, MPI.UNDEFINED, (MPI.UNDEFINED, True)):
                break
            if found is False or found in ([], (MPI.UNDEFINED, False)):
                continue
            found = found[0] if isinstance(found, tuple) else found
            seen += [found] if isinstance(found, int) else found
        every = [0, *range(2, 2 + len(own)), 3 + len(own)]
        assert sorted(seen) == ([] if cell.way.endswith("all") else every)
        assert not any(request.active for request in own)
        subject.check(turn, subject.request.recvbuf)
        assert come.tolist() == [turn] * 3
    idle.Free()
    subject.free()


@parameters(cell=cells("", keep=any_order, lengths=(Length(0, 3),)))
def case_lists_without_an_active_request(comm, cell, options):
    subject = make(comm, cell, options)
    subject.round(0)
    idle = comm.Send_init(np.zeros(1), MPI.PROC_NULL)
    own = subject.requests
    for requests in ([], own, [idle], [MPI.REQUEST_NULL, *own, idle]):
        assert Waitany(requests) == MPI.UNDEFINED
        assert Waitsome(requests) is None
        assert Testany(requests) == (MPI.UNDEFINED, True)
        assert Testsome(requests) is None
        assert Testall(requests) is True
        assert len(Waitall(requests)) == len(requests)
    idle.Free()
    subject.round(1)
    subject.free()


# -- life -----------------------------------------------------------------------------------------


@parameters(cell=cells("", rows=[*ROWS, "halo", "grid"], lengths=SHORT))
def case_life(comm, cell, options):
    """States and what they refuse; what is refused does no harm."""
    make(comm, cell, options).free()  # never started
    subject = make(comm, cell, options)
    request, noun = subject.request, subject.request.noun
    assert not request.active
    assert request.setup_time > 0
    request.Wait()
    assert request.Test() is True
    assert request.Get_status() is True
    subject.fill(1)
    request.Start()
    assert request.active
    with pytest.raises(RequestError, match=f"active {noun} cannot be started"):
        request.Start()
    with pytest.raises(RequestError, match="occurs twice in Startall"):
        Startall([request, request])
    with pytest.raises(RequestError, match="nothing has been started"):
        Startall([request])
    with pytest.raises(RequestError, match=f"active {noun} cannot be freed"):
        request.Free()  # on all ranks
    with pytest.raises(RequestError, match="cancel"):
        request.Cancel()
    status = MPI.Status()
    subject.check(1, request.Wait(status))
    assert status.Get_error() == MPI.SUCCESS
    assert not status.Is_cancelled()
    with request:
        subject.round(2)
    subject.free()
    for verb in (request.Start, request.Wait, request.Test, request.Get_status):
        with pytest.raises(RequestError, match=f"freed {noun}"):
            verb()


@parameters(cell=cells("", rows=ROWS, memory=("none", "slot", "plain", "window")))
def case_memory_outlives_the_request(comm, cell, options):
    """What Wait returned stays as long as somebody looks at it; two slots are used in turn."""
    subject = make(comm, cell, options)
    seen = []
    for turn in range(4):
        subject.fill(turn)
        subject.request.Start()
        got = subject.request.Wait()
        seen.append(got.ctypes.data if isinstance(got, np.ndarray) and got.size else 0)
    if isinstance(subject, Exchanged) and subject.owns and seen[0]:
        assert seen[2:] == seen[:2]
        assert (seen[0] == seen[1]) == (cell.memory == "slot")
    kept = None if got is None else np.array(got, copy=True).tobytes()
    subject.request.Free()
    gc.collect()
    make_room = [empty(comm, 1 << 12) for _ in range(3)]
    for array in make_room:
        array[:] = 1e300
    if got is not None and cell.memory in ("none", "slot"):
        assert np.array(got, copy=True).tobytes() == kept
    array = got = None
    while make_room:
        free(make_room.pop())
    subject.give_back()


@parameters(cell=cells(
    "none", "plain", "window", rows=[*EXCHANGES, *REDUCTIONS, *BOXES], lengths=SHORT,
    keep=lambda cell: not cell.method.startswith("rma-fence")))  # fmt: skip
def case_another_like_it(comm, cell, options):
    """The same pattern on other buffers: nobody is asked again, and nothing is measured."""
    first = make(comm, cell, options)
    memory = {"row": cell.row, "method": cell.method, "memory": cell.way}
    other = replace(cell, memory=cell.way if allowed(memory) else cell.memory, way="")

    def fail(*words, **names):
        raise AssertionError("matched or measured again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "told", fail)
        patch.setattr(race.Race, "run", fail)
        second = make(comm, other, options, first, like=True)
    assert second.request.method == first.request.method
    for turn in range(3):
        for subject in (first, second):
            subject.fill(turn)
            subject.request.Start()
        for subject in (first, second):
            subject.check(turn, subject.request.Wait())
            subject.scribble()
    first.request.Free()
    second.round(4)
    second.free()
    first.give_back()


@ranks(at_least=2)
@parameters(cell=cells("", rows=[*ROWS, "halo"], lengths=SHORT))
def case_communicators_that_overlap(comm, cell, options):
    """Rounds on several communicators at a time, and when these are gone."""
    low = comm.Split(0 if comm.rank < comm.size - 1 else 1, comm.rank)
    high = comm.Split(0 if comm.rank > 0 else 1, -comm.rank)
    subjects = [make(part, replace(cell, root=min(cell.root, part.size - 1)), options)
                for part in (low, high, comm)]  # fmt: skip
    for turn in range(3):
        for subject in subjects:
            subject.fill(turn)
            subject.request.Start()
        for subject in subjects[::-1]:
            subject.check(turn, subject.request.Wait())
    for part, subject in zip((low, high), subjects, strict=False):
        part.Free()
        subject.round(5)
        subject.free()
    subjects[2].free()


# -- threads and processes ------------------------------------------------------------------------


@parameters(cell=cells("each", "handed over", "both wait", rows=[*ROWS, "halo", "grid"],
                       lengths=SHORT))  # fmt: skip
def case_threads(comm, cell, options):
    """A request per thread; started in one and completed in another; two that wait for one."""
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        skip("this MPI does not allow several threads")
    if cell.way == "each":
        parts = [comm if cell.any_order else comm.Dup() for _ in range(3)]
        subjects = [make(part, cell, options) for part in parts]

        def work(subject):
            for turn in range(8):
                subject.round(turn)

        together(*[lambda subject=subject: work(subject) for subject in subjects])
        for part, subject in zip(parts, subjects, strict=True):
            subject.free()
            if part is not comm:
                part.Free()
        return
    subject = make(comm, cell, options)
    for turn in range(5):
        subject.fill(turn)
        together(subject.request.Start)
        together(*[subject.request.Wait] * (2 if cell.way == "both wait" else 1))
        subject.check(turn, subject.request.recvbuf)
    subject.free()


def forked(comm, requests):
    """In a child no verb of a request waits for anybody or touches MPI."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            code = refused_in_child(comm, requests)
            atexit._run_exitfuncs()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    codes = comm.allgather(os.waitstatus_to_exitcode(status))
    assert codes == [5] * comm.size, codes


def refused_in_child(comm, requests):
    """5 where all is refused."""
    for request in requests:
        for verb in ("Start", "Wait", "Test", "Get_status", "Open", "Release", "Free"):
            try:
                getattr(request, verb, request.Start)()
            except OnesidedError:
                continue
            return 6
        for verb, *given in (("Ready", 0), ("Pready", 0), ("Pready_range", 0, 0),
                             ("Pready_list", [0])):  # fmt: skip
            try:
                getattr(request, verb, lambda *_, request=request: request.Start())(*given)
            except OnesidedError:
                continue
            return 4
        if request.advance(2):
            return 7
    _abort()  # what abort_on_exception() calls: the job is the parent's
    try:
        empty(comm, 1)
    except OnesidedError:
        return 5
    return 8


@parameters(cell=cells("inactive", "active", lengths=SHORT))
def case_a_forked_child(comm, cell, options):
    """MPI belongs to the parent: the child is refused everything, and the parent goes on."""
    subject = make(comm, cell, options)
    subject.round(0)
    subject.fill(1)
    if cell.way == "active" and (comm.rank == 0 or not cell.any_order):
        Startall(subject.requests)
    forked(comm, subject.requests)
    if not subject.request.active:
        subject.request.Start()
    elif cell.row == "partitioned":
        subject.request.mark()
    subject.check(1, subject.request.Wait())
    subject.round(2)
    subject.free()


# -- the table itself ------------------------------------------------------------------------------


@ranks(at_most=1)
def case_rows_are_all_the_collectives(comm):
    names = {name[:-5] for name in dir(collectives) if name.endswith("_init")}
    rows = {row for row in ROWS if row not in BOXES and " " not in row}
    assert names - {"Psend", "Precv"} == rows
    assert len(rows) == 22
    for kind in ("exchange", "broadcast", "reduction"):
        for name, method in methods(kind).items():
            assert method.name == name
            assert method.summary
            assert callable(method.load())
    assert all(known(row) for row in (*ROWS, *OTHERS))


@ranks(at_most=1)
def case_every_threshold_is_crossed(comm):
    """Each number of bytes that the code names has cells below it, at it and above it."""
    job = SimpleNamespace(ranks=2, name="full")
    found = data_cells.__wrapped__(job)
    crossed = {(cell.length.nbytes, cell.length.more) for cell in found if cell.row in ROWS}
    assert thresholds(), "the code names no threshold"
    for name, at in thresholds().items():
        assert {(at, more) for more in (-1, 0, 1)} <= crossed, f"{name} = {at}"
    assert {cell.row for cell in found} == {*ROWS, *OTHERS}
