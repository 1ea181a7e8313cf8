"""Who takes part in ``onesided bench broadcast``, and how each broadcasts from rank 0.

The methods of ``methods("broadcast")`` by their names; ``passive``, the
runtime whose root alone calls (the others wait for the data in its ``wait``); and ``one-sided``,
:func:`onesided.collectives.bcast_linear`, whose other ranks do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.selection import BASELINE, named
from onesided.apps.bench.timing import nothing
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


@dataclass(frozen=True)
class Track:
    """What all contestants of a size have in common: ranks, message and settings.

    ``message`` is the bytes that rank 0 sends and where, in the persistent methods, others receive.
    """

    comm: MPI.Intracomm
    message: NDArray[np.uint8]
    info: Mapping[str, str]

    @property
    def is_root(self) -> bool:
        """Local."""
        return self.comm.rank == ROOT


@dataclass(frozen=True)
class Runner:
    """A contestant that is ready: a broadcast, where its data arrive, and how it is freed.

    ``look`` makes visible what has arrived after a barrier, where that needs a call.
    """

    call: Callable[[], object]
    memory: NDArray[np.uint8]
    free: Callable[[], object]
    look: Callable[[], object] = nothing


@dataclass(frozen=True)
class Entrant:
    """A method, with an order of children or ``""``, and what makes it ready, Collective."""

    method: str
    order: str
    ready: Callable[[Track], Runner]

    @property
    def name(self) -> str:
        """Local. For the legend of a figure."""
        return f"{self.method} {self.order}".strip()


def entrants(text: str, orders: Sequence[str]) -> list[Entrant]:
    """Local. Those that ``--comm`` means, the baseline first.

    :class:`CommandError` where a name is unknown; it lists the known ones.
    """
    makers: dict[str, Callable[[str, Track], Runner]] = {
        name: partial(_persistent, name) for name in methods("broadcast")
    }
    makers |= {BASELINE: _plain, PASSIVE: _passive, ONE_SIDED: _one_sided}
    return [
        Entrant(name, order, partial(makers[name], order))
        for name in dict.fromkeys([BASELINE, *named(text, makers)])
        for order in (dict.fromkeys(orders) if name in ORDERED else [""])
    ]


def correct(track: Track, runner: Runner, number: int) -> bool:
    """Collective. Broadcast bytes that only this number gives; whether all ranks have them."""
    expected = np.arange(number, number + track.message.size, dtype=np.uint64).astype(np.uint8)
    runner.look()
    runner.memory[:] = ~expected
    if track.is_root:
        track.message[:] = expected
    track.comm.Barrier()
    runner.call()
    track.comm.Barrier()
    runner.look()
    right = bool(np.array_equal(runner.memory, expected))
    everywhere: bool = track.comm.allreduce(right, op=MPI.LAND)
    return everywhere


def window_memory(window: MPI.Win) -> NDArray[np.uint8]:
    """Local. This rank's part of a window, as bytes."""
    memory: Any = window.tomemory()
    return np.frombuffer(memory, np.uint8)


def _plain(order: str, track: Track) -> Runner:
    """Local. The baseline: mpi4py's call, and nothing around it."""
    call = partial(track.comm.Bcast, [track.message, MPI.BYTE], ROOT)
    return Runner(call, track.message, nothing)


def _persistent(method: str, order: str, track: Track) -> Runner:
    """Collective."""
    info = dict(track.info) | ({"child_order": order} if order else {})
    request = Bcast_init(track.comm, track.message, ROOT, method=method, info=info)
    start, wait = request.Start, request.Wait

    def call() -> None:
        start()
        wait()

    return Runner(call, track.message, request.Free)


def _passive(order: str, track: Track) -> Runner:
    """Collective. The root broadcasts and flushes, the others wait."""
    runtime = OneSidedBroadcast(track.comm, child_order=order)
    window = MPI.Win.Allocate(track.message.nbytes, 1, comm=track.comm)
    wid = runtime.register(window)
    epoch = 0

    def send() -> None:
        runtime.bcast(track.message, wid, 0, ROOT)
        runtime.flush()

    def receive() -> None:
        nonlocal epoch
        epoch += 1
        runtime.wait(wid, epoch, ROOT)

    def free() -> None:
        runtime.close()
        window.Free()

    return Runner(send if track.is_root else receive, window_memory(window), free)


def _one_sided(order: str, track: Track) -> Runner:
    """Collective. Puts of the root to one rank after another."""
    window = MPI.Win.Allocate(track.message.nbytes, 1, comm=track.comm)
    extents = extents_of(track.comm, window)

    def send() -> None:
        bcast_linear(window, track.message, 0, ROOT, extents)

    def look() -> None:
        window.Lock(track.comm.rank)
        window.Unlock(track.comm.rank)

    call = send if track.is_root else nothing
    return Runner(call, window_memory(window), window.Free, look)
