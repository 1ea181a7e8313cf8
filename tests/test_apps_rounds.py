"""``onesided bench rounds``: every row is right, and stands beside what is wanted."""

from __future__ import annotations

import json

import numpy as np
import pytest
import servers
from mpi4py import MPI

from onesided.apps.papers import rounds


@pytest.mark.parametrize("ranks", [1, 2])
def test_rounds(tmp_path, ranks):
    path = tmp_path / "rounds.json"
    outcome = servers.run(
        "-m onesided.apps", ranks, "bench", "rounds", "--sizes", "64", "4K", "--iterations", "3",
        "--json", str(path), timeout=120,
    )  # fmt: skip
    assert outcome.kind == "pass", outcome.report()
    assert "0 wrong elements" in outcome.stdout
    content = json.loads(path.read_text())
    assert content["wrong"] == 0
    assert [(row["memory"], row["bytes"]) for row in content["rows"]] == [
        (memory, nbytes) for memory in ("slots", "empty", "plain") for nbytes in (64, 4096)
    ]
    for row in content["rows"]:
        assert row["MPI_Alltoallv"] > 0
        assert set(row["over MPI_Alltoallv"]) == {"auto", "rma-notify", "p2p", "mpi-persistent"}
        for middle, low, high in row["over MPI_Alltoallv"].values():
            assert 0 < low <= middle <= high
        assert row["best"] != "auto"
    assert set(content["setup"]) == {"rma-notify", "rma-p2p", "p2p"}
    assert all(seconds > 0 for seconds in content["setup"].values())


def test_wrong_data_are_counted(monkeypatch):
    """A method that delivers something else is not only timed."""
    good = rounds.Exchanger.round
    monkeypatch.setattr(rounds.Exchanger, "round", lambda self: good(self) + 1)

    class Options:
        iterations, methods = 2, ["p2p"]

    row, wrong = rounds._compare(MPI.COMM_SELF, "slots", 64, Options)
    assert wrong > 0
    assert row["bytes"] == 64


def test_targets_are_those_of_the_memory_and_the_size(monkeypatch):
    monkeypatch.setattr(rounds.MPI, "get_vendor", lambda: ("MPICH", (5, 0, 2)))
    assert rounds.target("slots", 64) == 0.15
    assert rounds.target("slots", 16 << 20) == 0.65
    assert rounds.target("empty", 1 << 20) is None
    monkeypatch.setattr(rounds.MPI, "get_vendor", lambda: ("Open MPI", (5, 0, 11)))
    assert {rounds.target(memory, 1 << 20) for memory in rounds.PLACES} == {0.60}


def test_quartiles():
    assert rounds._quartiles(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == (3.0, 2.0, 4.0)
