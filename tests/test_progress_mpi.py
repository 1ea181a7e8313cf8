"""Progress, order, agreement and the end: programs that MPI's rules allow must come to their end.

These are whole programs, those of tests/programs/progress.py; what needs none of its own is in the
table of tests/mpi, and random programs of the same kind are in test_legal_programs.py.
"""

from __future__ import annotations

import itertools
import json

import mpi_harness
import processes
import pytest

PROGRAM = mpi_harness.TESTS / "programs" / "progress.py"


# -- whole programs -------------------------------------------------------------------------------


def passes(ranks, *words, timeout=60, **options):
    outcome = mpi_harness.run(PROGRAM, ranks, *words, timeout=timeout, **options)
    assert outcome.kind == "pass", outcome.report()
    return outcome


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["rma-notify", "rma-lock", "mpi-persistent"])
def test_an_interrupted_rank_waits_for_the_others_at_its_end(method):
    told = passes(2, "interrupted end", method).stdout
    assert told.count("is at its end") == 2
    assert told.count("interrupted") == 1  # later, and not lost


@pytest.mark.parametrize("end", ["by hand", "at exit"])
def test_a_program_ends_with_a_passive_broadcast_under_way(end):
    told = passes(3, "broadcasting", end).stdout
    assert told.count("right, 1 thread") == (3 if end == "by hand" else 0), told


ENDS = [(2, "inactive", "by hand"), (2, "late", "at exit"), (2, "broken", "by hand"),
        (2, "lost", "at exit"), (2, "dropped", "at exit")]  # fmt: skip
MORE = itertools.product((1, 2, 3), ("inactive", "active", "late", "broken", "lost",
                                     "dropped"), ("by hand", "at exit"))  # fmt: skip


@pytest.mark.parametrize(("ranks", "state", "end"), [
    *ENDS, *(pytest.param(*each, marks=pytest.mark.full) for each in MORE if each not in ENDS)])
def test_every_row_of_the_table_at_the_end_of_a_program(ranks, state, end):
    """Nothing is freed; MPI is finalized by the program or by nobody."""
    program = mpi_harness.TESTS / "programs" / "table_end.py"
    outcome = mpi_harness.run(program, ranks, state, end, timeout=100)
    assert outcome.kind == "pass", outcome.report()
    assert outcome.stdout.count("arrays are as they were") == ranks


def test_ranks_of_another_world():
    outcome = mpi_harness.run(mpi_harness.TESTS / "programs" / "spawned.py", 1, timeout=60)
    assert outcome.kind == "pass", outcome.report()
    assert outcome.stdout.count("has everything") == 3


@pytest.mark.one_mpi
@pytest.mark.parametrize(("form", "when"), [
    ("table", "freed"), ("json", "freed"), ("json", "left"), ("json", "alone"), ("no", "left")])
def test_a_profile_of_a_whole_program(tmp_path, when, form):
    file = tmp_path / "times.json"
    value = {"table": "1", "json": str(file), "no": "0"}[form]
    outcome = passes(2, "profiled", when, env={"ONESIDED_PROFILE": value})
    assert outcome.stdout.count("has done its rounds") == 2
    assert outcome.stderr.count("label of mine") == (2 if form == "table" else 0)
    if form == "json":
        rows = json.loads(file.read_text())
        assert [row["what"] for row in rows] == ["Alltoallv by p2p", "Alltoallv by rma-notify"]
        assert all(row["rounds"] == {"max": 5, "ratio": 1.0} for row in rows)


@pytest.mark.parametrize("objects", ["none", "before", "after"])
def test_many_communicators_with_attributes(objects):
    assert passes(2, "attributes", objects).stdout.count("has freed all") == 2


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("how", "ranks"), [("twice", 2), ("at once", 4), ("memfd", 2)])
def test_small_shared_memory(monkeypatch, how, ranks):
    """ResourceError on all ranks instead of a bus error in the middle of a round.

    The job has a /dev/shm of its own, which MPI needs some of; the program fills it as wanted.
    """
    words, reason = processes.unshared("512m")
    if not words:
        pytest.skip(reason)
    plain = mpi_harness.command
    monkeypatch.setattr(mpi_harness, "command", lambda *given: [*words, *plain(*given)])
    outcome = passes(ranks, "small shm", how)
    assert outcome.stdout.count("was refused") == ranks
