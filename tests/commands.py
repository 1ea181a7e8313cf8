"""Run the command ``onesided`` as a person would, and keep what it printed.

Most commands run where Python and MPI are up: in this process, or in a job of ``servers``. Those
that start ranks themselves, and those that test how a process begins or ends, have their own.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import mpi_harness
import serve
import servers

from onesided.apps.cli.main import main

LAUNCHERS = ("PMI", "OMPI", "PMIX", "PRTE", "HYDRA", "MPI_")

SCHEMA = json.loads(
    (mpi_harness.TESTS.parent / "docs" / "reference" / "results.schema.json").read_text()
)


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


def onesided(
    *words: str, ranks: int | None = None, timeout: float = 100.0, fresh: bool = False
) -> Finished:
    """``onesided WORDS``, on the ranks of a job where a number is given.

    What it writes with ``--json`` is what the schema says, or ValidationError.
    """
    finished = _finished(*words, ranks=ranks, timeout=timeout, fresh=fresh)
    path = Path(words[words.index("--json") + 1]) if "--json" in words else None
    if path is not None and finished.code in (0, 1) and path.is_file():
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    return finished


def _finished(*words: str, ranks: int | None, timeout: float, fresh: bool) -> Finished:
    if fresh or (ranks is None and "--ranks" in words):
        return python("-m onesided.apps", *words, ranks=ranks, timeout=timeout)
    with tempfile.TemporaryDirectory(prefix="onesided-command-") as name:
        if ranks is None:
            return _here(Path(name), *words)
        outcome = servers.run("-m onesided.apps", ranks, *words, timeout=timeout, folder=name)
    return Finished(outcome.returncode, outcome.stdout, outcome.stderr, outcome.kind == "hang")


def _here(folder: Path, *words: str) -> Finished:
    """In this process, whose own output waits meanwhile."""
    gc.freeze()  # the garbage of the command is looked for in the end, not in all of pytest
    with (
        serve.restored(),
        _into(folder / "out", "stdout", 1),
        _into(folder / "err", "stderr", 2),
    ):
        os.chdir(folder)
        try:
            code = main(words)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
    texts = [(folder / stream).read_text(errors="replace") for stream in ("out", "err")]
    return Finished(code, *texts, False)


@contextlib.contextmanager
def _into(path: Path, name: str, number: int) -> Iterator[None]:
    """Lead a stream of this process, and of those that it starts, into a file."""
    before, copy = getattr(sys, name), os.dup(number)
    before.flush()
    with open(path, "w", errors="replace") as file:
        os.dup2(file.fileno(), number)
        setattr(sys, name, file)
        try:
            yield
        finally:
            setattr(sys, name, before)
            os.dup2(copy, number)
            os.close(copy)


def python(program: str, *words: str, ranks: int | None = None, timeout: float = 100.0) -> Finished:
    """A file, or ``-m NAME``, without ``-m mpi4py``; nothing of the job is left running."""
    base = clean_environment() if ranks is None else os.environ
    job = mpi_harness.Job(program, ranks or 0, *words, base=base, plain=True)
    outcome = job.end(timeout)
    return Finished(outcome.returncode, outcome.stdout, outcome.stderr, outcome.kind == "hang")


def clean_environment() -> Mapping[str, str]:
    """The environment without anything that a launcher, or a setting for one, has left."""
    env = {key: text for key, text in os.environ.items() if not key.startswith(LAUNCHERS)}
    return env | {"OMP_NUM_THREADS": "1"}
