"""FFTW-MPI in C, built and run beside a benchmark: the real 3-D transform, asked for by the piece.

The program comes as ``data/fftw_mpi.c``. It is built with the first MPI compiler that has FFTW's
MPI library, and runs as a job of its own under the launcher that belongs to this compiler. It
sleeps until it is asked for a transform, and so does the job that asks until it has the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mpi4py import MPI

from onesided.apps.launch import launcher_environment, launcher_flags
from onesided.apps.timing import rest
from onesided.collectives.layout import Layout

SOURCE = Path(__file__).parent / "data" / "fftw_mpi.c"
LIBRARIES = ("-lfftw3_mpi", "-lfftw3", "-lm")
COMPILERS = ("mpicc", "mpicc.openmpi", "mpicc.mpich")
#: Beginnings of the variables by which a launcher, or an MPI, speaks to its own processes.
FOREIGN = ("PMI", "OMPI", "OPAL", "PRTE", "HYDRA", "MPI_", "MPIR_", "MPICH_", "UCX_")
PLANNING = 600.0  # seconds that the program may take until it is ready
BUILDING = 120.0  # seconds that a compiler may take
ENDING = 5.0  # seconds for the job to leave by itself
TOLERANCE = 1e-12  # of a round trip in double precision; the numbers are of order one


class FftwMpiError(Exception):
    """FFTW-MPI cannot be run here; the text says why."""


@dataclass(frozen=True)
class Build:
    """What was built: the program, and the launcher that starts it."""

    program: Path
    launcher: Path


class FftwMpi:
    """The transforms of FFTW-MPI on as many ranks as ``comm`` has, all on this node.

    Collective, as :meth:`close` is. :class:`FftwMpiError` on every rank where it cannot be had.
    Before each transform others run for ``lead`` seconds that do not count.
    """

    def __init__(self, comm: MPI.Comm, shape: Sequence[int], lead: float = 0.0) -> None:
        nodes = len(Layout.of(comm).ranks_per_node)
        if nodes > 1:
            raise FftwMpiError(f"it runs on one node only, these ranks are on {nodes}")
        self._comm = comm
        self._job: _Job | None = None
        self._times: dict[str, list[float]] = {"forward": [], "backward": []}
        trouble, facts = "", {}
        if comm.rank == 0:
            try:
                self._job = _Job(comm.size, [*shape, lead])
                facts = self._job.facts
            except FftwMpiError as error:
                trouble = str(error)
        rest(comm)
        trouble, facts = comm.bcast((trouble, facts))
        if trouble:
            raise FftwMpiError(trouble)
        #: What the program says of itself: version, ranks, the way of each direction, error.
        self.facts: dict[str, Any] = facts

    def run(self, direction: str) -> None:
        """Local, for rank 0. One transform, "forward" or "backward"; other ranks should sleep."""
        if self._job is None:
            raise FftwMpiError("only rank 0 can ask for a transform, before close")
        self._times[direction].append(self._job.ask(direction))

    def times(self, direction: str, count: int) -> list[float]:
        """Collective. Seconds of the last ``count`` transforms, as the program measured them."""
        last: list[float] = self._comm.bcast(self._times[direction][-count:])
        return last

    def close(self) -> None:
        """Collective. End the program; a second call does nothing."""
        if self._job is not None:
            self._job.end()
            self._job = None
        rest(self._comm)


class _Job:
    """Local. The running program, built in a folder that goes with it."""

    def __init__(self, ranks: int, words: Sequence[float]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="onesided-fftw-mpi-"))
        self._errors = self._folder / "errors"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            built = build(self._folder)
            self._process = self._started(built, ranks, words)
            self.facts = json.loads(self._answer(PLANNING))
            if self.facts["ranks"] != ranks or not self.facts["error"] < TOLERANCE:
                raise FftwMpiError(f"it does not work: {self.facts}")
        except ValueError as error:
            self.end()
            raise FftwMpiError(f"it does not begin as it should: {error}") from error
        except BaseException:
            self.end()
            raise

    def _started(self, built: Build, ranks: int, words: Sequence[float]) -> subprocess.Popen[bytes]:
        version = _output([str(built.launcher), "--version"])
        with every_core() as cores:
            command = [str(built.launcher), *launcher_flags(version, ranks, cores)]
            command += ["-n", str(ranks), str(built.program), *map(str, words)]
            root = os.geteuid() == 0
            needed = launcher_environment(version, ranks, cores, root=root, embedded=False)
            with open(self._errors, "wb") as errors:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=clean_environment(built.launcher.parent) | needed,
                    cwd=self._folder,
                    bufsize=0,
                    start_new_session=True,
                )

    def ask(self, direction: str) -> float:
        """Seconds of one transform."""
        process = self._running()
        try:
            _pipe(process.stdin).write(f"{direction}\n".encode())
        except OSError as error:
            raise FftwMpiError(self._last_words()) from error
        return float(self._answer(PLANNING))

    def _answer(self, patience: float) -> bytes:
        """The next line that begins like an answer; launchers may say things in between."""
        out = _pipe(self._running().stdout)
        limit = time.monotonic() + patience
        while True:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                raise FftwMpiError(f"no answer within {patience:.0f} s")
            line = out.readline()
            if not line:
                raise FftwMpiError(self._last_words())
            if line[:1] in b"{0123456789":
                return line

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise FftwMpiError("the program has ended")
        return self._process

    def _last_words(self) -> str:
        text = self._errors.read_text(errors="replace") if self._errors.exists() else ""
        said = [line.strip() for line in text.splitlines() if line.strip(" -")]
        return f"the program ended: {said[0] if said else 'it said nothing'}"

    def end(self) -> None:
        """Let it leave, or make it; then remove the folder."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                _pipe(process.stdin).close()
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                process.terminate()
                try:
                    process.wait(ENDING)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            _pipe(process.stdout).close()
        shutil.rmtree(self._folder, ignore_errors=True)


def build(folder: Path) -> Build:
    """Local. Build the program in ``folder``; :class:`FftwMpiError` tells what every way lacked."""
    found = list(compilers())
    if not found:
        raise FftwMpiError("no mpicc on PATH, other than this environment's own")
    failures = []
    for compiler, launcher in found:
        program = folder / "fftw_mpi"
        command = [str(compiler), "-O2", str(SOURCE), "-o", str(program), *LIBRARIES]
        try:
            done = subprocess.run(
                command,
                env=clean_environment(compiler.parent),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=BUILDING,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            failures.append(f"{compiler.name}: {error}")
            continue
        if done.returncode == 0:
            return Build(program, launcher)
        failures.append(f"{compiler.name}: {_first_error(done.stderr)}")
    raise FftwMpiError("FFTW-MPI (fftw3-mpi.h, libfftw3_mpi) is not there: " + "; ".join(failures))


def compilers() -> Iterator[tuple[Path, Path]]:
    """Local. MPI's C compilers on PATH, each with its launcher; not those of a virtual environment.

    The MPIs of the package index have no FFTW, and a library built for another MPI may link.
    """
    own = Path(sys.prefix, "bin") if sys.prefix != sys.base_prefix else None
    seen = set()
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        folder = Path(entry).resolve()  # Open MPI does not start from a link such as /bin
        if not entry or (own is not None and folder == own.resolve()):
            continue
        for name in COMPILERS:
            compiler, launcher = folder / name, folder / name.replace("mpicc", "mpiexec")
            if not (os.access(compiler, os.X_OK) and os.access(launcher, os.X_OK)):
                continue
            if compiler.resolve() not in seen:
                seen.add(compiler.resolve())
                yield compiler, launcher


def clean_environment(first: Path) -> dict[str, str]:
    """Local. The environment of a job of its own: nothing of ours, and ``first`` first on PATH."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith(FOREIGN)}
    return kept | {"PATH": f"{first}{os.pathsep}{kept.get('PATH', '')}", "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def every_core() -> Iterator[int]:
    """Local. Within, children may use all cores, as many as it yields, though we may be bound."""
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield len(os.sched_getaffinity(0))
    finally:
        os.sched_setaffinity(0, before)


def _output(command: Sequence[str]) -> str:
    first = Path(command[0]).parent
    try:
        done = subprocess.run(
            command,
            env=clean_environment(first),
            capture_output=True,
            text=True,
            timeout=BUILDING,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FftwMpiError(f"{Path(command[0]).name}: {error}") from error
    return done.stdout + done.stderr


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = (line for line in lines if "error" in line or "cannot find" in line)
    return next(errors, lines[0] if lines else "no reason given").removeprefix(f"{SOURCE}:")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise FftwMpiError("the program has no pipe")
    return stream
