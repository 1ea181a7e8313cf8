"""The same mesh on rank 0 alone, for comparison."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import user_errors
from onesided.apps.minife.mesh import Box
from onesided.apps.minife.system import System
from onesided.apps.timing import rest
from onesided.apps.verdict import Verdict
from onesided.collectives import agree, agreed

ROOT = 0
ROUNDING = 1e-12  # by which solutions differ where residuals are nothing


class Alone:
    """The solution that rank 0 comes to by itself, from the elements on, while others sleep.

    Errors of a solution are those of its residual at most by the condition of the matrix, which
    is about the square of the number of elements along an axis.
    """

    def __init__(self, system: System, options: Namespace) -> None:
        """Collective. :class:`.CommandError` on every rank where rank 0 has no room for it."""
        self._system = system
        comm, mesh = system.comm, system.mesh
        self._tolerance = options.rtol * max(mesh.elements) ** 2 + ROUNDING
        self._expected: NDArray[np.float64] | None = None
        error: BaseException | None = None
        if comm.rank == ROOT:
            try:
                self._expected = _solved(system, options)
            except Exception as problem:  # raised on all ranks below
                error = problem
        rest(comm)
        with user_errors():
            agree(comm, error, "the solution of rank 0 alone")

    def compared(self, x: NDArray[np.float64]) -> Verdict:
        """Collective. The largest difference, relative to the largest value."""
        mesh, comm = self._system.mesh, self._system.comm
        parts: list[Any] | None = comm.gather(x, root=ROOT)
        error = 0.0
        with user_errors(), agreed(comm):
            if parts is not None and self._expected is not None:
                whole = Box((0, 0, 0), mesh.points)
                found = np.empty(mesh.points)
                for rank, part in enumerate(parts):
                    own = mesh.own(rank)
                    found[own.within(whole)] = part.reshape(own.extent)
                scale = float(np.max(np.abs(self._expected)))
                error = float(np.max(np.abs(found - self._expected))) / scale
        return Verdict(float(comm.bcast(error, root=ROOT)), self._tolerance)


def _solved(system: System, options: Namespace) -> NDArray[np.float64]:
    """Local. On this rank, as an array of the mesh's nodes."""
    mesh = system.mesh
    own = System(MPI.COMM_SELF, mesh.elements, system.problem, mesh.distortion)
    solution = own.solution(own.matrix, options.rtol, options.maxiter)
    own.Free()
    found: NDArray[np.float64] = solution.x.reshape(mesh.points)
    return found
