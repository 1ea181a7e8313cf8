"""``onesided model`` and ``onesided bench model``: tables, files and images; mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from statistics import median

import cluster
import commands
import holdout
import mpi_harness
import pytest
import servers
import simulated

from onesided.apps.cli.options import rank_counts
from onesided.apps.modelling import check
from onesided.apps.modelling.check import PATTERNS
from onesided.apps.modelling.measuring import ASSUMED, SIZES
from onesided.apps.modelling.options import NETWORKS as NAMES
from onesided.apps.modelling.options import PATTERNS as CHOICES
from onesided.apps.modelling.paper import METHODS, TOLD, compare, draw
from onesided.apps.modelling.sweep import Sweep
from onesided.collectives.modelling.exchanges import formulas
from onesided.collectives.modelling.parameters import BEYOND, MACHINES, Validity, of_record

SMALL = ["--sizes", "1K", "1M", "--ranks-list", "2:16", "--per-node", "4"]


def model(*words, ranks=None):
    return commands.onesided("model", *words, ranks=ranks)


def ran(finished):
    assert finished.code == 0, finished
    assert not finished.hung, finished
    return finished


def failed(finished, fragment):
    assert finished.code == 2, finished
    assert len(finished.sentences) == 1, finished
    assert fragment in finished.sentences[0], finished


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Three ranks on emulated nodes of two: both levels are measured, and the methods checked."""
    path = tmp_path_factory.mktemp("model") / "bench.json"
    words = ["--verify", "--comm", "all", "--sizes", "1K", "64K", "--info", "ranks_per_node=2"]
    words += ["--iterations", "2", "--seconds", "4", "--json", str(path)]
    outcome = servers.run("-m onesided.apps", 3, "bench", "model", *words, timeout=100)
    assert outcome.kind == "pass", outcome.report()
    return outcome, json.loads(path.read_text()), path


def test_both_levels_are_found(measured):
    outcome, content, _ = measured
    parameters = of_record(content["pattern"]["parameters"])
    assert set(parameters.software) == set(parameters.setup) == set(formulas())
    assert all(0 < seconds < 60 for seconds in parameters.setup.values())
    assert parameters.assumed == ASSUMED
    assert "Assumed, not measured: network.link_byte_gap" in outcome.stdout
    for level in (parameters.node, parameters.network):
        assert level.signal > 0
        assert level.barrier > 0
        assert min(level.messages.time(1, nbytes) for nbytes in (8, 1 << 20)) > 0
        assert level.puts.time(1, 1 << 20) > 0
    assert 0 < parameters.node.notice < 1
    kinds = ("messages", "collective", "puts")
    assert set(content["pattern"]["fit_errors"]) == {
        "stores", *(f"{kind}, {level}" for kind in kinds for level in ("node", "network"))
    }  # fmt: skip
    for words in ("Stores on the node", "Puts, network", "Synchronization, node", "Typical error"):
        assert words in outcome.stdout


def test_every_method_stands_beside_its_prediction(measured):
    outcome, content, _ = measured
    rows = [row for row in content["rows"] if "reason" not in row]
    assert [(row["bytes"], row["labels"]["method"]) for row in rows] == [
        (size, method) for size in (1032, 65544) for method in formulas()
    ]
    for row in rows:
        fastest = row["quartile_1_s"] * 1e6
        assert row["error %"] == pytest.approx(100 * (row["predicted us"] / fastest - 1))
    for method in formulas():
        assert len(content["pattern"]["check_errors"][method]) == 2
        assert f"Median error of the prediction of {method}: " in outcome.stdout
    medians = [median(errors) for errors in content["pattern"]["check_errors"].values()]
    parameters = of_record(content["pattern"]["parameters"])
    assert parameters.error == max(medians) > 0  # what a check finds is the error from then on
    assert parameters.measured == Validity(3, SIZES[0], SIZES[-1])


def test_measured_parameters_predict_larger_machines(measured, tmp_path):
    _, content, path = measured
    out = tmp_path / "model.json"
    ran(model("--parameters", str(path), *SMALL, "--json", str(out)))
    found = json.loads(out.read_text())
    assert found["pattern"]["parameters"] == content["pattern"]["parameters"]
    assert [(row["labels"]["ranks"], row["bytes"]) for row in found["rows"]] == [
        (ranks, size) for ranks in (2, 4, 8, 16) for size in (1024, 1 << 20)
    ]
    for row in found["rows"]:
        assert row["seconds"][row["fastest"]] == min(row["seconds"].values())


def test_known_parameters_are_checked_without_finding_others(measured):
    _, _, path = measured
    words = ["--parameters", str(path), "--verify", "--sizes", "1K", "--info", "ranks_per_node=2"]
    words += ["--patterns", "irregular", "pairs"]
    finished = commands.onesided("bench", "model", *words, "--iterations", "2", ranks=2)
    assert "Median error of the prediction of rma-fence: " in ran(finished).out
    assert " % (95 %: " in finished.out
    assert "The model tells one fastest method of " in finished.out
    assert " of 2 exchanges, the right one of " in finished.out
    assert "Typical error" not in finished.out


NODES = [0, 0, 2, 2, 4, 4]


def test_patterns_off_the_fitted_ones():
    assert tuple(PATTERNS) == CHOICES
    whole = PATTERNS["uniform"](600, NODES)
    assert (whole == 100).all()
    some = PATTERNS["irregular"](600, NODES)
    assert not some.diagonal().any()
    assert 600 <= some.sum(axis=1).max() <= 606  # rounded up, block by block
    assert 0.1 < (some > 0).mean() < 0.7
    assert len(set(some[some > 0])) > 5
    one = PATTERNS["pairs"](600, NODES)
    assert [(int(row.argmax()), int(row.sum())) for row in one] == [
        (2, 600), (3, 600), (4, 600), (5, 600), (0, 600), (1, 600)
    ]  # fmt: skip
    alone = PATTERNS["pairs"](600, [0, 0, 0])
    assert [int(row.argmax()) for row in alone] == [1, 2, 0]


def test_what_is_decided_is_counted():
    choices = [(["mpi"], "mpi"), (["p2p", "mpi"], "mpi"), (["p2p"], "mpi")]
    assert check.Outcome([], {}, choices).decided() == (2, 1)


def test_the_regions_and_figure_1_are_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="images need matplotlib")
    regions, figure = tmp_path / "regions.png", tmp_path / "figure.png"
    words = ["--network", "infiniband", "--ranks-list", "2:1000000", "--picture", str(regions)]
    assert "1,000,000" in ran(model(*words, "--sizes", "1K")).out
    draw(str(figure), compare(MACHINES["paper"]))
    for path in (regions, figure):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_shares_of_the_map_are_those_of_the_fastest(tmp_path):
    out = tmp_path / "model.json"
    words = ["--comm", "mpi,rma-notify", *SMALL, "--network", "gigabit", "--paper"]
    assert "Paper 000, from its text" in ran(model(*words, "--json", str(out))).out
    found = json.loads(out.read_text())
    assert len(found["paper"]["told"]) == len(TOLD)
    assert sum(found["fastest_share"].values()) == pytest.approx(1)
    assert set(found["fastest_share"]) <= {"mpi", "rma-notify"}
    assert found["pattern"]["parameters"]["provenance"].startswith("measured by onesided")


def test_predictions_far_from_the_measurements_are_marked(tmp_path):
    """The paper's parameters hold for 448 ranks and blocks from 32 KiB to 2 MiB."""
    out = tmp_path / "model.json"
    words = ["--ranks-list", "448", "2000", "--blocks", "--sizes", "1K", "32K", "32M"]
    told = ran(model(*words, "--json", str(out))).out
    rows = json.loads(out.read_text())["rows"]
    assert [row["extrapolated"] for row in rows] == [True, False, True, True, True, True]
    lines: list[str] = []  # of the table's rows, the last cell as a whole
    for line in told.splitlines():
        if line.startswith("│") and line.endswith("│"):
            cell = line.rstrip("│").rpartition("│")[2].strip()
            if "B │" in line:
                lines.append(cell)
            elif lines:
                lines[-1] += f" {cell}"
    marked = [line.endswith("*") for line in lines]
    assert marked == [row["extrapolated"] for row in rows]
    assert f"* extrapolated: more than {BEYOND:g} times beyond what was measured: 448 ranks" in told
    assert "Assumed, not measured: node.latency" in told
    told = ran(model("--network", "infiniband", "--ranks-list", "4", "--sizes", "1K")).out
    assert "* extrapolated: nothing was measured" in told
    assert "* extrapolated" not in ran(model("--ranks-list", "28:56", "--sizes", "4M", "8M")).out


def test_a_margin_below_the_error_is_undecided():
    parameters, methods = MACHINES["paper"], list(METHODS)
    for error, undecided in ((0.0, False), (0.1, False), (0.9, True)):
        sweep = Sweep(replace(parameters, error=error), methods, 28, blocks=True)
        (point,) = sweep.points([448], [1 << 21])  # 1.59 and 2.39 seconds
        assert point.fastest == min(point.seconds, key=point.seconds.get) == "rma-fence-paper"
        assert (len(point.contenders) > 1) == undecided
        assert ("rma-fence-paper +1" in point.cells()) == undecided
        regions = sweep.regions([448], [1 << 21])
        middle = tuple(size // 2 for size in regions.winner.shape)
        assert regions.undecided[middle] == undecided
        assert regions.undecided.any() == (error > 0)  # along the border between two, at least
    (point,) = Sweep(parameters, ["mpi"], 28, blocks=True).points([448], [1 << 21])
    assert list(point.contenders) == ["mpi"]


def test_blocks_are_sizes_of_a_block(tmp_path):
    rows = {}
    for words in ([], ["--blocks"]):
        out = tmp_path / "model.json"
        ran(model("--sizes", "1M", "--ranks-list", "8", *words, "--json", str(out)))
        (rows[bool(words)],) = json.loads(out.read_text())["rows"]
    assert (rows[False]["bytes"], rows[False]["block_bytes"]) == (1 << 20, 1 << 17)
    assert (rows[True]["bytes"], rows[True]["block_bytes"]) == (1 << 23, 1 << 20)


def test_every_network_says_where_it_is_from():
    assert tuple(MACHINES) == NAMES
    for name, parameters in MACHINES.items():
        assert parameters.name == name
        assert "assumed" in parameters.provenance.lower()


def test_the_shape_of_figure_1_is_that_of_the_paper():
    """Fences first, locks last from 112 ranks on; times within a quarter of those it tells."""
    found = compare(MACHINES["paper"])
    mpi, fence, lock = (found.lines[method] for method in METHODS)
    assert all(a < b for a, b in zip(fence, mpi, strict=True))
    assert all(a < b for a, b in zip(mpi[2:], lock[2:], strict=True))
    for line in (mpi, fence, lock):
        assert list(line) == sorted(line)
    first = [(told.seconds, seconds) for told, seconds in found.told if told.figure == 1]
    assert len(first) == sum(told.figure == 1 for told in TOLD) == 8
    for told, seconds in first:
        assert seconds == pytest.approx(told, rel=0.25)
    assert 1 - fence[-1] / mpi[-1] == pytest.approx(0.38, abs=0.1)  # "38% faster"


def test_fences_pay_from_32_kibibytes_on():
    """Figure 2: MPI_Alltoallv is faster with up to 8 KiB, the fence from 32 KiB on."""
    sweep = Sweep(MACHINES["paper"], list(METHODS), 28, blocks=True)
    winners = [point.fastest for point in sweep.points([224], [1 << 13, 1 << 15, 1 << 20, 1 << 21])]
    assert winners == ["mpi", *3 * ["rma-fence-paper"]]


@pytest.mark.parametrize(
    ("text", "counts"),
    [("28:448", [28, 56, 112, 224, 448]), ("2:9", [2, 4, 8, 9]), ("7", [7]), ("5:5", [5])],
)
def test_numbers_of_ranks(text, counts):
    assert rank_counts(text) == counts


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["--parameters", "{}/none.json"], "No such file"),
        (["--parameters", "{}/text.json"], "text.json: Expecting value"),
        (["--parameters", "{}/other.json"], "other.json: these are no onesided model parameters"),
        pytest.param(["--parameters", "{}/later.json"], "version 3, not 2", marks=pytest.mark.full),
        pytest.param(["--parameters", "{}/binary.json"], "binary.json", marks=pytest.mark.full),
        (["--parameters", "{}/far.json"], "no level 'node'"),
        (["--comm", "auto"], "no model of auto"),
        pytest.param(["--comm", "rma-magic"], "rma-magic", marks=pytest.mark.full),
        pytest.param(["--network", "abacus"], "abacus", marks=pytest.mark.full),
        (["--ranks-list", "9:2"], "goes down"),
        pytest.param(["--json", "{}/none/out.json"], "No such file", marks=pytest.mark.full),
    ],
)
def test_a_mistake_is_one_sentence(words, fragment, tmp_path):
    (tmp_path / "text.json").write_text("parameters\n")
    (tmp_path / "other.json").write_text('{"pattern": {"ranks": 2}}\n')
    record = MACHINES["gigabit"].record()
    (tmp_path / "later.json").write_text(json.dumps({**record, "version": 3}))
    (tmp_path / "far.json").write_text(json.dumps({**record, "node": None}))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    failed(model(*(word.format(tmp_path) for word in words)), fragment)


def test_a_mistake_is_one_sentence_under_mpiexec(tmp_path):
    failed(model("--parameters", str(tmp_path / "none.json"), ranks=2), "No such file")
    failed(commands.onesided("bench", "model"), "needs two ranks or more")
    failed(commands.onesided("bench", "model", "--verify", "--comm", "auto", ranks=2), "of auto")


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_traffic_of_an_exchange(run_cases, ranks):
    run_cases("cases_modelling", ranks)


@pytest.mark.full
def test_predictions_off_what_was_fitted():
    """More ranks, other sizes and patterns than the two ranks that gave the parameters."""
    try:
        rows = holdout.held_out(seconds=15.0, iterations=5)
    except holdout.Unavailable as reason:
        pytest.skip(str(reason))
    assert {row["labels"]["ranks"] for row in rows} == {4, 8, 16}
    for row in rows:
        if row["labels"]["method"] == "choice":
            assert row["among"] >= row["right"]
            assert row["exchanges"] == 9
        else:
            assert row["low"] <= row["error"] <= row["high"] <= row["worst"] < 20
    four = [row["error"] for row in rows if (row["labels"]["ranks"], row["labels"]["method"]) == (4, "p2p")]
    assert four[0] < 1.0  # a factor of two


@pytest.mark.full
def test_programs_are_simulated_beside_themselves():
    found = simulated.compared([16], seconds=5.0)
    assert {program for program, _, _ in found} == {"fft", "spmv", "cg"}
    assert {method for _, method, _ in found} == set(simulated.METHODS)
    assert all(one > 0 and two > 0 for one, two in found.values())
    assert len(simulated.results(found)["rows"]) == len(found)


@pytest.mark.full
def test_two_nodes_with_a_slow_link(tmp_path):
    """The delay and the rate of the link are found; how exact, `bench model --verify` tells."""
    reason = cluster.available()
    if reason:
        pytest.skip(f"no virtual nodes: {reason}")
    path = tmp_path / "bench.json"
    words = ["--nodes", "2", "--delay", "2ms", "--rate", "100mbit", "--timeout", "120", "--"]
    words += [sys.executable, "-m", "onesided.apps", "bench", "model", "--json", str(path)]
    words += ["--iterations", "3", "--seconds", "10"]
    line = [sys.executable, str(mpi_harness.TESTS / "cluster.py"), "run", *words]
    env = mpi_harness.environment({}, str(tmp_path))
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=150, check=False, env=env
    )
    if "cannot be shaped here" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    parameters = of_record(json.loads(path.read_text())["pattern"]["parameters"])
    assert parameters.node is None
    assert parameters.network.signal > 2e-3
    assert parameters.network.messages.segments[-1].loggp.byte_gap > 60e-9  # 80 at 100 mbit/s
