"""Solvers and preconditioners on 1 to 4 ranks; the cases are in mpi/cases_solver*.py."""

from __future__ import annotations

import pytest

RANKS = [1, 2, 3, 4]
COVERING = [
    "cg[solver=cg,name=grid",
    "cg[solver=pipelined_cg,name=complex",
    "general[solver=bicgstab,name=drift,precond=ilu",
    "general[solver=gmres,name=complex,precond=ilu",
    "preconditioned[name=grid",
    "lsqr[name=wide",
    "power_iteration[name=Trefethen_20b",
    "iterates",
    "cycles[restart=5",
    "formulas[kind=BlockILU",
    "chebyshev",
    "pagerank",
    "number_of_ranks",
    "single_precision[dtype=c8",
    "complex_side",
    "distributed_vectors[solver=cg",
]
FEW = ["number_of_ranks", "formulas[kind=SSOR"]
RUNS = ["nothing", "more_ranks", "limit", "callback", "breakdown", "bad", "factors", "reductions"]


def test_solutions(run_cases):
    run_cases("cases_solvers", 2, select=COVERING)


def test_solutions_on_three_ranks(run_cases):
    run_cases("cases_solvers", 3, select=FEW)


def test_runs(run_cases):
    run_cases("cases_solver_runs", 2, select=[*RUNS, "jacobi=True"])


@pytest.mark.full
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("module", ["cases_solvers", "cases_solver_runs"])
def test_all_solutions_and_runs(run_cases, module, ranks):
    run_cases(module, ranks, timeout=600)
