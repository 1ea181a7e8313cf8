"""Halos on the ranks of an MPI job: grids and lists of neighbors, every transport, mistakes."""

from __future__ import annotations

import pytest

FULL = [pytest.param(ranks, marks=pytest.mark.full) for ranks in (1, 2, 3, 4, 6, 8)]
BOTH = ["cases_halo", "cases_halo_flow", "cases_grid"]
SOME = [
    ("cases_halo", 1, ["case_grids", "way=store", "dtypes"]),
    ("cases_halo", 2, ["case_grids", "case_ways", "layers=1"]),
    ("cases_halo", 3, ["every_rank", "case_random"]),
    ("cases_halo", 4, ["grid=((2, 2)", "case_four_axes"]),
    ("cases_halo_flow", 2, ["beside", "orders", "one_way", "several"]),
    ("cases_halo_flow", 4, ["case_many_neighbors", "graphs", "store,late=start"]),
    ("cases_halo_errors", 2, []),
    ("cases_grid", 2, []),
    ("cases_grid", 3, ["case_update", "case_accumulate_is", "case_migrate", "burst"]),
    ("cases_grid", 4, ["case_update[form=((9", "case_accumulate_is", "along_axes"]),
]


@pytest.mark.parametrize(("module", "ranks", "select"), SOME)
def test_halos(run_cases, module, ranks, select):
    run_cases(module, ranks, select=select, share=2)


@pytest.mark.parametrize("module", [*BOTH, "cases_halo_errors"])
@pytest.mark.parametrize("ranks", FULL)
def test_all_halos(run_cases, module, ranks):
    run_cases(module, ranks, timeout=600)


@pytest.mark.full
def test_more_halos_than_mpi_has_windows(run_cases):
    run_cases("cases_halo_errors", 2, select="many_cycles", options={"cycles": "2500"},
              env={"ONESIDED_CASE_TIMEOUT": "500"}, timeout=600)


def test_two_nodes(run_cases, two_nodes):
    """Messages between nodes, stores on them."""
    run_cases("cases_halo", select=["memory=shared", "way=store"],
              **vars(two_nodes))


@pytest.mark.full
@pytest.mark.parametrize("module", BOTH)
def test_everything_on_two_nodes(run_cases, two_nodes, module):
    run_cases(module, timeout=600, **vars(two_nodes))


@pytest.mark.full
def test_without_single_copy(run_cases, mpi_name):
    """Large messages need both sides' progress where one side cannot copy them alone."""
    settings = {"mpich": {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}, "openmpi": {"OMPI_MCA_smsc": "^cma"}}
    run_cases("cases_halo_flow", 2, select=["case_late", "in_different_orders"],
              env=settings[mpi_name])


@pytest.mark.full
@pytest.mark.parametrize("level", ["funneled", "serialized"])
def test_lower_thread_levels(run_cases, level):
    """Marks of other threads count; the main thread sends and receives."""
    run_cases("cases_halo_flow", 2, select=["beside", "case_threads"],
              env={"MPI4PY_RC_THREAD_LEVEL": level})
