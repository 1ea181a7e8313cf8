"""``onesided bench collectives``: every persistent collective beside the MPI's own.

One operation and size after the other, in the style of OSU's micro-benchmarks: the MPI's blocking,
nonblocking and persistent forms, our methods and what ``auto`` makes of them take turns in an order
that changes, on the same buffers, and are checked before and after that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided import collectives
from onesided.apps.bench.memory import receiving
from onesided.apps.bench.selection import BASELINE, named
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant, nothing
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Report, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.operations import ITEM, OPERATIONS, Operation, contribution, ring
from onesided.collectives import UnsupportedError, methods

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
    cases = {
        (name, count): _case(OPERATIONS[name], ITEM * count, asked, options)
        for name in dict.fromkeys(options.operations)
        for nbytes in sorted(set(options.sizes))
        for count in [OPERATIONS[name].place(comm, nbytes).count]
    }
    sweep(comm, options, report, list(cases.values()), "collectives")
    return report.end(comm, options)


def _case(
    operation: Operation, nbytes: int, asked: Sequence[str] | None, options: Options
) -> Case:
    known = methods(operation.group)
    if asked is None:
        names = [each.name for each in known.values() if each.candidate or each.chooses]
    else:
        names = [name for name in known if name in asked]
    names = [BASELINE, NONBLOCKING, PERSISTENT, *(name for name in names if name != BASELINE)]
    return Case(
        {"operation": operation.name, "bytes": byte_count(nbytes)},
        [{METHOD: name} for name in names],
        partial(_opened, operation, nbytes, options),
        region=REGION,
    )


def _opened(
    operation: Operation, nbytes: int, options: Options, comm: MPI.Intracomm, stack: ExitStack
) -> Make:
    """Collective. The buffers of an operation, and what makes a call of it by every method."""
    place = operation.place(comm, nbytes)
    on: Any = comm
    if operation.near:
        on = ring(comm)
        stack.callback(on.Free)
    sent = contribution(place.rank, operation.sent(place))
    held, right = operation.held(place), operation.expected(place)
    received = receiving(on, options.memory, ITEM * right.size, stack).view(np.float64)
    arguments = operation.arguments(place, sent, received, operation.spec)

    def make(labels: Labels) -> Variant:
        call, request = _made(on, operation, labels[METHOD], arguments, dict(options.info))
        used = getattr(request, "method", "")

        def check() -> Verdict:
            return Verdict(float(operation.wrong(on, call, received, held, right)), 0.0)

        return Variant(
            call, check, barriers=not operation.in_step, set_up=request is not None,
            free=request.Free if request is not None else nothing,
            used="" if used == labels[METHOD] else used, metrics={"bytes": nbytes},
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
    start, wait = request.Start, request.Wait

    def call() -> None:
        start()
        wait()

    return call, request
