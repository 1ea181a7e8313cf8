"""The FFT on the ranks of an MPI job."""

from __future__ import annotations

import pytest

MODULES = ["cases_fft", "cases_fft_errors"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("module", MODULES)
def test_fft(run_cases, module, ranks):
    run_cases(module, ranks)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("ranks", [6, pytest.param(7, marks=pytest.mark.full)])
def test_fft_on_more_ranks_than_planes(run_cases, module, ranks):
    run_cases(module, ranks)
