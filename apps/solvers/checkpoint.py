"""The state of a run in an HDF5 file: enough to go on bit for bit, on any number of ranks.

One state at a time: a new one replaces the one before when all of it is on the disk, so that a run
that is killed leaves the last good state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.failures import CommandError, user_errors
from onesided.apps.cli.options import Options
from onesided.collectives.agreement import agreed
from onesided.pencilfft.io.hdf5 import HDF5File


def check_checkpoint(options: Options) -> None:
    """Local. :class:`CommandError` where what is to be written has no place."""
    if options.save_every is not None and options.checkpoint is None:
        raise CommandError("--save-every needs --checkpoint FILE")


@dataclass(frozen=True)
class Checkpoint:
    """The file of a command, and the name of the field in it. Nothing is opened yet."""

    comm: MPI.Intracomm
    path: str
    command: str
    field: str

    def save(
        self, step: int, facts: Mapping[str, Any],
        write: Callable[[HDF5File, str, int, Mapping[str, Any]], object],
    ) -> None:
        """Collective. Let ``write`` write the field, and the facts; CommandError where it fails."""
        with user_errors():
            file = HDF5File(self.path, mode="w", comm=self.comm)
            write(file, self.field, step, {"command": self.command, **facts})

    def read(self) -> tuple[int, dict[str, Any]]:
        """Collective. The step, and the facts; CommandError for what is no such file."""
        with user_errors(), agreed(self.comm):
            file = HDF5File(self.path, mode="r", comm=self.comm)
            step = file.steps(self.field)[-1]
            facts = file.attributes(self.field, step)
            if facts.pop("command", None) != self.command:
                raise CommandError(f"{self.path} is no checkpoint of onesided {self.command}")
            return step, facts

    def load(self, step: int, fill: Callable[[HDF5File, str, int], object]) -> None:
        """Collective. Let ``fill`` read the field; CommandError where the file is not whole."""
        with user_errors():
            fill(HDF5File(self.path, mode="r", comm=self.comm), self.field, step)
