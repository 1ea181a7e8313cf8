"""Rounds that the caller fills, on the ranks of an MPI job: every transport in the registry."""

from __future__ import annotations

import pytest

DIRECT = [f"method={name}" for name in ("rma-notify", "rma-p2p", "rma-fence,", "rma-fence]", "p2p")]


@pytest.mark.parametrize(
    "ranks", [1, 3, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 4))]
)
def test_filled_rounds(run_cases, ranks):
    run_cases("cases_filled", ranks, share=4)


@pytest.mark.parametrize("nodes", ["1", pytest.param("2", marks=pytest.mark.full)])
def test_emulated_nodes(run_cases, nodes):
    """Emulated nodes in one: chunks are Put, credits are messages."""
    run_cases("cases_filled", 3, select=DIRECT, options={"ranks_per_node": nodes}, share=4)


def test_debug_mode(run_cases):
    select = ["late", "alternate", "misuse"]
    run_cases("cases_filled", 2, select=select, env={"ONESIDED_DEBUG": "1"}, share=2)


@pytest.mark.full
def test_two_nodes(run_cases, two_nodes):
    run_cases("cases_filled", timeout=900, **vars(two_nodes))
