"""``onesided bench collectives``: every persistent collective beside the MPI's own.

One operation and size after the other, in the style of OSU's micro-benchmarks: the MPI's blocking,
nonblocking and persistent forms, our methods and what ``auto`` makes of them, on the same buffers.

A size is that of OSU's micro-benchmarks: the bytes of the vector that every rank has (Bcast, the
reductions), or of one block (Gather, Scatter, Allgather, Alltoall and those of neighbors, a block
to every rank that is sent to). Elements are doubles. Data tell the rank and the place, and sums of
them are exact; a blocking call of the MPI tells before what is right. Neighbors: those in a ring.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided import collectives
from onesided.apps.bench.choices import named, receiving
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Call, Variant, nothing, unchecked
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import BASELINE, METHOD, Report, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.alltoallv import ITEM, round_of
from onesided.collectives import UnsupportedError, methods
from onesided.collectives.registry import BROADCAST, EXCHANGE, REDUCTION

# -- the operations: their arguments, their data, and what is right --------------------------------

Array = NDArray[np.float64]
ROOT = 0
PERIOD = 251  # after which data repeat; no power of two
POISON = -1.0
LATE = 2e-3  # seconds for which a rank is late


def contribution(rank: int, length: int) -> Array:
    """Local. The elements that a rank sends; whole numbers, so that their sums are exact."""
    return np.arange(length, dtype=np.float64) % PERIOD + 1000 * (rank + 1)


@dataclass(frozen=True)
class Place:
    """A rank, how many there are, and the elements of a vector or a block."""

    rank: int
    size: int
    count: int

    @property
    def is_root(self) -> bool:
        return self.rank == ROOT

    @property
    def near(self) -> list[int]:
        """Local. The neighbors on both sides, on two ranks one, alone oneself."""
        return sorted({(self.rank - 1) % self.size, (self.rank + 1) % self.size})

    @property
    def parts(self) -> list[int]:
        """Local. The elements of a vector that is divided among the ranks."""
        return [self.count * (r + 1) // self.size - self.count * r // self.size
                for r in range(self.size)]


def delivered(
    comm: MPI.Intracomm, call: Call, received: Array, held: Array | None, right: Array
) -> int:
    """Collective. How many elements are wrong after a call, on all ranks; they are poisoned before,
    where the operation does not send what the buffer has."""
    received[:] = POISON if held is None else held
    call()
    return int(comm.allreduce(int(np.count_nonzero(received != right))))


def awaited(
    comm: MPI.Intracomm, call: Call, received: Array, held: Array | None, right: Array
) -> int:
    """Collective. How often a rank is through before all have come, each of them late in turn."""
    early = 0
    for late in range(comm.size):
        began = time.perf_counter()
        comm.Barrier()
        if comm.rank == late:
            time.sleep(LATE)
        call()
        early += time.perf_counter() - began < LATE
    return int(comm.allreduce(early))


#: What is passed for a buffer of so many blocks.
Spec = Callable[[Array, int], Any]


def _plain(array: Array, blocks: int) -> Any:
    return array


def _vector(array: Array, blocks: int) -> Any:
    return [array, [array.size // blocks] * blocks]


def _typed(array: Array, blocks: int) -> Any:
    each = array.size // blocks
    starts = [ITEM * each * block for block in range(blocks)]
    return [array, ([each] * blocks, starts), [MPI.DOUBLE] * blocks]


@dataclass(frozen=True)
class Operation:
    """A collective operation.

    ``sent`` and ``received``: elements of the buffers; ``arguments``: those of the MPI's call, from
    the buffers, by ``spec``. ``held``: what the receive buffer has before the call where that
    matters, ``wrong``: how much is not as it should be after a contestant's call.
    ``in_step``: nobody is through before everybody has come, so that calls in a row can be timed.
    ``near``: on a communicator with neighbors. ``sized``: it has data, ``count`` elements where
    about so many are asked for on so many ranks.
    """

    name: str
    group: str
    sent: Callable[[Place], int]
    received: Callable[[Place], int]
    arguments: Callable[[Place, Array, Array, Spec], tuple[Any, ...]]
    spec: Spec = _plain
    in_step: bool = True
    near: bool = False
    sized: bool = True
    held: Callable[[Place], Array | None] = lambda p: None
    wrong: Callable[[MPI.Intracomm, Call, Array, Array | None, Array], int] = delivered
    count: Callable[[int, int], int] = lambda count, size: count

    def place(self, comm: MPI.Intracomm, nbytes: int) -> Place:
        """Local. This rank with a size of about so many bytes, at least an element."""
        count = self.count(max(1, nbytes // ITEM), comm.size) if self.sized else 0
        return Place(comm.rank, comm.size, count)


def _one(p: Place) -> int:
    return p.count


def _all(p: Place) -> int:
    return p.size * p.count


def _near(p: Place) -> int:
    return len(p.near) * p.count


def _summed(p: Place, out: Array, into: Array, spec: Spec) -> tuple[Any, ...]:
    return out, into, MPI.SUM


OPERATIONS = {operation.name: operation for operation in (
    Operation("Barrier", REDUCTION, lambda p: 0, lambda p: 0,
              lambda p, out, into, spec: (), sized=False, wrong=awaited),
    Operation("Bcast", BROADCAST, lambda p: 0, _one,
              lambda p, out, into, spec: (into, ROOT), in_step=False,
              held=lambda p: contribution(ROOT, p.count) if p.is_root else None),
    Operation("Gather", EXCHANGE, _one, lambda p: _all(p) if p.is_root else 0,
              lambda p, out, into, spec: (out, spec(into, p.size) if p.is_root else None, ROOT),
              in_step=False),
    Operation("Scatter", EXCHANGE, lambda p: _all(p) if p.is_root else 0, _one,
              lambda p, out, into, spec: (spec(out, p.size) if p.is_root else None, into, ROOT),
              in_step=False),
    Operation("Allgather", EXCHANGE, _one, _all,
              lambda p, out, into, spec: (out, spec(into, p.size))),
    Operation("Alltoall", EXCHANGE, _all, _all,
              lambda p, out, into, spec: (spec(out, p.size), spec(into, p.size))),
    Operation("Reduce", REDUCTION, _one, lambda p: p.count if p.is_root else 0,
              lambda p, out, into, spec: (out, into if p.is_root else None, MPI.SUM, ROOT),
              in_step=False),
    Operation("Allreduce", REDUCTION, _one, _one, _summed),
    Operation("Reduce_scatter", REDUCTION, _one, lambda p: p.parts[p.rank],
              lambda p, out, into, spec: (out, into, p.parts, MPI.SUM)),
    Operation("Reduce_scatter_block", REDUCTION, _one, lambda p: p.parts[p.rank], _summed,
              count=lambda count, size: -(-count // size) * size),
    Operation("Scan", REDUCTION, _one, _one, _summed, in_step=False),
    Operation("Exscan", REDUCTION, _one, _one, _summed, in_step=False),
    Operation("Neighbor_allgather", EXCHANGE, _one, _near,
              lambda p, out, into, spec: (out, spec(into, len(p.near))), near=True),
    Operation("Neighbor_alltoall", EXCHANGE, _near, _near,
              lambda p, out, into, spec: (spec(out, len(p.near)), spec(into, len(p.near))),
              near=True),
)}  # fmt: skip
for _name, _endings in {"Gather": "v", "Scatter": "v", "Allgather": "v", "Alltoall": "vw",
                        "Neighbor_allgather": "v", "Neighbor_alltoall": "vw"}.items():  # fmt: skip
    for _ending in _endings:
        OPERATIONS[_name + _ending] = replace(
            OPERATIONS[_name], name=_name + _ending, spec={"v": _vector, "w": _typed}[_ending]
        )


# -- the command -----------------------------------------------------------------------------------

NONBLOCKING, PERSISTENT = "mpi-nonblocking", "mpi-persistent call"
REGION = 1e-3  # seconds that are timed in a row, at least
REMARK = (
    "mpi: the MPI's blocking call, its median time; the others: medians of the ratios to it of the "
    "same turn, ± half the distance of their quartiles. Bytes of the vector of a rank, or of one "
    "block; times of the slowest rank, of calls in a row, or, where a rank may be through before "
    "others have begun, of calls after a barrier each."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    asked = None
    if options.comm is not None:
        groups = dict.fromkeys(OPERATIONS[name].group for name in options.operations)
        known = [name for group in groups for name in methods(group)]
        asked = named(options.comm, known, " of these operations")
    report = Report("bench collectives", options.settings(), {"ranks": comm.size},
                    remarks=[REMARK], across="bytes", by="operation")  # fmt: skip
    cases = []
    for name in dict.fromkeys(options.operations):
        operation = OPERATIONS[name]
        names = [each.name for each in methods(operation.group).values()
                 if (each.candidate or each.chooses if asked is None else each.name in asked)]
        names = list(dict.fromkeys([BASELINE, NONBLOCKING, PERSISTENT, *names]))
        for count in sorted({operation.place(comm, nbytes).count for nbytes in options.sizes}):
            labels = {"operation": name, "bytes": byte_count(ITEM * count)}
            opened = partial(_opened, operation, ITEM * count, options)
            cases.append(Case(labels, [{METHOD: each} for each in names], opened, region=REGION))
    sweep(comm, options, report, cases, "collectives")
    return report.end(comm, options)


def _opened(
    operation: Operation, nbytes: int, options: Options, comm: MPI.Intracomm, stack: ExitStack
) -> Make:
    """Collective. The buffers of an operation, and what makes a call of it by every method."""
    place = operation.place(comm, nbytes)
    on: Any = comm
    if operation.near:
        on = comm.Create_dist_graph_adjacent(place.near, place.near)
        stack.callback(on.Free)
    sent = contribution(place.rank, operation.sent(place))
    held = operation.held(place)
    received = receiving(on, options.memory, operation.received(place), stack)
    arguments = operation.arguments(place, sent, received, operation.spec)
    received[:] = POISON if held is None else held
    getattr(on, operation.name)(*arguments)
    right, tells = received.copy(), unchecked("it tells what is right")

    def make(labels: Labels) -> Variant:
        call, request = _made(on, operation, labels[METHOD], arguments, dict(options.info))

        def check() -> Verdict:
            return Verdict(float(operation.wrong(on, call, received, held, right)), 0.0)

        return Variant(
            call, tells if labels[METHOD] == BASELINE else check,
            barriers=not operation.in_step, set_up=request is not None,
            free=request.Free if request is not None else nothing,
            used=getattr(request, "method", ""), metrics={"bytes": nbytes},
        )  # fmt: skip

    return make


def _made(
    comm: Any, operation: Operation, name: str, arguments: Sequence[Any], info: Mapping[str, str]
) -> tuple[Callable[[], object], Any]:
    """Collective. One call, and its request if there is one."""
    if name == BASELINE:
        return partial(getattr(comm, operation.name), *arguments), None
    if name == NONBLOCKING:
        begin = getattr(comm, f"I{operation.name.lower()}")
        return lambda: begin(*arguments).Wait(), None
    persistent = f"{operation.name}_init"  # in mpi4py and here
    if name == PERSISTENT:
        try:
            request = getattr(comm, persistent)(*arguments)
        except NotImplementedError as error:
            raise UnsupportedError(f"this MPI has no MPI_{persistent}") from error
    else:
        init = getattr(collectives, persistent)
        request = init(comm, *arguments, method=name, info=info)
    return round_of(request), request
