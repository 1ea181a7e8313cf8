"""One stage: what all ways came to with the grid of some ranks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI

from onesided.apps.closing import closing
from onesided.apps.hpccg.check import compared, reference, solved
from onesided.apps.hpccg.grid import Grid
from onesided.apps.hpccg.picture import draw
from onesided.apps.hpccg.system import System
from onesided.apps.mini.bandwidth import Bandwidth
from onesided.apps.mini.race import Ran, race
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import Stage
from onesided.apps.mini.way import Way
from onesided.apps.verdict import Verdict

PRINTED = 10  # residuals in JSON, without the first
#: Of what memory needs: of a product with its exchange, and of an iteration with its vectors.
PRODUCT_SHARE, WHOLE_SHARE = "product share", "whole share"


@dataclass
class Findings:
    """What the stages have found, on the ranks that took part: rows, and how residuals compare."""

    rows: list[MiniRow] = field(default_factory=list)
    histories: list[Verdict] = field(default_factory=list)


def work(
    comm: MPI.Intracomm,
    stage: Stage,
    grid: Grid,
    ways: Mapping[str, Way],
    options: Namespace,
    found: Findings,
    tick: Callable[[], None],
    picture: str | None,
) -> None:
    """Collective. Run all ways with the grid; what comes of it is added to ``found``.

    ``picture``: the file where the first way is drawn after the runs. :class:`.CommandError` on
    every rank for what cannot be done.
    """
    with closing() as stack:
        system = System(comm, grid)
        stack.callback(system.free)
        judge = Judge(system, stage, options, found, picture, system.bandwidth())
        found.rows += race(system, ways, options, judge, tick)


@dataclass(frozen=True)
class Judge:
    """Residuals, errors of x, and shares of what memory allows, as fast as it was ``before``."""

    system: System
    stage: Stage
    options: Namespace
    found: Findings
    picture: str | None
    before: Bandwidth

    @property
    def labels(self) -> Mapping[str, str]:
        """Local."""
        return self.stage.labels

    def judge(self, runs: Sequence[Ran]) -> None:
        """Collective. Complete the rows; every way's residuals against those of rank 0 alone."""
        system = self.system
        memory = self.before.or_faster(system.bandwidth())
        for ran in runs:
            self._complete(ran, memory)
        if self.options.verify:
            expected = reference(system.comm, system.grid, self.options.iterations)
            for ran in runs:
                verdict = compared(ran.solution.residuals.tolist(), expected)
                ran.row.more = {**ran.row.more, "residuals_error": verdict.error}
                self.found.histories.append(verdict)
        if self.picture is not None:
            draw(system.comm, system.grid, runs[0].solver, self.picture)

    def _complete(self, ran: Ran, memory: Bandwidth) -> None:
        """Collective."""
        system, row, residuals = self.system, ran.row, ran.solution.residuals.tolist()
        product, whole = system.bounds(memory)
        row.verdict = solved(system.comm, ran.solution)
        row.shares = {
            PRODUCT_SHARE: product / ran.iteration.product,
            WHOLE_SHARE: whole / ran.iteration.median,
        }
        row.facts = {"residual": residuals[-1]}
        row.more = {
            **row.more,
            "shape": list(system.grid.shape),
            "bandwidth_bytes_per_s": dict(memory.loops),
            "bandwidth_probe_bytes": memory.nbytes,
            "flops_per_s": system.flops / ran.iteration.median,
            "bound_product_s": product,
            "bound_iteration_s": whole,
            "residuals": some(residuals),
        }


def some(residuals: list[Any]) -> list[Any]:
    """Local. About ten of them, the first and every so many, as the reference prints them."""
    return residuals[:: max(1, (len(residuals) - 1) // PRINTED)]
