"""A program of others in a job of its own, run from its first line to its last when asked.

``python -m onesided.apps.tools.program_job MODE FILE FOLDER [NAME=VALUE ...]`` under mpiexec. MODE
is one of :data:`MODES`; a line ``NAME = ...`` of the file says VALUE instead. The first line that
comes out is JSON: the number of ranks, and ``trouble`` where the program cannot run here. Then
"run" is answered by the seconds of a run on the slowest rank, "keep" after the arrays that the last
run has left are in FOLDER/MODE-RANK.npz, "transforms" by the part of a run that is inside
mpi4py-fft's transforms. The end of the input ends the job, also in the middle of a run, when
whoever asked is gone. Ranks that wait for a question sleep.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.foreign import TEMPORARY
from onesided.apps.bench.timing import Stopwatch, nothing
from onesided.apps.cli.failures import LONGEST_WAIT, rest, words
from onesided.collectives import abort_on_exception
from onesided.pencilfft import install, replace

AS_IS = "as is"
#: What is done before a program is run for the first time.
MODES: Mapping[str, Callable[[], object]] = {
    AS_IS: nothing, "install()": install, "replace()": replace,
}  # fmt: skip
TRANSFORM = "mpi4py_fft.mpifft"


def changed(text: str, changes: Sequence[str]) -> str:
    """Local. A program with other numbers; ``ValueError`` where it has no such line, or several."""
    for change in changes:
        name, _, value = change.partition("=")
        line = re.compile(rf"^{re.escape(name)} *=(?!=).*$", re.MULTILINE)
        count = len(line.findall(text))
        if count != 1:
            raise ValueError(f"{count or 'no'} lines {name} = ...")
        text = line.sub(f"{name} = {value}".replace("\\", r"\\"), text)
    return text


def arrays(names: Mapping[str, Any]) -> dict[str, Any]:
    """Local. The arrays of numbers among the names that a program has left."""
    return {
        name: np.asarray(value) for name, value in names.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "fc"
    }  # fmt: skip


class Job:
    """The program, and what it answers; all methods are Collective."""

    def __init__(self, comm: MPI.Intracomm, mode: str, path: str, changes: Sequence[str]) -> None:
        text = changed(Path(path).read_text(encoding="utf-8"), changes)
        self._comm, self._path = comm, path
        self._code: Any = compile(text, path, "exec")
        self._left: Mapping[str, Any] = {}
        self.running = False
        MODES[mode]()

    def run(self) -> float:
        """Seconds of a run."""
        self._left = {}
        gc.collect()
        # a module, as what a program pickles is looked for there
        sys.modules["__main__"] = self._module = ModuleType("__main__")
        self._module.__file__ = self._path
        self._comm.Barrier()
        began, self.running = time.perf_counter(), True
        try:
            exec(self._code, self._module.__dict__)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise RuntimeError(f"the program leaves with {end.code}") from end
        finally:
            self.running = False
        taken = time.perf_counter() - began
        self._left = self._module.__dict__
        return float(self._comm.allreduce(taken, op=MPI.MAX))

    def keep(self, file: Path) -> None:
        """What the last run has left."""
        np.savez(file, **{f"of {name}": each for name, each in arrays(self._left).items()})
        self._comm.Barrier()

    def in_transforms(self) -> float:
        """The part of a run that is inside mpi4py-fft's transforms; a mean over the ranks."""
        if find_spec("mpi4py_fft") is None:
            return 0.0
        kind, watch = import_module(TRANSFORM).Transform, Stopwatch()
        own = kind.__call__
        kind.__call__ = watch.timed(own)
        try:
            whole = self.run()
        finally:
            kind.__call__ = own
        return float(self._comm.allreduce(watch()) / self._comm.size / whole)


def main() -> None:
    """Collective. The job, until its input ends."""
    mode, path, folder, *changes = sys.argv[1:]
    comm = MPI.COMM_WORLD.Dup()
    answers, trouble = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(2), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what the program prints
        os.dup2(silence, stream)
    abort_on_exception()
    sys.argv = [path]
    sys.path.insert(0, str(Path(path).resolve().parent))

    def tell(answer: object) -> None:
        if comm.rank == 0:
            print(answer, file=answers, flush=True)

    facts: dict[str, Any] = {"ranks": comm.size}
    try:
        job = Job(comm, mode, path, changes)
        if comm.rank == 0:
            places = [each for each in (Path(folder), Path.cwd()) if _is_temporary(each)]
            threading.Thread(target=_watch, args=(job, places), daemon=True).start()
        job.run()
    except Exception as error:
        said = f"{type(error).__name__}: {words(error)}"
        if not rest(comm, LONGEST_WAIT):  # the others did not come to it
            print(said, file=trouble, flush=True)
            raise
        facts["trouble"] = said
    tell(json.dumps(facts))
    while "trouble" not in facts:
        question = _question(comm)
        if question == "run":
            tell(job.run())
        elif question == "keep":
            job.keep(Path(folder) / f"{mode}-{comm.rank}.npz")
            tell(0.0)
        elif question == "transforms":
            tell(job.in_transforms())
        else:
            break


def _is_temporary(folder: Path) -> bool:
    """Local. Whether a folder is one of those that a benchmark makes and removes."""
    where = folder.resolve()
    here = Path(tempfile.gettempdir()).resolve()
    return where.parent == here and where.name.startswith(TEMPORARY)


def _watch(job: Job, places: Sequence[Path]) -> None:
    """Local. End the job where its input ends in the middle of a run, and remove the folders that
    nobody removes then: that of the arrays, and that in which the job was started."""
    ends = select.poll()
    ends.register(0, 0)  # that it is hung up is always told
    ends.poll()
    while not job.running:  # the last question may have been read, and not begun
        time.sleep(0.1)
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
    os._exit(1)


def _question(comm: MPI.Intracomm) -> str:
    """Collective. The next line, which rank 0 reads while the others sleep; empty at the end."""
    line = sys.stdin.readline().strip() if comm.rank == 0 else ""
    rest(comm)
    told: str = comm.bcast(line)
    return told


if __name__ == "__main__":
    main()
