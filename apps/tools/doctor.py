"""``onesided doctor``: which MPI this is, and which methods work on it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from onesided.apps.bench.selection import chosen
from onesided.apps.cli import machine
from onesided.apps.cli.failures import FAILED, words
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console, progress
from onesided.apps.cli.report import PLAIN, byte_count, write_json
from onesided.collectives import Alltoallv_init, OnesidedError, Request, interpreter, methods
from onesided.collectives.hardware import Layout
from onesided.collectives.modelling.parameters import ASSUMED, known_parameters
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
    words: str


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
    if wrong:
        return Trial(method, False, True, used, f"{wrong} wrong entries in {ROUNDS} rounds")
    return Trial(method, True, True, used, "")


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


# What is known to be wrong with an MPI library, and what this package does about it.
#
# All of it was observed with the versions named, or is in the library's public list of issues.

Version = tuple[int, int, int]
ANY_LATER: Version = (1 << 30, 0, 0)


@dataclass(frozen=True)
class Defect:
    """A defect of one library, from the first to the last version known to have it."""

    vendor: str
    first: Version
    last: Version
    what: str
    here: str

    def concerns(self, vendor: str, version: Version) -> bool:
        """Local. Whether this library has it."""
        return vendor == self.vendor and self.first <= version <= self.last


DEFECTS = (
    Defect(
        "MPICH",
        (5, 0, 0),
        (5, 0, 2),
        "a Put outside the target's window corrupts memory in silence",
        "ranges are checked at initialization",
    ),
    Defect(
        "MPICH",
        (5, 0, 0),
        (5, 0, 2),
        "MPI_Alltoallv_init truncates blocks in silence where counts do not match",
        "counts are compared at initialization",
    ),
    Defect(
        "MPICH",
        (5, 0, 0),
        (5, 0, 2),
        "an active persistent request can be freed without an error",
        "Free refuses on an active request",
    ),
    Defect(
        "MPICH",
        (5, 0, 0),
        (5, 0, 2),
        "no more than 2046 windows and communicators at a time",
        "a clear error names the limit",
    ),
    Defect(
        "MPICH",
        (5, 0, 0),
        (5, 0, 2),
        "a job in which a rank left early with code 0 counts as a success",
        "the tests count ranks that came to the end",
    ),
    Defect(
        "MPICH",
        (5, 0, 0),
        (5, 0, 2),
        "a segment of 4 MB stays in /dev/shm after every job that was killed",
        "remove mpich_shm_* files by hand",
    ),
    Defect(
        "MPICH",
        (5, 0, 0),
        (5, 0, 2),
        "MPI_Win_allocate_shared crashes where no communicator is left",
        "a duplicate of the communicator is tried first",
    ),
    Defect(
        "MPICH",
        (5, 0, 0),
        (5, 0, 2),
        "a probe on MPI_COMM_SELF drives no progress for other ranks",
        "waiting ranks probe the communicator of the request",
    ),
    Defect(
        "MPICH",
        (4, 0, 0),
        (4, 1, 2),
        "a persistent collective may send the data of its initialization (issue 7078)",
        "use another method than mpi-persistent",
    ),
    Defect(
        "Open MPI",
        (4, 0, 0),
        (4, 1, 99),
        "windows on user memory may fail: no one-sided component (issue 9871)",
        "use p2p; onesided doctor tells",
    ),
    Defect(
        "Open MPI",
        (5, 0, 0),
        (5, 0, 11),
        "partitioned communication corrupts data from the second round on (issue 12328)",
        "it is not used",
    ),
    Defect(
        "Open MPI",
        (5, 0, 0),
        (5, 0, 11),
        "a persistent collective crashes once its communicator is freed",
        "requests keep a communicator of their own",
    ),
    Defect(
        "Open MPI",
        (5, 0, 0),
        (5, 0, 11),
        "counts above 2**31 - 1 are refused (MPI 3.1 interface)",
        "large blocks are split or given as larger types",
    ),
    Defect(
        "Open MPI",
        (5, 0, 0),
        (5, 0, 11),
        "freeing a window with an open epoch gives no error",
        "requests close their epochs first",
    ),
    Defect(
        "Open MPI",
        (5, 0, 0),
        (5, 0, 11),
        "osc/rdma over OFI crashes with several ranks on a node (issue 14203)",
        "choose another one-sided component, or p2p",
    ),
    Defect(
        "Open MPI",
        (5, 0, 0),
        (5, 0, 11),
        "Puts of strided data travel element by element off the node",
        "blocks are packed before they leave the node",
    ),
    Defect(
        "Open MPI",
        (5, 0, 0),
        (5, 0, 11),
        "Cartesian neighbor collectives swap the sides on a periodic axis of extent 1 or 2",
        "mpi and mpi-persistent refuse such a grid",
    ),
)


def known_defects(vendor: str, version: Version) -> list[Defect]:
    """Local. The defects of this library."""
    return [defect for defect in DEFECTS if defect.concerns(vendor, version)]


SHARED_MEMORY = "/dev/shm"


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a method moved wrong data."""
    names = chosen(options.comm, baseline=False)
    out = console(options.terminal) if comm.rank == 0 else None
    found = facts(comm)
    trials = []
    with progress(out, "trying", len(names)) as tick:
        for name in names:
            trials.append(try_method(comm, name, dict(options.info)))
            tick()
    if out is not None:
        show(out, found, trials)
        if options.json is not None:
            write_json(options.json, _record(options, found, trials))
    return FAILED if any(trial.supported and not trial.works for trial in trials) else 0


def facts(comm: MPI.Intracomm) -> dict[str, Any]:
    """Collective. What is known about MPI and machine without trying anything."""
    name, version = machine.vendor()
    return {
        **machine.facts(comm),
        "versions": machine.versions(),
        "interpreters": sorted(set(comm.allgather(interpreter()))),
        "layout": str(Layout.of(comm)),
        "kernels": "; ".join(sorted(set(comm.allgather(", ".join(available()))))),
        "shared_memory": min(
            (each for each in comm.allgather(shared_memory()) if each is not None),
            key=lambda each: each["free"],
            default=None,
        ),
        "parser": "; ".join(sorted(set(comm.allgather(entries.parser())))),
        "estimates": _estimates(),
        "defects": [
            {"defect": defect.what, "here": defect.here} for defect in known_defects(name, version)
        ],
    }


def shared_memory() -> dict[str, int] | None:
    """Local. Total and free bytes of the file system that holds shared windows, if there is one."""
    try:
        usage = shutil.disk_usage(SHARED_MEMORY)
    except OSError:
        return None
    return {"total": usage.total, "free": usage.free}


def _estimates() -> str:
    """Local. What ``effort=estimate`` knows of this machine."""
    known = known_parameters()
    if known is ASSUMED:
        return "assumed parameters: none were measured here (onesided bench model --keep)"
    return known.provenance or known.name


def show(out: Console, found: dict[str, Any], trials: list[Trial]) -> None:
    """Local. Print everything for a person."""
    versions, memory = found["versions"], found["shared_memory"]
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
        SHARED_MEMORY: "none"
        if memory is None
        else f"{byte_count(memory['free'])} of {byte_count(memory['total'])} free",
        "matrices are parsed by": found["parser"],
        "estimates go by": found["estimates"],
    }
    for name, value in lines.items():
        out.print(f"{name:>22}  {value}", **PLAIN)
    out.print(_table(trials))
    for trial in trials:
        if trial.words:
            out.print(f"{trial.method}: {trial.words}", **PLAIN)
    defects = found["defects"]
    out.print(f"\nKnown defects of this version: {len(defects) or 'none'}", **PLAIN)
    for entry in defects:
        out.print(f"- {entry['defect']} (here: {entry['here']})", **PLAIN)


def _table(trials: list[Trial]) -> Table:
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
    return table


def _record(options: Options, found: dict[str, Any], trials: list[Trial]) -> dict[str, Any]:
    return {
        "command": "doctor",
        "settings": options.settings(),
        "versions": found["versions"],
        "machine": {
            name: value for name, value in found.items() if name not in ("versions", "defects")
        },
        "defects": found["defects"],
        "methods": [
            {
                "method": trial.method,
                "works": trial.works,
                "supported": trial.supported,
                "used": trial.used,
                "reason": trial.words,
            }
            for trial in trials
        ],
    }
