"""The passive broadcast and the linear one on the ranks of an MPI job."""

from __future__ import annotations

import mpi_harness
import pytest

PROGRAM = mpi_harness.TESTS / "programs" / "passive.py"
full = pytest.mark.full
RANKS = [1, 3, pytest.param(2, marks=full), pytest.param(4, marks=full)]
SOME = ["every_root", "changing_roots", "at_once", "back_to_back"]


def ends(kind, ranks=3, **kwargs):
    """A run of the program that is good to its end."""
    outcome = mpi_harness.run(PROGRAM, ranks, kind, timeout=60, **kwargs)
    assert outcome.kind == "pass", outcome.report()
    return outcome.stdout


@pytest.mark.parametrize("ranks", RANKS)
def test_broadcasts(run_cases, ranks):
    run_cases("cases_passive", ranks, share=2)


@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=full) for n in (1, 2, 4))])
def test_mistakes_and_failures(run_cases, ranks):
    run_cases("cases_passive_errors", ranks)


@pytest.mark.parametrize("ranks", [4, pytest.param(7, marks=full)])
def test_deeper_trees(run_cases, ranks):
    run_cases("cases_passive", ranks, select=SOME, share=2)


@full
@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_thousand_broadcasts_from_changing_roots(run_cases, ranks):
    run_cases("cases_passive", ranks, select="changing_roots", options={"count": "1000"},
              timeout=900, env={"ONESIDED_CASE_TIMEOUT": "400"})


@full
def test_many_runtimes(run_cases, mpi_name):
    """Open MPI takes milliseconds for a window."""
    cycles = "700" if mpi_name == "mpich" else "100"
    run_cases("cases_passive", 2, select="again_and_again", options={"cycles": cycles},
              timeout=600, env={"ONESIDED_CASE_TIMEOUT": "300"})


@full
def test_on_two_nodes(run_cases, two_nodes):
    run_cases("cases_passive", timeout=600, **vars(two_nodes))


@full
def test_mistakes_and_failures_on_two_nodes(run_cases, two_nodes):
    run_cases("cases_passive_errors", timeout=600, **vars(two_nodes))


@full
@pytest.mark.parametrize(
    "env",
    [
        {"MPIR_CVAR_CH4_NETMOD": "ofi"},
        {"MPIR_CVAR_NOLOCAL": "1"},
        {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1"},
    ],
    ids=["ofi", "no-local", "ofi-no-local"],
)
def test_other_ways_of_mpich(run_cases, mpi_name, env):
    if mpi_name != "mpich":
        pytest.skip("settings of MPICH")
    run_cases("cases_passive", 3, env=env, timeout=600)


@full
def test_open_mpi_without_shared_memory(run_cases, mpi_name):
    if mpi_name != "openmpi":
        pytest.skip("settings of Open MPI")
    without = ["kind=create", "kind=allocate", "roots", "windows", "own", "linear", "receivers"]
    run_cases("cases_passive", 3, select=without, timeout=600,
              env={"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_osc": "^ucx,sm"})


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("level", ["single", "funneled", "serialized"])
def test_too_little_threading_names_the_linear_method(level):
    text = ends(level, 2)
    assert text.count(f"initialized with MPI_THREAD_{level.upper()}; use bcast_linear(") == 2
    assert text.count("right") == 2


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("kind", ["unclosed", "finalize"])
def test_a_program_ends_with_a_broadcast_under_way(kind):
    text = ends(kind)
    if kind == "finalize":
        assert text.count("right, 1 thread") == 3, text


def test_python_code_that_keeps_the_interpreter_lock():
    assert ends("python").count("right") == 3


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("kind", ["exception", "everyone"])
def test_an_exception_that_nobody_catches_ends_the_job(kind):
    outcome = mpi_harness.run(PROGRAM, 3, kind, timeout=25)
    assert outcome.kind in ("error", "crash"), outcome.report()
    assert outcome.returncode != 0, outcome.report()
    assert "only here" in outcome.stderr
