"""``onesided bench collectives``: the table of operations, what is told, and a run."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import servers
from mpi4py import MPI
from rich.console import Console

from onesided import collectives
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Report, Row, byte_count
from onesided.apps.cli.statistics import Target, Verdict
from onesided.apps.papers import collectives as bench
from onesided.apps.papers import operations, options
from onesided.apps.papers.collectives import AUTO, BLOCKING
from onesided.apps.papers.goals import wanted
from onesided.apps.papers.operations import OPERATIONS, Place
from onesided.collectives import methods
from onesided.collectives.hardware import Layout


def test_the_options_name_the_operations_of_the_table():
    assert options.OPERATIONS == list(OPERATIONS)
    for operation in OPERATIONS.values():
        comm = MPI.Topocomm if operation.near else MPI.Intracomm
        for name in (operation.name, operation.nonblocking, operation.persistent):
            assert hasattr(comm, name)
        assert hasattr(collectives, operation.persistent)
        assert AUTO in methods(operation.group)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_right_has_the_length_of_the_buffer(name, size):
    operation = OPERATIONS[name]
    for rank in range(size):
        count = operation.count(5, size) if operation.sized else 0
        place = Place(rank, size, count)
        assert operation.expected(place).size == operation.received(place)


def test_what_is_right_by_hand():
    """Two elements, on rank 1 of three."""
    place = Place(1, 3, 2)
    right = {
        "Bcast": [1000, 1001],
        "Scatter": [1002, 1003],
        "Allgather": [1000, 1001, 2000, 2001, 3000, 3001],
        "Alltoall": [1002, 1003, 2002, 2003, 3002, 3003],
        "Allreduce": [6000, 6003],
        "Scan": [3000, 3002],
        "Exscan": [1000, 1001],
        "Reduce_scatter": [6000],
        "Neighbor_allgather": [1000, 1001, 3000, 3001],
        "Neighbor_alltoall": [1000, 1001, 3002, 3003],
    }
    for name, expected in right.items():
        assert OPERATIONS[name].expected(place).tolist() == expected, name
    assert OPERATIONS["Exscan"].expected(Place(0, 3, 2)).tolist() == [operations.POISON] * 2


def test_wrong_data_and_early_ranks_are_noticed():
    received, right = np.zeros(3), np.ones(3)
    one = (MPI.COMM_SELF, lambda: received.__setitem__(slice(0, 2), 1.0), received, None, right)
    assert operations.delivered(*one) == 1
    assert operations.awaited(MPI.COMM_SELF, lambda: None, received, None, right) == 0


def test_goals():
    for operation, nbytes, vendor, bound in (
        ("Allreduce", 8, "MPICH", 0.25),
        ("Allreduce", 1024, "Open MPI", 0.5),
        ("Allreduce", 1 << 20, "MPICH", 0.6),
        ("Allreduce", 4096, "MPICH", None),
        ("Barrier", 0, "Open MPI", 0.25),
        ("Reduce_scatter", 65536, "MPICH", 0.4),
        ("Scan", 8, "MPICH", None),
    ):
        assert wanted(bench.GOALS, nbytes, vendor, operation=operation) == bound


def rows(names, ratio=0.5, wrong="", nbytes=8, bound=0.4, operation="Reduce_scatter"):
    """The blocking call, and these, each slower than the one before it."""
    labels = {"operation": operation, "bytes": byte_count(nbytes)}
    blocking = [1e-6, 2e-6, 3e-6]
    yield Row({**labels, "method": BLOCKING}, blocking, verdict=Verdict(0.0, 0.0))
    for place, name in enumerate(names, 1):
        row = Row({**labels, "method": name}, [ratio * place * time for time in blocking], 1e-3)
        row.against, row.verdict = {"mpi": blocking}, Verdict(float(name == wrong), 0.0)
        if name == AUTO:
            row.used, row.wanted, row.aim = "rma-p2p", True, Target("mpi", bound, least=False)
        yield row


@pytest.mark.parametrize("names", [[AUTO, "p2p"], [AUTO, "MPI nonblocking", *methods()]],
                         ids=["two", "all"])  # fmt: skip
def test_tables_have_a_width_of_80(names):
    names = list(dict.fromkeys(names))
    found = [row for nbytes in (8, 4096) for row in rows(names, 12.345, "p2p", nbytes)]
    text = io.StringIO()
    for table in bench.tables("Reduce_scatter", found):
        Console(file=text, width=160).print(table)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert text.getvalue().count("2.00 us*") == 2  # the blocking call is the fastest
    assert text.getvalue().count("0.40 missed") == text.getvalue().count("WRONG") == 2
    assert text.getvalue().count("12.3±0.0") == 2
    assert all(name.replace("-", " ").split()[-1] in text.getvalue() for name in names)


def test_contestants():
    reduction = OPERATIONS["Allreduce"]
    assert bench.contestants(reduction, ["rma-notify", "p2p", AUTO]) == [
        AUTO, "MPI nonblocking", "MPI persistent", "p2p",
    ]  # fmt: skip
    every = bench._chosen(Options(comm="all", operations=["Allreduce"]))
    assert set(methods("reduction")) < set(bench.contestants(reduction, every))
    usual = bench.contestants(OPERATIONS["Alltoall"], None)
    assert AUTO in usual
    assert "rma-lock-paper" not in usual


OPERATED = ("Barrier", "Bcast", "Allreduce", "Alltoallw", "Neighbor_allgatherv")


def ran(path, *words):
    arguments = ["bench", "collectives", "--quick", "--iterations", "2", *words]
    outcome = servers.run(
        "-m onesided.apps", 2, *arguments, "--json", str(path), timeout=120,
    )  # fmt: skip
    assert outcome.kind == "pass", outcome.report()
    return outcome.stdout, json.loads(path.read_text())


def test_collectives(tmp_path):
    """A run with a folder, and one that has nothing left to do but to tell."""
    words = ["--operations", *OPERATED, "--sizes", "8", "4K", "--comm", f"{AUTO},p2p",
             "-o", str(tmp_path / "kept")]  # fmt: skip
    out, content = ran(tmp_path / "one.json", *words)
    assert max(map(len, out[: out.index("MPI blocking: its")].splitlines())) <= 80
    rows = content["rows"]
    assert content["verified"] is True
    assert [(row["labels"]["operation"], row["bytes"]) for row in rows if row["labels"]["method"] == BLOCKING] == [
        (name, nbytes) for name in OPERATED for nbytes in ((0,) if name == "Barrier" else (8, 4096))
    ]
    timed = [row for row in rows if "reason" not in row]
    assert {row["labels"]["method"] for row in timed} >= {BLOCKING, "MPI nonblocking", AUTO, "p2p"}
    for row in timed:
        assert row["verified"] is True
        assert row["quartile_1_s"] <= row["median_s"] <= row["quartile_3_s"]
        assert row["ratios"].get("mpi", 0) > 0 or row["labels"]["method"] == BLOCKING
        assert ("used" in row) == (row["labels"]["method"] == AUTO)
    _, again = ran(tmp_path / "two.json", *words)
    assert again["rows"] == rows


def test_another_method_is_a_mistake(tmp_path):
    words = ["bench", "collectives", "--operations", "Bcast", "--comm", "rma-notify"]
    outcome = servers.run("-m onesided.apps", 1, *words)
    assert "no method 'rma-notify' of these operations" in outcome.stderr


def test_a_missed_target_is_told_and_so_are_wrong_data():
    _, row = rows([AUTO], 0.6, bound=0.5, operation="Allreduce")
    assert row.missed == "Allreduce 8 B auto against mpi: 0.60, at most 0.50 is wanted"
    refused = [Row({"operation": "Allreduce", "method": "p2p"}, reason="no window")] * 2
    found = [*rows([AUTO], 0.4, bound=0.5, wrong=AUTO, operation="Allreduce"), *refused]
    assert not found[1].missed
    report = Report("bench collectives", {}, {}, rows=found)
    bench.conclude(report, Layout((2,)))
    assert report.verified is False
    assert "WRONG: Allreduce 8 B auto" in report.remarks
    assert len(report.rows) == 3  # a reason is told once
