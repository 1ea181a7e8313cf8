"""Distributed matrices on 1 to 7 ranks; the cases are in mpi/cases_sparse*.py."""

from __future__ import annotations

import os

import pytest

RANKS = [1, 2, 3, 4, 7]


@pytest.mark.parametrize("ranks", RANKS)
def test_matrices(run_cases, ranks):
    run_cases("cases_sparse", ranks)


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
    ]
    run_cases("cases_sparse_reading", ranks, select=names)


@pytest.mark.full
@pytest.mark.parametrize("ranks", RANKS)
def test_every_large_matrix(run_cases, ranks):
    if not os.environ.get("ONESIDED_MATRICES"):
        pytest.skip("ONESIDED_MATRICES names no folder of matrices")
    run_cases("cases_sparse_reading", ranks, select="case_large", timeout=600)
