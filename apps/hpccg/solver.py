"""Conjugate gradients with one way of bringing the ghosts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from mpi4py import MPI

from onesided.apps.evidence.stopwatch import Stopwatch, WatchedComm
from onesided.apps.hpccg.system import System
from onesided.apps.mini.operator import Operator
from onesided.apps.mini.way import Way
from onesided.apps.verdict import Verdict
from onesided.sparse import cg
from onesided.sparse.solvers import Solution

#: Parts of an iteration; the rest of it are the vectors.
EXCHANGE, PRODUCT, SUMS = "exchange", "product", "sums"
WARM_UP = 20  # iterations before the first run
ROUNDING = 1e-12  # by which x is off where the residual is nothing


class Solver:
    """Starts from x = 0 in every run, which goes through all iterations.

    ``label``: the method that ``auto`` has chosen. ``parts``: stopwatches, that of the product
    runs through the exchange as well.
    """

    def __init__(self, system: System, way: Way, iterations: int) -> None:
        """Collective. What the halo cannot do on this MPI is its error on every rank."""
        self._system, self._iterations = system, iterations
        halo = way.make(system.need)
        self.label: str = halo.label
        self._operator = Operator(system.matrix, halo)
        self.parts: Mapping[str, Stopwatch] = {
            name: Stopwatch() for name in (EXCHANGE, PRODUCT, SUMS)
        }
        self.parts[EXCHANGE].watch(halo, "start", "finish")
        self.parts[PRODUCT].watch(self._operator, "multiply")
        self._operator.comm = WatchedComm(system.comm, self.parts[SUMS])
        self.solution: Solution

    def run(self) -> None:
        """Collective. All iterations; none is left out, whatever the residual, unless it is 0."""
        self.solution = cg(self._operator, self._system.b, rtol=0.0, maxiter=self._iterations)

    def warm_up(self) -> None:
        """Collective. A few iterations."""
        self.after(min(WARM_UP, self._iterations))

    def after(self, iterations: int) -> Solution:
        """Collective. What another number of iterations comes to, beside the runs."""
        return cg(self._operator, self._system.b, rtol=0.0, maxiter=iterations)

    @property
    def residuals(self) -> list[float]:
        """Local. The norms of the last run, the first before any iteration."""
        norms: list[float] = self.solution.residuals.tolist()
        return norms

    @property
    def residual(self) -> float:
        """Local. The norm after the last iteration of the last run."""
        return self.residuals[-1]

    def verdict(self) -> Verdict:
        """Collective. How far x is from 1 at most, and how far the residual lets it be."""
        off = np.abs(self.solution.x - 1.0).max(initial=0.0)
        own = float(off) if np.isfinite(off) else np.inf
        worst = float(self._system.comm.allreduce(own, op=MPI.MAX))
        return Verdict(worst, self.residual + ROUNDING)

    def free(self) -> None:
        """Collective. The halo goes; the matrix stays."""
        self._operator.Free()
