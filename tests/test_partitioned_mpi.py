"""Partitioned sends on the ranks of an MPI job: every transport in their registry."""

from __future__ import annotations

import pytest

MODULES = ["cases_partitioned", "cases_partitioned_limits", "cases_partitioned_progress"]
RANKS = [1, 2, 3, *(pytest.param(ranks, marks=pytest.mark.full) for ranks in (4, 7))]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("module", MODULES)
def test_partitioned_sends(run_cases, module, ranks):
    run_cases(module, ranks, among=(2, 3), share=2)


@pytest.mark.parametrize("module", MODULES)
def test_the_core_in_python(run_cases, module):
    """Rounds and marks without the compiled core."""
    run_cases(module, 2, env={"ONESIDED_CORE": "python"}, share=4)


def test_two_nodes(run_cases, two_nodes):
    """Receive memory of another node is Put to by rma; auto sends messages."""
    select = ["method=auto", "method=rma", "disagree", "board"]
    run_cases("cases_partitioned_limits", select=select, share=4, **vars(two_nodes))
    run_cases("cases_partitioned_progress", share=4, **vars(two_nodes))


@pytest.mark.full
def test_two_nodes_in_full(run_cases, two_nodes):
    run_cases("cases_partitioned", select=["method=auto", "method=rma"], **vars(two_nodes))


def test_debugging(run_cases):
    run_cases("cases_partitioned_limits", 2, env={"ONESIDED_DEBUG": "1"}, share=4)


@pytest.mark.full
def test_debugging_in_full(run_cases):
    run_cases("cases_partitioned", 2, env={"ONESIDED_DEBUG": "1"})


def test_without_single_copy(run_cases, mpi_name):
    """Large messages need both sides' progress where one side cannot copy them alone."""
    settings = {"mpich": {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}, "openmpi": {"OMPI_MCA_smsc": "^cma"}}
    run_cases("cases_partitioned", 2, select=["case_late", "case_rings"], env=settings[mpi_name])


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("level", ["funneled", "serialized"])
def test_lower_thread_levels(run_cases, level):
    """Marks of other threads count; the main thread sends what they complete."""
    run_cases("cases_partitioned", 2, select=["sizes_and_orders", "contents"],
              env={"MPI4PY_RC_THREAD_LEVEL": level})
