"""Start a command on several ranks with the mpiexec of the installed MPI."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TextIO

from onesided.apps.cli.failures import USAGE, CommandError

DASHES = "-" * 40
EXIT_NOTE = "processes exited with non-zero status"
SENTENCE = "onesided: "


#: Names of a launcher on PATH; Debian's have that of their MPI.
NAMES = ("mpiexec", "mpirun", "mpiexec.mpich", "mpiexec.openmpi", "mpiexec.hydra")

#: What says which MPI this Python uses, without starting it.
ASK = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.get_vendor()[0])
"""


def find_mpiexec() -> tuple[Path, str]:
    """Local. The launcher and what it says of its version: the one beside this Python, else the
    first on PATH of the MPI that mpi4py uses.

    Raises :class:`CommandError` where there is none.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    if beside.exists():
        return beside, _version(beside)
    found = [Path(path) for path in map(shutil.which, NAMES) if path is not None]
    if not found:
        raise CommandError(
            "--ranks needs mpiexec, and there is none beside this Python nor on PATH "
            "(pip install mpich, or install an MPI)"
        )
    library = _library()
    for path in found:
        version = _version(path)
        if not library or is_open_mpi(version) == (library == "Open MPI"):
            return path, version
    raise CommandError(
        f"--ranks needs the mpiexec of {library}, which mpi4py uses; {found[0]} is another MPI's "
        f"and would start every rank alone (put the right one first on PATH)"
    )


def _library() -> str:
    """Local. The MPI that mpi4py uses; empty where it cannot tell."""
    answer = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, timeout=60, check=False
    )
    return answer.stdout.strip() if answer.returncode == 0 else ""


def is_open_mpi(version: str) -> bool:
    """Local. Whether the words that ``mpiexec --version`` prints are those of Open MPI."""
    return any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE"))


def launcher_flags(version: str, ranks: int, cores: int) -> list[str]:
    """Local. What this launcher needs to start more ranks than there are cores."""
    return ["--oversubscribe"] if is_open_mpi(version) and ranks > cores else []


def launcher_environment(
    version: str, ranks: int, cores: int, *, root: bool, embedded: bool
) -> dict[str, str]:
    """Local. Variables that Open MPI needs to run as root, or with more ranks than cores.

    ``embedded`` tells that the launcher is the one of the PyPI package, which cannot use UCX on
    any machine and says so on stderr for every window unless it is told not to try.
    """
    if not is_open_mpi(version):
        return {}
    values: dict[str, str] = {}
    if root:
        values |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if ranks > cores:
        values["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if embedded:
        values["OMPI_MCA_osc"] = "^ucx"
    return values


def launch(words: Sequence[str], ranks: int) -> int:
    """Local. Run ``onesided WORDS`` on so many ranks and return the exit code of the job."""
    mpiexec, version = find_mpiexec()
    cores = len(os.sched_getaffinity(0))
    embedded = mpiexec.parent == Path(sys.executable).parent
    needed = launcher_environment(version, ranks, cores, root=os.geteuid() == 0, embedded=embedded)
    command = [str(mpiexec), *launcher_flags(version, ranks, cores), "-n", str(ranks)]
    command += [sys.executable, "-m", "onesided.apps", *words]
    return _run(command, needed | _terminal() | os.environ, filtered=is_open_mpi(version))


def _version(mpiexec: Path) -> str:
    try:
        answer = subprocess.run(
            [str(mpiexec), "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{mpiexec.name} does not answer --version: {error}") from error
    return answer.stdout + answer.stderr


def _terminal() -> dict[str, str]:
    """Rank 0 writes to a pipe of the launcher, so it is told of the terminal behind it."""
    if not sys.stdout.isatty():
        return {}
    return {"ONESIDED_COLUMNS": str(shutil.get_terminal_size().columns)}


def _run(command: Sequence[str], environment: Mapping[str, str], *, filtered: bool) -> int:
    job = subprocess.Popen(
        command,
        env=environment,
        text=True,
        errors="replace",
        stderr=subprocess.PIPE if filtered else None,
    )

    def end_job(number: int, frame: FrameType | None) -> None:
        job.send_signal(number)

    before = {number: signal.signal(number, end_job) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)  # mpiexec gets it too
    try:
        notes = [] if job.stderr is None else list(forward(job.stderr, sys.stderr))
        code = job.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code not in (0, USAGE):
        sys.stderr.writelines(notes)
    return code if code >= 0 else 128 - code


def forward(lines: Iterable[str], out: TextIO) -> Iterator[str]:
    """Local. Copy lines as they come, but keep back, and yield, the launcher's closing notes.

    Open MPI prints, between two lines of dashes, that a rank ended with a code other than 0, and
    sometimes what it stumbles over while it ends the others. After the command's own sentence
    this says nothing new.
    """
    box: list[str] = []
    spoken = False
    for line in lines:
        spoken = spoken or line.startswith(SENTENCE)
        if box:
            box.append(line)
            if len(box) == 2 and EXIT_NOTE not in line:
                out.writelines(box)
                box = []
            elif line.startswith(DASHES):
                yield from box
                box = []
        elif line.startswith(SENTENCE) or not (spoken or line.startswith(DASHES)):
            out.write(line)
        elif spoken:
            yield line
        else:
            box = [line]
        out.flush()
    yield from box
