"""Conjugate gradients with one way of bringing the ghosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mpi4py import MPI

from onesided.apps.evidence.stopwatch import Stopwatch, WatchedComm
from onesided.apps.mini.halos.halo import Need
from onesided.apps.mini.operator import Operator
from onesided.apps.mini.way import Way
from onesided.sparse import DistMatrix, Linear
from onesided.sparse.solvers import Solution

#: Parts of an iteration; the rest of it are the vectors.
EXCHANGE, PRODUCT, SUMS = "exchange", "product", "sums"
WARM_UP = 20  # iterations before the first run


class System(Protocol):
    """The equations of a mini-application on the ranks of ``comm``."""

    comm: MPI.Intracomm
    matrix: DistMatrix

    @property
    def unknowns(self) -> int:
        """Local. Of all ranks."""

    def solution(self, operator: Linear, rtol: float, most: int) -> Solution:
        """Collective. By conjugate gradients, the products those of ``operator``."""


class Solver:
    """A halo of its own on a system's matrix.

    ``label``: the method that ``auto`` has chosen. ``parts``: stopwatches, that of the product
    runs through the exchange as well. ``last``: what the last timed run came to.
    """

    last: Solution

    def __init__(self, system: System, way: Way, info: Mapping[str, str], iterations: int) -> None:
        """Collective. What the halo cannot do on this MPI is its error on every rank."""
        self._system, self._iterations = system, iterations
        matrix = system.matrix
        halo = way.make(Need(system.comm, matrix.pattern, matrix.dtype, info))
        self.label: str = halo.label
        self._operator = Operator(matrix, halo)
        self.parts: Mapping[str, Stopwatch] = {
            name: Stopwatch() for name in (EXCHANGE, PRODUCT, SUMS)
        }
        self.parts[EXCHANGE].watch(halo, "start", "finish")
        self.parts[PRODUCT].watch(self._operator, "multiply")
        self._operator.comm = WatchedComm(system.comm, self.parts[SUMS])

    def run(self) -> None:
        """Collective. All iterations, however small the residual is; fewer where it is 0."""
        self.last = self.after(self._iterations)

    def warm_up(self) -> None:
        """Collective. A few iterations."""
        self.after(min(WARM_UP, self._iterations))

    def after(self, iterations: int) -> Solution:
        """Collective. What another number of iterations comes to, beside the runs."""
        return self.to_tolerance(0.0, iterations)

    def to_tolerance(self, rtol: float, most: int) -> Solution:
        """Collective. Until the residual is so much of the first, or so many iterations."""
        return self._system.solution(self._operator, rtol, most)

    def free(self) -> None:
        """Collective. The halo goes; the matrix stays."""
        self._operator.Free()
