"""LogP and LogGP: the formulas of paper 003 by hand."""

from __future__ import annotations

import pytest

from onesided.apps.papers.forecast import LogGP, binomial, linear

#: L, o, g, G, o_r in easy numbers
EASY = LogGP(10.0, 2.0, 3.0, 0.1, 1.0)


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
    assert binomial(EASY, 2, 0) == binomial(EASY, 2, 1)


def test_linear_by_hand():
    """7 messages of 1 second, the later six a gap apart, there and acknowledged; and waiting."""
    assert linear(EASY, 8, 11) == pytest.approx(2 + 6 * 3 + 7 * 1 + 10 + 2 + 10 + 1)
    assert linear(EASY, 2, 11) == pytest.approx(2 + 1 + 10 + 2 + 10 + 1)
    busy = LogGP(10.0, 5.0, 3.0)  # the overhead, not the gap, holds the sender up
    assert linear(busy, 3) == pytest.approx(5 + 5 + 10 + 5 + 10)
