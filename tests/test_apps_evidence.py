"""The papers' experiments: benchmarks 1 and 2, applications, and what they are made of."""

from __future__ import annotations

import itertools
import json
import math
from argparse import Namespace
from collections import Counter
from itertools import islice, pairwise
from statistics import median

import commands
import mpi_harness
import numpy as np
import pytest
import scipy.io
import servers
from mpi4py import MPI

from onesided.apps.bench.race import Contestant, Stopwatch, WatchedComm, orders, race, unchecked
from onesided.apps.cli.failures import CommandError
from onesided.apps.cli.main import build_parser, run
from onesided.apps.cli.options import Options, Picture, doubling
from onesided.apps.cli.report import Row, byte_count
from onesided.apps.papers.alltoallv import (
    Place,
    places,
    scaling_figures,
    series,
)
from onesided.apps.papers.exchange import Contest, Problem, setup_seconds, uniform
from onesided.apps.papers.patterns import Traffic, imbalance
from onesided.apps.report.chart import save, sheet
from onesided.apps.report.figure import WIDTH
from onesided.apps.report.markup import written
from onesided.sparse import Partition

MATRICES = mpi_harness.TESTS / "matrices"


def bench(name, ranks, path, *words, env=None):
    arguments = ["bench", name, *words, "--iterations", "3", "--json", str(path)]
    outcome = servers.run("-m onesided.apps", ranks, *arguments, timeout=150, env=env)
    assert outcome.kind == "pass", outcome.report()
    return outcome, json.loads(path.read_text())


# -- benchmark 1 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two sizes on one rank and on two, with receive memory of every kind."""
    pytest.importorskip("matplotlib", reason="the figures need matplotlib")
    folder = tmp_path_factory.mktemp("alltoallv")
    words = ["--sizes", "288", "2880", "--repeats", "2", "--comm", "p2p,rma-fence-paper"]
    words += ["--memory", "slots", "empty", "plain", "--picture", str(folder / "figure.png")]
    words += ["--ranks-list", "2", "1"]
    outcome, content = bench("alltoallv", 2, folder / "bench.json", *words)
    return outcome, content, folder


def test_every_place_has_every_method_and_memory(swept):
    outcome, content, _ = swept
    found = {(row["labels"]["ranks"], row["bytes"], row["labels"]["method"], row["labels"]["memory"]) for row in content["rows"]}
    plain = [("mpi", "plain"), ("memcpy", "plain"), ("memcpy2", "plain")]
    requests = [
        (name, memory)
        for name in ("p2p", "rma-fence-paper")
        for memory in ("slots", "empty", "plain")
    ]
    measured = [("1", 288), ("1", 2880), ("2", 288), ("2", 2880), ("2", 144), ("2", 1440)]
    assert found == {(*place, *who) for place in measured for who in [*plain, *requests]}
    assert len(content["rows"]) == len(found)
    assert "Verified: every element is the number of the rank that sent it" in outcome.stdout


def test_the_series_say_which_places_belong_together(swept):
    _, content, _ = swept
    assert content["pattern"]["counts"] == [1, 2]
    assert content["pattern"]["series"][0] == {
        "scaling": "weak",
        "bytes": 288,
        "places": [{"ranks": 1, "bytes": 288}, {"ranks": 2, "bytes": 288}],
    }
    assert content["pattern"]["series"][-1] == {
        "scaling": "strong",
        "bytes": 2880,
        "places": [{"ranks": 1, "bytes": 2880}, {"ranks": 2, "bytes": 1440}],
    }


def test_a_row_tells_set_ups_and_break_even_by_the_equations(swept):
    _, content, _ = swept
    rows = content["rows"]
    baseline = {(row["labels"]["ranks"], row["bytes"]): row for row in rows if row["labels"]["method"] == "mpi"}
    for row in rows:
        assert row["iterations"] == len(row["times_s"]) == 3
        assert row["mean_s"] == pytest.approx(sum(row["times_s"]) / 3)
        if row["labels"]["method"].startswith("mem"):
            assert "verified" not in row
            continue
        assert row["verified"] is True
        if row["labels"]["method"] == "mpi":
            assert row["break_even"] is None
            continue
        inits, frees = row["init_times_s"], row["free_times_s"]
        assert len(inits) == len(frees) == 2
        assert row["setup_s"] == pytest.approx(median(inits) + median(frees))
        gain = baseline[row["labels"]["ranks"], row["bytes"]]["median_s"] - row["median_s"]
        expected = math.ceil(row["setup_s"] / gain) if gain > 0 else "never"
        assert row["break_even"] == expected


def test_the_figures_are_drawn(swept):
    _, _, folder = swept
    drawn = sorted(path.name for path in folder.glob("*.png"))
    assert drawn == ["figure-1.png", "figure-2.png", "figure-strong.png"]
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_strong_scaling_splits_what_the_fewest_ranks_send():
    weak, strong = series(["weak", "strong"], [2, 4, 16], [1024])
    assert [each.nbytes for each in weak.places] == [1024] * 3
    assert [each.nbytes * each.ranks for each in strong.places] == [2048] * 3
    tiny = series(["strong"], [2, 4, 16], [64])[0]
    assert [each.ranks for each in tiny.places] == [2, 4]  # 16 ranks: less than an element a block
    least = series(["strong"], [4, 8], [8])[0]
    assert least.places == (Place(4, 1),)  # the fewest ranks are measured in any case
    assert len(places([weak, strong])) == 5  # two ranks are the same place in both


def test_a_rank_sends_an_element_to_everyone_at_least():
    assert Place.nearest(16, 8) == Place(16, 1)
    assert Place.nearest(2, 1000).nbytes == 992
    assert doubling(2, 1) == [1]
    assert doubling(2, 6) == [2, 4, 6]
    assert doubling(2, 8) == [2, 4, 8]
    assert doubling(1, 6) == [1, 2, 4, 6]


def test_one_number_of_ranks_has_no_scaling_figure():
    both = ["weak", "strong"]
    assert [each.name for each in scaling_figures(series(both, [2], [64, 128]))] == ["2"]
    assert scaling_figures(series(both, [2], [64])) == []
    names = [each.name for each in scaling_figures(series(both, [2, 4], [1 << 20, 8 << 20]))]
    assert names == ["1", "strong", "2"]
    chosen = scaling_figures(series(both, [2, 4], [1 << 20, 8 << 20]))[0]
    assert ", 1 MiB per rank" in chosen.title  # the next to the paper's 2 MiB


def exchanged(methods, memories, counts=(2, 3)):
    """Rows of every method, memory and number of ranks, two sizes each."""
    for ranks in counts:
        for place in (Place.nearest(ranks, 1 << 20), Place.nearest(ranks, 8 << 20)):
            labels = {"ranks": str(ranks), "bytes": byte_count(place.nbytes)}
            plain = [1e-9 * place.nbytes] * 3
            yield Row({**labels, "method": "mpi", "memory": "plain"}, plain, nbytes=place.nbytes)
            for number, (method, memory) in enumerate(itertools.product(methods, memories)):
                times = [(1 + number) * time for time in plain]
                yield Row({**labels, "method": method, "memory": memory}, times, 1.0, place.nbytes)


def test_kinds_of_memory_are_panels_and_no_zigzag():
    rows = list(exchanged([f"rma-{number}" for number in range(13)], ["slots", "empty", "plain"]))
    for figure in scaling_figures(series(["weak"], [2, 3], [1 << 20, 8 << 20])):
        panels = figure.drawings(rows)
        assert [panel.title.split()[1] for panel in panels] == ["'slots'", "'empty'", "'plain'"]
        for panel in panels:
            assert len(panel.lines) == 14
            for line in panel.lines.values():
                assert [x for x, _ in line] == sorted({x for x, _ in line})
            keys = [written(key) for key in panel.keys().values()]
            assert len(set(keys)) == 14  # each looks otherwise


def test_pictures_have_a_legend_outside_and_whole_numbers_of_ranks(tmp_path):
    pytest.importorskip("matplotlib")
    for count, memories in ((1, ["plain"]), (13, ["slots", "empty", "plain"])):
        rows = list(exchanged([f"rma-{number}" for number in range(count)], memories))
        chosen = scaling_figures(series(["weak"], [2, 3], [1 << 20, 8 << 20]))
        for each, ticks in zip(chosen, [["2", "3"], ["1 MiB", "2 MiB", "4 MiB", "8 MiB"]],
                               strict=True):  # fmt: skip
            panels = each.drawings(rows)
            save(Picture(tmp_path / "a.png").of(each.name), each.title, panels)
            drawing = sheet(each.title, panels)
            drawings = [part for part in drawing if part.find("g") is not None]
            assert len(drawings) == len(memories)
            names = [part for part in drawing if part.get("class") == "name"]
            assert len(names) == len({part.text for part in names}) == count + 1
            width, height = float(drawing.get("width")), float(drawing.get("height"))
            for name in names:
                assert max(float(part.get("x")) for part in drawings) + WIDTH < float(name.get("x"))
                assert float(name.get("x")) < width
                assert float(name.get("y")) < height
            for part in drawings:
                below, beside = (
                    [text.text for text in part.iter("text") if text.get("text-anchor") == anchor]
                    for anchor in ("middle", "end")
                )
                assert below[: len(ticks)] == ticks
                assert all(text.endswith(" ms") for text in beside)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a-1.png", "a-2.png"]


# -- one exchange ----------------------------------------------------------------------------------


def contest(names=("p2p",), **given):
    options = Options(iterations=2, repeats=2, memory=["slots", "plain"]).but(**given)
    return Contest(MPI.COMM_SELF, options, names, {"case": "alone"}, 1.0)


def test_wrong_elements_are_counted_for_everyone_who_delivers_them():
    good = uniform(MPI.COMM_SELF, 5)
    rows = contest().rows(good, lambda: None)
    assert [row.verdict.passed for row in rows if row.verdict is not None] == [True] * 3
    expected = good.expected.copy()
    expected[[1, 3]] = 7.0
    bad = Problem(good.sent, good.send_counts, good.recv_counts, expected, good.nbytes)
    rows = contest().rows(bad, lambda: None)
    rounds = 4  # before the measurement, and as many after it
    assert [row.verdict.error for row in rows if row.verdict is not None] == [2 * rounds] * 3
    assert [row.cells().get("error") for row in rows[:2]] == ["8.0e+00 WRONG", None]


def test_what_was_left_from_before_does_not_count_as_delivered(monkeypatch):
    """A method that delivers once only finds the poison of the rounds after."""
    from onesided.apps.bench.memory import Exchanger

    delivered, held = Exchanger.round, {}

    def lazy(self):
        if id(self) not in held:
            held[id(self)] = delivered(self)
        return held[id(self)]

    monkeypatch.setattr(Exchanger, "round", lazy)
    rows = contest(memory=["plain"]).rows(uniform(MPI.COMM_SELF, 5), lambda: None)
    held.clear()
    errors = {row.labels["method"]: row.verdict.error for row in rows if row.verdict is not None}
    assert errors == {"mpi": 0, "p2p": 20}  # all five elements, in all rounds after the measurement


def test_a_method_that_cannot_be_made_is_a_row_with_a_reason():
    rows = contest(("p2p", "rma-notify"), info=[("ranks_per_node", "1")]).rows(
        uniform(MPI.COMM_SELF, 2), lambda: None
    )
    assert {row.labels["case"] for row in rows} == {"alone"}
    assert all(row.reason or row.times for row in rows)


def test_only_the_baseline_needs_no_request():
    rows = contest(()).rows(uniform(MPI.COMM_SELF, 2), lambda: None)
    assert [row.labels["method"] for row in rows] == ["mpi", "memcpy", "memcpy2"]


def test_a_set_up_is_median_init_and_median_free():
    assert setup_seconds([5.0, 1.0, 2.0], [0.5, 0.25, 9.0]) == 2.5


# -- benchmark 2 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patterns(tmp_path_factory):
    """A diagonal matrix, one that is not square, and a small mesh, on three ranks."""
    folder = tmp_path_factory.mktemp("patterns")
    files = [str(MATRICES / f"{name}.mtx.gz") for name in ("bcsstm22", "ash219")]
    words = [*files, "--mesh", "600", "--comm", "p2p,rma-notify", "--memory", "slots"]
    return bench("patterns", 3, folder / "bench.json", *words, "--repeats", "1")


def test_the_counts_are_those_of_the_matrix(patterns):
    _, content = patterns
    record = content["pattern"]["matrices"]["ash219"]
    whole = scipy.io.mmread(MATRICES / "ash219.mtx.gz").tocoo()
    lengths = record["rows"]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    columns = Partition.even(whole.shape[1], 3)
    counts, needed = np.zeros((3, 3), int), np.zeros((3, 3), int)
    for rank in range(3):
        mine = (whole.row >= starts[rank]) & (whole.row < starts[rank + 1])
        owners = columns.owners(whole.col[mine].astype(np.int64))
        counts[rank] = np.bincount(owners, minlength=3)
        distinct = np.unique(whole.col[mine]).astype(np.int64)
        needed[:, rank] = np.bincount(columns.owners(distinct), minlength=3)
        needed[rank, rank] = 0
    assert record["patterns"]["rows"]["counts"] == counts.tolist()
    assert record["patterns"]["spmv"]["counts"] == needed.tolist()
    assert record["patterns"]["spmv"]["received"] == needed.sum(axis=0).tolist()


def test_every_pattern_is_exchanged_by_every_method(patterns):
    outcome, content = patterns
    found = [(row["labels"]["matrix"], row["labels"]["pattern"], row["labels"]["method"]) for row in content["rows"]]
    who = ("mpi", "memcpy", "memcpy2", "p2p", "rma-notify")
    assert sorted(found) == sorted(
        (matrix, pattern, name)
        for matrix in ("bcsstm22", "ash219", "mesh-600")
        for pattern in ("spmv", "rows")
        for name in who
    )
    assert content["verified"] is True
    assert content["settings"]["files"] == ["bcsstm22", "ash219"]
    assert str(MATRICES) not in json.dumps(content)
    assert content["pattern"]["matrices"]["bcsstm22"]["patterns"]["spmv"]["blocks"] == 0
    assert "most / mean: " in outcome.stdout
    assert "ash219, rows: elements from rank (down) to rank (across)" in outcome.stdout


def test_both_sides_of_a_pattern_expect_the_same():
    counts = np.array([[0, 3, 1], [2, 2, 0], [0, 5, 0]])
    problems = [Traffic(counts).problem(rank) for rank in range(3)]
    for rank, problem in enumerate(problems):
        assert problem.send_counts == counts[rank].tolist()
        assert problem.recv_counts == counts[:, rank].tolist()
        assert problem.nbytes == 8 * 5
    starts = [np.concatenate([[0], np.cumsum(row)]) for row in counts]
    for rank, problem in enumerate(problems):
        blocks = [
            problems[peer].sent[starts[peer][rank] : starts[peer][rank + 1]] for peer in range(3)
        ]
        assert np.array_equal(np.concatenate(blocks), problem.expected)
    every = np.concatenate([problem.sent for problem in problems])
    assert len(np.unique(every)) == len(every) == counts.sum()


def test_a_heat_map_has_the_darkest_shade_for_the_most():
    drawn = Traffic(np.array([[0, 1000], [1, 30]])).heat_map().splitlines()
    assert drawn[1].split() == ["0", "@@", "1000", "1"]
    assert drawn[1].startswith("    0   @@")
    assert drawn[2].split()[1:] == ["..++", "31", "1030"]
    assert drawn[-1] == "most / mean: 1.94 sent, 2.00 received"
    assert Traffic(np.zeros((2, 2), int)).heat_map().splitlines()[1].split() == ["0", "0", "0"]
    assert "are not drawn" in Traffic(np.ones((65, 65), int)).heat_map()
    assert imbalance(np.zeros(3, int)) == 1.0


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["alltoallv", "--ranks-list", "2", "3"], "--ranks-list 3: the job has 1 rank"),
        (["alltoallv", "--comm", "rma-magic"], "the methods are mpi, "),
        (["alltoallv", "--picture", "{}/none/figure.png", "--sizes", "1K", "2K"], "No such file"),
        (["patterns", "{}/none.mtx"], "none.mtx: No such file"),
        (["patterns", "--mesh", "9", "--json", "{}/none/out.json"], "No such file"),
        (["apps", "--shape", "8"], "two dimensions at least"),
        (["apps", "--applications", "cg", "--matrix", str(MATRICES / "ash219.mtx.gz")], "square"),
        (["apps", "--applications", "cg", "--matrix", "{}"], "Is a directory"),
    ],
)
def test_a_mistake_is_found(words, fragment, tmp_path):
    if "--picture" in words:
        pytest.importorskip("matplotlib", reason="without it another sentence comes first")
    options = build_parser().parse_args(["bench", *(word.format(tmp_path) for word in words)])
    with pytest.raises(CommandError, match=fragment):
        run(options.command, options)


def test_a_mistake_among_some_ranks_is_one_sentence():
    words = ["alltoallv", "--ranks-list", "1", "--sizes", "8", "--info", "slots=9"]
    finished = commands.onesided("bench", *words, ranks=2)
    assert finished.code == 2, finished
    assert len(finished.sentences) == 1, finished
    assert "slots" in finished.sentences[0]


def test_the_numbers_of_ranks_are_those_that_the_job_has():
    from onesided.apps.bench.ranks import counted

    assert counted(6, None, doubling(2, 6)) == [2, 4, 6]
    assert counted(6, [6, 3, 3], []) == [3, 6]
    with pytest.raises(CommandError, match="--ranks-list 7: the job has 6 ranks"):
        counted(6, [7], [])


# -- where the time goes ---------------------------------------------------------------------------


@pytest.mark.parametrize("lead", [0.0, 1e-4])
def test_parts_are_those_of_the_timed_rounds(lead):
    seconds = []

    def call():
        seconds.append(len(seconds))

    why = unchecked("a test")
    entered = Contestant("one", call, why, lead=lead, parts={"part": lambda: float(sum(seconds))})
    found = race(MPI.COMM_SELF, [entered], iterations=4, seconds=5.0)
    parts = found.parts["one"]["part"]
    assert len(parts) == 4
    assert parts[-1] == seconds[-1]
    assert parts == found.mine["one"]["part"]
    assert parts[0] >= 3  # after the rounds that do not count


def test_what_is_around_a_region_is_no_part_of_it():
    calls = []

    def count():
        calls.append(1)

    parts = {"part": lambda: float(len(calls))}
    entered = Contestant("one", count, unchecked("a test"), before=count, after=count, parts=parts)
    found = race(MPI.COMM_SELF, [entered], iterations=2)
    assert found.parts["one"]["part"] == [1.0, 1.0]


def test_a_race_of_nobody_ends():
    assert race(MPI.COMM_SELF, [], iterations=2).times == {}


@pytest.mark.parametrize("count", range(1, 9))
def test_orders_are_balanced(count):
    block = count if count % 2 == 0 else 2 * count
    found = list(islice(orders(count), block))
    assert all(sorted(order) == list(range(count)) for order in found)
    follows = Counter(pair for order in found for pair in pairwise(order))
    places = Counter(pair for order in found for pair in enumerate(order))
    assert len(follows) == count * (count - 1)
    assert len(places) == count**2
    assert len(set(follows.values())) <= 1
    assert len(set(places.values())) == 1
    assert found == list(islice(orders(count), block))


def test_only_calls_under_the_watch_count():
    import time

    stopwatch = Stopwatch()
    holder = Namespace(slow=lambda: time.sleep(0.02), other=lambda: time.sleep(0.02))
    stopwatch.watch(holder, "slow")

    def call():
        holder.slow()
        holder.other()

    call()
    assert 0.02 <= stopwatch() < 0.035
    before = stopwatch()
    comm = WatchedComm(MPI.COMM_SELF, stopwatch)
    sums = np.ones(1)
    comm.Allreduce(MPI.IN_PLACE, sums)
    assert sums[0] == 1
    assert stopwatch() > before
    assert comm == MPI.COMM_SELF
