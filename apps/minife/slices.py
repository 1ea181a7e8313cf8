"""The temperature in the middle of the last axis, gathered and drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.mini.command import ROOT, drawing
from onesided.apps.minife.mesh import Box, Mesh
from onesided.apps.minife.sizes import words
from onesided.apps.minife.system import System
from onesided.apps.picture import save_slice


def middle(system: System, x: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Collective. The values of a solution in the middle plane of nodes, on rank 0."""
    mesh, comm = system.mesh, system.comm
    a, b, c = mesh.points
    plane = Box((0, 0, c // 2), (a, b, c // 2 + 1))
    own = mesh.own(comm.rank)
    mine = own.common(plane)
    part = x.reshape(own.extent)[mine.within(own)] if mine.size else None
    parts: list[Any] | None = comm.gather((mine, part), root=ROOT)
    if parts is None:
        return None
    values = np.empty(plane.extent)
    for box, piece in parts:
        if piece is not None:
            values[box.within(plane)] = piece
    return values[:, :, 0]


def draw(system: System, x: NDArray[np.float64], path: str) -> None:
    """Collective. An image of it, written by rank 0."""
    values = middle(system, x)
    with drawing(system.comm):
        if values is not None:
            _save(system.mesh, values, path)


def _save(mesh: Mesh, values: NDArray[np.float64], path: str) -> None:
    """Local."""
    place = (mesh.points[2] // 2) / mesh.elements[2]
    shape = "" if not mesh.distortion else ", distorted"
    lengths = [points / count for points, count in zip(mesh.points, mesh.elements, strict=True)]
    title = f"Temperature at z = {place:.3g}, {words(mesh.elements)} elements{shape}"
    save_slice(path, title, ("x", "y"), values, (lengths[0], lengths[1]))
