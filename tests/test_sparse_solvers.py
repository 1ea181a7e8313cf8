"""Solvers and preconditioners on 1 to 4 ranks; the cases are in mpi/cases_solver*.py."""

from __future__ import annotations

import pytest

RANKS = [1, 2, 3, 4]
COVERING = [
    "name=grid",
    "name=complex",
    "name=ash219",
    "iterates",
    "cycles",
    "formulas",
    "chebyshev",
    "pagerank",
    "number_of_ranks",
    "single",
    "complex_side",
    "distributed",
]


@pytest.mark.parametrize("ranks", [1, 3])
def test_solutions(run_cases, ranks):
    run_cases("cases_solvers", ranks, select=COVERING)


@pytest.mark.parametrize("ranks", [2, 3])
def test_runs(run_cases, ranks):
    run_cases("cases_solver_runs", ranks)


@pytest.mark.full
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("module", ["cases_solvers", "cases_solver_runs"])
def test_all_solutions_and_runs(run_cases, module, ranks):
    run_cases(module, ranks, timeout=600)
