"""Many ranks on one machine: what a call costs grows only as it must, and all of it works."""

from __future__ import annotations

import os
from pathlib import Path

import mpi_harness
import pytest
import scale

pytestmark = pytest.mark.one_mpi

full = pytest.mark.full
FOUR = ["dblp-2010", "brack2", "NotreDame_www", "cnr-2000"]


@pytest.mark.some(1)
@pytest.mark.parametrize("most", [8, pytest.param(64, marks=full)])
@pytest.mark.parametrize("part", scale.PARTS)
def test_nothing_grows_that_should_not(part, most):
    few, many = (scale.counted(part, ranks, timeout=500) for ranks in (4, most))
    grown = [words for name in few for words in scale.too_much(name, few[name], many[name], most)]
    assert not grown, "\n".join(grown)


@pytest.mark.parametrize("ranks", [8, pytest.param(64, marks=full)])
def test_messages_that_leave_a_node(ranks):
    """Of a dense exchange: one to every rank elsewhere, or, of short blocks, one from a node to
    every other node, which its ranks send in turn."""
    calls = scale.counted("nodes", ranks, timeout=500)
    for each in (4, ranks // 4):
        nodes = ranks // each
        for method, most, wanted in (
            ("rma-p2p", ranks - each, ranks * (ranks - each)),
            ("rma-node", -(-(nodes - 1) // each), nodes * (nodes - 1)),
        ):
            name = f"Alltoall_init {method}, {each} ranks a node, later round"
            assert calls[name]["messages"] == most, name
            assert calls[name]["all messages"] == wanted, name


@pytest.mark.parametrize("ranks", [8, pytest.param(16, marks=full), pytest.param(64, marks=full)])
def test_entries_that_leave_a_node(ranks):
    """Of a product: what the matrix wants, once a rank or once a node; of all ranks, and of the
    busiest. ONESIDED_MATRICES has larger ones."""
    folder = os.environ.get("ONESIDED_MATRICES", "")
    paths = [mpi_harness.TESTS / "matrices" / "wiki-Vote.mtx.gz"]
    if folder and ranks > 8:
        paths += [Path(folder) / f"{name}.mtx.gz" for name in FOUR]
    assert all(path.exists() for path in paths)
    env = (("SCALE_MATRICES", os.pathsep.join(map(str, paths))),)
    calls = scale.counted("entries", ranks, timeout=500, env=env)
    wanted = {name: of for name, of in calls.items() if name.endswith("wanted")}
    assert len(wanted) == 2 * len(paths) * len({4, ranks // 4})
    for name, of in wanted.items():
        found = calls[name.removesuffix(", wanted")]
        for what in ("messages", "bytes", "all messages", "all bytes"):
            assert found[what] == of[what] > 0, f"{name}: {what} {found[what]}, not {of[what]}"
    for path in paths:
        name = path.name[:-7]
        far = {method: wanted[f"{name}, {method}, 4 ranks a node, wanted"]["all bytes"]
               for method in ("rma-p2p", "rma-node")}
        assert far["rma-node"] < far["rma-p2p"], name


def test_rounds_stand_beside_their_bound():
    head, _, *rows = (line.split("|")[1:-1] for line in scale.over_bound([2], 5).splitlines())
    assert "`rma-notify`" in [each.strip() for each in head]
    assert [int(row[1]) for row in rows] == sorted(int(row[1]) for row in rows)
    assert all(len(row) == len(head) and float(cell) > 0 for row in rows for cell in row)
