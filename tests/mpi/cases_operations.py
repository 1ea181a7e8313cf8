"""Every operation by every method: data, memory, types with holes, in place; and mistakes."""

from __future__ import annotations

import itertools
import threading

import numpy as np
from cases import parameters, ranks
from mpi4py import MPI
from operations import OPERATIONS, SOME, Trial, everything, variants

from onesided.collectives import (
    MismatchError,
    OnesidedError,
    PatternError,
    RequestError,
    Startall,
    Testall,
    UnsupportedError,
    Waitall,
    Waitany,
    methods,
)


@parameters(what=everything)
def case_data(comm, what, options):
    name, method = what.split(" by ")
    operation = OPERATIONS[name]
    info = {"ranks_per_node": options["ranks_per_node"]} if "ranks_per_node" in options else None
    for number, kind in enumerate(variants(operation, comm.size, len(method))):
        trial = Trial(comm, operation, method, info=info, **kind)
        for turn in range(3):
            try:
                trial.round(turn + number)
            except AssertionError as error:
                raise AssertionError(f"{kind}: {error}") from error
        trial.free()


@ranks(at_least=2)
@parameters(operation=["Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Alltoallw"],
            method=lambda: list(methods()), placed=SOME, holes=SOME)
def case_in_place_and_with_holes_on_some_ranks(comm, operation, method, placed, holes):
    """Each rank as it likes; MPI's own collectives want MPI.IN_PLACE on all ranks or on none."""
    row, mixed = OPERATIONS[operation], placed.startswith("on ")
    given = {"in_place": SOME[placed](comm), "holes": SOME[holes](comm)}
    if mixed and method in ("mpi", "mpi-persistent"):
        agreed(comm, UnsupportedError, lambda: Trial(comm, row, method, **given), "IN_PLACE")
        return
    trial = Trial(comm, row, method, **given)
    for turn in range(2):
        trial.round(turn)
    trial.free()


def any_order(family):
    return [name for name, method in methods(family).items() if method.any_order]


@parameters(operation=["Allgatherv", "Alltoall", "Scatterv", "Bcast"], holes=[False, True])
def case_whatever_completes_a_round(comm, operation, holes):
    """Data are where they belong after each of the verbs, in place and unpacked."""
    row = OPERATIONS[operation]
    names = any_order(row.family)
    trials = [Trial(comm, row, method, holes=holes, in_place=number % 2 == 0)
              for number, method in enumerate(names)]  # fmt: skip
    requests = [trial.request for trial in trials]

    def by_waitany():
        while Waitany(requests) != MPI.UNDEFINED:
            pass

    def by_test():
        while not all([request.Test() for request in requests]):
            pass

    def by_testall():
        while not Testall(requests):
            pass

    def after_a_barrier():
        comm.Barrier()
        Waitall(requests)

    def by_another_thread():
        waiter = threading.Thread(target=Waitall, args=(requests,))
        waiter.start()
        waiter.join()

    ways = [by_waitany, by_test, by_testall, after_a_barrier, lambda: Waitall(requests)]
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        ways.append(by_another_thread)
    for turn, complete in enumerate(ways):
        for trial in trials:
            trial.fill(turn)
        Startall(requests[::-1] if comm.rank % 2 else requests)
        complete()
        for trial in trials:
            trial.check(turn, trial.request.recvbuf)
            trial.scribble()
    for trial in trials:
        trial.free()


@parameters(operation=["Alltoallv", "Allgather"])
def case_in_place_is_not_opened_nor_given_up(comm, operation):
    """What Start reads may be in the receive memory: peers do not write there earlier."""
    trial = Trial(comm, OPERATIONS[operation], "rma-notify", "window", in_place=True)
    for turn in range(4):
        trial.fill(turn)
        if operation == "Alltoallv":
            trial.request.Release()
            assert trial.request.Open() is False
            assert not trial.request.direct
        trial.request.Start()
        trial.check(turn, trial.request.Wait())
    trial.free()


@parameters(operation=["Alltoall", "Allgather"])
def case_a_broken_round_leaves_the_buffer_alone(comm, operation):
    """What could not be packed is no round; what was interrupted is never unpacked."""
    trial = Trial(comm, OPERATIONS[operation], "p2p", holes=True)
    trial.round(1)
    request = trial.request
    pack = request._before

    def interrupted(*_):
        raise KeyboardInterrupt

    request._before = interrupted
    try:
        request.Start()
    except KeyboardInterrupt:
        assert request.state == "inactive"
    request._before = pack
    trial.round(2)
    request._after = interrupted
    trial.fill(3)
    request.Start()
    try:
        request.Wait()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    assert request.state == "broken"
    trial.free()


# -- mistakes ------------------------------------------------------------------------------------


def agreed(comm, kind, call, *words):
    """The call must raise this kind with these words, the same text on every rank."""
    text = None
    try:
        call()
    except kind as error:
        text = str(error)
    texts = comm.allgather(text)
    assert None not in texts, f"raised on {sum(t is not None for t in texts)} ranks only: {texts}"
    assert len(set(texts)) == 1, texts
    for word in words:
        assert word in texts[0], f"{word!r} is not in {texts[0]!r}"


MOVING = [name for name, operation in OPERATIONS.items() if operation.family == "exchange"]


@ranks(at_least=2)
@parameters(operation=MOVING, wrong=["count", "type"])
def case_counts_and_types_that_do_not_match(comm, operation, wrong):
    """One rank sends what nobody expects."""
    row = OPERATIONS[operation]
    rank, size = comm.rank, comm.size
    odd = 0 if row.rooted and row.sends(1, size, 0) is None else size - 1
    graph = comm
    if row.on_graph:
        trial = Trial(comm, row, "p2p")
        graph = trial.comm
    sends, receives = row.sends(rank, size, 0), row.receives(rank, size, 0)

    def spec(counts, form, extra, kind):
        if counts is None:
            return None
        counts = [2 + extra for _ in counts]
        data = np.zeros(sum(counts) + 1, kind)
        if form == "types":
            displs = [data.itemsize * sum(counts[:i]) for i in range(len(counts))]
            return [data, counts, displs, [MPI.Datatype.fromcode(data.dtype.char)] * len(counts)]
        return [data, counts if form == "vector" else counts[0] if counts else 0]

    many, kind = (1, "f8") if wrong == "count" else (0, "f4")
    mistaken = rank == odd
    send = spec(sends, row.forms[0], many * mistaken, kind if mistaken else "f8")
    recv = spec(receives, row.forms[1], 0, "f8")
    words = ["sends 3 elements", "expects 2"] if wrong == "count" else ["float32", "float64"]
    for method in ("rma-notify", "mpi", "auto"):
        agreed(comm, PatternError, lambda method=method: row.init(
            graph, send, recv, 0, method=method), f"rank {odd} sends", *words)  # fmt: skip
    if row.on_graph:
        trial.free()


@ranks(at_least=2)
@parameters(operation=[name for name, row in OPERATIONS.items() if row.rooted])
def case_roots(comm, operation):
    row, size = OPERATIONS[operation], comm.size
    data = np.zeros(size)
    for wrong in (size, -1, 1.5):
        agreed(comm, PatternError, lambda wrong=wrong: row.init(comm, data, data.copy(), wrong),
               str(wrong))
    kind = OnesidedError if operation == "Bcast" else MismatchError
    agreed(comm, kind, lambda: row.init(comm, data, data.copy(), int(comm.rank == 1)), "root 0",
           "root 1")


def case_what_cannot_be_in_place(comm):
    data = np.zeros(comm.size)
    for name, row in OPERATIONS.items():
        if row.on_graph or name == "Bcast":
            continue
        pair = (MPI.IN_PLACE, None) if row.kept == "send" else (None, MPI.IN_PLACE)
        agreed(comm, OnesidedError, lambda row=row, pair=pair: row.init(comm, *pair, 0))
        for place in itertools.permutations((data, MPI.BOTTOM)):
            if name != "Alltoallw":
                agreed(comm, OnesidedError, lambda row=row, place=place: row.init(comm, *place, 0),
                       "buffer is")
    agreed(comm, RequestError, lambda: _misused(comm), "active request")


def _misused(comm):
    trial = Trial(comm, OPERATIONS["Allgather"], "p2p", in_place=True)
    trial.round(1)
    trial.request.Start()
    try:
        trial.request.Start()
    finally:
        trial.request.Wait()
        trial.free()


@parameters(method=lambda: list(methods()))
def case_a_topology_with_ends(comm, method):
    """A grid that is not periodic has no neighbor beyond its ends: those blocks stay."""
    line = comm.Create_cart([comm.size], periods=[False])
    there = [rank for rank in line.Shift(0, 1)]
    send, recv = np.array([10.0 * comm.rank, 1.0]), np.full(4, -1.0)
    row = OPERATIONS["Neighbor_allgather"]
    with row.init(line, send, recv, 0, method=method) as request:
        for turn in range(2):
            send[1] = turn
            request.Start()
            assert request.Wait() is recv
            want = [v for rank in there for v in ((-1, -1) if rank < 0 else (10 * rank, turn))]
            assert recv.tolist() == want
    line.Free()
