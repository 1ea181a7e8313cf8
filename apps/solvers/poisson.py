"""``onesided poisson``: a known solution of the Poisson equation, on finer and finer grids.

laplace(u) = f is solved by transforming f, dividing by the eigenvalues of the Laplacian, and
transforming back: a Fourier transform along periodic axes, between walls a sine transform
(Dirichlet) or a cosine transform (Neumann) of the centers of cells. The error falls faster than any
power of the spacing until rounding is reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.choices import chosen, hints
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Variant, clocked
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import BASELINE, METHOD, Report, Row
from onesided.apps.cli.statistics import Verdict, worst
from onesided.apps.solvers.options import conditions
from onesided.apps.tools.fft import error_of_blocks, exchanged_bytes, used_method
from onesided.pencilfft import PFFT, newDistArray

# One axis of a Poisson problem whose solution is known: pure.
#
# The solution is a product of one factor per axis, built from 1/(5/4 - cos x), whose Fourier
# coefficients fall like 2^-|k|: smooth, but not band-limited, so that every resolution shows an
# error of its own until rounding is reached. Factors between walls are odd (Dirichlet) or even
# (Neumann) about both of them, and so is what follows from them; only then does a sine or cosine
# series converge as fast.

Values = NDArray[np.float64]

PERIODIC, DIRICHLET, NEUMANN = BOUNDARIES = ("periodic", "dirichlet", "neumann")
#: By boundary condition the transform that diagonalizes the second derivative; else Fourier's.
KINDS = {DIRICHLET: "dst2", NEUMANN: "dct2"}
POLE = 1.25  # 5/4: the coefficients fall like (5/4 - 3/4)^|k|
PHASE = 0.5  # of the periodic factor, so that no grid point is one of symmetry
ALIASING = 40.0
ROUNDING = 50.0


@dataclass(frozen=True)
class Axis:
    """Boundary condition and number of points, the centers of cells between walls.

    A periodic axis is 2 pi long, one between walls pi; wavenumbers are whole numbers then.
    """

    boundary: str
    count: int

    @property
    def spacing(self) -> float:
        """Distance of two points."""
        return (2.0 if self.boundary == PERIODIC else 1.0) * np.pi / self.count

    def coordinates(self, part: slice) -> Values:
        """Local. Of the points in a range of global indices."""
        first = 0.0 if self.boundary == PERIODIC else 0.5
        return self.spacing * (np.arange(part.start, part.stop) + first)

    def wavenumbers(self, part: slice, count: int) -> Values:
        """Local. Of a range of the ``count`` spectral indices; a halved axis has n // 2 + 1."""
        index = np.arange(part.start, part.stop, dtype=float)
        if self.boundary == DIRICHLET:
            return index + 1.0
        if self.boundary == NEUMANN or count != self.count:
            return index
        return np.where(2 * index < count, index, index - count)

    def factor(self, x: Values) -> tuple[Values, Values]:
        """Local. The axis' factor of the solution, and its second derivative."""
        if self.boundary == PERIODIC:
            x = x - PHASE
        sine, cosine = np.sin(x), np.cos(x)
        g = 1.0 / (POLE - cosine)
        first = -sine * g**2
        second = (2.0 * sine**2 * g - cosine) * g**2
        if self.boundary == DIRICHLET:
            return sine * g, sine * second + 2.0 * cosine * first - sine * g
        return g, second

    @property
    def aliasing(self) -> float:
        """The largest coefficient that is not resolved, over its wavenumber."""
        resolved = self.count // 2 if self.boundary == PERIODIC else self.count - 1
        return float((POLE - np.sqrt(POLE**2 - 1.0)) ** resolved / resolved)


def manufactured(axes: Sequence[Axis], parts: Sequence[slice]) -> tuple[Values, Values]:
    """Local. Solution u and right-hand side f of laplace(u) = f on a block."""
    factors = [axis.factor(axis.coordinates(part)) for axis, part in zip(axes, parts, strict=True)]
    values = [value for value, _ in factors]
    solution = reduce(np.multiply.outer, values)
    right = np.zeros_like(solution)
    for number, (_, second) in enumerate(factors):
        right += reduce(np.multiply.outer, [*values[:number], second, *values[number + 1 :]])
    return solution, right


def inverse_laplacian(
    axes: Sequence[Axis], parts: Sequence[slice], counts: Sequence[int]
) -> Values:
    """Local. One over the eigenvalues of the Laplacian on a block of the spectrum. Where there is
    no Dirichlet axis the constant is in the null space: its entry is zero, so that the product is
    the solution without a mean. ``counts`` is the shape of the spectrum."""
    total = np.zeros([part.stop - part.start for part in parts])
    for number, (axis, part, count) in enumerate(zip(axes, parts, counts, strict=True)):
        shape = [1] * len(axes)
        shape[number] = -1
        total -= axis.wavenumbers(part, count).reshape(shape) ** 2
    inverse = np.zeros_like(total)
    np.divide(1.0, total, out=inverse, where=total != 0.0)
    return inverse


def expected_error(axes: Sequence[Axis], epsilon: float) -> float:
    """Local. What the error of the solution, relative to its largest value, must stay below: the
    coefficients that are not resolved, and rounding. The constants are a few times larger than
    those seen."""
    return ALIASING * sum(axis.aliasing for axis in axes) + ROUNDING * epsilon * len(axes)


LEAST = 4  # points along an axis
REMARK = (
    "Error: the largest of all points, relative to the largest value of the solution. Order: the "
    "power of the spacing with which the error fell since the coarser grid; none where rounding "
    "is all that is left. An iteration is a solution: forward, division, backward."
)


@dataclass(frozen=True)
class Level:
    """One grid: its axes, and the error that they explain; ``rounding``: that of rounding alone."""

    axes: tuple[Axis, ...]
    allowed: float
    rounding: float

    @property
    def name(self) -> str:
        return " x ".join(str(axis.count) for axis in self.axes)

    @property
    def spacing(self) -> float:
        """The largest distance of two points."""
        return max(axis.spacing for axis in self.axes)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where an error is larger than explained."""
    names = chosen(options.comm)
    levels = _levels(options)
    pattern = {"ranks": comm.size, "levels": [level.name for level in levels]}
    report = Report("poisson", options.settings(), pattern, remarks=[REMARK], by="points")
    cases = [
        Case({"points": level.name}, [{METHOD: name} for name in names],
             partial(_opened, options, level))
        for level in levels
    ]  # fmt: skip
    sweep(comm, options, report, cases, "solving")
    _orders(report.rows, {level.name: level for level in levels})
    return report.end(comm, options)


def _orders(rows: Sequence[Row], levels: Mapping[str, Level]) -> None:
    """Local. The power with which the error fell; none at the limit of rounding."""
    before: dict[str, tuple[float, float]] = {}
    for row in rows:
        if row.verdict is None:
            continue
        level, error = levels[row.labels["points"]], float(row.metrics["relative error"])
        row.metrics |= {"spacing": level.spacing, "order": None}
        if row.method in before and error > level.rounding:
            coarse, spacing = before[row.method]
            row.metrics["order"] = math.log(coarse / error) / math.log(spacing / level.spacing)
        before[row.method] = error, level.spacing


def _levels(options: Options) -> list[Level]:
    """Local. The grids from coarse to fine; :class:`CommandError` where one has too few points."""
    shape = options.shape
    names = conditions(options.boundary, len(shape))
    epsilon = float(np.finfo(options.dtype).eps)
    levels = []
    for power in reversed(range(options.levels)):
        counts = [count >> power for count in shape]
        if min(counts) < LEAST:
            raise CommandError(
                f"--levels {options.levels} leaves {min(counts)} points along an axis of --shape "
                f"{' '.join(map(str, shape))}; {LEAST} are needed"
            )
        axes = tuple(map(Axis, names, counts))
        levels.append(Level(axes, expected_error(axes, epsilon), ROUNDING * epsilon * len(axes)))
    return levels


def planned(comm: MPI.Intracomm, options: Options, axes: Sequence[Axis], method: str) -> PFFT:
    """Collective. The plan of a method for these axes."""
    kinds = {k: KINDS[axis.boundary] for k, axis in enumerate(axes) if axis.boundary in KINDS}
    return PFFT(
        comm, tuple(axis.count for axis in axes), dtype=options.dtype, grid=options.process_grid,
        method=method, info=hints(options), kinds=kinds, effort=options.effort, order="plan",
    )  # fmt: skip


class Equation:
    """Local. laplace(u) = f on the blocks of a plan: ``right`` is f, ``exact`` and ``solution``
    are u; plans of several methods share them."""

    def __init__(self, plan: PFFT, axes: Sequence[Axis]) -> None:
        self.exact, values = manufactured(axes, plan.local_slice(False))
        self.right, self.solution = newDistArray(plan, False), newDistArray(plan, False)
        self.right[...] = values
        where, counts = plan.local_slice(True), plan.global_shape(True)
        self._inverse = inverse_laplacian(axes, where, counts).astype(plan.dtype(False))

    def solver(self, plan: PFFT) -> Callable[[], None]:
        """Local. What solves it, collectively, with a plan."""
        spectrum = newDistArray(plan, True)

        def solve() -> None:
            plan.forward(self.right, spectrum)
            np.multiply(spectrum, self._inverse, out=spectrum)
            plan.backward(spectrum, self.solution)

        return solve


def _opened(options: Options, level: Level, comm: MPI.Intracomm, stack: ExitStack) -> Make:
    """Collective. What makes the solver of a method; they share the arrays of the first plan."""
    shared: list[Equation] = []

    def make(labels: Labels) -> Variant:
        plan = planned(comm, options, level.axes, labels[METHOD])

        def begun() -> Equation:
            if not shared:
                shared.append(Equation(plan, level.axes))
            return shared[0]

        equation, extra = clocked(comm, begun)
        solve = equation.solver(plan)
        metrics: dict[str, Any] = {"bytes": exchanged_bytes(comm, plan)}
        where = plan.local_slice(False)

        def check() -> Verdict:
            equation.solution[...] = np.nan
            solve()
            found = np.array(equation.solution)
            error = metrics["relative error"] = _error(comm, level.axes, found, equation.exact)
            verdicts = [Verdict(error, level.allowed)]
            if options.verify:
                alone = partial(_alone, options, level.axes)
                verdicts.append(Verdict(error_of_blocks(comm, where, found, alone), level.rounding))
            return worst(verdicts)

        return Variant(solve, check, free=plan.destroy, metrics=metrics, extra=extra,
                       used=used_method(plan))  # fmt: skip

    return make


def _alone(options: Options, axes: Sequence[Axis]) -> tuple[NDArray[Any], float]:
    """Local. A solution of this rank alone, and the largest value that is known."""
    with planned(MPI.COMM_SELF, options.but(grid=["auto"]), axes, BASELINE) as plan:
        equation = Equation(plan, axes)
        equation.solver(plan)()
        return np.array(equation.solution), float(np.max(np.abs(equation.exact)))


def _error(
    comm: MPI.Intracomm, axes: Sequence[Axis], solution: NDArray[Any], exact: NDArray[Any]
) -> float:
    """Collective. Largest error relative to the largest value; constants do not count if free."""
    difference = solution - exact
    if all(axis.boundary != DIRICHLET for axis in axes):
        sums = np.array([difference.sum(), difference.size])
        comm.Allreduce(MPI.IN_PLACE, sums)
        difference -= sums[0] / sums[1]
    return largest(comm, difference) / largest(comm, exact)


def largest(comm: MPI.Intracomm, block: NDArray[Any]) -> float:
    """Collective. The largest absolute value of an array, not a number if one is."""
    return float(np.max(comm.allgather(float(np.max(np.abs(block), initial=0.0)))))
