"""Reductions and the barrier on the ranks of an MPI job: every method in the registry."""

from __future__ import annotations

import pytest

ON_NODES = [
    "case_results", "case_the_order", "case_the_same_bits", "case_nobody_passes", "case_ranks_that",
    "case_message",
]


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(4, marks=pytest.mark.full)])
def test_reductions(run_cases, ranks):
    run_cases("cases_reduction", ranks, among=(2, 3), share=2)


@pytest.mark.parametrize(("ranks", "nodes"), [(3, "1"), (5, "2")])
def test_emulated_nodes(run_cases, ranks, nodes):
    """Leaders, and nodes of different sizes."""
    run_cases("cases_reduction", ranks, select=ON_NODES, options={"ranks_per_node": nodes},
              share=6)


def test_without_the_compiled_core(run_cases):
    run_cases("cases_reduction", 3, env={"ONESIDED_CORE": "python"}, share=6)


def test_nodes_that_do_not_follow_the_ranks(run_cases):
    run_cases("cases_reduction", 4, select="case_nodes_that_do_not")


def test_two_nodes(run_cases, two_nodes):
    run_cases("cases_reduction", select=ON_NODES, share=6, **vars(two_nodes))
