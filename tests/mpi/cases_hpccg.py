"""``onesided hpccg`` inside a job: ways, uneven boxes, slow ranks, wrong ghosts, faults."""

from __future__ import annotations

import time

import numpy as np
import pytest
from cases import parameters, ranks, skip
from cases_sparse import WAYS
from command_runs import need_threads, run_command
from mpi4py import MPI

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser
from onesided.apps.miniapps import hpccg, hpccg_system
from onesided.apps.miniapps.halos import LockAll, Need, Packed, TwoSided, ways
from onesided.apps.miniapps.hpccg_system import DTYPE, Grid
from onesided.apps.miniapps.solving import Operator
from onesided.collectives import methods
from onesided.sparse import DistMatrix

THREADS = "lock-all-threads"
#: Every way of the mini-applications, and some exchanges; others need more ranks to differ.
FEW = [*(way for way in ways() if way not in methods()), "rma-notify", "p2p", "auto"]
hpccg_system.SECONDS = 0.01  # nobody looks at its digits


def run(comm, words):
    return run_command(comm, f"hpccg --verify {words}")


@parameters(way=FEW)
def case_every_way(comm, way):
    _whole(comm, way)


@ranks(at_least=3)
@parameters(way=[way for way in ways() if way not in FEW])
def case_every_other_way(comm, way):
    _whole(comm, way)


def _whole(comm, way):
    """A run of the command with one way, and all that it tells."""
    if "threads" in way:
        need_threads()
    code, found = run(comm, f"--shape 5 4 3 --iterations 30 --repeats 2 --comm {way}")
    assert code == 0, found["verdicts"]
    row = next(row for row in found["rows"] if row["labels"]["method"] == way)
    if "reason" in row:
        skip(f"{way}: {row['reason']}")
    assert row["verified"] is True, row
    assert row["residuals_error"] < 1e-8
    assert row["iterations"] == 2
    assert row["cg_iterations"] == 30
    assert set(row["ratios"]) == {"two-sided"}
    assert set(row["parts"]) == {"exchange", "product", "sums", "vectors"}


BOXES = {
    "cube": "--shape 6",
    "point": "--shape 1",
    "column": "--shape 1 1 9",
    "plane": "--shape 9 7 1",
    "uneven": "--shape 4 3 5 --scaling strong",
}


@parameters(box=list(BOXES))
def case_boxes(comm, box):
    need_threads()
    code, found = run(comm, f"{BOXES[box]} --iterations 40 --repeats 1 --comm {THREADS},rma-notify")
    assert code == 0, found["verdicts"]
    assert [row["verified"] for row in found["rows"]] == [True] * len(found["rows"])
    assert len(found["rows"]) >= 3


@parameters(way=["two-sided", THREADS, "rma-notify", "rma-lock"], kernel=WAYS)
def case_vectors_that_change_meanwhile(comm, way, kernel):
    """Many rounds with other numbers, on ranks of other speeds."""
    if way == THREADS:
        need_threads()
    grid = Grid((2 * comm.size, 5, 4))
    partition = grid.partition(comm.size)
    rows = grid.rows(partition.range(comm.rank))
    matrix = DistMatrix(comm, rows, partition, partition, method="p2p", kernel=kernel)
    operator = Operator(matrix, ways()[way](Need(comm, matrix.pattern, DTYPE)))
    y = np.empty(rows.shape[0])
    start, stop = partition.range(comm.rank)
    for number in range(15):
        whole = np.random.default_rng(number).standard_normal(grid.points)
        if (number + comm.rank) % 7 == 0:
            time.sleep(0.001)
        operator.multiply(whole[start:stop].copy(), y)
        assert y == pytest.approx(rows @ whole, abs=1e-11), number
    assert (operator @ np.ones(stop - start)) == pytest.approx(rows.sum(axis=1))
    operator.Free()
    operator.Free()
    assert operator.freed
    matrix.Free()


@ranks(at_least=2)
def case_wrong_ghosts_are_noticed(comm):
    """Entries that one rank packs wrongly."""
    pack = Packed._pack

    def wrong(self, x):
        pack(self, x)
        if isinstance(self, LockAll) and comm.rank == 1:
            self._packed[0] *= 1 + 1e-6

    Packed._pack = wrong
    try:
        code, found = run(comm, f"--shape 4 --iterations 20 --repeats 1 --comm {THREADS}")
    finally:
        Packed._pack = pack
    if any("reason" in row for row in found["rows"]):
        skip("threads that call MPI need MPI_THREAD_MULTIPLE")
    assert code == 1
    assert found["verified"] is False
    errors = {row["labels"]["method"]: row["residuals_error"] for row in found["rows"]}
    assert errors["two-sided"] < 1e-8 < errors[THREADS]


@ranks(at_least=2)
def case_stale_ghosts_are_noticed(comm):
    """A way that does not wait for its neighbors."""
    finish = TwoSided.finish

    def early(self):
        ghosts = finish(self)
        ghosts[:] = 0
        return ghosts

    TwoSided.finish = early
    try:
        code, found = run(comm, "--shape 4 --iterations 20 --repeats 1 --comm p2p")
    finally:
        TwoSided.finish = finish
    assert code == 1
    assert {row["labels"]["method"]: row["verified"] for row in found["rows"]} == {
        "two-sided": False,
        "p2p": True,
    }


def case_threads_need_their_level(comm):
    """The way is left out with a reason, and the others run."""
    query = MPI.Query_thread
    MPI.Query_thread = lambda: MPI.THREAD_SERIALIZED
    try:
        code, found = run(comm, f"--shape 4 --iterations 5 --repeats 1 --comm {THREADS},p2p")
    finally:
        MPI.Query_thread = query
    assert code == 0
    reasons = {row["labels"]["method"]: row.get("reason", "") for row in found["rows"]}
    assert reasons["two-sided"] == reasons["p2p"] == ""
    assert "needs MPI_THREAD_MULTIPLE, this MPI runs with MPI_THREAD_SERIALIZED" in reasons[THREADS]


MISTAKES = {
    "size": ("--shape 3 4", "--shape 3 4: one number"),
    "method": ("--comm two-sided,magic", "no method 'magic'; the methods are two-sided, "),
    "list": ("--ranks-list 1", "--ranks-list is for --scaling"),
    "ranks": ("--scaling weak --ranks-list 99", "--ranks-list 99: the job has"),
    "info": ("--shape 3 --comm rma-notify --info slots=9", "slots"),
}


@parameters(mistake=list(MISTAKES))
def case_mistake(comm, mistake):
    words, fragment = MISTAKES[mistake]
    options = build_parser().parse_args(["hpccg", *words.split()])
    with pytest.raises(CommandError, match=fragment):
        hpccg.run(comm, options)
