"""What the choice of a method depends on, agreed on by all ranks, and where trials move their data.

A situation is named by words that are the key of what is known of it. Whatever a decision could
depend on is in them, or in what :func:`~.decisions.machine` says: the call, the bytes and messages
of the busiest ranks, where data are received, nodes and whether they are emulated, cores, who
executes rounds, and who makes progress. All of it is the same on all
ranks, as is the order in which candidates are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from onesided.collectives import debug, progress
from onesided.collectives.agreement import agreed, largest
from onesided.collectives.broadcast.operation import Broadcast
from onesided.collectives.context import Resources
from onesided.collectives.errors import ResourceError
from onesided.collectives.exchange import Exchange
from onesided.collectives.hardware import usable_cores
from onesided.collectives.hints import MANUAL
from onesided.collectives.memory import Region
from onesided.collectives.program import COMPILED
from onesided.collectives.reduction.operation import Reduction
from onesided.collectives.transport import Operation
from onesided.collectives.tuning.decisions import size

#: Most bytes that a rank moves in a trial, on a node and between nodes; an exchange that is longer
#: is tried with blocks that are shorter by one factor, and behaves as they do.
MOST, MOST_FAR = 1 << 24, 1 << 20

#: Bytes of a block into plain memory beyond which messages usually win on a node: one copy in and
#: one out cost more than what MPI does.
PLAIN = 1 << 16

#: The same as rma-notify where every rank is on one node.
FAR_ONLY = "rma-p2p"

#: What pays only between nodes of so many ranks, and where nobody fills rounds.
BY_NODE, CROWD = "rma-node", 4
#: Bytes of the longest block up to which it usually wins there, and rounds that pay for its memory.
TOGETHER, PAID = 1 << 13, 20


@dataclass
class Situation:
    """What all ranks agree on before a method is chosen.

    ``order`` has the methods that usually win first; methods in ``without`` are no candidates.
    ``far``: something leaves a node. ``elsewhere(number)`` is collective: the operation in memory
    of its own, under another number. It is None where nothing can be tried.
    """

    key: str
    order: list[str]
    far: bool
    elsewhere: Callable[[int], Operation] | None
    without: tuple[str, ...] = ()
    release: Callable[[], None] = lambda: None


def usual_order(far: bool, window: bool, block: int, together: bool = False) -> list[str]:
    """Local. What usually wins, first: between nodes, or on one; into memory that peers see, or
    blocks of so many bytes into plain memory. ``together``: a message to each node can be made of
    what ranks have for it, and it is short, or shorter than what they have."""
    if far:
        first = [BY_NODE, FAR_ONLY] if together else [FAR_ONLY, BY_NODE]
        return [*first, "p2p", "mpi-persistent", "rma-notify"]
    if window or block <= PLAIN:
        return ["rma-notify", "p2p", "mpi-persistent"]
    return ["p2p", "rma-notify", "mpi-persistent"]


def _place(
    operation: Operation, numbers: list[int], what: str, error: Exception | None
) -> tuple[str, list[int], bool]:
    """Collective. Agree on ``what`` is to be decided, and raise the ``error`` of any rank. Words
    about where the ranks run; the largest of each of the numbers; whether trials would tell the
    truth: not where rounds are watched."""
    cores = len(usable_cores())
    mine = [len(operation.node.ranks), -cores, int(COMPILED), -int(COMPILED), debug.enabled(),
            operation.hints.progress == MANUAL]  # fmt: skip
    largest_of = largest(operation.context.comm, error, what, [*mine, *numbers])
    each, fewest, compiled, interpreted, watched, manual = largest_of[:6]
    nodes = "emulated" if operation.hints.ranks_per_node is not None else "to a node"
    rounds = "compiled" if interpreted == -1 else "both kinds of" if compiled else "Python's"
    rounds = "manual progress, " * manual + rounds
    words = f"{operation.ranks} ranks, {each} {nodes}, {-fewest} cores, {rounds} rounds"
    return words, largest_of[6:], not watched


# -- exchanges -----------------------------------------------------------------------------------


def of_exchange(wanted: Exchange, what: str, error: Exception | None) -> Situation:
    """Collective. The most that a rank sends to others on its node, off it and to itself, in half
    powers of two, the most messages, the most and the least that ranks send, and the kind of
    receive memory."""
    node, rank, comm = wanted.node, wanted.rank, wanted.context.comm
    near, far, own = [], [], 0
    for block in wanted.send.blocks:
        nbytes = block.size * wanted.send.dtype.itemsize
        if block.peer == rank:
            own += nbytes
        elif block.peer in node.rank_of:
            near.append(nbytes)
        else:
            far.append(nbytes)
    total = sum(near) + sum(far) + own
    received = sum(block.size for block in wanted.recv.blocks) * wanted.recv.dtype.itemsize
    kind = 0 if wanted.owned else 1 if wanted.region is not None else 2
    array = wanted.recv.array
    held = 0 if array is None else array.nbytes
    boxes, flat = (held, 0) if array is not None and array.ndim > 1 else (0, held)
    words, most, truth = _place(wanted, [
        sum(near), sum(far), own, len(near), len(far), total, received, kind,
        boxes, flat, -wanted.most_factor(), wanted.recv.native is not None, len(node.ranks),
        wanted.rows is not None, -total, _once_a_node(wanted), max(far, default=0),
        not progress.may_call_from_any_thread(),
    ], what, error)  # fmt: skip
    memory = ("own", "window", "plain")[most[7]]
    key = (
        f"{wanted.call}{' by boxes' if wanted.by_boxes else ''}: {words}; {size(most[0])} in "
        f"{most[3]} on the node, {size(most[1])} in {most[4]} off it, {size(most[2])} to itself; "
        f"{size(-most[14])} to {size(most[5])} of a rank; {memory}, {wanted.least_slots} slots, "
        f"{wanted.most_chunks} chunks{', in place on some ranks' if wanted.mixed else ''}"
        f"{f', {size(most[15])} without equal rows' if most[4] and most[13] else ''}"
    )
    far_away, numbered = bool(most[4]), bool(most[13])
    longest, room = max(most[5], most[6], most[8]), MOST_FAR if far_away and not numbered else MOST
    factor = max(1, -(-longest // room))
    # shorter blocks would have other rows in common
    tried = truth and factor <= (1 if numbered else -most[10])
    without: tuple[str, ...] = () if far_away else (FAR_ONLY,)
    if (not far_away or most[12] < CROWD or wanted.most_chunks > 1
            or wanted.hints.progress == MANUAL or most[17]):  # fmt: skip
        without += (BY_NODE,)

    def elsewhere(number: int) -> Exchange:
        with agreed(comm, "memory for a trial"):
            shorter = factor > 1 or (most[9] > room and not numbered)
            short = wanted.shortened(factor) if shorter else wanted
            return _scratch(short, number, wanted.root is not None or not most[11])

    shorter = most[16] <= TOGETHER or (numbered and 2 * most[15] <= most[1])
    together = BY_NODE not in without and shorter and not (
        0 < wanted.hints.expected_iterations < PAID)  # fmt: skip
    order = usual_order(far_away, most[7] < 2, most[0] // max(1, most[3]), together)
    return Situation(key, order, far_away, elsewhere if tried else None, without)


def _once_a_node(wanted: Exchange) -> int:
    """Local. Bytes that leave this rank's node where equal rows go once to another; 0 where none
    have numbers."""
    if wanted.rows is None:
        return 0
    node, row = wanted.node, 0
    rows: dict[int, list[NDArray[np.int64]]] = {}
    for block in wanted.send.blocks:
        if block.peer not in node.rank_of:
            rows.setdefault(int(node.firsts[block.peer]), []).append(wanted.rows[block.box[0]])
            row = block.size * wanted.send.dtype.itemsize // max(1, block.shape[0])
    return row * sum(len(np.unique(np.concatenate(each))) for each in rows.values())


def _scratch(wanted: Exchange, number: int, in_place: bool) -> Exchange:
    """Local. The same exchange into other memory of the same kind, under a number of its own;
    ``in_place``: MPI may be told so by the ranks that said so, on all of them or at the root."""
    recv = wanted.recv.plain(wanted.send, in_place)
    if recv.array is not None and wanted.region is None:
        recv = replace(recv, array=np.empty_like(recv.array))
    elif recv.array is not None:
        recv = replace(recv, array=None)
    # memory from empty() is tried as one slot of the request's own, which peers see as well
    words, said = (
        {p: w if w.key is None else replace(w, key=None, owned=True) for p, w in table.items()}
        for table in (wanted.words, wanted.said)
    )
    hints = replace(wanted.hints, slots=1 if wanted.least_slots == 1 else wanted.hints.slots)
    slots = min(wanted.slots, hints.slots)
    # blocks of one length have room for the open ends of a grid between them; these need not
    counted = wanted.neighborhood and wanted.call[-1] not in "vw"
    return replace(wanted, send=wanted.send.plain(wanted.recv, in_place), recv=recv, hints=hints,
                   number=number, words=words, said=said, slots=slots,
                   call=f"{wanted.call}v" if counted else wanted.call)  # fmt: skip


# -- broadcasts ----------------------------------------------------------------------------------


def of_broadcast(wanted: Broadcast, what: str, error: Exception | None) -> Situation:
    """Collective. The length, whether the root and the others have window memory, and how it
    travels."""
    here, root = wanted.in_window_memory, wanted.sends
    words, (plain, window, sent), truth = _place(
        wanted, [not here and not root, here and not root, here and root], what, error
    )
    hints, resources = wanted.hints, Resources(wanted.context)
    memory = "mixed" if plain and window else "window" if window else "plain"
    memory = f"{'window' if sent else 'plain'} to {memory}"
    key = (
        f"broadcast: {words}; {size(wanted.nbytes)}; {memory}; {hints.child_order}, segments of "
        f"{hints.segment_bytes}"
    )
    scratch: list[NDArray[np.uint8]] = []

    def elsewhere(number: int) -> Broadcast:
        if not scratch:
            scratch.append(_scratch_memory(wanted, resources, bool(window or sent)))
        return wanted.elsewhere(scratch[0], number)

    def release() -> None:
        scratch.clear()
        resources.release()

    order = ["rma-binomial", "rma-pipelined", "rma-linear", "mpi-persistent", "p2p"]
    far = not wanted.node.alone
    return Situation(key, order, far, elsewhere if truth else None, release=release)


def _scratch_memory(wanted: Broadcast, resources: Resources, window: bool) -> NDArray[np.uint8]:
    """Collective. Memory of the same kind as the buffer; plain where that is too little."""
    context, inside = wanted.context, wanted.in_window_memory
    nbytes = min(wanted.nbytes, MOST if wanted.node.alone else MOST_FAR)
    if window:
        try:
            region = Region(context, context.node(), nbytes if inside else 0)
        except ResourceError:  # on all ranks
            inside = False
        else:
            resources.on_release(region.release)
    with agreed(context.comm, "memory for a trial"):
        scratch = region.own()[:nbytes] if inside else np.empty(nbytes, np.uint8)
        scratch[:] = 1  # untouched pages would all be one and the same
    return scratch


# -- reductions ----------------------------------------------------------------------------------


def of_reduction(wanted: Reduction, what: str, error: Exception | None) -> Situation:
    """Collective. The function, the length and the operation.

    Longer vectors than :data:`MOST` are not tried out, nor is an operation of the caller's: it
    might not like the data of a trial.
    """
    words, _, truth = _place(wanted, [], what, error)
    far = not wanted.node.alone
    order = ["rma-p2p", "p2p", "mpi-persistent", "mpi"]
    key = f"{wanted.name}: {words}; {size(wanted.nbytes)}; {wanted.fold}"

    def elsewhere(number: int) -> Reduction:
        with agreed(wanted.context.comm, "memory for a trial"):
            return wanted.elsewhere(number)

    tried = truth and wanted.fold.predefined and wanted.nbytes <= MOST
    return Situation(key, order, far, elsewhere if tried else None)
