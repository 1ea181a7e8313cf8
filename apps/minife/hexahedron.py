"""The trilinear hexahedron of eight nodes, integrated by 2 x 2 x 2 Gauss points: many at once.

Arrays have the elements along their last axis, so that every operation is one of long rows: the
matrices of n elements are (8, 8, n). Corners are numbered as the bits of 0 to 7, the last axis
varying fastest. See T. J. R. Hughes, The Finite Element Method, 1987, chapter 3.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

#: The place of each corner in the unit cube.
CORNERS = np.array(list(product((0, 1), repeat=3)))
_ABSCISSAE = 0.5 + np.array([-0.5, 0.5]) / np.sqrt(3.0)
#: The Gauss points in the unit cube, each of which weighs as much as the others.
_POINTS = np.array(list(product(_ABSCISSAE, repeat=3)))
_WEIGHT = 1.0 / len(_POINTS)


def _factors() -> tuple[Values, Values]:
    """Values at each Gauss point of the linear functions of each corner along each axis, and
    their slopes: (8 points, 8 corners, 3 axes)."""
    points, corners = _POINTS[:, None, :], CORNERS[None, :, :]
    values = np.where(corners == 1, points, 1.0 - points)
    slopes = np.broadcast_to(2.0 * corners - 1.0, values.shape)
    return values, slopes


def _shapes() -> Values:
    """Values of the eight shape functions at the Gauss points: (points, corners)."""
    values, _ = _factors()
    shapes: Values = values.prod(axis=2)
    return shapes


def _gradients() -> Values:
    """Their derivatives in the unit cube: (points, 3 axes, corners)."""
    values, slopes = _factors()
    parts = []
    for axis in range(3):
        factors = values.copy()
        factors[:, :, axis] = slopes[:, :, axis]
        parts.append(factors.prod(axis=2))
    return np.stack(parts, axis=1)


SHAPES, GRADIENTS = _shapes(), _gradients()


class Hexahedra:
    """Local. Some elements, by the coordinates of their corners: (8 corners, 3 axes, n).

    ``volumes``: what a Gauss point stands for, (8 points, n); not above zero where an element is
    turned inside out.
    """

    def __init__(self, corners: Values) -> None:
        self.count = corners.shape[2]
        self._corners = corners.reshape(8, 3 * self.count)
        jacobian = GRADIENTS.reshape(24, 8) @ self._corners
        self._cofactors = _cofactors(jacobian.reshape(8, 3, 3, self.count))
        along = jacobian.reshape(8, 3, 3, self.count)[:, 0]
        self._determinants = np.einsum("gdn,gdn->gn", along, self._cofactors[:, 0])
        self.volumes = _WEIGHT * self._determinants

    def points(self) -> Values:
        """Local. The coordinates of the Gauss points: (8 points, 3 axes, n)."""
        return (SHAPES @ self._corners).reshape(8, 3, self.count)

    def stiffness(self) -> Values:
        """Local. The integrals of products of gradients: (8, 8, n)."""
        scale = np.sqrt(_WEIGHT / self._determinants)
        scaled = self._cofactors * scale[:, None, None, :]
        flat = scaled.reshape(8, 3, 3 * self.count)
        slopes = np.matmul(GRADIENTS.transpose(0, 2, 1), flat)  # (points, corners, axes and n)
        rows = slopes.reshape(8, 8, 3, self.count).transpose(1, 0, 2, 3)
        rows = np.ascontiguousarray(rows).reshape(8, 24, self.count)
        matrices = np.empty((8, 8, self.count))
        for one in range(8):
            for other in range(one, 8):
                np.einsum("kn,kn->n", rows[one], rows[other], out=matrices[one, other])
                matrices[other, one] = matrices[one, other]
        return matrices

    def load(self, source: Values) -> Values:
        """Local. The integrals of a function with the shape functions: (8, n).

        ``source`` has its values at the Gauss points, (8 points, n).
        """
        loads: Values = SHAPES.T @ (source * self.volumes)
        return loads


def _cofactors(jacobian: NDArray[Any]) -> Values:
    """Local. Of 3 x 3 matrices whose entries are the second and third axis."""
    found = np.empty_like(jacobian)
    for i, d in product(range(3), repeat=2):
        (i1, i2), (d1, d2) = ((i + 1) % 3, (i + 2) % 3), ((d + 1) % 3, (d + 2) % 3)
        np.multiply(jacobian[:, i1, d1], jacobian[:, i2, d2], out=found[:, i, d])
        found[:, i, d] -= jacobian[:, i1, d2] * jacobian[:, i2, d1]
    return found
