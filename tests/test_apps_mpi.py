"""What the commands are made of, on several ranks; the cases are in mpi/cases_apps.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.full)])
def test_timing_checks_and_trials(run_cases, ranks):
    run_cases("cases_apps", ranks)


def test_layout_of_two_nodes(run_cases, two_nodes):
    run_cases(
        "cases_apps",
        two_nodes.ranks,
        select="layout",
        options={"nodes": "2"},
        env=two_nodes.env,
        nodes=two_nodes.nodes,
    )
