"""LogP and LogGP: the paper's formulas by hand, and the crossover against a search."""

from __future__ import annotations

import math

import pytest

from onesided.collectives import MethodError, PatternError
from onesided.collectives.modelling.broadcasts import (
    binomial,
    crossover_bytes,
    crossover_ranks,
    linear,
)
from onesided.collectives.modelling.loggp import LogGP
from onesided.collectives.trees import orders, steps

#: L, o, g, G, o_r in easy numbers
EASY = LogGP(10.0, 2.0, 3.0, 0.1, 1.0)
#: about those of a Gigabit network
SLOW = LogGP(latency=50e-6, overhead=5e-6, gap=8e-6, byte_gap=8e-9, waiting=100e-6)


@pytest.mark.parametrize("power", [1, 2, 3, 5])
def test_the_formulas_of_the_paper(power):
    """(o + (m-1)G + 2q + L + o_r) log2 P + o_s + L with q = g and o_s = o."""
    logp = (2 + 2 * 3 + 10 + 1) * power + 2 + 10
    loggp = (2 + 1 + 2 * 3 + 10 + 1) * power + 2 + 10
    assert binomial(EASY, 2**power) == pytest.approx(logp)
    assert binomial(EASY, 2**power, 11) == pytest.approx(loggp)


def test_the_order_counts():
    """8 ranks: 3 steps or 6, of 20 seconds each, and 12 for the last word."""
    assert binomial(EASY, 8, 11) == pytest.approx(72)
    assert binomial(EASY, 8, 11, "low-bit-first") == pytest.approx(132)


def test_any_number_of_ranks():
    assert binomial(EASY, 6, 11) == pytest.approx(72)
    assert binomial(EASY, 1, 11) == linear(EASY, 1, 11) == 0
    assert binomial(EASY, 2, 0) == binomial(EASY, 2, 1)


def test_linear_by_hand():
    """7 messages of 1 second, the later six a gap apart, there and acknowledged."""
    assert linear(EASY, 8, 11) == pytest.approx(2 + 6 * 3 + 7 * 1 + 10 + 2 + 10)
    assert linear(EASY, 2, 11) == pytest.approx(2 + 1 + 10 + 2 + 10)
    busy = LogGP(10.0, 5.0, 3.0)  # the overhead, not the gap, holds the sender up
    assert linear(busy, 3) == pytest.approx(5 + 5 + 10 + 5 + 10)


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize("ranks", [4, 5, 8, 16, 96])
def test_crossover_in_bytes(ranks, order):
    length = crossover_bytes(SLOW, ranks, order)
    assert math.isfinite(length) == (steps(ranks, order) < ranks - 1)
    if math.isfinite(length):
        below, above = int(length * 0.99), math.ceil(length * 1.01)
        assert binomial(SLOW, ranks, below, order) > linear(SLOW, ranks, below)
        assert binomial(SLOW, ranks, above, order) < linear(SLOW, ranks, above)


def test_crossover_at_the_ends():
    assert crossover_bytes(SLOW, 2) == math.inf
    assert crossover_bytes(SLOW, 3) == math.inf
    assert crossover_bytes(LogGP(1e-6, 1e-6, 1e-5), 3) == math.inf
    assert crossover_bytes(LogGP(0.0, 1.0, 0.0), 96) == 1.0
    assert crossover_bytes(LogGP(0.0, 1.0, 9.0), 4) == math.inf  # no length without G


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize("nbytes", [1, 1000, 16_000, 1 << 20])
def test_crossover_in_ranks(nbytes, order):
    least = crossover_ranks(SLOW, nbytes, order, most=200)
    faster = [
        binomial(SLOW, ranks, nbytes, order) <= linear(SLOW, ranks, nbytes)
        for ranks in range(201)
        if ranks > 1
    ]
    if least is None:
        assert not faster[-1]
    else:
        assert all(faster[least - 2 :])
        assert least == 2 or not faster[least - 3]


def test_the_crossover_comes_earlier_with_more_ranks_and_the_better_order():
    lengths = [crossover_bytes(SLOW, ranks) for ranks in (4, 8, 16, 32)]
    assert lengths == sorted(lengths, reverse=True)
    assert crossover_bytes(SLOW, 16) < crossover_bytes(SLOW, 16, "low-bit-first")


def test_bad_values():
    with pytest.raises(PatternError, match="latency is -1"):
        LogGP(-1, 0, 0)
    with pytest.raises(PatternError, match="waiting is nan"):
        LogGP(1, 0, 0, 0, math.nan)
    with pytest.raises(PatternError, match="to 0 ranks"):
        binomial(EASY, 0)
    with pytest.raises(PatternError, match="-1 bytes"):
        linear(EASY, 2, -1)
    with pytest.raises(MethodError, match="no child order"):
        binomial(EASY, 2, 1, "random")
