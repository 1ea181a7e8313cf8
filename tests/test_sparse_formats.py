"""Files of all formats, whole and damaged, on several ranks; cases in mpi/cases_formats.py."""

from __future__ import annotations

import pytest

RANKS = [1, 2, 3, 4, 7]


def test_formats(run_cases):
    run_cases("cases_formats", 2)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 3, 4, 7])
def test_formats_on_other_ranks(run_cases, ranks):
    run_cases("cases_formats", ranks, timeout=600)


def test_damaged_files(run_cases):
    names = [
        "coordinate,packed=F",
        "boeing,packed=T",
        "npz packed,packed=F",
        "small",
        "gzip",
        "any",
    ]
    run_cases("cases_fuzz", 2, select=names)


@pytest.mark.full
@pytest.mark.parametrize("ranks", RANKS)
def test_many_damaged_files(run_cases, ranks):
    run_cases("cases_fuzz", ranks, options={"examples": "150"}, timeout=1200)
