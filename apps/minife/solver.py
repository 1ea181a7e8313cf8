"""Conjugate gradients with one way of bringing the ghosts."""

from __future__ import annotations

from collections.abc import Mapping

from onesided.apps.evidence.stopwatch import Stopwatch, WatchedComm
from onesided.apps.mini.operator import Operator
from onesided.apps.mini.way import Way
from onesided.apps.minife.system import System
from onesided.sparse.solvers import Solution

#: Parts of an iteration; the rest of it are the vectors.
EXCHANGE, PRODUCT, SUMS = "exchange", "product", "sums"
WARM_UP = 5  # iterations before the first run


class Solver:
    """A halo of its own on the system's matrix.

    ``label``: the method that ``auto`` has chosen. ``parts``: stopwatches, that of the product
    runs through the exchange as well. ``last``: the last timed run.
    """

    last: Solution

    def __init__(self, system: System, way: Way, info: Mapping[str, str], iterations: int) -> None:
        """Collective. What the halo cannot do on this MPI is its error on every rank."""
        self._system, self._iterations = system, iterations
        halo = way.make(system.need(info))
        self.label: str = halo.label
        self._operator = Operator(system.matrix, halo)
        self.parts: Mapping[str, Stopwatch] = {
            name: Stopwatch() for name in (EXCHANGE, PRODUCT, SUMS)
        }
        self.parts[EXCHANGE].watch(halo, "start", "finish")
        self.parts[PRODUCT].watch(self._operator, "multiply")
        self._operator.comm = WatchedComm(system.comm, self.parts[SUMS])

    def run(self) -> None:
        """Collective. All iterations, however small the residual is; fewer where it is 0."""
        self.last = self._system.solution(self._operator, 0.0, self._iterations)

    def warm_up(self) -> None:
        """Collective. A few iterations."""
        self._system.solution(self._operator, 0.0, min(WARM_UP, self._iterations))

    def solution(self, rtol: float, most: int) -> Solution:
        """Collective. The temperatures, to a tolerance."""
        return self._system.solution(self._operator, rtol, most)

    def free(self) -> None:
        """Collective. The halo goes; the matrix stays."""
        self._operator.Free()
