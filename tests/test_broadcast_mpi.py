"""The persistent broadcast on the ranks of an MPI job: every method in its registry."""

from __future__ import annotations

import pytest

FULL = pytest.mark.full
SOME = ["life", "specifications", "in_many_segments", "memory_in_use", "one_copy", "child_order"]


@pytest.mark.parametrize("ranks", [1, 3])
def test_broadcasts(run_cases, ranks):
    run_cases("cases_broadcast", ranks, select=SOME)


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_emulated_nodes(run_cases, nodes):
    run_cases("cases_broadcast", 4, select=["in_many_segments", "case_roots_in_turn"],
              options={"ranks_per_node": nodes})


def test_mistakes(run_cases):
    run_cases("cases_broadcast_errors", 3)


@FULL
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("module", ["cases_broadcast", "cases_broadcast_errors"])
def test_everything(run_cases, module, ranks):
    run_cases(module, ranks, timeout=600)


@FULL
def test_seven_ranks(run_cases):
    run_cases("cases_broadcast", 7, timeout=600,
              select=["case_data_in", "case_life", "case_roots", "case_child", "case_one_copy"])


@FULL
@pytest.mark.parametrize("nodes", ["1", "2", "3"])
def test_everything_on_emulated_nodes(run_cases, nodes):
    run_cases("cases_broadcast", 4, options={"ranks_per_node": nodes}, timeout=900)


@FULL
def test_everything_on_two_nodes(run_cases, two_nodes):
    run_cases("cases_broadcast", timeout=900, **vars(two_nodes))


@FULL
@pytest.mark.parametrize("ranks", [1, 3])
def test_debug_mode(run_cases, ranks):
    run_cases("cases_broadcast_debug", ranks, env={"ONESIDED_DEBUG": "1"})


@FULL
def test_progress_without_single_copy(run_cases, mpi_name):
    """Large messages need both sides' progress where one side cannot copy them alone."""
    settings = {"mpich": {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}, "openmpi": {"OMPI_MCA_smsc": "^cma"}}
    run_cases("cases_broadcast", 3, select=["any_order"], env=settings[mpi_name])


@FULL
@pytest.mark.parametrize("options", [{}, {"ranks_per_node": "1"}], ids=["node", "nodes"])
def test_data_beyond_two_gigabytes(run_cases, options):
    run_cases("cases_broadcast_large", 2, options=options, timeout=1500,
              env={"ONESIDED_CASE_TIMEOUT": "300"})
