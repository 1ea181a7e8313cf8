"""Lines as matrices: their factors and roots of unity; and lines on MPI's ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onesided.collectives.errors import UnsupportedError
from onesided.pencilfft.line import factors, roots, twiddles


@given(st.integers(1, 3000), st.integers(2, 9))
def test_factors_are_as_alike_as_can_be(length, parts):
    pairs = [(n, length // n) for n in range(1, length + 1) if length % n == 0]
    able = [pair for pair in pairs if min(pair) >= parts]
    if able:
        assert factors(length, parts) == min((p for p in able if p[0] >= p[1]), key=sum)
        return
    with pytest.raises(UnsupportedError, match=f"a line of {length} elements") as refused:
        factors(length, parts)
    better = int(str(refused.value).split()[-1])
    assert better > length
    assert min(factors(better, parts)) >= parts
    for between in range(length + 1, better):
        with pytest.raises(UnsupportedError):
            factors(between, parts)


@pytest.mark.parametrize("order", [1, 2, 3, 8, 12, 97, 1000, 2**20, 999983, 2**40 + 1])
def test_roots_are_right_to_the_last_bits(order):
    rng = np.random.default_rng(order)
    exponents = np.concatenate([np.arange(min(order, 200)), rng.integers(0, 2**60, 500)])
    pi = np.longdouble("3.14159265358979323846264338327950288")
    angles = 2 * pi * (exponents % order).astype(np.longdouble) / order
    found = roots(exponents, order)
    assert np.abs(found.real - np.cos(angles)).max() < 2e-18
    assert np.abs(found.imag + np.sin(angles)).max() < 2e-18
    np.testing.assert_array_equal(roots(np.arange(4), 4), [1, -1j, -1, 1j])


@pytest.mark.parametrize("char", ["F", "D"])
def test_tables_of_roots(char):
    table = twiddles(range(3, 700), range(5, 205), 10**6, np.dtype(char))
    exponents = np.arange(3, 700)[:, None] * np.arange(5, 205)
    assert table.dtype.char == char
    np.testing.assert_array_equal(table, roots(exponents, 10**6).astype(char))
    assert twiddles(range(4), range(2, 2), 8, np.dtype("D")).shape == (4, 0)
