"""What ``onesided solve`` and ``onesided pagerank`` share: runs by every method, a report."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpi4py import MPI
from rich.console import Console

from onesided.apps.failures import user_errors
from onesided.apps.options import settings
from onesided.apps.picture import check_picture
from onesided.apps.progress import console, progress, reading
from onesided.apps.report import PLAIN, Report, Row, check_json
from onesided.apps.rowblock import Maker
from onesided.apps.selection import BASELINE, Candidate, chosen, prepare, release
from onesided.apps.solve_plot import save_plot, text_plot
from onesided.apps.solve_vectors import check_solution, in_file_order, write_solution
from onesided.apps.spmv import FAILED, halo_setup, label
from onesided.apps.timing import setup_time
from onesided.apps.verdict import Verdict
from onesided.sparse import DistMatrix, read
from onesided.sparse.solvers import Solution

PRODUCTS = "1000"  # that the methods are told to expect
Solve = Callable[[], Solution]


@dataclass
class Outcome:
    """What a method came to: its solution, seconds of every run, and the verdict."""

    solution: Solution
    times: list[float]
    verdict: Verdict | None


class Runs:
    """The same problem by every method that was asked for, and what is told about it."""

    def __init__(self, comm: MPI.Intracomm, options: Namespace, command: str, remark: str) -> None:
        """Collective. Check what was given and read the matrix once for every method."""
        names = chosen(options.comm, baseline=False)
        check_json(comm, options)
        check_picture(comm, options.picture)
        check_solution(comm, options.solution)
        self.comm, self.options = comm, options
        info = {"expected_iterations": PRODUCTS, **dict(options.info)}
        self.out: Console | None = console(options.terminal) if comm.rank == 0 else None
        how = {"info": info, "partition": options.partition}
        with reading(self.out, f"reading {Path(options.file).name}") as advance:
            self._candidates: list[Candidate[DistMatrix]] = prepare(
                comm,
                names,
                Maker(
                    lambda method: read(comm, options.file, method=method, progress=advance, **how),
                    info,
                ),
                DistMatrix.Free,
            )
        self.matrices = {each.method: each.made for each in self._candidates if each.made}
        self.matrix = next(iter(self.matrices.values()))
        pattern = {
            "file": Path(options.file).name,
            "shape": list(self.matrix.shape),
            "nonzeros": self.matrix.nnz,
            "dtype": self.matrix.dtype.name,
            "ranks": comm.size,
        }
        self.report = Report(command, settings(options), pattern, remarks=[remark])

    def solve(
        self,
        prepared: Callable[[DistMatrix], Solve],
        verdict: Callable[[DistMatrix, Solution], Verdict | None],
    ) -> dict[str, Outcome]:
        """Collective. Run every method ``--iterations`` times, in turn."""
        with user_errors():
            calls = {method: prepared(matrix) for method, matrix in self.matrices.items()}
        found: dict[str, list[Solution]] = {method: [] for method in calls}
        times: dict[str, list[float]] = {method: [] for method in calls}
        total = self.options.iterations * len(calls)
        with progress(self.out, self.report.command, total) as tick, user_errors():
            for _ in range(self.options.iterations):
                for method, call in calls.items():
                    keep = found[method]
                    times[method].append(
                        setup_time(self.comm, lambda k=keep, c=call: k.append(c()))  # type: ignore[misc]
                    )
                    tick()
        return {
            method: Outcome(found[method][-1], times[method], verdict(matrix, found[method][-1]))
            for method, matrix in self.matrices.items()
        }

    def finish(
        self, outcomes: Mapping[str, Outcome], quantity: str, attributes: Mapping[str, Any]
    ) -> int:
        """Collective. Report, plot, picture and solution; the exit code of the command."""
        comm, options, report = self.comm, self.options, self.report
        first = next(iter(outcomes.values())).solution
        if options.solution is not None:
            block = in_file_order(self.matrix, first.x)
            write_solution(comm, options.solution, block, {**attributes, "reason": first.reason})
        self._rows(outcomes)
        report.pattern = {
            **report.pattern,
            "outcomes": {method: _facts(each.solution) for method, each in outcomes.items()},
        }
        lines = {method: each.solution.residuals.tolist() for method, each in outcomes.items()}
        title = f"{report.command} {Path(options.file).name}: {quantity}"
        if self.out is not None:
            self.out.print(text_plot(title, lines), **PLAIN)
        report.finish(comm, self.out, options.json)
        if comm.rank == 0 and options.picture is not None:
            save_plot(options.picture, title, quantity, lines)
        converged = all(each.solution.converged for each in outcomes.values())
        return 0 if converged and report.verified is not False else FAILED

    def _rows(self, outcomes: Mapping[str, Outcome]) -> None:
        """Collective. A row of the report for every method; the matrices are freed."""
        setups = {method: halo_setup(self.comm, each) for method, each in self.matrices.items()}
        labels = {method: label(method, each) for method, each in self.matrices.items()}
        release(self.comm, self._candidates, DistMatrix.Free)
        for each in self._candidates:
            method = each.method
            if each.reason:
                self.report.rows.append(Row({"method": method}, reason=each.reason))
                continue
            outcome = outcomes[method]
            done = outcome.solution
            words = {"iterations": str(done.iterations), "end": done.reason}
            row = Row({**labels[method], **words}, outcome.times, setups[method] + each.freeing)
            if BASELINE in outcomes:
                row.against = {BASELINE: outcomes[BASELINE].times}
            row.verdict = outcome.verdict
            self.report.rows.append(row)


def _facts(solution: Solution) -> dict[str, Any]:
    return {
        "converged": solution.converged,
        "iterations": solution.iterations,
        "reason": solution.reason,
        "residuals": solution.residuals.tolist(),
    }
