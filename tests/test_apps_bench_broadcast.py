"""The benchmark of the broadcast: its sweep, figures, models and crossovers, on small messages."""

from __future__ import annotations

import json
import math

import commands
import pytest
import servers

from onesided.apps.cli.failures import CommandError
from onesided.apps.papers.broadcast import figures
from onesided.apps.papers.broadcasters import (
    BINOMIAL,
    LINEAR,
    ONE_SIDED,
    ORDERED,
    PASSIVE,
    entrants,
)
from onesided.apps.papers.forecast import Forecast, crossing, crossings, with_hop
from onesided.apps.papers.loggp import GAPS, LogGP, binomial, hop, linear
from onesided.collectives import methods
from onesided.collectives.trees import orders

MODELLED = (LINEAR, BINOMIAL, ONE_SIDED, PASSIVE)
NETWORK = LogGP(latency=50e-6, overhead=5e-6, gap=8e-6, byte_gap=8e-9, waiting=100e-6)
APART = Forecast(dict.fromkeys((BINOMIAL, PASSIVE, ONE_SIDED), NETWORK), range(8))


def bench(ranks, path, *words, env=None):
    arguments = ["bench", "broadcast", *words, "--iterations", "2", "--json", str(path)]
    outcome = servers.run("-m onesided.apps", ranks, *arguments, timeout=100, env=env)
    assert outcome.kind == "pass", outcome.report()
    return outcome, json.loads(path.read_text())


def timed(content):
    return [row for row in content["rows"] if "reason" not in row]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Those that have models, on two and three ranks that take each other for nodes."""
    pytest.importorskip("matplotlib", reason="the figures need matplotlib")
    folder = tmp_path_factory.mktemp("broadcast")
    words = ["--sizes", "1K", "--info", "ranks_per_node=1", "--memory", "plain"]
    words += ["--comm", ",".join(MODELLED), "--picture", str(folder / "figure.png")]
    outcome, content = bench(3, folder / "bench.json", *words)
    return outcome, content, folder


def test_everyone_takes_part(tmp_path):
    _, content = bench(2, tmp_path / "bench.json", "--sizes", "512")
    names = [(row["labels"]["method"], row["labels"]["order"]) for row in timed(content)]
    single = {*methods("broadcast"), ONE_SIDED} - set(ORDERED)
    assert sorted(names) == sorted(
        [*((name, "-") for name in single)]
        + [(name, order) for name in ORDERED for order in orders()]
    )


def test_the_sweep_has_every_size_on_every_number_of_ranks(swept):
    _, content, _ = swept
    places = [(row["labels"]["ranks"], row["bytes"]) for row in timed(content)]
    contestants = 1 + 2 + 2 * len(orders())  # mpi, two linear ones and two trees
    assert sorted(places) == sorted(contestants * [(ranks, 1024) for ranks in "23"])
    for row in timed(content):
        assert row["iterations"] == len(row["times_s"]) > 0
        assert min(row["times_s"]) <= row["parts"]["mean"] <= max(row["times_s"])
        assert row["ratios"]["mpi"] > 0


def test_the_models_stand_beside_the_times(swept):
    outcome, content, _ = swept
    assert set(content["pattern"]["networks"]) == {BINOMIAL, PASSIVE, ONE_SIDED}
    for numbers in content["pattern"]["networks"].values():
        assert all(0 <= number < 1 for number in numbers.values())
        assert numbers["overhead"] > 0
    assert set(MODELLED) == {row["labels"]["method"] for row in timed(content)} - {"mpi"}
    predicted = [row for row in timed(content) if "predicted" in row["parts"]]
    assert {row["labels"]["method"] for row in predicted} == set(MODELLED)
    assert all(0 < row["parts"]["predicted"] < 10 for row in predicted)
    assert f"LogGP parameters of {PASSIVE}" in outcome.stdout


def test_every_crossover_is_said(swept):
    outcome, content, _ = swept
    found = content["pattern"]["crossings"]
    assert len(found) == 2 * len(orders()) * (2 + 1)  # pairs, orders, numbers of ranks and sizes
    assert all(each["modelled"] for each in found)
    for method, other in ((BINOMIAL, LINEAR), (PASSIVE, ONE_SIDED)):
        for order in orders():
            assert f"{method} {order} overtakes {other}: 2 ranks: " in outcome.stdout
    for each in found:
        assert (
            each["measured"] is None
            or each["measured"] >= {"bytes": 1024, "ranks": 2}[each["over"]]
        )


def test_the_figures_are_drawn(swept):
    _, _, folder = swept
    drawn = sorted(path.name for path in folder.glob("*.png"))
    assert drawn == ["figure-15.png", "figure-16.png"]  # no message is a mebibyte long
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_one_node_has_no_model_of_what_shares_memory(tmp_path):
    words = ["--sizes", "256", "--comm", f"{LINEAR},{BINOMIAL}", "--orders", "largest-first"]
    outcome, content = bench(2, tmp_path / "bench.json", *words)
    assert len(timed(content)) == 3
    assert not any("predicted" in row["parts"] for row in timed(content))
    assert [each["modelled"] for each in content["pattern"]["crossings"]] == [False]
    assert "(no model)" in outcome.stdout


def test_without_threads_the_passive_one_gives_a_reason(tmp_path):
    words = ["--sizes", "256", "--comm", f"{PASSIVE},{ONE_SIDED}", "--orders", "low-bit-first"]
    env = {"MPI4PY_RC_THREAD_LEVEL": "serialized"}
    outcome, content = bench(2, tmp_path / "bench.json", *words, env=env)
    reasons = [row for row in content["rows"] if "reason" in row]
    assert [row["labels"]["method"] for row in reasons] == [PASSIVE]
    assert "MPI_THREAD_MULTIPLE" in reasons[0]["reason"]
    assert {row["labels"]["method"] for row in timed(content)} == {"mpi", ONE_SIDED}
    assert f"No model of {PASSIVE}: " in outcome.stdout


def test_a_mistake_is_one_sentence():
    finished = commands.onesided("bench", "broadcast", "--ranks-list", "1", "2")
    assert finished.code == 2, finished
    assert len(finished.sentences) == 1
    assert "--ranks-list 2: the job has 1 rank" in finished.sentences[0]


def test_figures_need_sizes_of_their_range():
    large = figures([1 << 20, 2 << 20], [2, 4])
    assert [(each.name, each.title) for each in large] == [
        ("13", "Broadcast, 4 ranks (as Figure 13)"),
        ("14", "Broadcast, 2 MiB (as Figure 14)"),
    ]
    assert [each.name for each in figures([1024, 1 << 20], [2])] == ["13", "14", "15", "16"]


def test_the_baseline_takes_part_always_and_once():
    assert [each.name for each in entrants("rma-linear,mpi,rma-linear", orders())] == [
        "mpi",
        "rma-linear",
    ]
    assert [each.order for each in entrants(PASSIVE, orders())] == ["", *orders()]
    with pytest.raises(CommandError, match="no method"):
        entrants("rma-linear,abacus", orders())


@pytest.mark.parametrize(
    ("ratios", "place"),
    [
        ([2.0, 2.0, 2.0, 2.0], None),
        ([0.5, 0.5, 0.5, 0.5], 1.0),
        ([2.0, 2.0, 0.5, 0.5], math.sqrt(8)),
        ([4.0, 2.0, 1.0, 0.5], 4.0),
        ([2.0, 0.9, 2.0, 2.0], None),  # one time that is wrong
        ([2.0, 0.5, 1.1, 0.5], 4 * 2 ** (math.log(1.1) / math.log(2.2))),  # two places as good
    ],
)
def test_the_place_of_a_crossing(ratios, place):
    found = crossing([1, 2, 4, 8], ratios)
    assert found == (None if place is None else pytest.approx(place))


def test_a_crossing_is_found_where_the_times_were_made_to_have_one():
    """Times from the model itself: measured and predicted agree, up to the interpolation."""
    entered = entrants(f"{PASSIVE},{ONE_SIDED}", ["largest-first"])
    sizes, counts = [1 << n for n in range(8, 24)], [2, 4, 8]
    times = {
        (count, size, each.name): [APART.time(each.method, each.order, count, size)]
        for count in counts
        for size in sizes
        for each in entered
        if each.method != "mpi"
    }
    found = {(each.over, each.at): each for each in crossings(APART, entered, sizes, counts, times)}
    assert found["bytes", 2].measured is found["bytes", 2].predicted is None
    for count in (4, 8):
        each = found["bytes", count]
        assert each.measured == pytest.approx(each.predicted, rel=0.1)
        assert 1 << 8 < each.predicted < 1 << 23
    assert "nowhere in the sweep (model: nowhere)" in found["bytes", 2].phrase
    assert found["ranks", sizes[-1]].predicted == 4
    assert found["ranks", sizes[0]].measured is None


@pytest.mark.parametrize("order", orders())
def test_the_forecast_is_that_of_the_models(order):
    assert APART.time(PASSIVE, order, 8, 1000) == binomial(NETWORK, 8, 1000, order)
    bare = Forecast({PASSIVE: NETWORK, ONE_SIDED: LogGP(50e-6, 5e-6, 8e-6, 8e-9)}, range(8))
    assert bare.time(ONE_SIDED, "", 8, 1000) == linear(NETWORK, 8, 1000)
    length = bare.crossover_bytes(PASSIVE, order, ONE_SIDED, 8)
    times = [[binomial(NETWORK, 8, n, order), linear(NETWORK, 8, n)]
             for n in (int(0.99 * length), math.ceil(1.01 * length))]
    assert times[0][0] > times[0][1]
    assert times[1][0] < times[1][1]


def test_only_what_goes_between_nodes_is_predicted():
    nodes = Forecast({BINOMIAL: NETWORK}, [0, 0, 2, 2])
    assert nodes.time(BINOMIAL, "largest-first", 4, 9) == binomial(NETWORK, 2, 9)
    assert nodes.time(BINOMIAL, "largest-first", 2, 9) is None
    assert nodes.time(PASSIVE, "largest-first", 4, 9) is None
    assert nodes.crossover_ranks(BINOMIAL, "largest-first", LINEAR, 9) is None
    assert nodes.time("p2p", "", 4, 9) is None


def test_the_rest_of_a_hop_is_waiting():
    assert hop(with_hop(NETWORK, 1.0), 1) == pytest.approx(1.0)
    assert with_hop(NETWORK, 0.0).waiting == 0.0
    assert NETWORK.overhead + GAPS * NETWORK.gap + NETWORK.latency < hop(NETWORK, 1)
