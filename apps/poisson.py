"""``onesided poisson``: a known solution of the Poisson equation, on finer and finer grids.

laplace(u) = f is solved by transforming f, dividing by the eigenvalues of the Laplacian, and
transforming back: a Fourier transform along periodic axes, between walls a sine transform
(Dirichlet) or a cosine transform (Neumann). With exact eigenvalues the error falls faster than
any power of the spacing until rounding is reached; with those of the second-order difference
quotients it falls like the square.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import CommandError
from onesided.apps.fft import FAILED, exchanged_bytes, used_method
from onesided.apps.options import settings
from onesided.apps.picture import check_picture, save_lines
from onesided.apps.poisson_problem import (
    Axis,
    expected_error,
    has_null_space,
    inverse_laplacian,
    manufactured,
    rounding_error,
)
from onesided.apps.progress import console
from onesided.apps.report import Report, Row, check_json
from onesided.apps.selection import BASELINE, Candidate, chosen, hints, prepare, release
from onesided.apps.timing import Subject, timed
from onesided.apps.verdict import Verdict
from onesided.pencilfft import PFFT, newDistArray

LEAST = 4  # points along an axis
REMARK = (
    "Error: the largest of all points, relative to the largest value of the solution. Order: the "
    "power of the spacing with which the error fell since the coarser grid; none where rounding "
    "is all that is left. An iteration is a solution: forward, division, backward."
)


@dataclass
class Level:
    """One grid: its axes, the error of every method, and how far their solutions are apart."""

    axes: tuple[Axis, ...]
    allowed: float
    rounding: float
    errors: dict[str, float] = field(default_factory=dict)
    apart: float = 0.0

    @property
    def name(self) -> str:
        """Local. The numbers of points."""
        return " x ".join(str(axis.count) for axis in self.axes)

    @property
    def spacing(self) -> float:
        """Local. The largest distance of two points."""
        return max(axis.spacing for axis in self.axes)

    def order(self, coarser: Level | None, method: str) -> float | None:
        """Local. The power with which the error fell; None at the limit of rounding."""
        before = None if coarser is None else coarser.errors.get(method)
        mine = self.errors[method]
        if coarser is None or before is None or not mine > self.rounding:
            return None
        return float(np.log(before / mine) / np.log(coarser.spacing / self.spacing))


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where an error is larger than explained."""
    names = chosen(options.comm)
    levels = _levels(options)
    check_json(comm, options)
    check_picture(comm, options.picture)
    report = Report("poisson", settings(options), {"ranks": comm.size}, remarks=[REMARK])
    coarser = None
    for level in levels:
        report.rows += _solved(comm, options, names, level, coarser)
        coarser = level
    last = levels[-1]
    methods = len(last.errors)
    if methods > 1:
        apart = max(level.apart for level in levels)
        allowed = max(level.rounding for level in levels)
        report.verdicts[f"difference of the {methods} methods"] = Verdict(apart, allowed)
    report.pattern = {**report.pattern, "levels": [level.name for level in levels]}
    out = console(options.terminal) if comm.rank == 0 else None
    report.finish(comm, out, options.json)
    if comm.rank == 0 and options.picture is not None:
        _draw(options, levels)
    return FAILED if report.verified is False else 0


def _levels(options: Namespace) -> list[Level]:
    """Local. The grids from coarse to fine; :class:`CommandError` where one has too few points."""
    shape, names = options.shape, options.boundary
    if len(names) not in (1, len(shape)):
        raise CommandError(
            f"--boundary names {len(names)} conditions for {len(shape)} axes: one, or one per axis"
        )
    if len(names) == 1:
        names = names * len(shape)
    epsilon = float(np.finfo(options.dtype).eps)
    levels = []
    for power in range(options.levels - 1, -1, -1):
        counts = [count >> power for count in shape]
        if min(counts) < LEAST:
            raise CommandError(
                f"--levels {options.levels} leaves {min(counts)} points along an axis of --shape "
                f"{' '.join(map(str, shape))}; {LEAST} are needed"
            )
        axes = tuple(
            Axis(name, options.points, count) for name, count in zip(names, counts, strict=True)
        )
        allowed = expected_error(axes, options.eigenvalues, epsilon)
        levels.append(Level(axes, allowed, rounding_error(axes, epsilon)))
    return levels


def plan_maker(
    comm: MPI.Intracomm, options: Namespace, axes: Sequence[Axis]
) -> Callable[[str], PFFT]:
    """Local. What makes the plan of a method for these axes."""
    grid = None if options.grid == ["auto"] else tuple(options.grid)
    shape = tuple(axis.count for axis in axes)
    kinds = {number: axis.kind for number, axis in enumerate(axes) if axis.kind is not None}
    info = hints(options)

    def make(method: str) -> PFFT:
        return PFFT(
            comm,
            shape,
            dtype=options.dtype,
            grid=grid,
            method=method,
            info=info,
            kinds=kinds,
            effort=options.effort,
            order="plan",
        )

    return make


class PoissonSolver:
    """Local. Solves laplace(u) = f with one plan; several solvers may share their arrays."""

    def __init__(self, plan: PFFT, inverse: NDArray[Any]) -> None:
        self._plan, self._inverse = plan, inverse
        self._spectrum = newDistArray(plan, True)

    def __call__(self, right: NDArray[Any], solution: NDArray[Any]) -> None:
        """Collective. Solve with this rank's block of f into this rank's block of u."""
        spectrum = self._spectrum
        self._plan.forward(right, spectrum)
        np.multiply(spectrum, self._inverse, out=spectrum)
        self._plan.backward(spectrum, solution)


def _solved(
    comm: MPI.Intracomm,
    options: Namespace,
    names: list[str],
    level: Level,
    coarser: Level | None,
) -> list[Row]:
    """Collective. Solve on one grid with every method: a row for each."""
    candidates = prepare(comm, names, plan_maker(comm, options, level.axes), PFFT.destroy)
    plans = {each.method: each.made for each in candidates if each.made is not None}
    plan = next(iter(plans.values()))
    exact, values = manufactured(level.axes, plan.local_slice(False))
    right, solution = newDistArray(plan, False), newDistArray(plan, False)
    right[...] = values
    counts = plan.global_shape(True)
    inverse = inverse_laplacian(level.axes, plan.local_slice(True), counts, options.eigenvalues)
    inverse = inverse.astype(plan.dtype(False))
    solvers = {method: PoissonSolver(each, inverse) for method, each in plans.items()}
    first: NDArray[Any] | None = None
    for method, solver in solvers.items():
        solver(right, solution)
        level.errors[method] = _error(comm, level.axes, np.asarray(solution), exact)
        if first is None:
            first = np.array(solution)
        scale = _largest(comm, exact)
        level.apart = max(level.apart, _largest(comm, np.asarray(solution) - first) / scale)
    subjects = [
        Subject(method, _call(solver, right, solution)) for method, solver in solvers.items()
    ]
    out = console(options.terminal) if comm.rank == 0 else None
    lists = timed(comm, subjects, options, out, f"solving {level.name}")
    labels = {method: used_method(each, method) for method, each in plans.items()}
    nbytes = exchanged_bytes(comm, plan)
    release(comm, candidates, PFFT.destroy)
    times = dict(zip(plans, lists, strict=True))
    return [_row(level, coarser, each, labels, times, nbytes) for each in candidates]


def _row(
    level: Level,
    coarser: Level | None,
    each: Candidate[PFFT],
    labels: dict[str, str],
    times: dict[str, list[float]],
    nbytes: int,
) -> Row:
    method = each.method
    if each.reason:
        return Row({"points": level.name, "method": method}, reason=each.reason)
    return Row(
        {"points": level.name, "method": labels[method]},
        times[method],
        setup=each.setup + each.freeing,
        nbytes=nbytes,
        against={name: times[name] for name in (BASELINE,) if name in times},
        values={"order": level.order(coarser, method)},
        verdict=Verdict(level.errors[method], level.allowed),
    )


def _call(
    solver: PoissonSolver, right: NDArray[Any], solution: NDArray[Any]
) -> Callable[[], object]:
    return lambda: solver(right, solution)


def _error(
    comm: MPI.Intracomm, axes: Sequence[Axis], solution: NDArray[Any], exact: NDArray[Any]
) -> float:
    """Collective. Largest error relative to the largest value; constants do not count if free."""
    difference = solution - exact
    if has_null_space(axes):
        sums = np.array([difference.sum(), difference.size])
        comm.Allreduce(MPI.IN_PLACE, sums)
        difference -= sums[0] / sums[1]
    return _largest(comm, difference) / _largest(comm, exact)


def _largest(comm: MPI.Intracomm, block: NDArray[Any]) -> float:
    """Collective. The largest absolute value of an array, not a number if one is."""
    return float(np.max(comm.allgather(float(np.max(np.abs(block), initial=0.0)))))


def _draw(options: Namespace, levels: Sequence[Level]) -> None:
    """Local. Errors over the spacing."""
    spacing = [level.spacing for level in levels]
    lines = {
        method: (spacing, [level.errors[method] for level in levels])
        for method in levels[-1].errors
    }
    title = f"Poisson, {' '.join(options.boundary)}, {options.eigenvalues} eigenvalues"
    save_lines(options.picture, title, ("spacing", "relative error"), lines)
