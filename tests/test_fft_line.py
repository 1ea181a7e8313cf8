"""Lines as matrices: lengths, index maps, orders and roots of unity; and lines on MPI's ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onesided.collectives.errors import PatternError
from onesided.pencilfft.decomposition import block
from onesided.pencilfft.line.blocks import LineBlocks
from onesided.pencilfft.line.layout import LineLayout, halves
from onesided.pencilfft.line.lengths import (
    LineFactors,
    choose_factors,
    divisors,
    prime_factors,
    smooth_factors,
)
from onesided.pencilfft.line.roots import chirp, roots, twiddles
from onesided.pencilfft.line.spectrum import FullSpectrum, HalfSpectrum


@given(st.integers(0, 300), st.integers(1, 9))
def test_blocks_of_a_line_are_those_of_an_axis(length, parts):
    whole = np.arange(length)
    blocks = [LineBlocks(length, parts, index) for index in range(parts)]
    found = [whole[part.local_slice()] for part in blocks]
    np.testing.assert_array_equal(np.concatenate(found), whole)
    assert [part.substart[0] for part in blocks] == [
        block(length, parts, i)[0] for i in range(parts)
    ]
    assert [part.subshape for part in blocks] == [local.shape for local in found]
    assert blocks[0].shape == (length,)


def test_parts_of_given_bounds():
    part = LineBlocks(10, 3, 1, (0, 7, 7, 10))
    assert (part.substart, part.subshape, part.local_slice()) == ((7,), (0,), (slice(7, 7),))
    assert LineBlocks(10, 3, 2, (0, 7, 7, 10)).owned(0) == (0, 7)
    for bounds in [(0, 10), (0, 7, 5, 10), (0, 1, 2, 9), (1, 1, 2, 10)]:
        with pytest.raises(PatternError, match="do not cut 10 elements into 3 parts"):
            LineBlocks(10, 3, 1, bounds)
    with pytest.raises(PatternError, match="part 3 of 3"):
        part.owned(3)


def layouts(length, width, parts, mirrored):
    """Of all ranks, each with about as many places of a row."""
    cuts = tuple(block(width, parts, index) for index in range(parts))
    return [LineLayout(length, width, parts, index, cuts, mirrored) for index in range(parts)]


@given(st.integers(1, 120), st.integers(1, 25), st.integers(1, 6), st.booleans())
def test_a_line_becomes_columns_and_a_line_again(length, width, parts, mirrored):
    """Move every element through boxes and edges, as the ranks would."""
    ranks = layouts(length, width, parts, mirrored)
    flat = [np.arange(*block(length, parts, index)) for index in range(parts)]
    columns = [np.full((layout.rows, layout.columns), -1) for layout in ranks]
    for index, layout in enumerate(ranks):
        complete = flat[index][layout.body_slice()].reshape(-1, width)
        body = np.full_like(complete, -1)
        for place, column in layout.order:
            body[:, place] = complete[:, column]
        for peer, box in enumerate(layout.body_boxes()):
            theirs = ranks[peer].column_boxes()[index]
            assert (box is None) == (theirs is None)
            if box is not None:
                assert np.all(columns[peer][theirs] == -1), "two blocks overlap"
                columns[peer][theirs] = body[box]
        picked, counts = layout.flat_edges()
        edges = np.split(flat[index][picked], np.cumsum(counts)[:-1])
        for peer, values in enumerate(edges):
            places, expected = ranks[peer].column_edges()
            ends = np.cumsum(expected)
            assert expected[index] == len(values)
            columns[peer].reshape(-1)[places[ends[index] - len(values) : ends[index]]] = values
    order = np.argsort(ranks[0].places)
    expected = np.full(ranks[0].rows * width, -1)
    expected[:length] = np.arange(length)
    found = np.concatenate(columns, axis=1)
    np.testing.assert_array_equal(found, expected.reshape(-1, width)[:, order])


@given(st.integers(1, 120), st.integers(1, 25), st.integers(1, 6))
def test_edges_are_what_is_in_no_complete_row(length, width, parts):
    ranks = layouts(length, width, parts, False)
    for index in range(parts):
        first, last = ranks[0].body(index)
        inside = set(range(first * width, last * width))
        edges = [set(range(*edge)) for edge in ranks[0].edges(index)]
        assert all(edge and len({k // width for k in edge}) == 1 for edge in edges)
        together = inside.union(*edges)
        assert together == set(range(*block(length, parts, index)))
        assert len(inside) + sum(map(len, edges)) == len(together)
    assert ranks[0].has_edges == any(layout.edges(layout.index) for layout in ranks)
    aligned = layouts(12 * parts, 4, parts, False)
    assert aligned[0].has_body
    assert not aligned[0].has_edges


@given(st.integers(1, 40))
def test_each_column_lies_beside_its_mirror_image(width):
    row = np.full(width, -1)
    for place, column in halves(width):
        row[place] = np.arange(width)[column]
    assert sorted(row) == list(range(width))
    assert row[0] == 0
    for place in range(1, width - 1, 2):
        assert row[place] + row[place + 1] == width


@given(st.integers(1, 10**6), st.integers(1, 64), st.booleans())
def test_factors_fit_their_line(length, parts, real):
    found = choose_factors(length, parts, real)
    if found.padded:
        assert found.n1 * found.n2 >= length + (length // 2 + 1 if real else length) - 1
        assert max(prime_factors(found.n1 * found.n2)) <= max(5, parts)
    else:
        assert found.n1 * found.n2 == length


@pytest.mark.parametrize("parts", [2, 3, 4, 7, 16])
def test_smooth_lengths_are_cut_about_evenly(parts):
    for length in [2**10, 2**20, 3 * 2**16, 10**6]:
        found = choose_factors(length, parts, False)
        assert not found.padded
        assert parts <= min(found.n1, found.n2)
        assert max(found.n1, found.n2) <= 4 * min(found.n1, found.n2)


def test_awkward_lengths_are_padded_where_that_pays():
    assert choose_factors(999983, 4, False).padded
    assert choose_factors(2 * 499979, 4, True).padded
    assert choose_factors(7, 4, False) == LineFactors(7, 1, False)
    assert choose_factors(49**2, 4, False) == LineFactors(49, 49, False)
    assert choose_factors(1, 5, True) == LineFactors(1, 1, False)


def test_a_line_without_elements_is_refused():
    with pytest.raises(PatternError, match="a line of 0 elements"):
        choose_factors(0, 2, False)


@given(st.integers(1, 10**7), st.integers(1, 100))
def test_there_are_always_smooth_factors(least, parts):
    pairs = list(smooth_factors(least, parts))
    assert pairs
    assert all(m1 * m2 >= least for m1, m2 in pairs)
    assert min(m1 * m2 for m1, m2 in pairs) <= 2 * least + 8


@given(st.integers(1, 10**5))
def test_factors_and_divisors(number):
    assert math.prod(prime**power for prime, power in prime_factors(number).items()) == number
    found = divisors(number)
    assert found == sorted(set(found))
    assert all(number % divisor == 0 for divisor in found)
    assert len(found) == math.prod(power + 1 for power in prime_factors(number).values())


KINDS = pytest.mark.parametrize("kind", [FullSpectrum, HalfSpectrum])


@KINDS
@given(n1=st.integers(1, 12), n2=st.integers(1, 12), parts=st.integers(1, 7))
def test_every_coefficient_is_kept_once(kind, n1, n2, parts):
    ranks = [kind(n1, n2, parts, index) for index in range(parts)]
    frequencies = [spectrum.frequencies() for spectrum in ranks]
    assert sorted(np.concatenate(frequencies)) == list(range(ranks[0].length))
    for index, found in enumerate(frequencies):
        assert all(spectrum.count(index) == len(found) for spectrum in ranks)
    cuts = [ranks[0].cut(index) for index in range(parts)]
    assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts[:-1])]
    assert cuts[-1][1] == n1


@KINDS
@given(
    n1=st.integers(1, 9),
    n2=st.integers(1, 9),
    parts=st.integers(1, 5),
    step=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_rows_go_to_their_places_and_come_back(kind, n1, n2, parts, step, seed):
    """Rows of a real line's transform, a few at a time, in both orders."""
    line = np.fft.fft(np.random.default_rng(seed).standard_normal(n1 * n2))
    kept = (n1 // 2 + 1) if kind is HalfSpectrum else n1
    for index in range(parts):
        spectrum = kind(n1, n2, parts, index)
        start, stop = block(kept, parts, index)
        rows = line.reshape(n2, n1).T[start:stop]
        natural = LineLayout(
            spectrum.length, n1, parts, index, tuple(map(spectrum.cut, range(parts))),
            spectrum.mirrored,
        )  # fmt: skip
        array = np.full((natural.rows, natural.columns), np.nan, complex)
        flat = np.full(spectrum.count(index), np.nan, complex)
        assert len(array) == spectrum.depth
        for places, factor in (spectrum.in_columns(array), 1.0), (spectrum.in_line(flat), 2.0):
            for first in range(0, stop - start, step):
                part = slice(first, min(first + step, stop - start))
                spectrum.write(rows[part].copy(), part, places, factor)
            found = np.full_like(rows, np.nan)
            for first in range(0, stop - start, step):
                part = slice(first, min(first + step, stop - start))
                spectrum.read(places, part, found[part])
            np.testing.assert_allclose(found, factor * rows, atol=1e-12 * n1 * n2)
        np.testing.assert_allclose(flat, 2 * line[spectrum.frequencies()], atol=1e-12 * n1 * n2)
        columns = np.argsort(natural.places)[slice(*spectrum.cut(index))]
        places = n1 * np.arange(natural.rows)[:, None] + columns
        inside = places < spectrum.length
        np.testing.assert_allclose(array[inside], line[places[inside]], atol=1e-12 * n1 * n2)


@pytest.mark.parametrize("order", [1, 2, 3, 8, 12, 97, 1000, 2**20, 999983, 2**40 + 1])
def test_roots_are_right_to_the_last_bits(order):
    rng = np.random.default_rng(order)
    exponents = np.concatenate([np.arange(min(order, 200)), rng.integers(0, 2**60, 500)])
    pi = np.longdouble("3.14159265358979323846264338327950288")
    angles = 2 * pi * (exponents % order).astype(np.longdouble) / order
    found = roots(exponents, order)
    assert np.abs(found.real - np.cos(angles)).max() < 3e-16
    assert np.abs(found.imag + np.sin(angles)).max() < 3e-16
    np.testing.assert_array_equal(roots(np.arange(4), 4), [1, -1j, -1, 1j])


@pytest.mark.parametrize("char", ["F", "D"])
def test_tables_of_roots(char):
    table = twiddles(range(3, 700), range(5, 205), 10**6, np.dtype(char))
    exponents = np.arange(3, 700)[:, None] * np.arange(5, 205)
    assert table.dtype.char == char
    np.testing.assert_array_equal(table, roots(exponents, 10**6).astype(char))
    assert twiddles(range(4), range(2, 2), 8, np.dtype("D")).shape == (4, 0)


def test_chirps_are_even_and_make_a_transform():
    n = 11
    shifts = np.arange(-n, n + 1)
    values = chirp(shifts, n)
    np.testing.assert_array_equal(values, values[::-1])
    j, k = np.arange(n), np.arange(n)[:, None]
    product = chirp(k, n) * chirp(j, n) / chirp(k - j, n)
    np.testing.assert_allclose(product, np.exp(-2j * np.pi * j * k / n), atol=1e-13)
