"""``onesided bench broadcast``: paper 003's sweep over message sizes and numbers of ranks.

The first 2, 3, ... ranks of the job broadcast from rank 0 while the others sleep. Beside the times
stand those that LogGP predicts, with parameters measured here.

A time goes from a barrier until the last rank has the data, or the root knows that all have; no
two broadcasts run in a row, because the second would begin before the first has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.choices import counted, hints, named, receiving
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant, nothing
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import BASELINE, METHOD, Listing, Report, byte_count
from onesided.apps.cli.statistics import Verdict
from onesided.apps.papers.alltoallv import round_of
from onesided.apps.papers.forecast import FORMULAS, ONE_SIDED, PASSIVE, LogGP, parameters
from onesided.collectives import Bcast_init, OneSidedBroadcast, bcast_linear, extents_of, methods
from onesided.collectives.context import Context
from onesided.collectives.trees import orders

ROOT = 0

Bytes = NDArray[np.uint8]
#: What makes a variant of a message, with an order of children, Collective: rank 0 sends the bytes
#: and, in the persistent methods, others receive there.
Maker = Callable[[MPI.Intracomm, Bytes, str, Mapping[str, str]], Variant]

#: Trees, whose children are served in an order that the benchmark varies.
TREES = ("rma-binomial", PASSIVE)
FEW = 8  # ranks up to which every number is tried, and steps of so many beyond
REMARK = (
    "Times go from a barrier until the last rank has the data; vs mpi: medians of the ratios of "
    "times taken in the same round. predicted: LogGP, of the paper's own one-sided and passive."
)


# -- who broadcasts --------------------------------------------------------------------------------


def makers() -> dict[str, Maker]:
    """Local. By name what makes each: the methods of ``methods("broadcast")``; ``passive``, the
    runtime whose root alone calls (the others wait for the data); and ``one-sided``,
    :func:`~onesided.collectives.bcast_linear`, whose other ranks do nothing."""
    persistent = {name: partial(_persistent, name) for name in methods("broadcast")}
    return {**persistent, BASELINE: _plain, PASSIVE: _passive, ONE_SIDED: _one_sided}


def labels_of(text: str) -> list[dict[str, str]]:
    """Local. Those that ``--comm`` means, the baseline first, with every order that they have.
    :class:`CommandError` where a name is unknown; it lists the known ones."""
    found = []
    for name in dict.fromkeys([BASELINE, *named(text, makers())]):
        each = [{"order": order} for order in orders()] if name in TREES else [{}]
        found += [{METHOD: name, **order} for order in each]
    return found


def _variant(
    comm: MPI.Intracomm, message: Bytes, call: Callable[[], object], memory: Bytes,
    look: Callable[[], object] = nothing, **more: Any,
) -> Variant:
    """Local. Data arrive in ``memory``; ``look`` makes visible what has arrived after a barrier,
    where that needs a call."""
    numbers = count()

    def check() -> Verdict:
        """Collective. Whether bytes that only this number gives come to all ranks."""
        number = next(numbers)
        expected = np.arange(number, number + message.size, dtype=np.uint64).astype(np.uint8)
        look()
        memory[:] = ~expected
        if comm.rank == ROOT:
            message[:] = expected
        comm.Barrier()
        call()
        comm.Barrier()
        look()
        wrong = comm.allreduce(not np.array_equal(memory, expected), op=MPI.LOR)
        return Verdict(float(wrong), 0.0)

    return Variant(call, check, metrics={"bytes": message.size}, **more)


def _of_window(window: MPI.Win) -> Bytes:
    """Local. This rank's part of a window, as bytes."""
    memory: Any = window.tomemory()
    return np.frombuffer(memory, np.uint8)


def _plain(comm: MPI.Intracomm, message: Bytes, order: str, info: Mapping[str, str]) -> Variant:
    """Local. The baseline: mpi4py's call, and nothing around it."""
    call = partial(comm.Bcast, [message, MPI.BYTE], ROOT)
    return _variant(comm, message, call, message, set_up=False)


def _persistent(
    method: str, comm: MPI.Intracomm, message: Bytes, order: str, info: Mapping[str, str]
) -> Variant:
    """Collective."""
    info = {**info, **({"child_order": order} if order else {})}
    request = Bcast_init(comm, message, ROOT, method=method, info=info)
    return _variant(comm, message, round_of(request), message, free=request.Free)


def _passive(comm: MPI.Intracomm, message: Bytes, order: str, info: Mapping[str, str]) -> Variant:
    """Collective. The root broadcasts and flushes, the others wait."""
    runtime = OneSidedBroadcast(comm, child_order=order)
    window = MPI.Win.Allocate(message.nbytes, 1, comm=comm)
    wid, epochs = runtime.register(window), count(1)

    def send() -> None:
        runtime.bcast(message, wid, 0, ROOT)
        runtime.flush()

    def receive() -> None:
        runtime.wait(wid, next(epochs), ROOT)

    def free() -> None:
        runtime.close()
        window.Free()

    call = send if comm.rank == ROOT else receive
    return _variant(comm, message, call, _of_window(window), free=free)


def _one_sided(
    comm: MPI.Intracomm, message: Bytes, order: str, info: Mapping[str, str]
) -> Variant:
    """Collective. Puts of the root to one rank after another."""
    window = MPI.Win.Allocate(message.nbytes, 1, comm=comm)
    extents = extents_of(comm, window)

    def send() -> None:
        bcast_linear(window, message, 0, ROOT, extents)

    def look() -> None:
        window.Lock(comm.rank)
        window.Unlock(comm.rank)

    call = send if comm.rank == ROOT else nothing
    return _variant(comm, message, call, _of_window(window), look, free=window.Free)


# -- the command -----------------------------------------------------------------------------------


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    variants = labels_of(options.comm)
    usual = [*range(2, min(comm.size, FEW) + 1), *range(2 * FEW, comm.size + 1, FEW), comm.size]
    counts = counted(comm.size, options.ranks_list, usual)
    nodes = Context.of(comm).node().firsts.tolist()
    pattern = {"ranks": comm.size, "counts": counts, "nodes": len(set(nodes))}
    report = Report("bench broadcast", options.settings(), pattern, remarks=[REMARK],
                    across="bytes", by="ranks")  # fmt: skip
    networks: dict[str, LogGP] = {}
    reasons: dict[str, str] = {}
    if comm.size > 1:  # between rank 0 and a rank off its node, if there is one
        far = next((rank for rank, node in enumerate(nodes) if node != nodes[0]), 1)
        with user_errors():
            networks, reasons = parameters(comm, far)
    cases = [
        Case({"ranks": str(count), "bytes": byte_count(size)}, variants,
             partial(_opened, size, len(set(nodes[:count])), networks, options), count)
        for count in counts for size in sorted(set(options.sizes))
    ]  # fmt: skip
    sweep(comm, options, report, cases, "broadcasting")
    report.listings = {
        f"parameters of {name}": _listing(name, each) for name, each in networks.items()
    }
    report.remarks += [f"No model of {name}: {why}" for name, why in reasons.items()]
    return report.end(comm, options)


def _opened(
    size: int, nodes: int, networks: Mapping[str, LogGP], options: Options,
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. The message to ranks on so many nodes, and what makes each variant of it."""
    message = receiving(comm, options.memory, -(-size // 8), stack).view(np.uint8)[:size]

    def make(labels: Labels) -> Variant:
        method, order = labels[METHOD], labels.get("order", "")
        variant = makers()[method](comm, message, order, hints(options))
        metrics = {**variant.metrics, "nodes": nodes}
        if method in networks and comm.size > 1:
            metrics["predicted_s"] = FORMULAS[method](networks[method], comm.size, size, order)
        return replace(variant, metrics=metrics)

    return make


def _listing(name: str, network: LogGP) -> Listing:
    """Local. The parameters of a method, for a person."""
    numbers = {
        "L (us)": network.latency * 1e6, "o (us)": network.overhead * 1e6,
        "g (us)": network.gap * 1e6, "o_r (us)": network.waiting * 1e6,
        "G (ns)": network.byte_gap * 1e9,
    }  # fmt: skip
    title = f"LogGP parameters of {name}"
    return Listing(title, dict.fromkeys(numbers, ".4g"), [list(numbers.values())])
