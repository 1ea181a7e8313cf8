"""The passive broadcast and the linear one on the ranks of an MPI job."""

from __future__ import annotations

import mpi_harness
import pytest

PROGRAM = mpi_harness.TESTS / "programs" / "passive.py"
def ends(kind, ranks=3, **kwargs):
    """A run of the program that is good to its end."""
    outcome = mpi_harness.run(PROGRAM, ranks, kind, timeout=60, **kwargs)
    assert outcome.kind == "pass", outcome.report()
    return outcome.stdout


@pytest.mark.some(1)
@pytest.mark.parametrize("level", ["single", "funneled", "serialized"])
def test_too_little_threading_names_the_linear_method(level):
    text = ends(level, 2)
    assert text.count(f"initialized with MPI_THREAD_{level.upper()}; use bcast_linear(") == 2
    assert text.count("right") == 2


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["unclosed", "finalize"])
def test_a_program_ends_with_a_broadcast_under_way(kind):
    text = ends(kind)
    if kind == "finalize":
        assert text.count("right, 1 thread") == 3, text


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["exception", "everyone"])
def test_an_exception_that_nobody_catches_ends_the_job(kind):
    outcome = mpi_harness.run(PROGRAM, 3, kind, timeout=25)
    assert outcome.kind in ("error", "crash"), outcome.report()
    assert outcome.returncode != 0, outcome.report()
    assert "only here" in outcome.stderr
