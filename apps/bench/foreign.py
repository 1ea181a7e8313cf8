"""A program of another MPI beside a benchmark: a job of its own, asked for its part in turns.

It is started under the launcher that belongs to its MPI, on as many ranks as we are. Its first line
is JSON and tells about itself. After that every line of a question is answered by one number. It
sleeps until it is asked, and the job that asks sleeps until it has the answer.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.failures import CommandError, by_rank_0, from_rank_0, rest
from onesided.apps.cli.launch import launcher_environment, launcher_flags
from onesided.apps.cli.machine import Layout
from onesided.collectives import agreed
from onesided.collectives.hardware import usable_cores

TEMPORARY = "onesided-"  # how the names of folders begin that are there for a while


@contextmanager
def shared_folder(comm: MPI.Intracomm) -> Iterator[Path]:
    """Collective. A new folder, which rank 0 makes, and removes when all ranks leave the block.

    After an exception nothing collective is called. ``OSError`` on every rank where it cannot be
    made.
    """
    name = ""
    with agreed(comm):
        if comm.rank == 0:
            name = tempfile.mkdtemp(prefix=TEMPORARY)
    name = comm.bcast(name)
    try:
        yield Path(name)
        comm.Barrier()
    finally:
        if comm.rank == 0:
            shutil.rmtree(name, ignore_errors=True)


#: Beginnings of the variables by which a launcher, or an MPI, speaks to its own processes.
FOREIGN = ("PMI", "OMPI", "OPAL", "PRTE", "HYDRA", "MPI_", "MPIR_", "MPICH_", "UCX_")
ANSWERING = 600.0  # seconds that an answer may take, the first line too
SPEAKING = 120.0  # seconds that a compiler, or another program that is asked once, may take
ENDING = 5.0  # seconds for the job to leave by itself


class ForeignError(CommandError):
    """A program of another MPI cannot be run here; the text says why."""


@dataclass(frozen=True)
class Program:
    """What every rank of the job runs, and the launcher that starts it.

    ``words``: the program and its arguments; ``variables``: its environment beside ours.
    """

    launcher: Path
    words: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


class Foreign:
    """The program on as many ranks as ``comm`` has, all on this node.

    Collective, as :meth:`close` is. :class:`ForeignError` on every rank where it cannot be had.
    ``prepare`` is called on rank 0 with a folder that goes when the job does.
    """

    def __init__(self, comm: MPI.Intracomm, prepare: Callable[[Path], Program]) -> None:
        nodes = len(Layout.of(comm).ranks_per_node)
        if nodes > 1:
            raise ForeignError(f"it runs on one node only, these ranks are on {nodes}")
        self._comm = comm
        self._job: _Job | None = None
        self._times: dict[str, list[float]] = {}

        def begin() -> dict[str, Any]:
            self._job = _Job(comm.size, prepare)
            return self._job.facts

        #: What the program says of itself, "ranks" among it.
        self.facts = from_rank_0(comm, begin)

    def run(self, question: str) -> None:
        """Local, for rank 0. One question, one answer; other ranks should sleep."""
        if self._job is None:
            raise ForeignError("only rank 0 can ask, before close")
        self._times.setdefault(question, []).append(self._job.ask(question))

    def ask(self, question: str) -> float:
        """Collective. The answer on all ranks, which sleep but for rank 0."""
        by_rank_0(self._comm, partial(self.run, question))
        return self.times(question, 1)[0]

    def times(self, question: str, count: int) -> list[float]:
        """Collective. The last ``count`` answers: seconds, as the program measured them."""
        last: list[float] = self._comm.bcast(self._times.get(question, [])[-count:])
        return last

    def close(self) -> None:
        """Collective. End the program; a second call does nothing."""
        if self._job is not None:
            self._job.end()
            self._job = None
        rest(self._comm)


class _Job:
    """Local. The running program, in a folder that goes with it."""

    def __init__(self, ranks: int, prepare: Callable[[Path], Program]) -> None:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}foreign-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self._errors = folder / "errors"
            self._process = _started(prepare(folder), ranks, folder, self._errors)
            self._questions: Any = self._process.stdin
            self._answers: Any = self._process.stdout
            stack.callback(self._leave)
            try:
                self.facts: dict[str, Any] = json.loads(self._answer())
            except ValueError as error:
                raise ForeignError(f"it does not begin as it should: {error}") from error
            if self.facts.get("ranks") != ranks:
                raise ForeignError(f"it was started on {ranks} ranks, and says {self.facts}")
            #: Let it leave, or make it; then remove the folder.
            self.end = stack.pop_all().close

    def ask(self, question: str) -> float:
        try:
            self._questions.write(f"{question}\n".encode())
        except OSError as error:
            raise ForeignError(self._last_words()) from error
        return float(self._answer())

    def _answer(self) -> bytes:
        """The next line that is an answer, facts or a number; launchers may say things between."""
        limit = time.monotonic() + ANSWERING
        while True:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise ForeignError(f"no answer within {ANSWERING:.0f} s")
            line: bytes = self._answers.readline()
            if not line:
                raise ForeignError(self._last_words())
            with suppress(ValueError):
                if line.startswith(b"{") or float(line) is not None:
                    return line

    def _last_words(self) -> str:
        lines = self._errors.read_text(errors="replace").splitlines()
        spoken = (line.strip() for line in lines if line.strip(" -"))
        return f"the program ended: {next(spoken, 'it said nothing')}"

    def _leave(self) -> None:
        with suppress(OSError):
            self._questions.close()
        for make in (self._process.terminate, self._process.kill, lambda: None):
            try:
                self._process.wait(ENDING)
                break
            except subprocess.TimeoutExpired:
                make()
        self._answers.close()


def _started(program: Program, ranks: int, folder: Path, errors: Path) -> subprocess.Popen[bytes]:
    """Local. The program under its launcher, with pipes to ask it and to hear it."""
    launcher = program.launcher
    version = said([str(launcher), "--version"])
    with every_core() as cores, open(errors, "wb") as out:
        command = [str(launcher), *launcher_flags(version, ranks, cores)]
        command += ["-n", str(ranks), *program.words]
        root = os.geteuid() == 0
        needed = launcher_environment(launcher, version, ranks, cores, root=root)
        variables = clean_environment(launcher.parent) | needed | dict(program.variables)
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, env=variables,
            cwd=folder, bufsize=0, start_new_session=True,
        )  # fmt: skip


def foreign_programs(*names: str) -> Iterator[Path]:
    """Local. Programs of these names on PATH, each once, by folder and then by name; not those of
    our own virtual environment.

    The MPIs of the package index have no libraries of others beside them.
    """
    seen = set()
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        folder = Path(entry).resolve()  # Open MPI does not start from a link such as /bin
        for path in (folder / name for name in names):
            if not entry or _is_ours(folder) or not os.access(path, os.X_OK):
                continue
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def clean_environment(first: Path) -> dict[str, str]:
    """Local. The environment of a job of its own: nothing of ours, and ``first`` first on PATH.

    The launcher of an MPI of the package index names its libraries in LD_LIBRARY_PATH.
    """
    kept = {key: text for key, text in os.environ.items() if not key.startswith(FOREIGN)}
    libraries = kept.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
    libraries = [entry for entry in libraries if entry and not _is_ours(Path(entry).resolve())]
    if libraries:
        kept["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    return kept | {"PATH": f"{first}{os.pathsep}{kept.get('PATH', '')}", "OMP_NUM_THREADS": "1"}


def _is_ours(folder: Path) -> bool:
    """Local. Whether a folder, without links, lies in our own virtual environment."""
    own = Path(sys.prefix).resolve()
    return sys.prefix != sys.base_prefix and folder.is_relative_to(own)


@contextmanager
def every_core() -> Iterator[int]:
    """Local. Within, children may use all cores, as many as it yields, though we may be bound."""
    before = usable_cores()
    if sys.platform != "linux":
        yield len(before)
        return
    with suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield len(usable_cores())
    finally:
        os.sched_setaffinity(0, before)


def finished(
    command: Sequence[str], variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Local. A program run to its end in a clean environment; :class:`ForeignError` if it cannot.

    Its exit code is the caller's to judge.
    """
    first = Path(command[0]).parent
    try:
        return subprocess.run(
            command, env=clean_environment(first) | dict(variables or {}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=SPEAKING, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ForeignError(f"{Path(command[0]).name}: {error}") from error


def said(command: Sequence[str]) -> str:
    """Local. All that a program prints; :class:`ForeignError` where it cannot be run."""
    done = finished(command)
    return done.stdout + done.stderr
