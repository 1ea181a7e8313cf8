"""One stage: what all ways came to on the mesh of some ranks."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onesided.apps.mini.race import Ran, race
from onesided.apps.mini.row import MiniRow
from onesided.apps.mini.scaling import Stage
from onesided.apps.mini.way import Way
from onesided.apps.minife.alone import Alone
from onesided.apps.minife.sizes import words
from onesided.apps.minife.system import System
from onesided.apps.report import Listing
from onesided.apps.verdict import Verdict

_PARTS = ("integration", "sharing", "matrix")
_SETUP = {
    "ranks": "d",
    "unknowns": "d",
    "entries": "d",
    **{f"{part} s": ".3g" for part in _PARTS},
}


@dataclass
class Findings:
    """What the stages have found, on the ranks that took part.

    ``setup``: a row for each stage; ``compared``: solutions against those of rank 0 alone.
    """

    rows: list[MiniRow] = field(default_factory=list)
    setup: Listing = field(
        default_factory=lambda: Listing("Assembly, by the slowest rank", _SETUP)
    )
    compared: list[Verdict] = field(default_factory=list)


def work(
    system: System,
    stage: Stage,
    ways: Mapping[str, Way],
    options: Namespace,
    found: Findings,
    tick: Callable[[], None],
) -> None:
    """Collective. Run all ways on a mesh; what comes of it is added to ``found``.

    :class:`.CommandError` on every rank for what cannot be done.
    """
    found.rows += race(system, ways, options, Judge(system, stage, options, found), tick)
    seconds = [system.seconds[part] for part in _PARTS]
    found.setup.rows.append([system.comm.size, system.unknowns, system.matrix.nnz, *seconds])


@dataclass(frozen=True)
class Judge:
    """Solutions to a tolerance, against the known one."""

    system: System
    stage: Stage
    options: Namespace
    found: Findings

    @property
    def labels(self) -> Mapping[str, str]:
        """Local."""
        return {**self.stage.labels, "elements": words(self.system.mesh.elements)}

    def judge(self, runs: Sequence[Ran]) -> None:
        """Collective. Every way's solution against the known one, and that of rank 0 if wanted."""
        system, options = self.system, self.options
        alone = Alone(system, options) if options.verify else None
        for ran in runs:
            row, solution = ran.row, ran.solver.to_tolerance(options.rtol, options.maxiter)
            row.nbytes = system.nbytes
            row.facts = {"GFLOP/s": system.flops / ran.iteration.median / 1e9}
            row.verdict = Verdict(system.errors(solution.x).largest, system.bound)
            row.more = {
                **row.more,
                "elements": list(system.mesh.elements),
                "residual": system.residual(solution.x),
                "converged": solution.converged,
                "solution_iterations": solution.iterations,
            }
            if alone is not None:
                self.found.compared.append(alone.compared(solution.x))
