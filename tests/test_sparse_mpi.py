"""Distributed matrices on 1 to 5 ranks, and on 7; the cases are in mpi/cases_sparse*.py."""

from __future__ import annotations

import os

import pytest

RANKS = [1, 2, 3, 4, 5]


@pytest.mark.parametrize("ranks", RANKS[:-1])
def test_matrices(run_cases, ranks):
    run_cases("cases_sparse", ranks, among=(2, 3, 4), share=2)


def test_matrices_on_more_ranks_than_cores(run_cases):
    names = ["kernel=scipy", "name=square", "name=few rows", "bad_input", "halo", "overlapping"]
    run_cases("cases_sparse", RANKS[-1], select=names, share=4)


@pytest.mark.full
def test_all_matrices_on_more_ranks_than_cores(run_cases):
    run_cases("cases_sparse", 7)


@pytest.mark.parametrize("ranks", RANKS)
def test_reading(run_cases, ranks):
    names = [
        "shipped",
        "blocks",
        "array_files",
        "newline",
        "nan",
        "case_dtype",
        "bad_file",
        "fault",
        "gzip",
        "opened",
        "error",
        "routed",
        "those_only",
    ]
    run_cases("cases_sparse_reading", ranks, select=names, among=(2, 3, 4, 5))


@pytest.mark.full
@pytest.mark.parametrize("ranks", [*RANKS, 7])
def test_every_large_matrix(run_cases, ranks):
    if not os.environ.get("ONESIDED_MATRICES"):
        pytest.skip("ONESIDED_MATRICES names no folder of matrices")
    run_cases("cases_sparse_reading", ranks, select="case_large", timeout=600)
