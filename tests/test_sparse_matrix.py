"""Blocks, sides, vectors, operators on 1 to 7 ranks; the cases are in mpi/cases_matrix*.py."""

from __future__ import annotations

import pytest

RANKS = [1, 2, 3, 4]
COVERING = [
    "sides[name=square",
    "sides[name=dense row",
    "sides[name=empty ends",
    "method=rma-notify",
    "method=p2p",
    "dtypes",
    "planned_once",
    "allocate",
    "sides_of",
    "dot_product",
    "out",
    "fewer_rows",
    "wrong",
    "free",
]


@pytest.mark.parametrize("ranks", [2, 3])
def test_sides_and_blocks(run_cases, ranks):
    run_cases("cases_matrix", ranks, select=COVERING, among=(2, 3))


@pytest.mark.full
@pytest.mark.parametrize("ranks", [*RANKS, 7])
def test_all_sides_and_blocks(run_cases, ranks):
    run_cases("cases_matrix", ranks, timeout=300)


@pytest.mark.parametrize("ranks", [2, 3])
def test_kernels(run_cases, ranks):
    run_cases("cases_kernels", ranks, among=(2, 3))


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 4, 7])
def test_kernels_on_other_numbers_of_ranks(run_cases, ranks):
    run_cases("cases_kernels", ranks)


@pytest.mark.parametrize("module", ["cases_matrix_entries", "cases_matrix_vectors"])
def test_entries_and_vectors(run_cases, module):
    run_cases(module, 3)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
@pytest.mark.parametrize("module", ["cases_matrix_entries", "cases_matrix_vectors"])
def test_entries_and_vectors_on_other_numbers_of_ranks(run_cases, module, ranks):
    run_cases(module, ranks)


def test_random_matrices(run_cases):
    run_cases("cases_matrix_random", 3, select=["method=p2p", "method=rma-notify", "=rma-fence]"])


@pytest.mark.full
@pytest.mark.parametrize("ranks", RANKS)
def test_many_random_matrices(run_cases, ranks):
    run_cases("cases_matrix_random", ranks, options={"examples": "40"}, timeout=600)
