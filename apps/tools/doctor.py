"""``onesided doctor``: which MPI this is, and which methods work on it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from onesided import collectives
from onesided.apps.bench.choices import named
from onesided.apps.cli import machine
from onesided.apps.cli.failures import FAILED, by_rank_0, words
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import PLAIN, byte_count, write_json
from onesided.collectives import OnesidedError, Request, interpreter, methods, testing
from onesided.collectives.registry import BROADCAST, EXCHANGE, REDUCTION
from onesided.collectives.tuning.defects import Defect, known_defects, library
from onesided.sparse.files import entries
from onesided.sparse.kernels.registry import available

ROUNDS = 4
ENTRIES = 5  # of a vector that is reduced
#: Seconds for the collectives of a method before the job is ended, and for all trials of it.
PATIENCE, THOROUGH = 60.0, 900.0


@dataclass(frozen=True)
class Trial:
    """How a method of an operation did: whether it worked, what was used, and what went wrong.

    ``supported`` is false where the method itself said that it cannot work on this MPI, for any of
    the collectives.
    """

    operation: str
    method: str
    works: bool
    supported: bool
    used: str
    reason: str = ""


class _Reduction:
    """A reduction of integers with the verbs of :class:`testing.Trial`."""

    def __init__(self, comm: MPI.Intracomm, name: str, method: str, info: Mapping[str, str]):
        self.rank, self.size = comm.rank, comm.size
        scatters = name.startswith("Reduce_scatter")
        self.sent = np.empty(ENTRIES * (comm.size if scatters else 1), np.int64)
        self.got = np.empty(ENTRIES, np.int64)
        self.first = ENTRIES * comm.rank if scatters else 0
        self.ranks = {
            "Scan": range(comm.rank + 1), "Exscan": range(comm.rank),
            "Reduce": range(comm.size if comm.rank == 0 else 0),
        }.get(name, range(comm.size))  # fmt: skip
        counts = [[ENTRIES] * comm.size] if name == "Reduce_scatter" else []
        make = getattr(collectives, f"{name}_init")
        self.request: Request = make(comm, self.sent, self.got, *counts, method=method, info=info)

    def _data(self, turn: int, rank: int) -> NDArray[np.int64]:
        return (turn * self.size + rank + 1) * 1000 + np.arange(self.sent.size)

    def round(self, turn: int) -> None:
        """A round, checked where the rank receives something."""
        self.sent[:] = self._data(turn, self.rank)
        self.request.Start()
        self.request.Wait()
        whole: Any = sum(self._data(turn, rank) for rank in self.ranks)
        wanted = whole[self.first : self.first + ENTRIES] if len(self.ranks) else self.got
        if not np.array_equal(self.got, wanted):
            raise AssertionError(f"round {turn}: {self.got}, not {wanted}")

    def free(self) -> None:
        """Collective."""
        self.request.Free()


#: In the order of the table.
OPERATIONS = (EXCHANGE, BROADCAST, REDUCTION)

REDUCTIONS = ("Allreduce", "Reduce", "Scan", "Exscan", "Reduce_scatter_block", "Reduce_scatter")


def _collectives(
    comm: MPI.Intracomm, operation: str, method: str, info: Mapping[str, str]
) -> dict[str, Callable[[], testing.Trial | _Reduction]]:
    """Local. What makes a trial of each collective that this is, by its name."""
    if operation == REDUCTION:
        return {name: partial(_Reduction, comm, name, method, info) for name in REDUCTIONS}
    return {
        row.name: partial(testing.Trial, comm, row, method, info=info)
        for row in testing.OPERATIONS.values() if row.family == operation
    }  # fmt: skip


def try_method(
    comm: MPI.Intracomm, method: str, info: Mapping[str, str], operation: str = EXCHANGE
) -> Trial:
    """Collective. Some rounds of changing data of every collective that the method does.

    Ends the job where nothing comes back in time.
    """
    used, refused, wrong = [], [], []
    with _patience(method):
        for name, make in _collectives(comm, operation, method, info).items():
            try:
                trial = make()
            except OnesidedError as error:  # on all ranks
                refused.append(f"{name}: {words(error)}")
                continue
            used.append(trial.request.method)
            failed = 0
            for turn in range(ROUNDS):
                try:
                    trial.round(turn)
                except AssertionError:  # on this rank
                    failed += 1
            if failed := comm.allreduce(failed):
                wrong.append(f"{name}: wrong data in {failed} of {ROUNDS * comm.size} rounds")
            trial.free()
    return Trial(operation, method, bool(used) and not wrong, bool(used),
                 ", ".join(dict.fromkeys(used)), "; ".join(wrong or refused))  # fmt: skip


@contextmanager
def _patience(method: str, seconds: float = PATIENCE) -> Iterator[None]:
    """Local. End the job where the block takes longer, whatever it hangs in."""

    def give_up() -> None:
        text = f"onesided: {method} has not finished its collectives in {seconds:.0f} s"
        print(text, file=sys.stderr, flush=True)
        threading.Timer(5.0, os._exit, (3,)).start()
        MPI.COMM_WORLD.Abort(3)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


SHARED_MEMORY = "/dev/shm"


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a method moved wrong data."""
    known = [(kind, name) for kind in OPERATIONS for name in methods(kind)]
    names, info = named(options.comm, [name for _, name in known]), dict(options.info)
    asked = [(kind, name) for kind, name in known if name in names]
    found, defects = facts(comm), known_defects(*library())
    trials = []
    with progress(comm, options, "trying", len(asked)) as tick:
        for kind, name in asked:
            trial = try_method(comm, name, info, kind)
            if options.thorough and trial.works and kind == EXCHANGE:
                try:
                    with _patience(name, THOROUGH):
                        testing.check_transport(comm, name, info)
                except AssertionError as error:  # on all ranks
                    trial = replace(trial, works=False, reason=str(error))
            trials.append(trial)
            tick()

    def tell() -> None:
        show(console(), found, trials, defects)
        if options.json is not None:
            write_json(options.json, {
                "command": "doctor", "settings": options.settings(), "machine": found,
                "defects": [{"defect": each.what, "here": each.here} for each in defects],
                "methods": [asdict(trial) for trial in trials],
            })

    by_rank_0(comm, tell)
    return FAILED if any(trial.supported and not trial.works for trial in trials) else 0


def facts(comm: MPI.Intracomm) -> dict[str, Any]:
    """Collective. What is known about MPI and machine without trying anything."""
    memory: tuple[int, int] | None = None  # free and total, of what holds shared windows
    with suppress(OSError):
        usage = shutil.disk_usage(SHARED_MEMORY)
        memory = usage.free, usage.total
    mine = interpreter(), ", ".join(available()), entries.parser(), memory
    interpreters, kernels, parsers, memories = zip(*comm.allgather(mine), strict=True)
    least = min(filter(None, memories), default=None)
    return {
        **machine.facts(comm), "layout": str(machine.Layout.of(comm)),
        "interpreters": sorted(set(interpreters)), "kernels": "; ".join(sorted(set(kernels))),
        "shared_memory": least and {"total": least[1], "free": least[0]},
        "parser": "; ".join(sorted(set(parsers))),
    }  # fmt: skip


def show(
    out: Console, found: Mapping[str, Any], trials: list[Trial], defects: list[Defect]
) -> None:
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
    table = Table(title="Every collective by every method", title_justify="left")
    for name in ("", "method", "works", "order of starts", "how it moves data"):
        table.add_column(name)
    before = ""
    for trial in trials:
        method = methods(trial.operation)[trial.method]
        works = "yes" if trial.works else "NO" if trial.supported else "not here"
        order = "any" if method.any_order else "same on all ranks"
        shown = trial.method
        if trial.used not in ("", shown):
            shown += f" ({trial.used})"
        kind = "" if trial.operation == before else f"{trial.operation}s"
        table.add_row(kind, shown, works, order, method.summary)
        before = trial.operation
    out.print(table)
    for trial in trials:
        if trial.reason:
            out.print(f"{trial.operation} by {trial.method}: {trial.reason}", **PLAIN)
    out.print(f"\nKnown defects of this version: {len(defects) or 'none'}", **PLAIN)
    for each in defects:
        out.print(f"- {each.what} (here: {each.here})", **PLAIN)
