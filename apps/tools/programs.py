"""``onesided bench programs``: programs of others, as they are and with one line more.

A program that was written for mpi4py-fft, or for what builds on it, is run from its first line to
its last: as it is, after ``install()`` (our transposes), and after ``replace()`` (our classes).
Each way is a job of its own, because both last for a process; the jobs take turns. All arrays that
a run leaves behind are compared with those of the program as it is.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.foreign import Foreign, ForeignError, Program, shared_folder
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Check, Variant, nothing, unchecked
from onesided.apps.cli.failures import by_rank_0, from_rank_0
from onesided.apps.cli.launch import find_mpiexec, launcher_environment
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.tools.program_job import AS_IS, MODES

FOLDER = Path(__file__).parents[1] / "data" / "programs"
TOLERANCE = 1e-9  # of an array, relative to its largest number
SMALL = 1e-3  # of the largest number of all arrays: what is smaller is held against that
#: Beginnings of the variables by which users speak to their MPI, which is that of the jobs here.
SETTINGS = ("UCX_", "MPIR_CVAR_", "FI_")
REMARK = (
    "Times are those of the whole program, plans included, by the slowest rank. install(): "
    "mpi4py-fft with our transposes; replace(): our classes under its names. Verified: all arrays "
    "that the program leaves against those that it leaves as it is. transforms: the part of its "
    "time that is inside mpi4py-fft's transforms, as it is."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a program comes to other numbers."""
    files = [Path(file) for file in options.files] or sorted(FOLDER.glob("*.py"))
    by_rank_0(comm, lambda: [file.read_bytes() for file in files])
    changes = [f"{name}={value}" for name, value in options.set]
    report = Report("bench programs", options.settings(), {"ranks": comm.size}, remarks=[REMARK],
                    baseline=AS_IS)  # fmt: skip
    cases = [
        Case({"program": file.stem}, [{METHOD: mode} for mode in MODES],
             partial(_opened, file, changes), against=(AS_IS,))
        for file in files
    ]  # fmt: skip
    sweep(comm, options, report, cases, "running", files)
    return report.end(comm, options)


class Job(Foreign):
    """A program in one of its modes; questions are those of :mod:`.program_job`."""

    def __init__(self, comm: MPI.Intracomm, *words: str) -> None:
        """Collective. :class:`ForeignError` on every rank where the program cannot run."""
        launcher, version = from_rank_0(comm, find_mpiexec)
        line = [sys.executable, "-m", "onesided.apps.tools.program_job", *words]
        needed = launcher_environment(launcher, version, 1, 1, root=False)
        needed |= {key: text for key, text in os.environ.items() if key.startswith(SETTINGS)}
        super().__init__(comm, lambda _: Program(launcher, line, needed | {"MPLBACKEND": "Agg"}))
        trouble = self.facts.pop("trouble", "")
        if trouble:
            self.close()
            raise ForeignError(trouble)


def _opened(file: Path, changes: list[str], comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. A folder for the arrays that runs leave, and what makes a job of each mode."""
    path = str(file.resolve())
    folder, started = stack.enter_context(shared_folder(comm)), set[str]()

    def make(labels: Labels) -> Variant:
        mode = labels[METHOD]
        if mode != AS_IS and AS_IS not in started:
            raise ForeignError("the program does not run as it is")
        job = Job(comm, mode, path, str(folder), *changes)
        started.add(mode)

        def check() -> Verdict | None:
            job.ask("run")
            job.ask("keep")
            theirs, ours = (folder / f"{each}-{comm.rank}.npz" for each in (AS_IS, mode))
            found = comm.allgather(_difference(theirs, ours))
            told = [each for each in found if each is not None]
            return Verdict(float(np.max(told)), TOLERANCE) if told else None  # NaN stays

        compared: Check = check
        metrics = {}
        if mode == AS_IS:
            try:
                job.ask("keep")
                metrics["transforms"] = job.ask("transforms")
            except ForeignError:  # on all ranks
                job.close()
                raise
            compared = unchecked("what the others are compared with")
        return Variant(partial(job.run, "run"), compared, on_root=True, first=nothing,
                       own=partial(job.times, "run"), free=job.close, set_up=False,
                       metrics=metrics)  # fmt: skip

    return make


def _difference(theirs: Path, ours: Path) -> float | None:
    """Local. The largest difference of two arrays of one name, relative to the largest number;
    None where the program left none."""
    with np.load(theirs) as one, np.load(ours) as other:
        if set(one.files) != set(other.files):
            return np.inf
        if not one.files:
            return None
        sizes = {name: float(np.abs(one[name]).max(initial=0.0)) for name in one.files}
        least = SMALL * max(sizes.values()) or 1.0
        worst = 0.0
        for name, size in sizes.items():
            if one[name].shape != other[name].shape:
                return np.inf
            found = np.abs(one[name] - other[name]).max(initial=0.0) / max(size, least)
            worst = float(np.maximum(worst, found))  # one that is no number stays
        return worst
