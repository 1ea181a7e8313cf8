"""``onesided bench rounds``: rounds and set-ups beside MPI's own, and beside what is wanted.

Rounds of a uniform exchange, one after the other, as a solver runs them, into every kind of receive
memory; the contestants take turns in an order that changes, several rounds at a time where a round
is short. A ratio is that of the times of the same turn; shown are the median and the quartiles. All
that is received is checked. Set-up is that of the second and later requests of a communicator.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from rich.table import Table

from onesided.apps.bench.memory import PLACES, Exchanger
from onesided.apps.cli.machine import facts, versions
from onesided.apps.cli.options import settings
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import byte_count, check_json
from onesided.apps.tools.spmv import FAILED

#: Seconds of the rounds that are timed in a row.
IN_A_ROW = 1e-3

#: By memory, and MPI, what a round may take of one with MPI_Alltoallv: up to so many bytes a rank.
TARGETS: dict[str, dict[str, tuple[tuple[int, float], ...]]] = {
    "MPICH": {
        "slots": ((8 << 10, 0.15), (128 << 10, 0.12), (1 << 20, 0.22), (2 << 20, 0.40),
                  (16 << 20, 0.65)),
        "empty": ((8 << 10, 0.30),),
        "plain": ((8 << 10, 0.50), (1 << 20, 0.35), (16 << 20, 0.65)),
    },
    "Open MPI": dict.fromkeys(PLACES, ((16 << 20, 0.60),)),
}  # fmt: skip

#: What ``auto`` may take of the fastest any-order method, and seconds of a set-up.
AUTO_TARGET, SETUP_TARGET = 1.10, 0.3e-3

#: Rounds that ``auto`` is told to expect.
EXPECTED = "200"

Ratios = NDArray[np.float64]


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where wrong data came."""
    check_json(comm, options)
    out = console(options.terminal) if comm.rank == 0 else None
    rows: list[dict[str, Any]] = []
    wrong = 0
    sizes = sorted(set(options.sizes))
    with progress(out, "rounds", len(sizes) * len(options.memory)) as tick:
        for memory in options.memory:
            for nbytes in sizes:
                row, errors = _compare(comm, memory, nbytes, options)
                rows.append(row)
                wrong += errors
                tick()
    setup = [_setup(comm, method) for method in ("rma-notify", "rma-p2p", "p2p")]
    if out is not None:
        out.print(_table(rows))
        for method, seconds in setup:
            out.print(f"Set-up of a later request by {method}: {1e3 * seconds:.2f} ms "
                      f"(wanted {1e3 * SETUP_TARGET:.1f})", highlight=False)
        out.print(f"{wrong} wrong elements; ratios are medians (quartiles) over "
                  f"{options.iterations} turns", highlight=False)
    machine = facts(comm)
    if comm.rank == 0 and options.json is not None:
        with open(options.json, "w", encoding="utf-8") as file:
            content = {
                "command": "bench rounds", "settings": settings(options), "machine": machine,
                "versions": versions(), "rows": rows, "setup": dict(setup), "wrong": wrong,
            }  # fmt: skip
            json.dump(content, file, indent=1)
    return FAILED if wrong else 0


def target(memory: str, nbytes: int) -> float | None:
    """Local. What is wanted of the method that users get; None where nothing is."""
    bounds = TARGETS.get(MPI.get_vendor()[0], {}).get(memory, ())
    return next((bound for most, bound in bounds if nbytes <= most), None)


def _compare(
    comm: MPI.Intracomm, memory: str, nbytes: int, options: Namespace
) -> tuple[dict[str, Any], int]:
    """Collective. One row, and how many elements were wrong."""
    count = max(nbytes // 8 // comm.size, 1)
    sent = np.full(count * comm.size, float(comm.rank))
    counts = [count] * comm.size
    received = np.zeros_like(sent)
    out, into = [sent, counts], [received, counts]

    def baseline() -> Any:
        comm.Alltoallv(out, into)
        return received

    contestants: dict[str, Callable[[], Any]] = {"MPI_Alltoallv": baseline}
    held = []
    infos = {"auto": {"expected_iterations": EXPECTED}}
    for method in ("auto", *options.methods):
        each = Exchanger(comm, PLACES[memory], (sent, counts), counts, method,
                         infos.get(method, {}))
        held.append(each)
        contestants[method] = each.round
    chosen = held[0].method
    expected = np.repeat(np.arange(float(comm.size)), count)
    wrong = 0
    for call in contestants.values():
        for _ in range(3):
            wrong += int(np.count_nonzero(call() != expected))
    times = _times(comm, list(contestants.values()), options.iterations)
    for call in contestants.values():
        wrong += int(np.count_nonzero(call() != expected))
    for each in held:
        each.free()
    names = list(contestants)
    ours = {name: _quartiles(times[i] / times[0]) for i, name in enumerate(names) if i}
    any_order = [names.index(name) for name in options.methods]
    best = any_order[int(np.argmin([np.median(times[i]) for i in any_order]))]
    row = {
        "memory": memory,
        "bytes": nbytes,
        "MPI_Alltoallv": float(np.median(times[0])),
        "over MPI_Alltoallv": ours,
        "target": target(memory, nbytes),
        "auto": chosen,
        "auto over best": _quartiles(times[1] / times[best]),
        "best": names[best],
    }
    return row, int(comm.allreduce(wrong))


def _times(comm: MPI.Intracomm, calls: list[Callable[[], Any]], turns: int) -> Ratios:
    """Collective. Seconds of a round, by contestant and turn, on the slowest rank."""
    times = np.empty((len(calls), turns))
    clock = time.perf_counter
    comm.Barrier()
    began = clock()
    for _ in range(5):
        calls[0]()
    once = comm.allreduce((clock() - began) / 5, MPI.MAX)
    repeats = max(1, min(2000, int(IN_A_ROW / max(once, 1e-7))))
    order = np.random.default_rng(1)
    for turn in range(turns):
        for place in order.permutation(len(calls)):
            call = calls[place]
            comm.Barrier()
            began = clock()
            for _ in range(repeats):
                call()
            times[place, turn] = (clock() - began) / repeats
    comm.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
    return times


def _quartiles(ratios: Ratios) -> tuple[float, float, float]:
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return float(middle), float(low), float(high)


def _setup(comm: MPI.Intracomm, method: str) -> tuple[str, float]:
    """Collective. Seconds to initialize a request on a communicator that has had one."""
    sent, counts = np.zeros(comm.size), [1] * comm.size
    seconds = []
    for _ in range(22):
        comm.Barrier()
        began = time.perf_counter()
        each = Exchanger(comm, PLACES["slots"], (sent, counts), counts, method, {})
        seconds.append(time.perf_counter() - began)
        each.free()
    return method, float(comm.allreduce(float(np.median(seconds[2:])), MPI.MAX))


def _table(rows: list[dict[str, Any]]) -> Table:
    methods = list(rows[0]["over MPI_Alltoallv"]) if rows else []
    name, version = MPI.get_vendor()
    title = f"Time of a round over that of MPI_Alltoallv ({name} {'.'.join(map(str, version))})"
    table = Table(title=title, title_justify="left")
    for head in ("memory", "bytes", "MPI_Alltoallv", *methods, "wanted", "auto took",
                 f"over the best (wanted {AUTO_TARGET:.2f})"):
        table.add_column(head, justify="left" if head == "memory" else "right")
    for row in rows:
        ratios = [_text(row["over MPI_Alltoallv"][method]) for method in methods]
        wanted = "" if row["target"] is None else f"{row['target']:.2f}"
        if row["target"] is not None:
            reached = row["over MPI_Alltoallv"][methods[0]][0] <= row["target"]
            wanted += "" if reached else " MISSED"
        table.add_row(
            row["memory"], byte_count(row["bytes"]), f"{1e6 * row['MPI_Alltoallv']:.2f} us",
            *ratios, wanted, row["auto"],
            f"{row['auto over best'][0]:.2f} ({row['best']})",
        )  # fmt: skip
    return table


def _text(quartiles: tuple[float, float, float]) -> str:
    middle, low, high = quartiles
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
