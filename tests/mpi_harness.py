"""Run an MPI program under the mpiexec of this environment and say what became of it.

A run passes only when the exit code is 0, every rank printed its completion token (MPICH gives 0
when a rank leaves early), and MPI found nothing left over at finalize. A hang becomes a failure
with the stacks of all ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import processes
from cases import CASE_MARK, FAILED_MARK, LEFT_MARK

TESTS = Path(__file__).resolve().parent
LEAKS = re.compile(
    r"UCX +WARN|freeing inactive persistent request|pending (\d+ )?references|not returned to mpool"
    r"|leaked context IDs|leaked handle|objects? leaked|ResourceWarning|^" + LEFT_MARK +
    r"|^Exception ignored in|^Exception in thread"
)
HARMLESS = re.compile(r"OSC UCX component priority set inside component query failed")
STACKS = re.compile(r"^Timeout \(\d+:\d\d:\d\d", re.MULTILINE)
SIGNALLED = re.compile(r"KILLED BY SIGNAL|exited on signal|EXIT STRING: .*\(signal")
TAIL = 1_000_000  # characters of each stream that an outcome keeps


@dataclass(frozen=True)
class Outcome:
    """What became of one run; ``kind`` is pass, error, hang, crash or leak."""

    kind: str
    returncode: int
    reason: str
    stdout: str
    stderr: str
    seconds: float
    command: tuple[str, ...]

    @property
    def cases(self) -> list[dict[str, Any]]:
        return cases_in(self.stdout)

    def report(self) -> str:
        """For a person: what was run, what happened, and the words of the ranks."""
        return (
            f"{self.kind}: {self.reason} (exit code {self.returncode}, {self.seconds:.1f} s)\n"
            f"$ {' '.join(self.command)}\n--- stdout\n{self.stdout[-6000:]}\n"
            f"--- stderr\n{self.stderr[-12000:]}"
        )


@functools.cache
def mpiexec() -> str:
    """The launcher that belongs to this Python, or the one on PATH."""
    beside = Path(sys.prefix, "bin", "mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise FileNotFoundError("no mpiexec beside this Python nor on PATH")
    return found


@functools.cache
def mpi_name() -> str:
    """mpich or openmpi; a launcher of Open MPI 4 calls itself OpenRTE."""
    version = subprocess.run(
        [mpiexec(), "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return "openmpi" if "Open MPI" in version or "OpenRTE" in version else "mpich"


def environment(
    extra: Mapping[str, str], folder: str, base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What the ranks see: ``base``, what MPI needs, and ``extra``; the last one wins."""
    env = {key: value for key, value in base.items() if not key.startswith(("PMI", "PMIX"))}
    env["PATH"] = os.path.dirname(mpiexec()) + os.pathsep + env.get("PATH", "")
    env |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    if mpi_name() == "openmpi":
        env |= {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_MCA_osc": "^ucx",
            "PRTE_MCA_prte_tmpdir_base": folder,
        }
    return env | dict(extra)


def command(ranks: int, nodes: int, timeout: float, folder: str) -> list[str]:
    """The words before the program: the launcher, on virtual nodes when there are several."""
    if nodes > 1:
        ppn, rest = divmod(ranks, nodes)
        if rest:
            raise ValueError(f"{ranks} ranks do not fill {nodes} nodes evenly")
        words = [sys.executable, str(TESTS / "cluster.py"), "run", "--folder", folder]
        return [*words, "--timeout", f"{timeout:g}", "--nodes", str(nodes), "--ppn", str(ppn), "--"]
    words = [mpiexec(), "-n", str(ranks)]
    # unbound: several jobs wait beside each other, and some ranks have threads
    free = ["--oversubscribe", "--bind-to", "none"]
    return [*words, *free] if mpi_name() == "openmpi" else words


class Job:
    """A program on the ranks of an MPI job, from its start to its end.

    ``program`` is a Python file, or a module given as ``-m NAME``. One that is ``plain`` runs as a
    person starts it: without ``-m mpi4py``, in the folder of the job, and by itself on 0 ranks.
    """

    def __init__(
        self,
        program: str | Path,
        ranks: int,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        nodes: int = 1,
        limit: float = 3600.0,
        base: Mapping[str, str] = os.environ,
        plain: bool = False,
    ) -> None:
        self.ranks, self.token = ranks, uuid.uuid4().hex
        self._before, self._clock, self._began = processes.segments(), time.time(), time.monotonic()
        self._starts = {"stdout": 0, "stderr": 0}  # what has been looked at is not looked at again
        self._temporary = tempfile.TemporaryDirectory(prefix="onesided-run-")
        self.folder = Path(self._temporary.name)
        self.prepare()
        words = str(program).split() if str(program).startswith("-m ") else [str(program)]
        runner = [] if plain else ["-m", "mpi4py", str(TESTS / "run_program.py")]
        launcher = command(ranks, nodes, limit, self._temporary.name) if ranks else []
        self.command = (*launcher, sys.executable, *runner, *words, *arguments)
        settings = {"ONESIDED_TOKEN": self.token, "ONESIDED_FOLDER": str(self.folder)}
        settings |= env or {}
        whole = environment(settings, self._temporary.name, base) if ranks else {**base, **settings}
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            self.launcher = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=whole,
                cwd=self.folder if plain else None,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def prepare(self) -> None:
        """What must be there before the ranks are."""

    def end(self, timeout: float) -> Outcome:
        """What becomes of the job in so many seconds; nothing is left running."""
        hung = False
        try:
            self.launcher.wait(timeout)
        except subprocess.TimeoutExpired:
            hung = True
            processes.write_stacks(self.token, self.folder)
        finally:
            processes.end(self.token, self.launcher.pid)
            self.launcher.wait()
        seconds = time.monotonic() - self._began
        stdout, stderr = self.streams()
        stderr += "".join(file.read_text() for file in sorted(self.folder.glob("stacks-*")))
        self._temporary.cleanup()
        code = self.launcher.returncode
        kind, reason = classify(code, hung, self.ranks, self.token, stdout, stderr)
        if kind != "pass":
            processes.remove_segments(self._before)
            processes.remove_topology(self._clock)
        return Outcome(kind, code, reason, stdout, stderr, seconds, self.command)

    def streams(self) -> list[str]:
        """What the ranks have written to stdout and to stderr."""
        return [_tail(self.folder / name, start) for name, start in self._starts.items()]


def cases_in(stdout: str) -> list[dict[str, Any]]:
    """The lines that rank 0 printed, one per case; one that was cut off is not there."""
    found = []
    for line in stdout.splitlines():
        if line.startswith(CASE_MARK):
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line[len(CASE_MARK) :]))
    return found


def alone(stdout: str, stderr: str) -> bool:
    """Whether a rank has failed and waits for the others, whose outcome is not there."""
    failed = re.findall(rf"^{FAILED_MARK}rank \d+ of \d+, (.*), ONESIDED", stderr, re.MULTILINE)
    return not set(failed) <= {case["name"] for case in cases_in(stdout)}


def run(
    program: str | Path,
    ranks: int,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 300.0,
    nodes: int = 1,
) -> Outcome:
    """Run a Python file, or a module given as ``-m NAME``, on so many ranks."""
    job = Job(program, ranks, *arguments, env=env, nodes=nodes, limit=timeout + 10.0)
    return job.end(timeout)


def _tail(path: Path, start: int) -> str:
    with open(path, "rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace")
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not HARMLESS.search(line))[-TAIL:]


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """In a new process: end, by this signal, when the one that started it does."""
    ctypes.CDLL(None).prctl(1, number, 0, 0, 0)


def classify(
    code: int, hung: bool, ranks: int, token: str, stdout: str, stderr: str
) -> tuple[str, str]:
    """Kind and reason of an outcome."""
    if FAILED_MARK in stderr:
        return "error", "a case failed"
    if hung:
        return "hang", "the time was over"
    if STACKS.search(stderr):
        return "hang", "a case took too long"
    if code != 0:
        if SIGNALLED.search(stdout + stderr) or code < 0:
            return "crash", "a rank was ended by a signal"
        return "error", "a rank ended with an error"
    here = {int(rank) for rank in re.findall(rf"@done {token} (\d+)", stdout)}
    missing = sorted(set(range(ranks)) - here)
    if missing:
        return "crash", f"no completion token of ranks {missing}"
    leaks = [text for text in (stdout + "\n" + stderr).splitlines() if LEAKS.search(text)]
    if leaks:
        return "leak", leaks[0]
    return "pass", "all ranks are done"
