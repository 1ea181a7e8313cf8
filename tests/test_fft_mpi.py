"""The FFT on the ranks of an MPI job."""

from __future__ import annotations

import pytest

MODULES = [
    "cases_fft",
    "cases_fft_errors",
    "cases_fft_kinds",
    "cases_fft_line",
    "cases_fft_nonblocking",
    "cases_fft_random",
    "cases_fft_wisdom",
]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("module", MODULES)
def test_fft(run_cases, module, ranks):
    run_cases(module, ranks, among=(2, 3, 4), share=2)


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.full)])
def test_programs_for_mpi4py_fft(run_cases, ranks):
    run_cases("cases_fft_dropin", ranks)


def test_fft_on_more_ranks_than_planes(run_cases):
    run_cases("cases_fft", 6, select="case_three_dimensions", share=2)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 7])
@pytest.mark.parametrize("module", MODULES)
def test_fft_in_all_combinations(run_cases, module, ranks):
    run_cases(module, ranks, env={"ONESIDED_FFT_CASES": "all"}, timeout=600.0)
