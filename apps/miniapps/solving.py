"""Conjugate gradients whose ghosts are brought in several ways: HPCCG, and MiniFE's solution.

Both have a matrix of up to 27 entries in a row, on planes that are stacked along z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.bench.selection import hints
from onesided.apps.bench.sweep import Labels, Make
from onesided.apps.bench.timing import Stopwatch, Variant, clocked, rounds_of, sums_of_solvers
from onesided.apps.cli.failures import CommandError, from_rank_0
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.miniapps.halos import Need, Ways
from onesided.apps.miniapps.stages import Stage, counts, run_stages, stages
from onesided.collectives import agreed, profile
from onesided.sparse import DistMatrix, Linear, Partition, cg
from onesided.sparse.halo import Ghosts
from onesided.sparse.solvers import Solution

Values = NDArray[np.float64]
WARM_UP = 20  # iterations before the first run
#: Residuals are compared down to this part of the first one. Below, what is left of a residual is
#: rounding, which conjugate gradients amplify: two right programs differ.
SEEN = 1e-10
TOLERANCE = 1e-8  # relative; rounding explains about 1e-11
REMARK = (
    "Times are those of an iteration of conjugate gradients, the mean over a run, by the slowest "
    "rank; product: the local one; sums: the two reductions; vectors: the rest."
)


class Equations(Protocol):
    """A x = b, by rows; pure."""

    @property
    def planes(self) -> int:
        """How many planes there are along z."""

    @property
    def plane(self) -> int:
        """Rows of a plane."""

    def rows(self, first: int, last: int) -> sparse.csr_array:
        """The rows of planes from ``first`` to before ``last``, with global columns."""

    def side(self, first: int, last: int) -> Values:
        """Their entries of b."""

    def error(self, x: Values, first: int, last: int) -> float:
        """How far their entries of x are off the known solution."""

    def allowed(self, residual: float) -> float:
        """How far they may be off, with this norm of the residual."""


class Operator(Linear):
    """Products with the entries, the kernels and the pattern of a matrix, by another halo.

    The matrix is borrowed: it must live as long. Of one vector at a time.
    """

    def __init__(self, matrix: DistMatrix, halo: Ghosts) -> None:
        self._lay_out(matrix.comm, matrix.row_partition, matrix.col_partition)
        self.dtype, self.matrix, self.halo = matrix.dtype, matrix, halo
        self._freed = False

    @property
    def freed(self) -> bool:
        """True after ``Free``."""
        return self._freed

    @property
    def T(self) -> Linear:
        """The transpose of the matrix, with halos of its own."""
        return self.matrix.T

    @property
    def H(self) -> Linear:
        """The adjoint of the matrix, with halos of its own."""
        return self.matrix.H

    def multiply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A x for one vector, (n,) or (n, 1)."""
        self.matrix.product(self.halo, x.reshape(-1), y.reshape(-1))

    def Free(self) -> None:
        """Collective. Free the halo; a second time has no effect."""
        self.halo.Free()
        self._freed = True


def run(
    comm: MPI.Intracomm,
    options: Options,
    command: str,
    equations: Callable[[int], Equations],
    about: Mapping[str, Any],
) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong.

    ``equations``: of so many shares.
    """
    every = stages(comm.size, options)
    for stage in every:
        planes = equations(stage.shares).planes
        if planes < stage.ranks:
            raise CommandError(f"{planes} planes along z are too few for {stage.ranks} ranks")
    pattern = {**about, "iterations": options.iterations, "stages": counts(every)}
    report = Report(command, options.settings(), pattern, remarks=[REMARK])

    def opened(stage: Stage, ways: Ways) -> Callable[..., Make]:
        return partial(_opened, equations(stage.shares), ways, options)

    return run_stages(comm, options, report, opened, "vectors")


def _opened(
    equations: Equations, ways: Ways, options: Options, comm: MPI.Intracomm, stack: ExitStack
) -> Make:
    """Collective. The matrix, and what makes conjugate gradients by a way."""
    span = Partition.even(equations.planes, comm.size).range(comm.rank)
    starts = Partition.even(equations.planes, comm.size).starts * equations.plane
    partition = Partition(starts)

    def assemble() -> tuple[sparse.csr_array, Values]:
        with agreed(comm, "assembly"):
            return equations.rows(*span), equations.side(*span)

    (rows, b), seconds = clocked(comm, assemble)
    matrix = DistMatrix(comm, rows, partition, partition, method="p2p")
    stack.callback(matrix.Free)
    expected: list[float] | None = None
    if options.verify:
        expected = from_rank_0(comm, lambda: alone(equations, options.iterations))
    info = hints(options)
    stack.enter_context(profile(comm))

    def make(labels: Labels) -> Variant:
        halo = ways[labels[METHOD]](Need(comm, matrix.pattern, matrix.dtype, info))
        operator = Operator(matrix, halo)
        exchange, product = Stopwatch(), Stopwatch()
        exchange.watch(halo, "start", "finish")
        product.watch(operator, "multiply")
        found: list[Solution[Any]] = []

        def solve(most: int) -> None:
            found[:] = [cg(operator, b, rtol=0.0, maxiter=most)]

        def check() -> Verdict:
            if not found:
                solve(min(WARM_UP, options.iterations))
            solution, (first, last) = found[0], span
            norms = solution.residuals.tolist()
            off = np.max(comm.allgather(equations.error(solution.x, first, last)))  # NaN stays
            error = off / equations.allowed(norms[-1])
            if expected is not None:
                error = max(error, compared(norms, expected) / TOLERANCE)
            return Verdict(float(error), 1.0)

        sums = rounds_of(sums_of_solvers(comm, matrix.dtype))
        return Variant(
            partial(solve, options.iterations), check, first=nothing_more, free=operator.Free,
            parts={"exchange": exchange, "product": lambda: product() - exchange(), "sums": sums},
            steps=lambda: found[0].iterations, used=halo.label,
            metrics={
                "unknowns": partition.size, "nonzeros": matrix.nnz, "kernel": matrix.kernel_name,
                "assembly_s": seconds,
            },
        )  # fmt: skip

    return make


def nothing_more() -> None:
    """In the place of untimed rounds: the check before has run."""


def alone(equations: Equations, iterations: int) -> list[float]:
    """Local. Norms of the residual by SciPy's product of the whole matrix, the first of them before
    any iteration; fewer where it becomes zero."""
    whole = equations.rows(0, equations.planes)
    r = equations.side(0, equations.planes).copy()
    p = r.copy()
    square = float(np.vdot(r, r))
    norms = [square**0.5]
    for _ in range(iterations):
        q = whole @ p
        curvature = float(np.vdot(p, q))
        if not (square > 0.0 and curvature > 0.0):  # numbers that are too small to be squared
            break
        before = square
        r -= square / curvature * q
        square = float(np.vdot(r, r))
        norms.append(square**0.5)
        p = r + square / before * p
    return norms


def compared(found: list[float], expected: list[float]) -> float:
    """Local. The largest relative difference of residuals that are more than rounding."""
    seen = [norm for norm in expected[: len(found)] if norm > SEEN * expected[0]]
    pairs = zip(found, seen, strict=False)
    return max((abs(one - other) / other for one, other in pairs), default=0.0)
