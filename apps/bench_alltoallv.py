"""``onesided bench alltoallv``: persistent exchanges against MPI_Alltoallv and memcpy.

Uniform: every rank sends equal blocks to all ranks, itself included. All contestants of one size
run in the same rounds. ``slots``: the request owns its receive memory (``recvbuf=None``);
``empty``: the caller's array from ``collectives.empty``. The baseline is the bare call of mpi4py
with prepared buffer specifications; memcpy copies the same bytes on all ranks at once.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.options import settings
from onesided.apps.progress import console, progress
from onesided.apps.report import Report, Row, byte_count, check_json
from onesided.apps.selection import BASELINE, Candidate, chosen, hints, prepare, release
from onesided.apps.timing import Subject, measure, repeats
from onesided.collectives import Alltoallv_init, PersistentRequest, empty, free

MEMCPY = "memcpy"
MEMCPY_IN_TURN = "memcpy2"  # into two arrays in turn, as a request with two slots has to do
ITEM = 8  # bytes of an element
REMARK = (
    "Bytes are what a rank sends in one iteration, its own block included; short iterations are "
    "timed several in a row. GB/s: these bytes per second. vs mpi, vs memcpy: medians of the "
    "ratios of times taken in the same round; memcpy2 fills two arrays in turn, as slots do."
)


@dataclass(frozen=True)
class Place:
    """Where a request receives: its name in the table, and how the memory is made and freed."""

    name: str
    make: Callable[[MPI.Intracomm, NDArray[Any]], NDArray[Any] | None]
    free: Callable[[NDArray[Any] | None], object]


def _window_memory(comm: MPI.Intracomm, sent: NDArray[Any]) -> NDArray[Any]:
    return empty(comm, sent.shape, sent.dtype)


def _free_window_memory(array: NDArray[Any] | None) -> None:
    if array is not None:
        free(array)


PLACES = (
    Place("slots", lambda comm, sent: None, lambda array: None),
    Place("empty", _window_memory, _free_window_memory),
)


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command."""
    names = [name for name in chosen(options.comm) if name != BASELINE]
    check_json(comm, options)
    report = Report(
        "bench alltoallv",
        settings(options),
        {"ranks": comm.size, "blocks": "uniform"},
        remarks=[REMARK],
    )
    out = console(options.terminal) if comm.rank == 0 else None
    total = len(options.sizes) * options.iterations
    with progress(out, "exchanging", total) as tick:
        for size in options.sizes:
            report.rows += compare(comm, options, names, size, tick)
    report.finish(comm, out, options.json)
    return 0


def compare(
    comm: MPI.Intracomm, options: Namespace, names: list[str], size: int, tick: Callable[[], None]
) -> list[Row]:
    """Collective. The rows of one size."""
    count = max(1, round(size / ITEM / comm.size))
    sent = np.arange(count * comm.size, dtype=np.float64)
    nbytes = byte_count(sent.nbytes)
    calls: dict[tuple[str, str], Callable[[], object]] = {
        (BASELINE, "plain"): _plain_alltoallv(comm, sent, count),
        (MEMCPY, "plain"): partial(np.copyto, np.zeros_like(sent), sent),
        (MEMCPY, "two in turn"): _copy_in_turn(sent),
    }
    plain = list(calls)
    candidates: list[tuple[str, Candidate[PersistentRequest]]] = []
    with ExitStack() as memory:
        for place in PLACES:
            for each in _requests(comm, options, names, sent, place, memory):
                candidates.append((place.name, each))
                if each.made is not None:
                    calls[each.method, place.name] = _round(each.made)
        times = _times(comm, options, calls, tick)
        for _, each in reversed(candidates):
            release(comm, [each], PersistentRequest.Free)
    against = {
        BASELINE: times[BASELINE, "plain"],
        MEMCPY: times[MEMCPY, "plain"],
        MEMCPY_IN_TURN: times[MEMCPY, "two in turn"],
    }
    rows = [
        Row(
            {"bytes": nbytes, "method": method, "memory": memory_name},
            times[method, memory_name],
            nbytes=sent.nbytes,
            against=against,
        )
        for method, memory_name in plain
    ]
    for name, each in candidates:
        labels = {"bytes": nbytes, "method": each.method, "memory": name}
        rows.append(
            Row(labels, reason=each.reason)
            if each.reason
            else Row(
                labels,
                times[each.method, name],
                setup=each.setup + each.freeing,
                nbytes=sent.nbytes,
                against=against,
            )
        )
    return rows


def _requests(
    comm: MPI.Intracomm,
    options: Namespace,
    names: list[str],
    sent: NDArray[Any],
    place: Place,
    memory: ExitStack,
) -> list[Candidate[PersistentRequest]]:
    """Collective. A request of every method; the receive memory is freed with the stack."""
    info = hints(options)

    def make(method: str) -> PersistentRequest:
        received = place.make(comm, sent)
        memory.callback(place.free, received)
        return Alltoallv_init(comm, sent, received, method=method, info=info)

    return prepare(comm, names, make, PersistentRequest.Free) if names else []


def _times(
    comm: MPI.Comm,
    options: Namespace,
    calls: dict[tuple[str, str], Callable[[], object]],
    tick: Callable[[], None],
) -> dict[tuple[str, str], list[float]]:
    subjects = [
        Subject(" ".join(key), call, repeats=repeats(comm, call)) for key, call in calls.items()
    ]
    seconds = options.seconds / len(options.sizes)
    lists = measure(comm, subjects, iterations=options.iterations, seconds=seconds, tick=tick)
    return dict(zip(calls, lists, strict=True))


def _plain_alltoallv(comm: MPI.Comm, sent: NDArray[Any], count: int) -> Callable[[], object]:
    """Local. The baseline's call; nothing is left to prepare in it but mpi4py's own checks."""
    received = np.zeros_like(sent)
    counts = np.full(comm.size, count, np.intc)
    starts = np.arange(comm.size, dtype=np.intc) * np.intc(count)
    layout = (counts, starts)
    return partial(comm.Alltoallv, [sent, layout, MPI.DOUBLE], [received, layout, MPI.DOUBLE])


def _copy_in_turn(sent: NDArray[Any]) -> Callable[[], object]:
    """Local. A copy into one of two arrays, then the other."""
    turn = cycle([np.zeros_like(sent), np.zeros_like(sent)])
    return lambda: np.copyto(next(turn), sent)


def _round(request: PersistentRequest) -> Callable[[], object]:
    start, wait = request.Start, request.Wait

    def call() -> None:
        start()
        wait()

    return call
