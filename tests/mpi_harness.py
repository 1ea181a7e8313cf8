"""Run an MPI program under the mpiexec of this environment and say what became of it.

A run passes only when the exit code is 0, every rank printed its completion token (MPICH gives 0
when a rank leaves early), and MPI found nothing left over at finalize. A hang becomes a failure
with the stacks of all ranks.
"""

from __future__ import annotations

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import processes
from cases import CASE_MARK, FAILED_MARK

TESTS = Path(__file__).resolve().parent
LEAKS = re.compile(
    r"UCX +WARN|freeing inactive persistent request|pending (\d+ )?references|not returned to mpool"
    r"|leaked context IDs|leaked handle|objects? leaked|ResourceWarning"
)
HARMLESS = re.compile(r"OSC UCX component priority set inside component query failed")
STACKS = re.compile(r"^Timeout \(\d+:\d\d:\d\d", re.MULTILINE)
SIGNALLED = re.compile(r"KILLED BY SIGNAL|exited on signal|EXIT STRING: .*\(signal")
TAIL = 60_000  # characters of each stream that an outcome keeps


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
    removed: list[str] = field(default_factory=list)

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The lines that rank 0 printed, one per case."""
        lines = (line for line in self.stdout.splitlines() if line.startswith(CASE_MARK))
        return [json.loads(line[len(CASE_MARK) :]) for line in lines]

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
    """mpich or openmpi."""
    version = subprocess.run(
        [mpiexec(), "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return "openmpi" if "Open MPI" in version else "mpich"


def environment(extra: Mapping[str, str], folder: str) -> dict[str, str]:
    """What the ranks see; ``extra`` wins over what is set here."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "PMIX"))}
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
    return [*words, "--oversubscribe"] if mpi_name() == "openmpi" else words


def run(
    program: str | Path,
    ranks: int,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 300.0,
    nodes: int = 1,
) -> Outcome:
    """Run a Python file, or a module given as ``-m NAME``, on so many ranks."""
    token = uuid.uuid4().hex
    words = str(program).split() if str(program).startswith("-m ") else [str(program)]
    before = processes.segments()
    with tempfile.TemporaryDirectory(prefix="onesided-run-") as folder:
        python = [sys.executable, "-m", "mpi4py", str(TESTS / "run_program.py")]
        line = [*command(ranks, nodes, timeout + 10.0, folder), *python, *words, *arguments]
        settings = {"ONESIDED_TOKEN": token, **(env or {})}
        began, clock = time.monotonic(), time.time()
        code, hung = _supervise(line, environment(settings, folder), Path(folder), token, timeout)
        seconds = time.monotonic() - began
        stdout, stderr = (_tail(Path(folder, name)) for name in ("stdout", "stderr"))
    kind, reason = classify(code, hung, ranks, token, stdout, stderr)
    removed = []
    if kind != "pass":
        removed = processes.remove_segments(before) + processes.remove_topology(clock)
    return Outcome(kind, code, reason, stdout, stderr, seconds, tuple(line), removed)


def _tail(path: Path) -> str:
    text = path.read_text(errors="replace")
    return "\n".join(line for line in text.splitlines() if not HARMLESS.search(line))[-TAIL:]


def _supervise(
    line: list[str], env: dict[str, str], folder: Path, token: str, timeout: float
) -> tuple[int, bool]:
    """Exit code of the launcher, and whether the time was over; nothing is left running."""
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        launcher = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=env,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        hung = False
        try:
            launcher.wait(timeout)
        except subprocess.TimeoutExpired:
            hung = True
            processes.print_stacks(token)
        finally:
            processes.end(token, launcher.pid)
            launcher.wait()
    return launcher.returncode, hung


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)


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


def run_cases(
    module: str | Path,
    ranks: int,
    select: Sequence[str] | str = (),
    options: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300.0,
    nodes: int = 1,
) -> list[dict[str, Any]]:
    """Run a case module of tests/mpi (or any path) and require that all its cases pass.

    At least one case must have run; where every one was skipped the test is skipped, too.
    """
    import pytest

    path = Path(module) if os.sep in str(module) else TESTS / "mpi" / f"{module}.py"
    chosen = [select] if isinstance(select, str) else list(select)
    arguments = [word for text in chosen for word in ("--select", text)]
    for key, text in (options or {}).items():
        arguments += ["--option", f"{key}={text}"]
    outcome = run(
        TESTS / "run_cases.py", ranks, str(path), *arguments, env=env, timeout=timeout, nodes=nodes
    )
    failed = [case for case in outcome.cases if case["outcome"] == "failed"]
    if failed:
        texts = "\n\n".join(
            f"{case['name']} on {case['ranks']} ranks\n{case['reason']}" for case in failed
        )
        pytest.fail(f"{len(failed)} of {len(outcome.cases)} cases failed\n{texts}", pytrace=False)
    if outcome.kind != "pass":
        last = outcome.cases[-1]["name"] if outcome.cases else "none"
        pytest.fail(f"after case {last}: {outcome.report()}", pytrace=False)
    if not outcome.cases:
        pytest.fail(f"no case of {path.name} was selected by {chosen}", pytrace=False)
    if all(case["outcome"] == "skipped" for case in outcome.cases):
        pytest.skip("; ".join(sorted({case["reason"] for case in outcome.cases})))
    return outcome.cases
