"""``bench halo`` on two ranks: what is compared, what has a target, and ghosts that are wrong."""

from __future__ import annotations

import json

import commands
import numpy as np
import pytest
from mpi4py import MPI

from onesided.apps.tools.bench_halo import Entrant, Packed, Typed, _wrong
from onesided.collectives import Grid


def test_all_contestants_on_two_ranks(tmp_path):
    path = tmp_path / "halo.json"
    words = "bench halo --shape 9 8 --shape 5 4 6 --iterations 2 --seconds 1 --ranks 2 --json"
    finished = commands.onesided(*words.split(), str(path))
    assert finished.code == 0, finished
    found = json.loads(path.read_text())
    assert found["verified"] is True
    assert len(found["verdicts"]) == 2 * 5
    named = [(row["labels"]["grid"], row["labels"]["update"], row["labels"]["opponent"]) for row in found["rows"]]
    assert named[:4] == [("9x8", "one field", "packed messages"),
                         ("9x8", "one field", "messages of types"),
                         ("9x8", "3 fields", "one field"), ("9x8", "3 fields", "3 updates")]
    assert [row["target"] for row in found["rows"]] == 2 * [None, None, None, 1.05]
    assert all(row["reached"] > 0 for row in found["rows"])


@pytest.mark.parametrize("kind", [Packed, Typed])
def test_wrong_ghosts_are_noticed(kind):
    """Of messages written by hand, the corners too; and of one that leaves out a face."""
    with Grid(MPI.COMM_SELF, (4, 5, 3), periodic=True) as grid:
        cart = MPI.COMM_SELF.Create_cart(grid.dims, [True] * 3)
        hand = kind(cart, np.zeros(tuple(n + 2 for n in grid.shape)))
        assert _wrong(MPI.COMM_SELF, grid, Entrant("", [hand.array], hand.exchange)) == 0
        lazy = Entrant("", [hand.array], lambda: None)
        assert _wrong(MPI.COMM_SELF, grid, lazy) > 0.5

        def spoiled():
            hand.exchange()
            hand.array[0, 0, 0] += 1

        assert 0 < _wrong(MPI.COMM_SELF, grid, Entrant("", [hand.array], spoiled)) < 0.01
        hand.free()
        cart.Free()
