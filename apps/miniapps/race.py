"""All ways in turns on the equations of one stage, and the rows that come of them.

A run of a mini-application takes a second or more, and is not repeated for the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import (
    Contestant,
    Race,
    Stopwatch,
    WatchedComm,
    race,
    unchecked,
)
from onesided.apps.bench.selection import Candidate, hints, prepare, release
from onesided.apps.cli.failures import closing
from onesided.apps.cli.options import Options
from onesided.apps.miniapps.halos import Need
from onesided.apps.miniapps.way import REFERENCE, MiniRow, Way
from onesided.sparse import DistMatrix, Linear
from onesided.sparse.halo import Ghosts
from onesided.sparse.solvers import Solution

# A distributed matrix whose ghosts are brought by a halo of one's own.


class Operator(Linear):
    """Local. Products with the entries, the kernels and the pattern of a matrix, by another halo.

    The matrix is borrowed: it must live as long. Of one vector at a time; the transposes are those
    of the matrix. ``halo`` goes with ``Free``.
    """

    def __init__(self, matrix: DistMatrix, halo: Ghosts) -> None:
        self._lay_out(matrix.comm, matrix.row_partition, matrix.col_partition)
        self.dtype, self.matrix, self.halo = matrix.dtype, matrix, halo
        self._freed = False

    @property
    def freed(self) -> bool:
        """Local. True after ``Free``."""
        return self._freed

    @property
    def T(self) -> Linear:
        """Local. The transpose of the matrix, with halos of its own."""
        return self.matrix.T

    @property
    def H(self) -> Linear:
        """Local. The adjoint of the matrix, with halos of its own."""
        return self.matrix.H

    def multiply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Collective. y = A x for one vector, (n,) or (n, 1); a block goes to the matrix."""
        if x.size != len(x):
            self.matrix.multiply(x, y)
            return
        self.matrix.product(self.halo, x.reshape(-1), y.reshape(-1))

    def Free(self) -> None:
        """Collective. Free the halo; a second time has no effect."""
        self.halo.Free()
        self._freed = True


# Conjugate gradients with one way of bringing the ghosts.

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


VECTORS = "vectors"


@dataclass(frozen=True)
class Iteration:
    """Seconds of an iteration, the means over each run: of all of it, and of its parts.

    The part of the product has the exchange in it.
    """

    times: list[float]
    parts: dict[str, list[float]]

    @classmethod
    def of(cls, solver: Solver, name: str, found: Race) -> Iteration:
        """Local. From the seconds of the runs."""
        count = max(1, solver.last.iterations)
        parts = {part: _each(seconds, count) for part, seconds in found.parts[name].items()}
        return cls(_each(found.times[name], count), parts)

    @property
    def median(self) -> float:
        """Local. Of the runs."""
        return median(self.times)

    @property
    def product(self) -> float:
        """Local. The median of the product with its exchange."""
        return median(self.parts[PRODUCT])

    def details(self) -> dict[str, list[float]]:
        """Local. What it consists of; the product is the local one, vectors are the rest."""
        exchange, product, sums = (self.parts[name] for name in (EXCHANGE, PRODUCT, SUMS))
        known = zip(self.times, product, sums, strict=True)
        return {
            EXCHANGE: exchange,
            PRODUCT: [one - other for one, other in zip(product, exchange, strict=True)],
            SUMS: sums,
            VECTORS: [whole - one - other for whole, one, other in known],
        }


def _each(seconds: Sequence[float], count: int) -> list[float]:
    return [run / count for run in seconds]


@dataclass(frozen=True)
class Ran:
    """A way that has run, before its halo is freed; ``solution`` is that of its last run."""

    row: MiniRow
    solver: Solver
    iteration: Iteration

    @property
    def solution(self) -> Solution:
        """Local."""
        return self.solver.last


class Judge(Protocol):
    """What a mini-application makes of the runs: ``labels`` are those of its rows."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Local."""

    def judge(self, runs: Sequence[Ran]) -> None:
        """Collective. Look at what came out, and complete the rows."""


def run_ways(
    system: System,
    ways: Mapping[str, Way],
    options: Options,
    judge: Judge,
    tick: Callable[[], None],
) -> list[MiniRow]:
    """Collective. Run all ways in turns; a row for each, also for those that cannot be run.

    :class:`.CommandError` on every rank for what cannot be done.
    """
    comm, info = system.comm, hints(options)
    with closing() as stack:
        candidates = prepare(
            comm,
            list(ways),
            lambda name: Solver(system, ways[name], info, options.iterations),
            Solver.free,
        )
        stack.callback(release, comm, candidates, Solver.free)
        runs = {each.method: each.made for each in candidates if each.made is not None}
        why = unchecked("the mini-application judges the solutions of all ways together")
        contestants = [
            Contestant(name, solver.run, why, parts=solver.parts, warm_up=solver.warm_up)
            for name, solver in runs.items()
        ]
        found = race(comm, contestants, iterations=options.repeats, tick=tick)
        iterations = {name: Iteration.of(solver, name, found) for name, solver in runs.items()}
        rows = {
            name: MiniRow(
                {**judge.labels, "method": name},
                iterations[name].times,
                against={REFERENCE: iterations[REFERENCE].times},
                details=iterations[name].details(),
                facts=_facts(system, solver, found.times[name]),
                used=solver.label,
            )
            for name, solver in runs.items()
        }
        judge.judge([Ran(rows[name], runs[name], iterations[name]) for name in runs])
    return [_finished(each, rows, judge, system) for each in candidates]


def _facts(system: System, solver: Solver, times: Sequence[float]) -> dict[str, object]:
    """Local. For JSON."""
    return {
        "ranks": system.comm.size,
        "unknowns": system.unknowns,
        "nonzeros": system.matrix.nnz,
        "kernel": system.matrix.kernel_name,
        "product": system.matrix.kernel_name,
        "cg_iterations": solver.last.iterations,
        "run_s": list(times),
    }


def _finished(
    each: Candidate[Solver], rows: Mapping[str, MiniRow], judge: Judge, system: System
) -> MiniRow:
    """Local. The row of a way, with its set-up; or why there is none."""
    if each.reason:
        labels = {**judge.labels, "method": each.method}
        return MiniRow(labels, reason=each.reason, facts={"ranks": system.comm.size})
    row = rows[each.method]
    row.setup = each.setup + each.freeing
    return row
