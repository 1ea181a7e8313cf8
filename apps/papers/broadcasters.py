"""How each variant of ``onesided bench broadcast`` broadcasts from rank 0.

The methods of ``methods("broadcast")`` by their names; ``passive``, the
runtime whose root alone calls (the others wait for the data in its ``wait``); and ``one-sided``,
:func:`onesided.collectives.bcast_linear`, whose other ranks do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.selection import BASELINE, named
from onesided.apps.bench.timing import Variant, nothing
from onesided.apps.cli.report import METHOD
from onesided.apps.cli.statistics import Verdict
from onesided.collectives import (
    Bcast_init,
    OneSidedBroadcast,
    bcast_linear,
    extents_of,
    methods,
)

ROOT = 0
PASSIVE = "passive"
ONE_SIDED = "one-sided"
LINEAR = "rma-linear"
BINOMIAL = "rma-binomial"
ORDERS = ("largest-first", "low-bit-first")
#: Those that serve the children of a tree in an order that the benchmark varies.
ORDERED = (BINOMIAL, PASSIVE)

Bytes = NDArray[np.uint8]
#: What makes a variant of a message, with an order of children, Collective: rank 0 sends the bytes
#: and, in the persistent methods, others receive there.
Maker = Callable[[MPI.Intracomm, Bytes, str, Mapping[str, str]], Variant]


def makers() -> dict[str, Maker]:
    """Local. By name what makes each."""
    persistent = {name: partial(_persistent, name) for name in methods("broadcast")}
    return {**persistent, BASELINE: _plain, PASSIVE: _passive, ONE_SIDED: _one_sided}


def labels_of(text: str) -> list[dict[str, str]]:
    """Local. Those that ``--comm`` means, the baseline first, with every order that they have.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    names = dict.fromkeys([BASELINE, *named(text, makers())])
    orders = {name: ORDERS if name in ORDERED else () for name in names}
    return [
        {METHOD: name, **({"order": order} if order else {})}
        for name in names for order in orders[name] or ("",)
    ]  # fmt: skip


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


def _plain(
    comm: MPI.Intracomm, message: Bytes, order: str, info: Mapping[str, str]
) -> Variant:
    """Local. The baseline: mpi4py's call, and nothing around it."""
    call = partial(comm.Bcast, [message, MPI.BYTE], ROOT)
    return _variant(comm, message, call, message, set_up=False)


def _persistent(
    method: str, comm: MPI.Intracomm, message: Bytes, order: str, info: Mapping[str, str]
) -> Variant:
    """Collective."""
    info = {**info, **({"child_order": order} if order else {})}
    request = Bcast_init(comm, message, ROOT, method=method, info=info)
    start, wait = request.Start, request.Wait

    def call() -> None:
        start()
        wait()

    return _variant(comm, message, call, message, free=request.Free)


def _passive(
    comm: MPI.Intracomm, message: Bytes, order: str, info: Mapping[str, str]
) -> Variant:
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
