"""The persistent broadcast on the ranks of an MPI job: every method in its registry."""

from __future__ import annotations

from itertools import pairwise

import pytest

from onesided.collectives.broadcast.board import SHORT, TWICE, Segments

FULL = pytest.mark.full
SOME = ["life", "specifications", "in_many_segments", "memory_in_use", "one_copy", "child_order"]


SIZES = [1, 7, 1000, SHORT, SHORT + 1, TWICE - 1, TWICE + 1, 10 * TWICE + 3, (1 << 31) + 5]


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("most", [0, 1000, 1 << 19])
def test_segments_of_rounds_in_a_row_share_a_ring(nbytes, most):
    """They cover the data; one after the other has the next slot, and no two have the same one."""
    segments = Segments.on_node(nbytes, max(most, nbytes // 1024) if most else 0)
    parts = [segments.part(i) for i in range(segments.count)]
    assert parts[0].start == 0
    assert parts[-1].stop == nbytes
    assert all(a.stop == b.start for a, b in pairwise(parts))
    assert all(part.stop - part.start <= segments.size for part in parts)
    step = segments.room // segments.slots
    assert step >= segments.size
    for number in range(2 * segments.turns + 1):
        for i in range(segments.count):
            place = (number * segments.count + i) % segments.slots * step
            assert segments.place(number % segments.turns, i) == place
    assert segments.fit == (segments.slots >= 2 * segments.count)
    assert segments.room <= max(4 * SHORT, 2 * nbytes + 32 * 128, 0)
    assert segments.room <= 8 * TWICE + 4096


@pytest.mark.parametrize("ranks", [1, 3])
def test_broadcasts(run_cases, ranks):
    run_cases("cases_broadcast", ranks, select=SOME, share=2)


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_emulated_nodes(run_cases, nodes):
    run_cases("cases_broadcast", 4, options={"ranks_per_node": nodes},
              share=6,
              select=["in_many_segments", "case_roots_in_turn", "case_nobody_waits"])


@pytest.mark.parametrize("ranks", [2, 4])
def test_no_legal_program_hangs(run_cases, ranks):
    run_cases("cases_broadcast", ranks, select=["case_nobody_waits"], among=(2, 4), share=2)


def test_the_reference_interpreter(run_cases):
    run_cases("cases_broadcast", 3, select=["in_many_segments", "case_nobody_waits", "any_order"],
              env={"ONESIDED_CORE": "python"}, share=6)


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
              select=["case_data_in", "case_life", "case_roots", "case_child", "case_one_copy",
                      "case_nobody_waits"])


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
