"""The model of the exchanges: lines, traffic, formulas by hand, and against the simulation."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from onesided.collectives import MethodError, PatternError, methods
from onesided.collectives.modelling.exchanges import (
    contenders,
    fastest,
    formulas,
    predict,
    predict_all,
)
from onesided.collectives.modelling.loggp import LogGP, PiecewiseLogGP, Segment
from onesided.collectives.modelling.parameters import (
    ASSUMED_SETUP,
    BEYOND,
    MACHINES,
    Level,
    Parameters,
    Validity,
    of_record,
)
from onesided.collectives.modelling.simulation import Arrivals, Simulation, program
from onesided.collectives.modelling.traffic import of_matrix, uniform

#: L, o, g, G in easy numbers, and another line for 100 bytes and more
SHORT, LONG = LogGP(10.0, 2.0, 5.0, 0.1), LogGP(20.0, 2.0, 5.0, 0.5)
TWO = PiecewiseLogGP((Segment(0, SHORT), Segment(100, LONG)), 2)
FREE = PiecewiseLogGP((Segment(0, LogGP(0.0, 0.0, 0.0)),), 1)
FAR = Level(
    messages=PiecewiseLogGP((Segment(0, SHORT),), 2),
    puts=PiecewiseLogGP((Segment(0, LogGP(30.0, 1.0, 3.0, 0.1)),), 1),
    signal=7.0, barrier=11.0, done=9.0, fence=13.0, empty_fence=6.0, opening=4.0, notice=17.0,
    epoch=19.0, relock=23.0,
)  # fmt: skip
PAIR = Parameters(FREE, None, FAR)
INFINIBAND, GIGABIT, PAPER = (MACHINES[name] for name in ("infiniband", "gigabit", "paper"))


def test_piecewise_by_hand():
    assert TWO.time(1, 10) == pytest.approx(10 + 4 + 1)
    assert TWO.time(3, 30) == pytest.approx(10 + 4 + 2 * 5 + 3)
    assert TWO.time(1, 100) == pytest.approx(20 + 4 + 50)
    assert TWO.time(2, 198) == pytest.approx(10 + 4 + 5 + 19.8)  # 99 bytes each: the first line
    assert TWO.time(0, 0) == 0
    assert TWO.time(2, 20, link=100.0) == pytest.approx(10 + 4 + 100)
    assert TWO.busy(4) == pytest.approx(3 * 5)
    assert TWO.time(2, 20, size=100) == pytest.approx(10 + 4 + 5 + 20 * 0.5)  # at the pace of 100
    assert TWO.time(1, 100, size=8) == TWO.time(1, 100)
    # the processor holds the sender up
    busy = PiecewiseLogGP((Segment(0, LogGP(10.0, 4.0, 5.0)),), 2)
    assert busy.time(2, 0) == pytest.approx(10 + 8 + 8)


def test_piecewise_takes_arrays():
    counts, nbytes = np.array([[0.0], [1.0], [7.0]]), np.array([10.0, 99.0, 100.0, 5000.0])
    table = TWO.time(counts, nbytes)
    assert table.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        assert table[i, j] == pytest.approx(float(TWO.time(counts[i, 0], nbytes[j])))


@pytest.mark.parametrize("starts", [(), (1,), (0, 0), (0, 9, 5)])
def test_segments_begin_at_zero_and_ascend(starts):
    with pytest.raises(PatternError, match="not at 0 and then further up"):
        PiecewiseLogGP(tuple(Segment(start, SHORT) for start in starts))
    with pytest.raises(PatternError, match="3 ends"):
        replace(TWO, ends=3)


# -- traffic -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "per_node"), [(1, 1), (2, 1), (4, 4), (12, 4), (10, 4), (9, 4), (5, 8), (7, 1)]
)
def test_uniform_traffic_is_that_of_its_matrix(ranks, per_node):
    nodes = [rank // per_node for rank in range(ranks)]
    table = of_matrix(np.full((ranks, ranks), 100.0), nodes)
    expected = vars(uniform(ranks, per_node, 100))
    assert vars(table) == {name: pytest.approx(float(value)) for name, value in expected.items()}


def test_skewed_traffic_by_hand():
    """Two nodes of two; rank 0 sends most on its node, rank 3 receives most from the other."""
    sent = np.array([[5, 70, 0, 30], [0, 0, 0, 40], [1, 0, 0, 0], [0, 0, 2, 9]])
    traffic = of_matrix(sent, [8, 8, 1, 1])
    assert (traffic.ranks, traffic.nodes, traffic.ranks_per_node) == (4, 2, 2)
    assert (traffic.near_messages, traffic.near_bytes) == (1, 70)
    assert (traffic.far_messages, traffic.far_bytes) == (2, 70)
    assert (traffic.link_messages, traffic.link_bytes) == (2, 70)
    assert traffic.own_bytes == 9


def test_impossible_traffic():
    with pytest.raises(PatternError, match="0 ranks"):
        uniform(0, 1, 8)
    with pytest.raises(PatternError, match="far_bytes"):
        uniform(2, 1, -1)
    with pytest.raises(PatternError, match="3 receive slots"):
        uniform(2, 1, 8, slots=3)
    with pytest.raises(PatternError, match=r"shape \(2, 3\) for 2 ranks"):
        of_matrix(np.zeros((2, 3)), [0, 0])


# -- formulas --------------------------------------------------------------------------------------


def test_every_method_but_auto_has_a_formula_and_a_program():
    assert list(formulas()) == [name for name in methods() if name != "auto"]
    for name in formulas():
        assert program(name) is not None
    with pytest.raises(MethodError, match="no program of 'auto'"):
        program("auto")
    with pytest.raises(MethodError, match="no model of auto"):
        predict(uniform(2, 1, 8), PAIR, ["mpi", "auto"])


@pytest.mark.parametrize(
    ("method", "two_slots", "one_slot"),
    [
        ("mpi", 10 + 4 + 1, 0),
        ("rma-fence", 30 + 1 + 1 + 13, 6),
        ("rma-lock", 30 + 1 + 1 + 9, 7),
        ("rma-notify", 30 + 1 + 1 + 17, 7),
        ("rma-p2p", 10 + 4 + 1, 0),
        ("rma-pscw", 7 + 30 + 1 + 1 + 19, 0),
        ("rma-fence-paper", 4 + 30 + 1 + 1 + 13, 0),
        ("rma-lock-paper", 30 + 1 + 1 + 23, 0),
    ],
)
def test_two_ranks_on_two_nodes_by_hand(method, two_slots, one_slot):
    """One message of ten bytes; a caller's receive memory costs what two slots save."""
    seconds = predict(uniform(2, 1, 10), PAIR)[method]
    assert seconds == pytest.approx(two_slots)
    assert predict(uniform(2, 1, 10, slots=1), PAIR)[method] == pytest.approx(two_slots + one_slot)


def test_stores_on_the_node_are_those_of_notifications_and_messages_off_it_those_of_p2p():
    near, far = (predict(uniform(4, per_node, 1 << 14), INFINIBAND) for per_node in (4, 1))
    assert near["rma-p2p"] == pytest.approx(near["rma-notify"])
    assert near["rma-p2p"] != pytest.approx(near["p2p"])
    bare = predict(uniform(4, 1, 1 << 14), replace(INFINIBAND, software={}))
    assert bare["rma-p2p"] == pytest.approx(bare["p2p"])
    assert far["rma-p2p"] < far["rma-notify"]


def test_a_collective_may_send_by_another_protocol():
    slower = PiecewiseLogGP((Segment(0, replace(SHORT, latency=50.0)),), 2)
    times = predict(uniform(2, 1, 10), Parameters(FREE, None, replace(FAR, collective=slower)))
    assert times["mpi"] == times["mpi-persistent"] == pytest.approx(50 + 4 + 1)
    assert times["p2p"] == pytest.approx(10 + 4 + 1)
    near = Parameters(FREE, replace(FAR, collective=slower))
    times = predict(uniform(2, 2, 10), near)  # on the node the own block is a message, too
    assert times["mpi"] == pytest.approx(50 + 4 + 5 + 2)
    assert times["p2p"] == pytest.approx(10 + 4 + 1)


def test_software_and_the_own_block_come_on_top():
    alone = PiecewiseLogGP((Segment(0, LogGP(100.0, 0.0, 0.0, 1.0)),), 1)
    known = replace(PAIR, software={"mpi": alone, "p2p": alone})
    for method, more in (("mpi", 100), ("p2p", 100 + 10)):  # the collective sends its own block
        times = [predict(uniform(2, 1, 10), parameters)[method] for parameters in (known, PAIR)]
        assert times[0] - times[1] == pytest.approx(more)


def test_barriers_grow_with_the_logarithm():
    two, many = (predict(uniform(ranks, 1, 0.0), PAIR) for ranks in (2, 1024))
    assert many["rma-lock-paper"] - two["rma-lock-paper"] == pytest.approx(2 * 9 * 11 + 1022 * 3)


def test_puts_that_leave_first_hide_the_stores():
    traffic = uniform(8, 4, 1 << 16)
    times = predict(traffic, INFINIBAND)
    assert times["rma-fence-hier"] < times["rma-fence"]
    assert times["rma-lock-hier"] < times["rma-lock"]
    alone = predict(uniform(8, 8, 1 << 16), INFINIBAND)
    assert alone["rma-fence-hier"] == pytest.approx(alone["rma-fence"])


def test_a_link_is_shared_by_the_ranks_of_a_node():
    one, four = (predict(uniform(4 * n, n, 1 << 24), GIGABIT)["mpi"] for n in (1, 4))
    assert four / one == pytest.approx(4 * 12 / 3, rel=0.05)


def test_congestion_grows_with_the_nodes_and_contention_under_locks():
    worse = replace(INFINIBAND.network, congestion=0.5, contention=1.0)
    calm_ones, bad_ones = (Parameters(FREE, None, level) for level in (INFINIBAND.network, worse))
    for nodes, messages, locks in ((2, 1, 1), (8, 2, 3)):
        calm, bad = (predict(uniform(nodes, 1, 1 << 26), p) for p in (calm_ones, bad_ones))
        assert bad["mpi"] / calm["mpi"] == pytest.approx(messages, rel=0.01)
        assert bad["rma-lock-paper"] / calm["rma-lock-paper"] == pytest.approx(locks, rel=0.01)
        assert bad["rma-fence"] == calm["rma-fence"]


def test_a_million_ranks_in_one_sweep():
    """Arrays give what numbers give, everything is finite, and more bytes never take less time."""
    ranks = np.array([2, 64, 4096, 1_000_000])[:, None]
    block = np.array([8.0, 1024.0, 1 << 20])[None, :]
    for parameters in MACHINES.values():
        times = predict_all(uniform(ranks, 64, block), parameters)
        for method, table in times.items():
            whole = np.broadcast_to(table, (4, 3))
            assert np.all(np.isfinite(whole) & (whole > 0)), method
            assert np.all(np.diff(whole, axis=1) >= 0), method
            assert np.all(np.diff(whole, axis=0) > 0), method
            for i, j in ((0, 2), (3, 0), (3, 2)):
                single = predict(uniform(int(ranks[i, 0]), 64, block[0, j]), parameters)
                assert whole[i, j] == pytest.approx(single[method])


def test_a_missing_level_is_named_only_where_it_is_needed():
    assert predict(uniform(4, 1, 8), PAIR)
    with pytest.raises(PatternError, match="no level 'node'"):
        predict(uniform(4, 2, 8), PAIR)
    with pytest.raises(PatternError, match="no level 'network'"):
        predict(uniform(4, 2, 8), replace(INFINIBAND, network=None))


def test_one_rank_alone_needs_no_level():
    times = predict(uniform(1, 1, 8), Parameters(FREE))
    assert set(times.values()) == {0.0}
    assert fastest({"b": 2.0, "a": 1.0, "c": 1.0}) == "a"


def test_contenders_are_within_the_error():
    times = {"c": 1.3, "b": 1.0, "a": 1.2, "d": 1.0}
    assert contenders(times, 0.0) == ["b", "d"]
    assert contenders(times, 0.25) == ["b", "d", "a"]
    assert contenders({"a": 1.0, "b": 1.2}, 0.1) == ["a"]


# -- how far the measurements carry ---------------------------------------------------------------


def test_what_lies_far_beyond_the_measurements_is_extrapolated():
    known = replace(PAIR, measured=Validity(2, 100, 1000))
    inside = [(2, 100), (2 * BEYOND, 1000), (2, 100 / BEYOND), (2, 1000 * BEYOND)]
    beyond = [(2 * BEYOND + 1, 1000), (2, 99 / BEYOND), (2, 1001 * BEYOND), (10**6, 500)]
    assert not any(known.extrapolated(uniform(ranks, 1, block)) for ranks, block in inside)
    assert all(known.extrapolated(uniform(ranks, 1, block)) for ranks, block in beyond)
    assert PAIR.extrapolated(uniform(2, 1, 100))  # nothing was measured
    assert not known.extrapolated(uniform(1, 1, 10**9))  # without messages
    ranks, block = np.array([2.0, 1e6])[:, None], np.array([1.0, 500.0, 1e6])[None, :]
    table = known.extrapolated(uniform(ranks, 1, block))
    assert table.tolist() == [[True, False, True], [True, True, True]]


def test_a_setup_is_assumed_where_it_was_not_measured():
    known = replace(PAIR, setup={"rma-fence": 0.25})
    assert known.setup_seconds("rma-fence") == 0.25
    assert known.setup_seconds("rma-lock") == ASSUMED_SETUP


@pytest.mark.parametrize("values", [(0, 1, 2), (2, 3, 1), (2, -1, 1), (2, 1, math.inf)])
def test_an_impossible_range(values):
    with pytest.raises(PatternError):
        Validity(*values)


# -- against the simulation ------------------------------------------------------------------------


def simulated(method, parameters, sent, nodes):
    return Simulation(parameters, sent, nodes).run(program(method))


@pytest.mark.parametrize("method", formulas())
@pytest.mark.parametrize("network", ["infiniband", "gigabit"])
@pytest.mark.parametrize(("ranks", "per_node"), [(2, 1), (8, 8), (16, 4), (32, 8)])
def test_formulas_agree_with_the_simulation(method, network, ranks, per_node):
    """Within a fifth: the formulas add what overlaps in part."""
    parameters = replace(MACHINES[network], software={})
    nodes = [rank // per_node for rank in range(ranks)]
    for block in (64, 8192, 1 << 20):
        sent = np.full((ranks, ranks), float(block)) * (1 - np.eye(ranks))
        predicted = predict(of_matrix(sent, nodes), parameters, [method])[method]
        assert predicted == pytest.approx(simulated(method, parameters, sent, nodes), rel=0.2)


@pytest.mark.full
@pytest.mark.parametrize("method", ["mpi", "rma-fence", "rma-lock", "rma-notify"])
def test_formulas_agree_with_the_simulation_of_many_ranks(method):
    ranks, per_node = 512, 32
    nodes = [rank // per_node for rank in range(ranks)]
    sent = np.full((ranks, ranks), 4096.0) * (1 - np.eye(ranks))
    parameters = replace(INFINIBAND, software={})
    predicted = predict(of_matrix(sent, nodes), parameters, [method])[method]
    assert predicted == pytest.approx(simulated(method, parameters, sent, nodes), rel=0.2)


@pytest.mark.parametrize("method", ["mpi", "rma-fence", "rma-lock", "rma-pscw"])
def test_skewed_patterns_are_bounded_by_the_simulation(method):
    """Maxima of different ranks add up; between links messages hold up others."""
    rng = np.random.default_rng(3)
    for _ in range(3):
        sent = rng.pareto(1.5, (16, 16)) * 1e5 * (rng.random((16, 16)) < 0.4)
        np.fill_diagonal(sent, 0)
        nodes = [rank // 4 for rank in range(16)]
        predicted = predict(of_matrix(sent, nodes), GIGABIT, [method])[method]
        real = simulated(method, GIGABIT, sent, nodes)
        assert 0.75 * real < predicted < 1.5 * real


def test_a_simulation_says_what_never_comes_and_what_is_too_large():
    def waits(rank):
        yield 1.0
        yield Arrivals("godot")

    with pytest.raises(PatternError, match=r"ranks \[0, 1\] wait"):
        Simulation(PAIR, np.zeros((2, 2)), [0, 1]).run(waits)
    with pytest.raises(PatternError, match="at most 1024"):
        Simulation(PAIR, np.zeros((2, 2)), [0] * 2000)


# -- parameters as files --------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [*MACHINES.values(), PAIR, Parameters(FREE)])
def test_parameters_come_back_from_json(parameters):
    known = replace(parameters, software={"mpi": TWO}, setup={"mpi": 1e-3}, error=0.5)
    if known.network is not None:
        known = replace(known, network=replace(known.network, collective=TWO))
    assert of_record(json.loads(json.dumps(known.record()))) == known


def broken(**changes):
    return {**json.loads(json.dumps(INFINIBAND.record())), **changes}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "these are no"),
        ({"format": "other"}, "these are no"),
        (broken(version=99), "version 99"),
        (broken(stores={"ends": 1}), "broken .* no 'segments'"),
        (broken(stores=None), "broken"),
        (broken(color="red"), "broken .*color"),
        (broken(node={**broken()["node"], "signal": "soon"}), "signal is 'soon'"),
        (broken(node={**broken()["node"], "signal": -1.0}), "signal is -1"),
        (broken(node={**broken()["node"], "speed": 1.0}), "a level with speed"),
        (broken(network={**broken()["network"], "barrier": math.nan}), "barrier is nan"),
        (broken(software=[1]), "broken"),
        (broken(setup={"mpi": -1.0}), "setup is -1"),
        (broken(error="small"), "error is 'small'"),
        (broken(measured={"most_ranks": 2}), "broken .*least_bytes"),
    ],
)
def test_other_content_is_refused(content, words):
    with pytest.raises(PatternError, match=words):
        of_record(content)
