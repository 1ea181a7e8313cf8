"""``onesided poisson``: what is pure in it, and the command on several ranks."""

from __future__ import annotations

import json
from itertools import product

import commands
import numpy as np
import pytest
import scipy.fft

from onesided.apps.solvers.poisson import (
    BOUNDARIES,
    DIRICHLET,
    KINDS,
    NEUMANN,
    PERIODIC,
    Axis,
    expected_error,
    inverse_laplacian,
    manufactured,
)

pytestmark = pytest.mark.one_mpi

EPSILON = float(np.finfo(float).eps)
EVERY = pytest.mark.parametrize("boundary", BOUNDARIES)


@EVERY
def test_the_second_derivative_is_one(boundary):
    axis, h = Axis(boundary, 8), 1e-4
    x = np.linspace(0.1, 3.0, 50)
    left, middle, right = (axis.factor(x + step)[0] for step in (-h, 0.0, h))
    quotient = (left - 2 * middle + right) / h**2
    second = axis.factor(x)[1]
    np.testing.assert_allclose(quotient, second, atol=1e-5 * np.abs(second).max())


def test_the_factors_meet_their_boundary_conditions():
    walls, h = np.array([0.0, np.pi]), 1e-6
    np.testing.assert_allclose(Axis(DIRICHLET, 8).factor(walls)[0], 0, atol=1e-14)
    neumann = Axis(NEUMANN, 8)
    slope = (neumann.factor(walls + h)[0] - neumann.factor(walls - h)[0]) / (2 * h)
    np.testing.assert_allclose(slope, 0, atol=1e-8)
    periodic = Axis(PERIODIC, 8)
    ends = periodic.factor(np.array([0.0, 2 * np.pi]))
    np.testing.assert_allclose([value[0] - value[1] for value in ends], 0, atol=1e-12)


@EVERY
def test_blocks_of_an_axis_are_parts_of_the_whole(boundary):
    axis = Axis(boundary, 9)
    for values in (axis.coordinates, lambda part: axis.wavenumbers(part, 9)):
        whole = values(slice(0, 9))
        assert len(np.unique(whole)) == 9
        np.testing.assert_array_equal(
            np.concatenate([values(slice(0, 4)), values(slice(4, 9))]), whole
        )
    assert np.array_equal(Axis(PERIODIC, 8).wavenumbers(slice(0, 5), 5), np.arange(5))


def along(values, axis, number, inverse):
    """One transform of SciPy's."""
    kind = KINDS.get(axis.boundary)
    if kind is None:
        return (scipy.fft.ifft if inverse else scipy.fft.fft)(values, axis=number)
    function = getattr(scipy.fft, ("i" if inverse else "") + kind[:3])
    return function(values, type=int(kind[3]), axis=number)


def error(axes):
    """Of a solution on one rank, relative."""
    shape = [axis.count for axis in axes]
    parts = [slice(0, n) for n in shape]
    exact, right = manufactured(axes, parts)
    values = right.astype(complex)
    for number, axis in enumerate(axes):
        values = along(values, axis, number, False)
    values *= inverse_laplacian(axes, parts, shape)
    for number, axis in enumerate(axes):
        values = along(values, axis, number, True)
    difference = values - exact
    if all(axis.boundary != DIRICHLET for axis in axes):
        difference -= difference.mean()
    return np.abs(difference).max() / np.abs(exact).max()


@pytest.mark.parametrize("boundaries", [*product(BOUNDARIES, repeat=2), BOUNDARIES])
def test_errors_are_what_is_expected_and_not_much_less(boundaries):
    errors = []
    for count in (8, 16, 32):
        axes = [Axis(boundary, count) for boundary in boundaries]
        errors.append(error(axes))
        allowed = expected_error(axes, EPSILON)
        assert 1e-3 * allowed < errors[-1] < allowed
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders[0] > 3
    assert orders[1] > 1.5 * orders[0]


def test_the_constant_is_left_out_where_it_is_free():
    axes = [Axis(NEUMANN, 4), Axis(PERIODIC, 4)]
    parts = [slice(0, 4), slice(0, 3)]
    inverse = inverse_laplacian(axes, parts, [4, 3])
    assert inverse[0, 0] == 0
    assert np.count_nonzero(inverse) == inverse.size - 1


def test_the_command_tells_error_and_order(tmp_path):
    files = tmp_path / "out.json", tmp_path / "out.png"
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    words = "poisson --shape 32 32 --levels 3 --boundary dirichlet"
    words += f" --comm p2p --iterations 2 --json {files[0]} --picture {files[1]} --ranks 2"
    finished = commands.onesided(*words.split())
    assert finished.code == 0, finished
    found = json.loads(files[0].read_text())
    assert found["verified"] is True
    assert found["pattern"]["levels"] == ["8 x 8", "16 x 16", "32 x 32"]
    rows = [row for row in found["rows"] if row["labels"]["method"] == "p2p"]
    assert rows[0]["metrics"]["order"] is None
    assert rows[2]["metrics"]["order"] > 1.5 * rows[1]["metrics"]["order"] > 3
    assert rows[0]["error"] > rows[1]["error"] > rows[2]["error"] > 1e-11
    assert files[1].read_bytes().startswith(b"\x89PNG")
