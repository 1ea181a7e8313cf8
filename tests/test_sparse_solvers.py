"""Solvers and preconditioners on 1 to 4 ranks; the cases are in mpi/cases_solver*.py,
cases_numerics.py and cases_algebra.py."""

from __future__ import annotations

import os

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


SEEN = ["number", "zero", "converged_means", "least", "afterwards", "table[", "scales"]
BLOCKS = ["null_space[solver=cg", "null_space[solver=gmres", "right_hand_sides[solver=cg"]


def test_numerics_and_the_table(run_cases):
    run_cases("cases_numerics", 2, select=[*SEEN, *BLOCKS], share=2)


def test_matrices_of_matrices_and_multigrid(run_cases):
    run_cases("cases_algebra", 2)


@pytest.mark.full
def test_the_table_of_the_folder(run_cases):
    if not os.environ.get("ONESIDED_MATRICES"):
        pytest.skip("ONESIDED_MATRICES names no folder of matrices")
    run_cases("cases_numerics", 2, select=["of_the_folder"], timeout=7200)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_all_numerics_and_matrices_of_matrices(run_cases, ranks):
    run_cases("cases_numerics", ranks, timeout=1200)
    run_cases("cases_algebra", ranks, timeout=600)


@pytest.mark.full
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("module", ["cases_solvers", "cases_solver_runs"])
def test_all_solutions_and_runs(run_cases, module, ranks):
    run_cases(module, ranks, timeout=600)
