"""The commands by name. A new command is one function of (comm, options) and one entry of
``data/commands.toml``.

What a command can be given stands in a function of ``options.py`` of its room, named like the
command, which imports nothing heavy; no file of a room is imported before one of its commands is
chosen.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A command: its name (``"bench fft"`` is ``fft`` in the group ``bench``), room and file, and
    behind a colon its function there if that is not ``run``.

    ``starts_jobs``: it runs in one process, and starts jobs with its ``--ranks``. ``by_cases``:
    with ``--ranks`` another job goes on where one has ended in a case.
    """

    name: str
    file: str
    summary: str
    starts_jobs: bool = False
    by_cases: bool = False

    @property
    def run(self) -> Callable[[Any, Any], int]:
        """What does it, Collective; imports its file."""
        file, _, name = self.file.partition(":")
        found: Callable[[Any, Any], int] = getattr(
            import_module(f"onesided.apps.{file}"), name or "run"
        )
        return found

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Local. The function is named like the command."""
        room = self.file.partition(".")[0]
        options = import_module(f"onesided.apps.{room}.options")
        getattr(options, self.name.translate(str.maketrans(" -", "__")))(parser)


GROUPS = {"bench": "Measure against MPI_Alltoallv, mpi4py-fft, PETSc and SciPy."}

_TABLE = Path(__file__).parents[1] / "data" / "commands.toml"
COMMANDS = [
    Command(**given) for given in tomllib.loads(_TABLE.read_text(encoding="utf-8"))["command"]
]
