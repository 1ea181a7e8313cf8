"""One axis of a Poisson problem whose solution is known. Pure: no communication.

The solution is a product of one factor per axis, built from 1/(5/4 - cos x), whose Fourier
coefficients fall like 2^-|k|: smooth, but not band-limited, so that every resolution shows an
error of its own until rounding is reached. Factors between walls are odd (Dirichlet) or even
(Neumann) about both of them, and so is what follows from them; only then does a sine or cosine
series converge as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

PERIODIC, DIRICHLET, NEUMANN = BOUNDARIES = ("periodic", "dirichlet", "neumann")
CENTERS, NODES = POINTS = ("centers", "nodes")
EXACT, SECOND_ORDER = EIGENVALUES = ("exact", "second-order")

#: Boundary condition, points -> transform that diagonalizes the second derivative.
KINDS = {
    (DIRICHLET, CENTERS): "dst2",
    (DIRICHLET, NODES): "dst1",
    (NEUMANN, CENTERS): "dct2",
    (NEUMANN, NODES): "dct1",
}
POLE = 1.25  # 5/4: the coefficients fall like (5/4 - 3/4)^|k|
PHASE = 0.5  # of the periodic factor, so that no grid point is one of symmetry
ALIASING = 40.0
TRUNCATION = 2.0
ROUNDING = 50.0


@dataclass(frozen=True)
class Axis:
    """Boundary condition, kind of points, and their number.

    A periodic axis is 2 pi long, one between walls pi; wavenumbers are whole numbers then.
    Points are cell centers, or nodes: those of a Neumann axis include the walls, those of a
    Dirichlet axis do not, and on a periodic axis there is no difference.
    """

    boundary: str
    points: str
    count: int

    @property
    def kind(self) -> str | None:
        """Transform of the axis, as a plan's ``kinds`` wants it; None is the Fourier transform."""
        return KINDS.get((self.boundary, self.points))

    @property
    def spacing(self) -> float:
        """Distance of two points."""
        if self.boundary == PERIODIC:
            return 2.0 * np.pi / self.count
        if self.points == CENTERS:
            return np.pi / self.count
        return np.pi / (self.count + (1 if self.boundary == DIRICHLET else -1))

    def coordinates(self, part: slice) -> Values:
        """Local. Of the points in a range of global indices."""
        first = 0.0
        if self.boundary != PERIODIC:
            first = 0.5 if self.points == CENTERS else float(self.boundary == DIRICHLET)
        return self.spacing * (np.arange(part.start, part.stop) + first)

    def wavenumbers(self, part: slice, count: int) -> Values:
        """Local. Of a range of the ``count`` spectral indices; a halved axis has n // 2 + 1."""
        index = np.arange(part.start, part.stop, dtype=float)
        if self.boundary == DIRICHLET:
            return index + 1.0
        if self.boundary == NEUMANN or count != self.count:
            return index
        return np.where(2 * index < count, index, index - count)

    def eigenvalues(self, part: slice, count: int, which: str) -> Values:
        """Local. Of minus the second derivative, or of its second-order difference quotient."""
        k = self.wavenumbers(part, count)
        if which == EXACT:
            return k**2
        return (2.0 / self.spacing * np.sin(0.5 * k * self.spacing)) ** 2

    def factor(self, x: Values) -> tuple[Values, Values]:
        """Local. The axis' factor of the solution, and its second derivative."""
        if self.boundary == PERIODIC:
            x = x - PHASE
        sine, cosine = np.sin(x), np.cos(x)
        g = 1.0 / (POLE - cosine)
        first = -sine * g**2
        second = (2.0 * sine**2 * g - cosine) * g**2
        if self.boundary == DIRICHLET:
            return sine * g, sine * second + 2.0 * cosine * first - sine * g
        return g, second

    @property
    def aliasing(self) -> float:
        """The largest coefficient that is not resolved, over its wavenumber."""
        resolved = self.count // 2 if self.boundary == PERIODIC else self.count - 1
        return float((POLE - np.sqrt(POLE**2 - 1.0)) ** resolved / resolved)


def manufactured(axes: Sequence[Axis], parts: Sequence[slice]) -> tuple[Values, Values]:
    """Local. Solution u and right-hand side f of laplace(u) = f on a block."""
    factors = [axis.factor(axis.coordinates(part)) for axis, part in zip(axes, parts, strict=True)]
    solution = _outer([value for value, _ in factors])
    right = np.zeros_like(solution)
    for number, (_, second) in enumerate(factors):
        values = [value for value, _ in factors]
        values[number] = second
        right += _outer(values)
    return solution, right


def inverse_laplacian(
    axes: Sequence[Axis], parts: Sequence[slice], counts: Sequence[int], which: str
) -> Values:
    """Local. One over the eigenvalues of the Laplacian on a block of the spectrum.

    Where there is no Dirichlet axis the constant is in the null space: its entry is zero, so
    that the product is the solution without a mean. ``counts`` is the shape of the spectrum.
    """
    total = np.zeros([part.stop - part.start for part in parts])
    for number, (axis, part, count) in enumerate(zip(axes, parts, counts, strict=True)):
        shape = [1] * len(axes)
        shape[number] = -1
        total -= axis.eigenvalues(part, count, which).reshape(shape)
    inverse = np.zeros_like(total)
    np.divide(1.0, total, out=inverse, where=total != 0.0)
    return inverse


def expected_error(axes: Sequence[Axis], which: str, epsilon: float) -> float:
    """Local. What the error of the solution, relative to its largest value, must stay below.

    With exact eigenvalues that is the coefficients that are not resolved, else the leading term
    of the difference quotients; and in both cases rounding. The constants are a few times larger
    than those seen.
    """
    rounding = rounding_error(axes, epsilon)
    if which == EXACT:
        return ALIASING * sum(axis.aliasing for axis in axes) + rounding
    return TRUNCATION * max(axis.spacing for axis in axes) ** 2 + rounding


def rounding_error(axes: Sequence[Axis], epsilon: float) -> float:
    """Local. What rounding may do to the solution, relative to its largest value."""
    return ROUNDING * epsilon * len(axes)


def has_null_space(axes: Sequence[Axis]) -> bool:
    """Local. Whether solutions differ by a constant."""
    return all(axis.boundary != DIRICHLET for axis in axes)


def _outer(vectors: Sequence[Values]) -> Values:
    multiply: Callable[[Values, Values], Values] = np.multiply.outer
    product = vectors[0]
    for vector in vectors[1:]:
        product = multiply(product, vector)
    return product
