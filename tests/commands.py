"""Run the command ``onesided`` as a person would, and keep what it printed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import mpi_harness
import processes

LAUNCHERS = ("PMI", "OMPI", "PMIX", "PRTE", "HYDRA", "MPI_")


@dataclass(frozen=True)
class Finished:
    """A command that came to its end; ``hung`` where it had to be ended."""

    code: int
    out: str
    err: str
    hung: bool

    @property
    def sentences(self) -> list[str]:
        """What the command itself says about its failure."""
        return [line for line in self.err.splitlines() if line.startswith("onesided: ")]

    def __str__(self) -> str:
        return f"code {self.code}, hung {self.hung}\n--- out\n{self.out}\n--- err\n{self.err}"


def onesided(*words: str, ranks: int | None = None, timeout: float = 100.0) -> Finished:
    """``onesided WORDS``, under mpiexec on so many ranks where a number is given."""
    return python("-m", "onesided.apps", *words, ranks=ranks, timeout=timeout)


def python(*words: str, ranks: int | None = None, timeout: float = 100.0) -> Finished:
    """Python without ``-m mpi4py``; nothing of the job is left running."""
    token = uuid.uuid4().hex
    segments = processes.segments()
    with tempfile.TemporaryDirectory(prefix="onesided-command-") as name:
        folder = Path(name)
        line = [sys.executable, *words]
        env = clean_environment() | {"ONESIDED_TOKEN": token}
        if ranks is not None:
            line = [*mpi_harness.command(ranks, 1, timeout, name), *line]
            env = mpi_harness.environment({"ONESIDED_TOKEN": token}, name)
        with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
            job = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                start_new_session=True,
                cwd=folder,
            )
            hung = False
            try:
                job.wait(timeout)
            except subprocess.TimeoutExpired:
                hung = True
            finally:
                processes.end(token, job.pid)
                job.wait()
        texts = [(folder / stream).read_text(errors="replace") for stream in ("out", "err")]
    if job.returncode != 0:
        processes.remove_segments(segments)
    return Finished(job.returncode, *texts, hung)


def clean_environment() -> Mapping[str, str]:
    """The environment without anything that a launcher, or a setting for one, has left."""
    env = {key: text for key, text in os.environ.items() if not key.startswith(LAUNCHERS)}
    return env | {"OMP_NUM_THREADS": "1"}
