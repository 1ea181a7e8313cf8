"""``onesided bench rounds``: every row is right, and stands beside what is wanted."""

from __future__ import annotations

import json

import pytest
import servers
from mpi4py import MPI

from onesided.apps.bench.memory import PLACES, Exchanger
from onesided.apps.bench.store import Part
from onesided.apps.cli.options import Options
from onesided.apps.papers import rounds
from onesided.apps.papers.goals import wanted


@pytest.mark.parametrize("ranks", [1, 2])
def test_rounds(tmp_path, ranks):
    path = tmp_path / "rounds.json"
    outcome = servers.run(
        "-m onesided.apps", ranks, "bench", "rounds", "--sizes", "64", "4K", "--iterations", "3",
        "--json", str(path), timeout=120,
    )  # fmt: skip
    assert outcome.kind == "pass", outcome.report()
    content = json.loads(path.read_text())
    assert content["verified"] is True
    setups = [row for row in content["rows"] if row["labels"]["bytes"] == "set-up"]
    rows = [row for row in content["rows"] if row not in setups]
    names = {"mpi", "auto", "rma-notify", "p2p", "mpi-persistent"}
    for memory in ("slots", "empty", "plain"):
        for nbytes in (64, 4096):
            here = [row for row in rows if row["labels"]["memory"] == memory and row["bytes"] == nbytes]
            assert {row["labels"]["method"] for row in here} == names
            best = next(row for row in here if row.get("target") == rounds.AUTO_TARGET)
            assert best["method"] == "auto"
            assert best["opponent"] in names - {"auto", "mpi"}
    for row in rows:
        for name, ratio in row["ratios"].items():
            low, high = row["intervals"][name]
            assert 0 < low <= ratio <= high
    assert [row["labels"]["method"] for row in setups] == ["rma-notify", "rma-p2p", "p2p"]
    assert all(row["reached"] > 0 for row in setups)


def test_wrong_data_are_counted(monkeypatch):
    """A method that delivers something else is not only timed."""
    good = Exchanger.round
    monkeypatch.setattr(Exchanger, "round", lambda self: good(self) + 1)
    options = Options(iterations=2, seconds=5.0, memory=["slots"], sizes=[64])
    part = Part()
    rounds._compare(MPI.COMM_SELF, "slots", 64, ["p2p"], options, part)
    found = {row.labels["method"]: row for row in part.rows[:-1]}
    assert found["mpi"].verdict.passed
    assert not found["p2p"].verdict.passed


def test_targets_are_those_of_the_memory_and_the_size():
    for memory, nbytes, vendor, bound in (
        ("slots", 64, "MPICH", 0.15),
        ("slots", 16 << 20, "MPICH", 0.65),
        ("empty", 1 << 20, "MPICH", None),
        *((memory, 1 << 20, "Open MPI", 0.60) for memory in PLACES),
    ):
        assert wanted(rounds.TARGETS, nbytes, vendor, memory=memory) == bound
