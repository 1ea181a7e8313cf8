"""The benchmark of partitioned sends: contestants, targets, figures, and the command itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import commands
import pytest
import servers

from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.options import Parser
from onesided.apps.cli.report import Row
from onesided.apps.papers import options as given
from onesided.apps.papers import partitioned, partitioned_sends
from onesided.apps.papers.goals import wanted
from onesided.apps.papers.partitioned import figures, partition_sizes, reasons
from onesided.apps.papers.partitioned_sends import (
    BULK,
    NATIVE,
    ONE_BY_ONE,
    ORDERS,
    SINGLE,
    WHOLE,
    Contestant,
    Entry,
    entries,
)
from onesided.apps.papers.partitioned_sweep import Place, Result, whole_sweep
from onesided.collectives import partitioned_methods
from onesided.collectives.partitioned.init import AGGREGATE
from onesided.collectives.program import COMPILED

FAULTS = Path(__file__).resolve().parent / "programs" / "partitioned_fault.py"
KIBI = 1024


def options(*words):
    parser = Parser()
    given.bench_partitioned(parser)
    return parser.parse_args(words)


# -- who takes part, and where ---------------------------------------------------------------------


def test_the_options_name_what_there_is():
    assert list(given.PARTITION_ORDERS) == list(ORDERS)
    assert given.AGGREGATES == (0, AGGREGATE)


def test_the_single_message_takes_part_always_and_once():
    names = [each.name for each in partitioned_sends.contestants("p2p,single", [0, 4096])]
    assert names == ["single", "p2p 0 B", "p2p 4 KiB"]
    with pytest.raises(CommandError, match=r"no method 'abacus'; the methods are single, send, "):
        partitioned_sends.contestants("send,abacus", [0])


def test_ours_count_in_python_where_that_is_asked_for():
    found = partitioned_sends.contestants("rma,p2p,send", [0, 4096], python=True)
    names = [each.name for each in found]
    wanted = ["rma, in Python 4 KiB"] if COMPILED else []
    assert [name for name in names if "Python" in name] == wanted
    assert [name for name in names if "Python" not in name] == [
        each.name for each in partitioned_sends.contestants("rma,p2p,send", [0, 4096])
    ]


def test_all_are_the_paper_s_and_every_method_of_ours():
    found = partitioned_sends.contestants("all", [0, 65536])
    methods = [each.method for each in found if each.aggregate is not None]
    assert methods == [name for name in partitioned_methods() for _ in range(2)]
    others = [each.method for each in found if each.aggregate is None]
    assert others == ["single", "send", "persistent", "isend", "psend"]
    assert len(entries(found)) == 6 + 4 * len(partitioned_methods())


def test_orders_and_threads_make_a_cross():
    places = whole_sweep([64, 128], ["left-to-right", "randomized"], [1, 4])
    assert places == [
        Place(part, order, threads)
        for part in (64, 128)
        for order, threads in (("left-to-right", 1), ("randomized", 1), ("left-to-right", 4))
    ]


def test_partitions_divide_the_buffer():
    assert partition_sizes(options("--buffer", "16K")) == [64, 256, 1024, 4096, 16384]
    assert partition_sizes(options("--buffer", "100")) == [100]
    assert partition_sizes(options("--sizes", "4K", "64", "4K")) == [64, 4096]
    with pytest.raises(CommandError, match="partitions of 3000 bytes do not divide a buffer of 1"):
        partition_sizes(options("--sizes", "4K", "3000"))


# -- targets, rows, figures ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opponent", "part", "marking", "mpi", "bound"),
    [
        (SINGLE, 64, BULK, "MPICH", 0.85),
        (SINGLE, 32, BULK, "MPICH", None),
        (SINGLE, 1 << 20, BULK, "Open MPI", 0.85),
        (SINGLE, 16 * KIBI, ONE_BY_ONE, "MPICH", 0.85),
        (SINGLE, 4 * KIBI, ONE_BY_ONE, "MPICH", 0.60),
        (SINGLE, 8 * KIBI, ONE_BY_ONE, "Open MPI", 0.60),
        (SINGLE, KIBI, ONE_BY_ONE, "MPICH", None),
        (NATIVE, 64 * KIBI, BULK, "MPICH", 1.8),
        (NATIVE, 64 * KIBI, ONE_BY_ONE, "Open MPI", 0.95),
        (NATIVE, 4 * KIBI, ONE_BY_ONE, "MPICH", 0.95),
        (NATIVE, 256, BULK, "Open MPI", 50.0),
        (NATIVE, 256, BULK, "MPICH", None),
        (NATIVE, KIBI, BULK, "Open MPI", None),
    ],
)
def test_the_targets_are_those_that_were_set(opponent, part, marking, mpi, bound):
    labels = {"opponent": opponent.method, "marked": marking.name}
    assert wanted(partitioned.GOALS, part, mpi, **labels) == bound


def result(contestant, marking, times, **more):
    return Result(Entry(contestant, marking), times, [time / 2 for time in times], **more)


def test_a_row_compares_what_was_marked_alike_over_common_rounds():
    (mine,) = partitioned_sends.contestants("rma", [0])[1:]
    found = [
        result(SINGLE, WHOLE, [1.0, 1.0, 4.0, 4.0]),
        result(NATIVE, ONE_BY_ONE, [8.0, 8.0]),
        result(NATIVE, BULK, [2.0, 2.0]),
        result(mine, ONE_BY_ONE, [2.0, 2.0, 2.0, 2.0], wrong=1),
    ]
    row = found[-1].row(Place(64, "randomized", 2), found, 256)
    assert row.ratios == {"single": 1.25, "psend": 0.25}
    assert partitioned.bandwidth(row) == "1.3e-07 80% !"
    assert partitioned.perceived(row) == "2.6e-07 !"
    record = row.record()
    assert record["verified"] is False
    assert record["error"] == 0.25
    assert (record["partition_bytes"], record["wrong_partitions"]) == (64, 1)
    assert record["parts"] == {"mean": 2.0, "after last": 1.0}


def test_the_same_reason_is_told_once():
    mine = partitioned_sends.contestants("rma,p2p", [0])[1:]
    found = [
        Row({"partition": part, **mine[0].labels}, reason="no window") for part in ("64 B", "128 B")
    ]
    for place, pace in ((Place(64, "randomized", 1), 0.5), (Place(64, "randomized", 4), 2.0)):
        slow = Result(Entry(mine[1], BULK), pace=pace, reason="too long")
        results = [slow, result(mine[1], ONE_BY_ONE, [1.0])]
        found += [each.row(place, results, 64) for each in results]
    rows = [(dict(row.labels), row.reason) for row in reasons(found)]
    assert rows == [
        ({"partition": "64 B, 128 B", "method": "rma", "aggregate": "-"}, "no window"),
        (
            {
                "partition": "64 B",
                "order": "randomized",
                "threads": "1, 4",
                "method": "p2p",
                "aggregate": "-",
                "marked": "in bulk",
            },
            "too long (a round: 500 ms to 2.00 s)",
        ),
    ]


def test_figures_hold_the_lines_of_the_paper():
    every = partitioned_sends.contestants("all", [0, 65536])
    rows = []
    for place in whole_sweep([64, 4096], list(ORDERS), [1, 16]):
        results = [
            result(each.contestant, each.marking, [1e-6 * place.part])
            for each in entries(every)
            if each.marking.suits(ORDERS[place.order])
        ]
        rows += [each.row(place, results, 4096) for each in results]
    found = {each.name: each for each in figures(options("--threads", "1", "16"))}
    lines = {name: figure.drawings(rows)[0].lines for name, figure in found.items()}
    assert list(lines) == ["3", "4", "5", "6a", "6b"]
    assert list(lines["3"]) == ["send", "persistent", "isend", "psend"]
    assert set(lines["4"]) == {
        f"{name} {threads}" for name in ("persistent", "psend") for threads in (1, 16)
    }
    assert set(lines["5"]) == {f"psend {order}" for order in ORDERS}
    aggregated = {f"{method} 64 KiB" for method in partitioned_methods()} | {"psend"}
    assert set(lines["6b"]) == {f"{name} randomized" for name in aggregated}
    assert len(lines["6a"]) == 2 * len(aggregated)
    for name in lines:
        for points in lines[name].values():
            x, y = zip(*points, strict=True)
            assert x == (64.0, 4096.0)
            assert y == pytest.approx((4096 / 64e-6 / 1e9, 1e-3))


def test_a_figure_without_lines_is_not_drawn():
    assert not any(figure.drawings([]) for figure in figures(options()))


# -- the command -----------------------------------------------------------------------------------


def bench(path, *words, env=None):
    arguments = ["bench", "partitioned", *words, "--iterations", "2", "--json", str(path)]
    outcome = servers.run("-m onesided.apps", 2, *arguments, timeout=100, env=env)
    assert outcome.kind == "pass", outcome.report()
    return outcome, json.loads(path.read_text())


def timed(content):
    return [row for row in content["rows"] if "reason" not in row]


def refused(content):
    return {(row["method"], row["aggregate"]) for row in content["rows"] if "reason" in row}


def check(content):
    """The data were right, but for those of the MPI's own partitioned send."""
    for row in timed(content):
        assert row["verified"] or row["method"] == NATIVE.method, row
    assert all(f" {NATIVE.method} " in text for text in content["pattern"]["wrong"])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Everybody, with every order, and with two threads."""
    pytest.importorskip("matplotlib", reason="the figures need matplotlib")
    folder = tmp_path_factory.mktemp("partitioned")
    words = ["--buffer", "16K", "--sizes", "1K", "--threads", "1", "2"]
    words += ["--aggregates", "0", "4K", "--picture", str(folder / "figure.png")]
    outcome, content = bench(folder / "bench.json", *words)
    return outcome, content, folder


def test_everybody_is_timed_at_every_place(swept):
    _, content, _ = swept
    check(content)
    assert not refused(content)
    sure = ["single", "send", "persistent", "isend", "psend", "rma", "p2p", "p2p-gather"]
    places = {}
    for row in timed(content):
        place = (row["partition_bytes"], row["order"], row["threads"])
        places.setdefault(place, []).append((row["method"], row["aggregate"], row["marked"]))
        assert row["iterations"] == len(row["times_s"]) == 2
        assert 0 < row["parts"]["after last"] <= max(row["times_s"])
        assert row["ratios"]["single"] > 0
        assert row["mean_gigabytes_per_s"] == pytest.approx(16384 / row["parts"]["mean"] / 1e9)
    cross = [(order, "1") for order in ORDERS] + [("left-to-right", "2")]
    assert set(places) == {(1024, *place) for place in cross}
    for (_, order, _), found in places.items():
        assert len(found) == len(set(found))
        markings = 2 if ORDERS[order].in_runs else 1
        ours = 2 * len(partitioned_methods())
        assert len(found) == 4 + markings * (1 + ours)
        assert set(sure) <= {method for method, _, _ in found}


def test_the_table_has_a_column_for_every_size(swept):
    outcome, _, _ = swept
    assert "1 KiB" in outcome.stdout
    assert "GB/s and per cent of the single message's" in outcome.stdout
    for place in ("left-to-right, 1 thread", "left-to-right, 2 threads", "randomized, 1 thread"):
        assert re.search(rf"^{place} *$", outcome.stdout, re.MULTILINE), outcome.report()
    assert "perceived" not in outcome.stdout
    assert "Python's lock" in outcome.stdout


def test_the_figures_are_drawn(swept):
    _, _, folder = swept
    drawn = sorted(path.name for path in folder.glob("*.png"))
    assert drawn == [f"figure-{name}.png" for name in ("3", "4", "5", "6a", "6b")]
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_plain_memory_and_simulated_work(tmp_path):
    words = ["--buffer", "8K", "--sizes", "2K", "--threads", "2", "--compute", "100"]
    words += ["--orders", "neighborhood", "--memory", "plain", "--comm", "send,rma,auto"]
    outcome, content = bench(tmp_path / "bench.json", *words)
    check(content)
    assert refused(content) == {("rma", "-"), ("rma", "64 KiB")}
    assert "perceived GB/s" in outcome.stdout
    for row in timed(content):
        assert min(row["times_s"]) >= 200e-6  # two partitions of each thread
        assert row["parts"]["after last"] < row["median_s"]


def test_the_targets_stand_beside_what_was_measured(tmp_path):
    words = ["--targets", "--sizes", "1K", "64K", "--comm", "auto"]
    outcome, content = bench(tmp_path / "bench.json", *words)
    rows = timed(content)
    assert {row["method"] for row in rows} == {"auto"}
    single = {(row["partition"], row["marked"]): row["target"] for row in rows
              if row["opponent"] == "single"}
    assert single == {
        ("1 KiB", "in bulk"): 0.85,
        ("1 KiB", "one by one"): None,
        ("64 KiB", "in bulk"): 0.85,
        ("64 KiB", "one by one"): 0.85,
    }
    assert " targets reached" in outcome.stdout


def test_several_threads_need_their_level(tmp_path):
    words = ["--buffer", "4K", "--sizes", "1K", "--threads", "2", "--comm", "isend,auto"]
    env = {"MPI4PY_RC_THREAD_LEVEL": "serialized"}
    _, content = bench(tmp_path / "bench.json", *words, "--orders", "left-to-right", env=env)
    check(content)
    (reason,) = (row["reason"] for row in content["rows"] if "reason" in row)
    assert "MPI_THREAD_MULTIPLE" in reason
    assert {row["method"] for row in timed(content)} == {"single", "auto"}


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        ([], "a sender and a receiver, 2 ranks; the job has 1"),
        (["--sizes", "0"], "'0' is not a whole number above zero"),
        (["--orders", "upwards"], "upwards"),
    ],
)
def test_a_mistake_is_one_sentence(words, fragment):
    finished = commands.onesided("bench", "partitioned", *words)
    assert finished.code == 2, finished
    assert len(finished.sentences) == 1
    assert fragment in finished.sentences[0]


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_mistake_on_one_rank_ends_the_job(where):
    finished = commands.python(str(FAULTS), where, ranks=2, timeout=60)
    assert not finished.hung, finished
    assert finished.code not in (0, 2, 7), finished
    assert "ZeroDivisionError" in finished.err


def test_a_foreign_contestant_is_told_from_ours():
    assert NATIVE.foreign
    others = [each for each in partitioned_sends.contestants("all", [0]) if each != NATIVE]
    assert not any(each.foreign for each in others)
    assert Contestant("new", NATIVE.make, []).foreign is False
