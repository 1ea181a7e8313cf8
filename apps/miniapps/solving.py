"""``onesided hpccg`` and ``minife``: conjugate gradients, the ghosts brought in several ways.

Both have a matrix of up to 27 entries in a row, on planes that are stacked along z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.apps.bench import timing
from onesided.apps.bench.choices import hints
from onesided.apps.bench.sweep import Labels, Make
from onesided.apps.bench.timing import Stopwatch, Variant, clocked, nothing
from onesided.apps.cli.failures import CommandError, from_rank_0
from onesided.apps.cli.options import Options, box
from onesided.apps.cli.report import METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.miniapps.halos import Need, Stage, run_stages, ways
from onesided.collectives import agreed, profile
from onesided.sparse import DistMatrix, LinearOperator, Partition, cg, stencil27
from onesided.sparse.solvers import Solution

Values = NDArray[np.float64]
LEAST = 2  # elements along an axis, so that there is a node inside
ROUNDING = 1e-12  # by which x is off where the residual is nothing
WARM_UP = 20  # iterations before the first run
#: Residuals are compared down to this part of the first one. Below, what is left of a residual is
#: rounding, which conjugate gradients amplify: two right programs differ.
SEEN = 1e-10
TOLERANCE = 1e-8  # relative; rounding explains about 1e-11
REMARK = (
    "Times are those of an iteration of conjugate gradients, the mean over a run, by the slowest "
    "rank; product: the local one; sums: the two reductions; vectors: the rest."
)


@dataclass(frozen=True)
class Points:
    """A x = b of HPCCG: every rank has a box of nx x ny x nz points; the boxes are stacked in z, as
    in the reference of the Mantevo suite.

    A point has 27 on the diagonal of its row and -1 for each of up to 26 neighbors. The right hand
    side is that of the solution 1 everywhere: 27 less the number of neighbors. By Gershgorin's
    circles no eigenvalue is below 1, so an entry of x is off by at most the norm of the residual.

    ``shape``: unknowns along z, y and x, the last of which varies fastest. Methods are about the
    planes from ``first`` to before ``last``.
    """

    shape: tuple[int, int, int]

    def rows(self, first: int, last: int) -> sparse.csr_array:
        """With global columns."""
        plane = self.shape[1] * self.shape[2]
        found = stencil27(self.shape, (first * plane, last * plane))
        found.data[found.data > 0] = 27.0
        return found

    def side(self, first: int, last: int) -> Values:
        """Their entries of b."""
        neighbors = np.diff(self.rows(first, last).indptr) - 1
        return np.asarray(27.0 - neighbors, float)

    def error(self, x: Values, first: int, last: int) -> float:
        """How far their entries of x are off the known solution."""
        return float(np.abs(x - 1.0).max(initial=0.0))

    def allowed(self, residual: float) -> float:
        """How far entries may be off, with this norm of the residual."""
        return residual + ROUNDING


@dataclass(frozen=True)
class Mesh:
    """That of MiniFE: steady temperatures by trilinear elements on a box of cubes, whose edge is 1
    for a share of the ranks and longer along z for several; ``h`` is that of an element.

    The surface has the temperature 0, the source is that of sin(pi x) sin(pi y) sin(pi z / L), so
    the solution is known. Unknowns are the nodes inside. On such a mesh the stiffness is a sum of
    Kronecker products, A x M x M + M x A x M + M x M x A, of the stiffness A and the mass M along
    an axis: each rank assembles the rows of its own planes, without a word to others.
    """

    shape: tuple[int, int, int]
    h: float

    def _factors(self, first: int, last: int) -> list[tuple[Any, ...]]:
        """Stiffness and mass along z, of some planes, y and x."""
        h, found = self.h, []
        for axis, n in enumerate(self.shape):
            pair = (
                sparse.diags_array([off, middle, off], offsets=(-1, 0, 1), shape=(n, n)).tocsr()
                for middle, off in ((2.0 / h, -1.0 / h), (4.0 * h / 6.0, h / 6.0))
            )
            rows = slice(None) if axis else slice(first, last)
            found.append(tuple(each[rows] for each in pair))
        return found

    def rows(self, first: int, last: int) -> sparse.csr_array:
        (az, mz), (ay, my), (ax, mx) = self._factors(first, last)
        one, two, three = (
            sparse.kron(sparse.kron(z, y, format="csr"), x, format="csr")
            for z, y, x in ((az, my, mx), (mz, ay, mx), (mz, my, ax))
        )
        return sparse.csr_array(one + two + three)

    def side(self, first: int, last: int) -> Values:
        """The source, which is a multiple of the solution, times the mass."""
        waves = self._waves()
        total = sum((np.pi / ((n + 1) * self.h)) ** 2 for n in self.shape)
        masses = [each[1] for each in self._factors(first, last)]
        parts = [mass @ wave for mass, wave in zip(masses, waves, strict=True)]
        found: Values = (total * reduce(np.multiply.outer, parts)).reshape(-1)
        return found

    def _waves(self) -> list[Values]:
        return [np.sin(np.pi * np.arange(1, n + 1) / (n + 1)) for n in self.shape]

    def error(self, x: Values, first: int, last: int) -> float:
        """Of the temperatures of some planes, the largest of which is 1."""
        waves = self._waves()
        waves[0] = waves[0][first:last]
        exact = reduce(np.multiply.outer, waves).reshape(-1)
        return float(np.abs(x - exact).max(initial=0.0))

    def allowed(self, residual: float) -> float:
        """Twice the error of the elements, (pi h)**2 / 12, and what the residual lets it be: the
        smallest eigenvalue is above h**3 (some thirds of it belong to rough vectors)."""
        return (np.pi * self.h) ** 2 / 6 + residual / self.h**3 + ROUNDING


Equations = Points | Mesh


def run_hpccg(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    nx, ny, nz = box(options.shape)
    pattern = {"box": [nx, ny, nz]}
    return _run(comm, options, "hpccg", lambda n: Points((nz * n, ny, nx)), pattern)


def run_minife(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong."""
    nx, ny, nz = box(options.shape)
    if min(nx, ny, nz) < LEAST:
        raise CommandError(f"--shape: {LEAST} elements or more along each axis, else no node is in")
    pattern, h = {"elements": [nx, ny, nz]}, 1.0 / max(nx, ny, nz)
    return _run(
        comm, options, "minife", lambda n: Mesh((nz * n - 1, ny - 1, nx - 1), h), pattern
    )


def _run(
    comm: MPI.Intracomm, options: Options, command: str, equations: Callable[[int], Equations],
    pattern: Mapping[str, Any],
) -> int:
    """Collective. The command; its exit code is 1 where a result is wrong. ``equations``: of so
    many shares."""
    pattern = {**pattern, "ranks": comm.size, "iterations": options.iterations}
    report = Report(command, options.settings(), pattern, remarks=[REMARK])

    def opened(stage: Stage) -> Callable[..., Make]:
        made = equations(stage.shares)
        planes, _, _ = made.shape
        if planes < stage.ranks:
            raise CommandError(f"{planes} planes along z are too few for {stage.ranks} ranks")
        return partial(_opened, made, options)

    run_stages(comm, options, report, opened, "vectors")
    return report.end(comm, options)


def _opened(equations: Equations, options: Options, comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. The matrix, and what makes conjugate gradients by a way."""
    planes = Partition.even(equations.shape[0], comm.size)
    first, last = planes.range(comm.rank)
    partition = Partition(planes.starts * (equations.shape[1] * equations.shape[2]))

    def assemble() -> tuple[sparse.csr_array, Values]:
        with agreed(comm, "assembly"):
            return equations.rows(first, last), equations.side(first, last)

    (rows, b), seconds = clocked(comm, assemble)
    matrix = DistMatrix(comm, rows, partition, partition, method="p2p")
    stack.callback(matrix.Free)
    expected: list[float] | None = None
    if options.verify:
        expected = from_rank_0(comm, lambda: alone(equations, options.iterations))
    stack.enter_context(profile(comm))

    def make(labels: Labels) -> Variant:
        need = Need(comm, matrix.pattern, matrix.dtype, hints(options))
        halo = ways()[labels[METHOD]](need)
        exchange, product = Stopwatch(), Stopwatch()
        exchange.watch(halo, "start", "finish")

        def multiply(x: Values, y: Values) -> None:  # the matrix's entries, by another halo
            matrix.product(halo, x.reshape(-1), y.reshape(-1))

        operator = LinearOperator(comm, partition, partition, product.timed(multiply))
        found: list[Solution[Any]] = []

        def solve(most: int) -> None:
            found[:] = [cg(operator, b, rtol=0.0, maxiter=most)]

        def check() -> Verdict:
            if not found:
                solve(min(WARM_UP, options.iterations))
            norms = found[0].residuals.tolist()
            off = np.max(comm.allgather(equations.error(found[0].x, first, last)))  # NaN stays
            error = off / equations.allowed(norms[-1])
            if expected is not None:
                error = max(error, compared(norms, expected) / TOLERANCE)
            return Verdict(float(error), 1.0)

        sums = timing.rounds_of(timing.sums_of_solvers(comm, matrix.dtype))
        return Variant(
            partial(solve, options.iterations), check, first=nothing,  # the check has run
            parts={"exchange": exchange, "product": lambda: product() - exchange(), "sums": sums},
            free=halo.Free, steps=lambda: found[0].iterations, used=halo.label,
            metrics={
                "unknowns": partition.size, "nonzeros": matrix.nnz, "kernel": matrix.kernel_name,
                "assembly_s": seconds,
            },
        )  # fmt: skip

    return make


def alone(equations: Equations, iterations: int) -> list[float]:
    """Local. Norms of the residual by SciPy's product of the whole matrix, the first of them before
    any iteration; fewer where it becomes zero."""
    whole = equations.rows(0, equations.shape[0])
    r = equations.side(0, equations.shape[0]).copy()
    p = r.copy()
    square = float(np.vdot(r, r))
    norms = [square**0.5]
    for _ in range(iterations):
        q = whole @ p
        curvature = float(np.vdot(p, q))
        if not (square > 0.0 and curvature > 0.0):  # numbers that are too small to be squared
            break
        r -= square / curvature * q
        before, square = square, float(np.vdot(r, r))
        norms.append(square**0.5)
        p = r + square / before * p
    return norms


def compared(found: list[float], expected: list[float]) -> float:
    """Local. The largest relative difference of residuals that are more than rounding."""
    seen = [norm for norm in expected[: len(found)] if norm > SEEN * expected[0]]
    pairs = zip(found, seen, strict=False)
    return max((abs(one - other) / other for one, other in pairs), default=0.0)
