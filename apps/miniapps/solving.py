"""All ways in turns on the equations of one stage, and the rows that come of them.

A run of a mini-application takes a second or more, and is not repeated for the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import Contestant, Race, Stopwatch, WatchedComm, race, unchecked
from onesided.apps.bench.selection import Candidate, hints, prepare, release
from onesided.apps.cli.failures import closing
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Row
from onesided.apps.miniapps.halos import Need, Ways
from onesided.apps.miniapps.stages import HIDDEN, Tick, deviation, tell
from onesided.apps.report.result import REFERENCE
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
        """Collective. y = A x for one vector, (n,) or (n, 1)."""
        self.matrix.product(self.halo, x.reshape(-1), y.reshape(-1))

    def Free(self) -> None:
        """Collective. Free the halo; a second time has no effect."""
        self.halo.Free()
        self._freed = True


# Conjugate gradients with one way of bringing the ghosts.

#: Parts of an iteration; the rest of it are the vectors.
PARTS = EXCHANGE, PRODUCT, SUMS = "exchange", "product", "sums"
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

    def __init__(
        self, system: System, make: Callable[[Need], Any], info: Mapping[str, str], iterations: int
    ) -> None:
        """Collective. What the halo cannot do on this MPI is its error on every rank."""
        self._system, self._iterations = system, iterations
        matrix = system.matrix
        halo = make(Need(system.comm, matrix.pattern, matrix.dtype, info))
        self.label: str = halo.label
        self._operator = Operator(matrix, halo)
        self.parts = {name: Stopwatch() for name in PARTS}
        self.parts[EXCHANGE].watch(halo, "start", "finish")
        self.parts[PRODUCT].watch(self._operator, "multiply")
        self._operator.comm = WatchedComm(system.comm, self.parts[SUMS])

    def run(self) -> None:
        """Collective. All iterations, however small the residual is; fewer where it is 0."""
        self.last = self.solved(0.0, self._iterations)

    def warm_up(self) -> None:
        """Collective. A few iterations."""
        self.solved(0.0, min(WARM_UP, self._iterations))

    def solved(self, rtol: float, most: int) -> Solution:
        """Collective. Beside the runs: until the residual is so much of the first, or so many
        iterations."""
        return self._system.solution(self._operator, rtol, most)

    def free(self) -> None:
        """Collective. The halo goes; the matrix stays."""
        self._operator.Free()


VECTORS = "vectors"
ITERATION_REMARK = (
    "Times are those of an iteration of conjugate gradients, the mean over a run, by the slowest "
    "rank; exchange: what the ranks spend with their ghosts, waiting included; product: the local "
    "one; sums: the two reductions; vectors: the rest."
)


@dataclass(frozen=True)
class Ran:
    """A way that has run, before its halo is freed.

    ``median``: seconds of an iteration, ``product``: those of its product with the exchange.
    """

    row: Row
    solver: Solver
    median: float
    product: float


def run_ways(
    system: System,
    ways: Ways,
    options: Options,
    labels: Mapping[str, str],
    judge: Callable[[Sequence[Ran]], None],
    tick: Tick,
) -> list[Row]:
    """Collective. Run all ways in turns; a row for each, also for those that cannot be run.

    ``judge`` looks at what came out, and completes the rows. :class:`.CommandError` on every rank
    for what cannot be done.
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
        runs = candidates.made
        why = unchecked("the mini-application judges the solutions of all ways together")
        contestants = [
            Contestant(name, solver.run, why, parts=solver.parts, warm_up=solver.warm_up)
            for name, solver in runs.items()
        ]
        found = race(comm, contestants, iterations=options.repeats, tick=tick)
        ran = {name: _ran(system, labels, name, solver, found) for name, solver in runs.items()}
        for each in ran.values():
            each.row.against = {REFERENCE: ran[REFERENCE].row.times}
        judge(list(ran.values()))
    rows = {name: each.row for name, each in ran.items()}
    return [finished(each, rows, labels, comm.size) for each in candidates]


def _ran(
    system: System, labels: Mapping[str, str], name: str, solver: Solver, found: Race
) -> Ran:
    """Local. What a way came to, by iteration."""
    count = max(1, solver.last.iterations)
    whole, exchange, product, sums = (
        np.array(seconds) / count
        for seconds in (found.times[name], *(found.parts[name][part] for part in PARTS))
    )
    kernel = system.matrix.kernel_name
    row = Row(
        {**labels, "method": name},
        whole.tolist(),
        details={
            EXCHANGE: exchange.tolist(),
            PRODUCT: (product - exchange).tolist(),
            SUMS: sums.tolist(),
            VECTORS: (whole - product - sums).tolist(),
        },
        facts={
            "ranks": system.comm.size,
            "unknowns": system.unknowns,
            "nonzeros": system.matrix.nnz,
            "kernel": kernel,
            "product": kernel,
            "cg_iterations": solver.last.iterations,
            "run_s": found.times[name],
        },
        used=solver.label,
        hidden=HIDDEN,
    )
    return Ran(row, solver, median(whole.tolist()), median(product.tolist()))


def finished(
    each: Candidate[Any], rows: Mapping[str, Row], labels: Mapping[str, str], ranks: int
) -> Row:
    """Local. The row of a way, with its set-up; or why there is none."""
    row = each.row(rows, labels)
    tell(row, facts={"ranks": ranks} if row.reason else {"deviation_s": deviation(row)})
    return row
