"""Lines through times: what they were made from comes back, in spite of disturbed times."""

from __future__ import annotations

import numpy as np
import pytest

from onesided.collectives import PatternError
from onesided.collectives.modelling.loggp import fit

SIZES = [8, *(1 << power for power in range(8, 23))]


def times(*lines):
    """Seconds by lines (start, intercept, slope)."""
    found = []
    for size in SIZES:
        _, intercept, slope = next(line for line in reversed(lines) if line[0] <= size)
        found.append(intercept + slope * size)
    return np.array(found)


def test_one_line_comes_back():
    found = fit(SIZES, times((0, 3e-6, 2e-9)))
    assert found.starts == (0.0,)
    assert found.intercepts[0] == pytest.approx(3e-6)
    assert found.slopes[0] == pytest.approx(2e-9)
    assert found.typical_error < 1e-9


def test_two_lines_come_back_with_the_place_where_one_begins():
    found = fit(SIZES, times((0, 3e-6, 2e-9), (32768, 40e-6, 1e-9)))
    assert len(found.starts) == 2
    assert 16384 < found.starts[1] <= 32768
    assert found.intercepts == pytest.approx((3e-6, 40e-6))
    assert found.slopes == pytest.approx((2e-9, 1e-9))


def test_disturbed_times_move_the_line_little():
    clean = times((0, 300e-6, 9e-9))
    disturbed = clean.copy()
    disturbed[3] *= 4
    disturbed[9] *= 3
    found = fit(SIZES, disturbed)
    predicted = np.array([found.piecewise(0.0, 0.0, 1).time(1, size) for size in SIZES])
    off = np.abs(predicted / clean - 1)
    assert np.median(off) < 0.03


def test_nothing_is_negative():
    falling = fit([1, 2, 3, 4], [4.0, 3.0, 2.0, 1.0])
    assert min(falling.slopes + falling.intercepts) >= 0
    steep = fit([10, 20, 30], [1.0, 5.0, 9.0])
    assert min(steep.slopes + steep.intercepts) >= 0


def test_piecewise_loggp_has_the_overhead_within_its_intercept():
    found = fit(SIZES, times((0, 3e-6, 2e-9)))
    piecewise = found.piecewise(1e-6, 5e-6, 2)
    assert piecewise.short.latency == pytest.approx(1e-6)
    assert (piecewise.short.overhead, piecewise.short.gap) == (1e-6, 5e-6)
    assert piecewise.time(1, 4096) == pytest.approx(3e-6 + 2e-9 * 4096)
    assert found.piecewise(1.0, 1.0, 2).time(1, 4096) == pytest.approx(3e-6 + 2e-9 * 4096)


def test_a_message_of_two():
    """Twice L + 2o would be wrong: the second of two follows a gap after the first."""
    one = fit(SIZES, times((0, 3e-6 + 1e-6, 2 * 2e-9))).halved(1e-6).piecewise(0.5e-6, 1e-6, 2)
    for size in (8, 1 << 20):
        assert one.time(2, 2 * size) == pytest.approx(4e-6 + 4e-9 * size)
        assert one.time(1, size) == pytest.approx(3e-6 + 2e-9 * size)


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [([1, 2], [1, 1]), ([1, 2, 2], [1, 1, 1]), ([1, 2, 3], [1, 0, 1]), ([1, 2, 3], [1, 1])],
)
def test_what_cannot_be_fitted(sizes, seconds):
    with pytest.raises(PatternError, match="ascending and above zero"):
        fit(sizes, seconds)
