"""Reductions and the barrier on the ranks of an MPI job: every method in the registry."""

from __future__ import annotations

import pytest

ON_NODES = ["case_the_same_bits", "case_nobody_passes", "case_ranks_that_run", "case_message"]


FULL = [pytest.param(ranks, marks=pytest.mark.full) for ranks in (1, 4, 5)]


@pytest.mark.parametrize("ranks", [2, 3, *FULL])
def test_reductions(run_cases, ranks):
    run_cases("cases_reduction", ranks)


@pytest.mark.parametrize(("ranks", "nodes"), [(3, "1"), (5, "2")])
def test_emulated_nodes(run_cases, ranks, nodes):
    """Leaders, and nodes of different sizes."""
    run_cases("cases_reduction", ranks, select=ON_NODES, options={"nodes": nodes}, share=6)


def test_without_the_compiled_core(run_cases):
    run_cases("cases_reduction", 3, env={"ONESIDED_CORE": "python"}, share=3)


def test_two_nodes(run_cases, two_nodes):
    run_cases("cases_reduction", select=ON_NODES, share=6, **vars(two_nodes))
