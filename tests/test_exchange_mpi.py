"""The persistent exchanges on the ranks of an MPI job: every transport in the registry."""

from __future__ import annotations

import pytest

RANKS = [1, 2, 3, 4, pytest.param(7, marks=pytest.mark.full)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("module", ["cases_conformance", "cases_order"])
def test_conformance(run_cases, module, ranks):
    run_cases(module, ranks, among=(2, 3, 4), share=2)


@pytest.mark.parametrize("ranks", [1, 3, pytest.param(4, marks=pytest.mark.full)])
def test_operations(run_cases, ranks):
    run_cases("cases_operations", ranks, share=4)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_same_pattern_on_other_buffers(run_cases, ranks):
    run_cases("cases_like", ranks)


def test_operations_on_emulated_nodes(run_cases):
    run_cases("cases_operations", 4, select=["case_data[what=All", "case_data[what=Gatherv"],
              options={"ranks_per_node": "2"}, share=4)


def test_conformance_on_five_ranks(run_cases):
    run_cases("cases_conformance", 5, share=6,
              select=["case_data", "case_boxes", "case_life", "Startall"])


@pytest.mark.parametrize("ranks", [1, 3, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("module", ["cases_validation", "cases_random", "cases_threads"])
def test_mistakes_random_patterns_and_threads(run_cases, module, ranks):
    run_cases(module, ranks, share=2)


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.full)])
def test_memory(run_cases, ranks):
    run_cases("cases_memory", ranks, share=4)


@pytest.mark.parametrize("ranks", [1, 3])
def test_debug_mode(run_cases, ranks):
    run_cases("cases_debug", ranks, env={"ONESIDED_DEBUG": "1"}, share=2)


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_conformance_with_debugging(run_cases, ranks):
    run_cases("cases_conformance", ranks, env={"ONESIDED_DEBUG": "1"})


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_emulated_nodes(run_cases, nodes):
    """Emulated nodes in one: the off-node paths and the hierarchy without any network."""
    run_cases("cases_nodes_exchange", 4, options={"ranks_per_node": nodes}, share=4)


def test_two_nodes(run_cases, two_nodes):
    run_cases("cases_nodes_exchange", share=4, **vars(two_nodes))


@pytest.mark.full
@pytest.mark.parametrize("module", ["cases_conformance", "cases_validation", "cases_memory"])
def test_everything_on_two_nodes(run_cases, two_nodes, module):
    run_cases(module, timeout=900, **vars(two_nodes))


@pytest.mark.full
def test_ten_thousand_cycles(run_cases, mpi_name):
    """Create, start, wait, free: Open MPI takes milliseconds for a window."""
    cycles = "10000" if mpi_name == "mpich" else "2000"
    run_cases(
        "cases_memory", 2, select="many_cycles", options={"cycles": cycles}, timeout=3000,
        env={"ONESIDED_CASE_TIMEOUT": "1500"},
    )


@pytest.mark.full
@pytest.mark.parametrize("module", ["cases_random"])
def test_many_random_patterns(run_cases, module):
    run_cases(module, 4, options={"examples": "100"}, timeout=1500,
              env={"ONESIDED_CASE_TIMEOUT": "600"})


@pytest.mark.full
def test_blocks_beyond_two_gigabytes(run_cases):
    run_cases("cases_large", 2, timeout=900, env={"ONESIDED_CASE_TIMEOUT": "300"})


def test_progress_without_single_copy(run_cases, mpi_name):
    """Large messages need both sides' progress where one side cannot copy them alone."""
    settings = {"mpich": {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}, "openmpi": {"OMPI_MCA_smsc": "^cma"}}
    for ranks in (2, 3):
        run_cases("cases_order", ranks, select=["big_messages", "late"], env=settings[mpi_name],
                  among=(2, 3), share=2)


@pytest.mark.full
@pytest.mark.parametrize(
    "env",
    [
        {"MPIR_CVAR_CH4_NETMOD": "ofi"},
        {"MPIR_CVAR_NOLOCAL": "1"},
        {"UCX_TLS": "tcp,self"},
        {"MPIR_CVAR_ODD_EVEN_CLIQUES": "1"},
    ],
    ids=["ofi", "no-local", "tcp", "odd-even"],
)
def test_other_ways_of_mpich(run_cases, mpi_name, env):
    if mpi_name != "mpich":
        pytest.skip("settings of MPICH")
    run_cases("cases_nodes_exchange", 4, env=env)


@pytest.mark.full
@pytest.mark.parametrize(
    "env",
    [{"OMPI_MCA_btl": "self,tcp"},
     {"OMPI_MCA_smsc": "^cma"}],
    ids=["tcp", "no-single-copy"],
)
def test_other_ways_of_open_mpi(run_cases, mpi_name, env):
    if mpi_name != "openmpi":
        pytest.skip("settings of Open MPI")
    run_cases("cases_order", 3, env=env)
