"""Partitioned sends on the ranks of an MPI job: every transport in their registry."""

from __future__ import annotations

import pytest

RANKS = [1, 2, 3, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (4, 7))]


@pytest.mark.parametrize("ranks", RANKS)
def test_partitioned_sends(run_cases, ranks):
    run_cases("cases_partitioned", ranks)


def test_two_nodes(run_cases, two_nodes):
    """Receive memory of another node is not seen: auto sends messages, rma says why it cannot."""
    run_cases("cases_partitioned", select=["method=auto", "disagree"], **vars(two_nodes))


def test_without_single_copy(run_cases, mpi_name):
    """Large messages need both sides' progress where one side cannot copy them alone."""
    settings = {"mpich": {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}, "openmpi": {"OMPI_MCA_smsc": "^cma"}}
    run_cases("cases_partitioned", 2, select=["case_late", "case_rings"], env=settings[mpi_name])


@pytest.mark.parametrize("level", ["funneled", "serialized"])
def test_lower_thread_levels(run_cases, level):
    """Marks of other threads count; the main thread sends what they complete."""
    run_cases("cases_partitioned", 2, select=["sizes_and_orders", "contents"],
              env={"MPI4PY_RC_THREAD_LEVEL": level})
