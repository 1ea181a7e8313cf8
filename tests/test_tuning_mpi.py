"""``auto`` on the ranks of an MPI job."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(3, marks=pytest.mark.full)])
def test_tuning(run_cases, ranks):
    run_cases("cases_tuning", ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_auto_in_every_regime(run_cases, ranks):
    run_cases("cases_auto", ranks)


@pytest.mark.full
def test_tuning_on_two_nodes(run_cases, two_nodes):
    run_cases("cases_tuning", **vars(two_nodes))
