"""``onesided doctor``: which MPI this is, and which methods work on it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from onesided.apps.bench.selection import chosen
from onesided.apps.cli import machine
from onesided.apps.cli.failures import FAILED, by_rank_0, words
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import PLAIN, byte_count, write_json
from onesided.collectives import Alltoallv_init, OnesidedError, Request, interpreter, methods
from onesided.collectives.hardware import Layout
from onesided.collectives.tuning.defects import Defect, known_defects, library
from onesided.sparse.files import entries
from onesided.sparse.kernels.registry import available

# Does a method work here? A small exchange with it, checked, on the ranks given.

ROUNDS = 4
ENTRIES = 5  # per block
PATIENCE = 60.0  # seconds for a small exchange before the job is ended


@dataclass(frozen=True)
class Trial:
    """How a small exchange went: whether it worked, which method was used, and what went wrong.

    ``supported`` is false where the method itself said that it cannot work on this MPI.
    """

    method: str
    works: bool
    supported: bool
    used: str
    reason: str = ""


def try_method(comm: MPI.Intracomm, method: str, info: Mapping[str, str]) -> Trial:
    """Collective. Exchange a few blocks with changing data and check every entry.

    Ends the job where nothing comes back in time.
    """
    sent = np.empty((comm.size, ENTRIES), np.int64)
    with _patience(method):
        try:
            request = Alltoallv_init(comm, sent, None, method=method, info=info)
        except OnesidedError as error:
            return Trial(method, False, False, method, words(error))
        wrong = sum(_round(comm, request, sent, number) for number in range(ROUNDS))
        wrong = comm.allreduce(wrong)
        used = request.method
        request.Free()
    reason = f"{wrong} wrong entries in {ROUNDS} rounds" if wrong else ""
    return Trial(method, not wrong, True, used, reason)


def _round(comm: MPI.Intracomm, request: Request, sent: NDArray[Any], number: int) -> int:
    """Collective. One round with data that tell round, source, target and index apart."""
    peers = np.arange(comm.size)[:, None]
    index = np.arange(ENTRIES)
    sent[...] = ((number * comm.size + comm.rank) * comm.size + peers) * ENTRIES + index
    request.Start()
    received = np.asarray(request.Wait()).reshape(comm.size, ENTRIES)
    expected = ((number * comm.size + peers) * comm.size + comm.rank) * ENTRIES + index
    return int(np.count_nonzero(received != expected))


@contextmanager
def _patience(method: str) -> Iterator[None]:
    """Local. End the job where the block takes too long, whatever it hangs in."""

    def give_up() -> None:
        text = f"onesided: {method} has not finished a small exchange in {PATIENCE:.0f} s"
        print(text, file=sys.stderr, flush=True)
        threading.Timer(5.0, os._exit, (3,)).start()
        MPI.COMM_WORLD.Abort(3)

    timer = threading.Timer(PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


SHARED_MEMORY = "/dev/shm"


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a method moved wrong data."""
    names = chosen(options.comm, baseline=False)
    found, defects = facts(comm), known_defects(*library())
    trials = []
    with progress(comm, options, "trying", len(names)) as tick:
        for name in names:
            trials.append(try_method(comm, name, dict(options.info)))
            tick()

    def tell() -> None:
        show(console(), found, trials, defects)
        if options.json is not None:
            write_json(options.json, {
                "command": "doctor",
                "settings": options.settings(),
                "machine": found,
                "defects": [{"defect": each.what, "here": each.here} for each in defects],
                "methods": [asdict(trial) for trial in trials],
            })

    by_rank_0(comm, tell)
    return FAILED if any(trial.supported and not trial.works for trial in trials) else 0


def facts(comm: MPI.Intracomm) -> dict[str, Any]:
    """Collective. What is known about MPI and machine without trying anything."""
    mine = interpreter(), ", ".join(available()), entries.parser(), shared_memory()
    interpreters, kernels, parsers, memories = zip(*comm.allgather(mine), strict=True)
    return {
        **machine.facts(comm),
        "interpreters": sorted(set(interpreters)),
        "layout": str(Layout.of(comm)),
        "kernels": "; ".join(sorted(set(kernels))),
        "shared_memory": min(filter(None, memories), key=lambda each: each["free"], default=None),
        "parser": "; ".join(sorted(set(parsers))),
    }


def shared_memory() -> dict[str, int] | None:
    """Local. Total and free bytes of the file system that holds shared windows, if there is one."""
    try:
        usage = shutil.disk_usage(SHARED_MEMORY)
    except OSError:
        return None
    return {"total": usage.total, "free": usage.free}


def show(
    out: Console, found: Mapping[str, Any], trials: list[Trial], defects: list[Defect]
) -> None:
    """Local. Print everything for a person."""
    versions, memory, free = machine.versions(), found["shared_memory"], "none"
    if memory is not None:
        free = f"{byte_count(memory['free'])} of {byte_count(memory['total'])} free"
    lines = {
        "MPI library": versions["mpi library"],
        "MPI standard": f"{versions['mpi standard']} (standard ABI: {versions['mpi abi']})",
        "thread level": found["thread_level"],
        "mpi4py": versions["mpi4py"],
        "Python, NumPy, SciPy": f"{versions['python']}, {versions['numpy']}, {versions['scipy']}",
        "processor": f"{found['processor']}, {found['cores']} cores for rank 0",
        "rounds are run by": "; ".join(found["interpreters"]),
        "layout": found["layout"],
        "sparse kernels": found["kernels"],
        SHARED_MEMORY: free,
        "matrices are parsed by": found["parser"],
    }
    for name, value in lines.items():
        out.print(f"{name:>22}  {value}", **PLAIN)
    known = methods()
    table = Table(title="A small exchange with every method", title_justify="left")
    for name in ("method", "works", "order of starts", "how it moves data"):
        table.add_column(name)
    for trial in trials:
        method = known[trial.method]
        works = "yes" if trial.works else "NO" if trial.supported else "not here"
        order = "any" if method.any_order else "same on all ranks"
        shown = trial.method if trial.used == trial.method else f"{trial.method} ({trial.used})"
        table.add_row(shown, works, order, method.summary)
    out.print(table)
    for trial in trials:
        if trial.reason:
            out.print(f"{trial.method}: {trial.reason}", **PLAIN)
    out.print(f"\nKnown defects of this version: {len(defects) or 'none'}", **PLAIN)
    for each in defects:
        out.print(f"- {each.what} (here: {each.here})", **PLAIN)
