"""The state of a flow in an HDF5 file: enough to go on bit for bit.

One state at a time: a new one replaces the one before when all of it is on the disk, so that a
run that is killed leaves the last good state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from onesided.apps.failures import CommandError, user_errors
from onesided.collectives.agreement import agreed
from onesided.pencilfft.io.hdf5 import HDF5File

FIELD = "velocity_hat"
CASE = "Taylor-Green vortex"


@dataclass(frozen=True)
class State:
    """Where a run stands, and what it is: modes, viscosity, time step, points per mode, kernels."""

    step: int
    time: float
    shape: tuple[int, ...]
    nu: float
    dt: float
    padding: float
    backend: str
    effort: str

    def save(self, comm: MPI.Intracomm, path: str, velocity_hat: Any) -> None:
        """Collective. Write it with the velocity in spectral space; CommandError if it fails."""
        attributes = {
            "case": CASE,
            "time": self.time,
            "modes": self.shape,
            "nu": self.nu,
            "dt": self.dt,
            "padding": self.padding,
            "backend": self.backend,
            "effort": self.effort,
        }
        with user_errors():
            file = HDF5File(path, mode="w", comm=comm)
            file.write(self.step, {FIELD: [velocity_hat]}, attributes=attributes)

    @classmethod
    def read(cls, comm: MPI.Intracomm, path: str) -> State:
        """Collective. What a file holds beside the velocity; CommandError without a checkpoint."""
        with user_errors(), agreed(comm):
            file = HDF5File(path, mode="r", comm=comm)
            step = file.steps(FIELD)[-1]
            found = file.attributes(FIELD, step)
            if found.get("case") != CASE:
                raise CommandError(f"{path} is no checkpoint of onesided navier-stokes")
            return cls(
                step,
                float(found["time"]),
                tuple(int(n) for n in found["modes"]),
                float(found["nu"]),
                float(found["dt"]),
                float(found["padding"]),
                str(found["backend"]),
                str(found["effort"]),
            )

    def load(self, comm: MPI.Intracomm, path: str, velocity_hat: Any) -> None:
        """Collective. Read the velocity; CommandError where the file is not whole."""
        with user_errors():
            HDF5File(path, mode="r", comm=comm).read(velocity_hat, FIELD, self.step)
