"""Every call of sparse/ with empty ranks and mixed dtypes; see mpi/cases_sparse_table.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_table(run_cases, ranks):
    run_cases("cases_sparse_table", ranks, share=25)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_the_whole_table(run_cases, ranks):
    run_cases("cases_sparse_table", ranks, timeout=1800)
