"""``onesided doctor``: which MPI this is, and which methods work on it."""

from __future__ import annotations

import shutil
from argparse import Namespace
from typing import Any

from mpi4py import MPI
from rich.console import Console
from rich.table import Table

from onesided.apps import machine
from onesided.apps.defects import known_defects
from onesided.apps.options import settings
from onesided.apps.progress import console, progress
from onesided.apps.report import PLAIN, byte_count, check_json, write_json
from onesided.apps.selection import chosen
from onesided.apps.trial import Trial, try_method
from onesided.collectives import interpreter, methods
from onesided.collectives.hardware import Layout
from onesided.sparse.files import entries
from onesided.sparse.kernels.registry import available

FAILED = 1  # exit code where a method that should work does not
SHARED_MEMORY = "/dev/shm"


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a method moved wrong data."""
    names = chosen(options.comm, baseline=False)
    check_json(comm, options)
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
        "core": ", ".join(sorted(set(comm.allgather(interpreter())))),
        "kernels": "; ".join(sorted(set(comm.allgather(", ".join(available()))))),
        "shared_memory": min(
            (each for each in comm.allgather(shared_memory()) if each is not None),
            key=lambda each: each["free"],
            default=None,
        ),
        "parser": "; ".join(sorted(set(comm.allgather(entries.parser())))),
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
        "core of rounds": found["core"],
        "sparse kernels": found["kernels"],
        SHARED_MEMORY: "none"
        if memory is None
        else f"{byte_count(memory['free'])} of {byte_count(memory['total'])} free",
        "matrices are parsed by": found["parser"],
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


def _record(options: Namespace, found: dict[str, Any], trials: list[Trial]) -> dict[str, Any]:
    return {
        "command": "doctor",
        "settings": settings(options),
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
