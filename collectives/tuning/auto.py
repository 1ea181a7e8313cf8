"""``method="auto"``: the best method for a situation: recalled, measured, or what usually wins.

The candidates are the methods that allow any order; those of strict order as well where the caller
promises it (info key ``mpi_assert_strict_persistent_collective_ordering``). What is known of the
situation is recalled; what is not is measured on memory of the same kind, the caller's is not
touched. With the info key ``expected_iterations`` = N the cost T_init + N T of each candidate
decides (the break-even rule of paper 000, equations 1 to 3), and measuring takes no more than a
twentieth of the expected time; where that is too little to measure anything, what usually wins is
taken. With ``effort=estimate`` nothing is measured: what usually wins is taken.

The choice is the same on all ranks by construction: rank 0 reads the file and tells the others,
measured numbers are those of the slowest rank, and what is decided from the same numbers is the
same. A decision is compared with what came of it: rounds of the program are timed now and then, and
a record that they contradict is measured again when it is next wanted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import ResourceError, UnsupportedError
from onesided.collectives.exchange import Exchange
from onesided.collectives.hints import ESTIMATE, MANUAL, Hints
from onesided.collectives.memory import Region
from onesided.collectives.reduction.operation import Reduction
from onesided.collectives.registry import BROADCAST, EXCHANGE, REDUCTION, Method, methods
from onesided.collectives.request import Request, build
from onesided.collectives.tuning.decisions import (
    Record,
    learn,
    machine,
    open_tuning,
    recall,
    size,
)
from onesided.collectives.tuning.race import Race

#: Most bytes that are sent to measure a broadcast; longer data behave as these do.
MOST = 1 << 24

#: Bytes that a rank receives into plain memory beyond which messages usually win on a node: one
#: copy in and one out cost more than what MPI does.
PLAIN = 1 << 14

#: By what a request may have been chosen.
MEASURED, RECALLED, USUAL = "measuring now", "what was measured before", "what usually wins"

#: By what factor production must contradict a record, and how often it may.
DOUBT, DOUBTS = 1.6, 3


def exchange(wanted: Exchange) -> Request:
    """Collective. The request of the best transport for an exchange."""
    hints = wanted.hints
    situation, far, received = _class_of_exchange(wanted)
    names = usual_order(far, wanted.recv.array is None or wanted.region is not None, received)

    def make(method: Method, of: Exchange) -> Request:
        made = replace(of, method=method.name, any_order=method.any_order)
        return build(made, method, made.buffers())

    def trial(method: Method) -> Request:
        return make(method, _scratch(wanted, wanted.context.next_tag()))

    known = methods(EXCHANGE)
    able = [
        method for method in known.values()
        if method.candidate and (method.any_order or hints.strict)
        and not (method.name == FAR_ONLY and not far)
    ]
    return _choose(wanted.context, situation, _sorted(able, names), trial,
                   lambda method: make(method, wanted), hints)


def broadcast(wanted: Broadcast) -> Request:
    """Collective. The request of the best method for a broadcast."""
    resources = Resources(wanted.context)
    scratch = _scratch_memory(wanted, resources)

    def make(method: Method, of: Broadcast) -> Request:
        made = replace(of, method=method.name, any_order=method.any_order)
        return build(made, method, made.buffers())

    def trial(method: Method) -> Request:
        number = wanted.context.next_tag()
        return make(method, wanted.elsewhere(scratch, number))

    able = [m for m in methods(BROADCAST).values() if m.candidate and m.any_order]
    names = ["rma-binomial", "rma-pipelined", "rma-linear", "mpi-persistent", "p2p"]
    try:
        return _choose(
            wanted.context, _class_of_broadcast(wanted), _sorted(able, names), trial,
            lambda method: make(method, wanted), wanted.hints,
        )  # fmt: skip
    finally:
        resources.release()


def reduction(wanted: Reduction) -> Request:
    """Collective. The request of the best method for a reduction.

    An operation of the caller's is not tried out: it might not like the data of a trial.
    """
    context, node = wanted.context, wanted.node

    def make(method: Method, of: Reduction) -> Request:
        made = replace(of, method=method.name, any_order=method.any_order)
        return build(made, method, made.buffers())

    most = context.comm.allreduce(len(node.ranks), MPI.MAX)
    able = [m for m in methods(REDUCTION).values()
            if m.candidate and (m.any_order or wanted.hints.strict)]
    names = ["rma-p2p", "p2p", "mpi-persistent", "mpi"]
    if wanted.everybody_wants_parts and wanted.nbytes >= LONG_PARTS:
        names[:2] = ["p2p", "rma-p2p"]
    able = _sorted(able, names)
    situation = (
        f"{wanted.name}: {wanted.ranks} ranks, {most} to a node; {size(wanted.nbytes)}; "
        f"{wanted.fold}"
    )
    hints = wanted.hints if wanted.fold.predefined else replace(wanted.hints, effort=ESTIMATE)
    return _choose(
        context, situation, able,
        lambda method: make(method, wanted.elsewhere(context.next_tag())),
        lambda method: make(method, wanted), hints,
    )  # fmt: skip


# -- the choice ----------------------------------------------------------------------------------


#: Bytes of a vector from which on its reduced parts usually come faster by messages, which MPI
#: copies from one process to the other.
LONG_PARTS = 1 << 15

#: The same as rma-notify where every rank is on one node.
FAR_ONLY = "rma-p2p"


def usual_order(far: bool, window: bool, received: int) -> list[str]:
    """Local. What usually wins, first: between nodes, or on one; into memory that peers see, or so
    many bytes into plain memory."""
    if far:
        return ["rma-p2p", "p2p", "mpi-persistent", "rma-notify"]
    if window or received <= PLAIN:
        return ["rma-notify", "p2p", "mpi-persistent"]
    return ["p2p", "rma-notify", "mpi-persistent"]


def _sorted(able: Iterable[Method], names: Sequence[str]) -> list[Method]:
    """The candidates, those that usually win first."""
    place = {name: i for i, name in enumerate(names)}
    return sorted(able, key=lambda method: place.get(method.name, len(place)))


def _choose(
    context: Context,
    situation: str,
    candidates: Sequence[Method],
    trial: Callable[[Method], Request],
    make: Callable[[Method], Request],
    hints: Hints,
) -> Request:
    """Collective. The request of the best candidate for this situation.

    ``trial`` is a collective call that makes a request to be tried, on memory of its own.

    Raises :class:`UnsupportedError` where none of them works here.
    """
    by_name = {method.name: method for method in candidates}
    record: Record | None = None
    if hints.effort == ESTIMATE:
        record, by = Record({}, {}), USUAL
    else:
        record, by = recall(context.comm, situation), RECALLED
        if record is None or not record.covers(by_name):
            times = 1 if record is None else record.times + 1
            record, by = _measured(context, situation, candidates, trial, hints, times), MEASURED
    reasons = dict(record.refused)
    for name in record.ranking(by_name, hints.expected_iterations):
        try:
            request = make(by_name[name])
        except (UnsupportedError, ResourceError) as error:
            reasons[name] = str(error)
            continue
        request.chosen_by = by if name in record.costs else USUAL
        if context.comm.rank == 0:
            _compare_at_release(request, situation, record)
        return request
    words = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    raise UnsupportedError(f"no method works here: {words}")


def _measured(
    context: Context,
    situation: str,
    candidates: Sequence[Method],
    trial: Callable[[Method], Request],
    hints: Hints,
    times: int,
) -> Record:
    """Collective. What a race tells; kept where every candidate has been tried. What has not been
    tried ranks last, in the usual order."""
    race = Race(context.comm, hints.expected_iterations)
    record = replace(race.run(candidates, trial), times=times)
    if race.complete:
        learn(context.comm, situation, record)
    return record


def _compare_at_release(request: Request, situation: str, record: Record) -> None:
    """Local. When the request is freed, doubt the record where production was much faster than
    what was measured, or much slower: then it was measured under other conditions.

    The shortest rounds are compared: they wait least for others.
    """
    cost = record.costs.get(request.method)
    if cost is None or not cost.least or record.times > DOUBTS:
        return
    of = weakref.ref(request)
    expected = cost.least

    def compare() -> None:
        rounds = of()
        if rounds is None or not rounds.least:
            return
        ratio = rounds.least / expected
        tuning = open_tuning()
        if tuning is not None and not 1 / DOUBT < ratio < DOUBT:
            tuning.doubt(machine(), situation)

    request.resources.on_release(compare)


# -- situations ----------------------------------------------------------------------------------


def _class_of_exchange(wanted: Exchange) -> tuple[str, bool, int]:
    """Collective, the same on all ranks but for the skew of what is only estimated. The class of an
    exchange; whether something leaves a node; the most bytes that a rank receives.

    The most that a rank sends to others on its node, off it and to itself, in half powers of two,
    the most messages, how far the busiest rank is above the mean, and the kind of receive memory.
    """
    node, rank, comm = wanted.node, wanted.rank, wanted.context.comm
    itemsize = wanted.send.dtype.itemsize
    near, far, own = [], [], 0
    for block in wanted.send.blocks:
        if block.peer == rank:
            own += block.size * itemsize
        elif block.peer in node.rank_of:
            near.append(block.size * itemsize)
        else:
            far.append(block.size * itemsize)
    total = sum(near) + sum(far) + own
    received = sum(block.size for block in wanted.recv.blocks) * itemsize
    kind = 0 if wanted.owned else 1 if wanted.region is not None else 2
    most = np.array(
        [sum(near), sum(far), own, len(near), len(far), total, received, kind, len(node.ranks)],
        np.float64,
    )
    mean = np.array([float(total)])
    comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
    if wanted.hints.effort != ESTIMATE:  # nothing is recalled then, nor learnt
        comm.Allreduce(MPI.IN_PLACE, mean, MPI.SUM)
    mean /= comm.size
    skew = most[5] / mean[0] if mean[0] else 1.0
    memory = ("own", "window", "plain")[int(most[7])]
    words = (
        f"exchange: {comm.size} ranks, {most[8]:.0f} to a node; {size(most[0])} in {most[3]:.0f} "
        f"on the node, {size(most[1])} in {most[4]:.0f} off it, {size(most[2])} to itself; "
        f"skew {size(skew)}; {memory}, {wanted.least_slots} slots, {wanted.most_chunks} chunks"
    )
    return words, bool(most[4]), int(most[6])


def _class_of_broadcast(wanted: Broadcast) -> str:
    """Collective, the same on all ranks. The class of a broadcast."""
    comm, hints = wanted.context.comm, wanted.hints
    inside = comm.allreduce(wanted.in_window_memory, MPI.LAND)
    most = comm.allreduce(len(wanted.node.ranks), MPI.MAX)
    memory = "window" if inside else "plain"
    return (
        f"broadcast: {comm.size} ranks, {most} to a node; {size(wanted.nbytes)}; "
        f"{memory}; {hints.child_order}, segments of {hints.segment_bytes}"
    )


# -- memory for trials ---------------------------------------------------------------------------


def _scratch(wanted: Exchange, number: int) -> Exchange:
    """Local. The same exchange into other memory of the same kind, under a number of its own."""
    recv, hints = wanted.recv.plain(wanted.send), replace(wanted.hints, progress=MANUAL)
    words, said = wanted.words, wanted.said
    if recv.array is not None and wanted.region is None:
        recv = replace(recv, array=np.empty_like(recv.array))
    elif recv.array is not None:
        recv = replace(recv, array=None)
    # memory from empty() is tried as one slot of the request's own, which peers see as well
    words, said = ({p: _as_slot(w) for p, w in table.items()} for table in (words, said))
    hints = replace(hints, slots=1 if wanted.least_slots == 1 else hints.slots)
    slots = min(wanted.slots, hints.slots)
    return replace(wanted, send=wanted.send.plain(wanted.recv), recv=recv, hints=hints,
                   number=number, words=words, said=said, slots=slots)


def _as_slot(words: Any) -> Any:
    return words if words.key is None else replace(words, key=None, owned=True)


def _scratch_memory(wanted: Broadcast, resources: Resources) -> NDArray[np.uint8]:
    """Collective. Memory of the same kind as the buffer; plain where that is too little."""
    context, nbytes = wanted.context, min(wanted.nbytes, MOST)
    inside = wanted.in_window_memory
    if context.comm.allreduce(inside, MPI.LOR):
        try:
            region = Region(context, context.node(), nbytes if inside else 0)
        except ResourceError:
            inside = False
        else:
            resources.on_release(region.retire)
            if inside:
                scratch = region.take_root()[:nbytes]
                scratch[:] = 1  # untouched pages would all be one and the same
                return scratch
    return np.ones(nbytes, np.uint8)
