"""A persistent exchange of packed faces, by any method of :func:`onesided.collectives.methods`.

One request serves both arrays. Its send buffer holds the faces in the order of the ranks that get
them; the receive slots are the request's own, and take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.heat.decomposition import Box, Face, extent
from onesided.apps.heat.halos.halo import Halo, Sides
from onesided.collectives import Alltoallv_init

Pair = tuple[NDArray[Any], NDArray[Any]]


class Exchange(Halo):
    """Collective."""

    joint = True

    def __init__(self, sides: Sides, method: str) -> None:
        self._arrays = sides.arrays
        leaving = sorted(sides.faces, key=lambda face: (face.rank, face.number))
        self._coming = sorted(sides.faces, key=lambda face: (face.rank, face.opposite))
        counts = np.zeros(sides.comm.size, dtype=int)
        for face in leaving:
            counts[face.rank] += np.prod(extent(face.send))
        buffer = np.empty(int(counts.sum()), sides.arrays[0].dtype)
        self._packing = [_parts(buffer, array, leaving, _sent) for array in sides.arrays]
        self._unpacking: dict[tuple[int, int], list[Pair]] = {}
        self._request = Alltoallv_init(
            sides.comm, [buffer, counts.tolist()], None, method=method, info=sides.info
        )
        used = self._request.method
        self.label = "" if used == method else used

    def send(self, which: int) -> None:
        """Local (in strictly ordered methods it may wait for the other ranks)."""
        for part, layer in self._packing[which]:
            np.copyto(part, layer)
        self._request.Start()

    def finish(self, which: int) -> None:
        """Local in the sense of MPI (strictly ordered methods wait for all ranks)."""
        received = self._request.Wait()
        key = which, id(received)
        if key not in self._unpacking:  # a slot that is filled for the first time
            array = self._arrays[which]
            self._unpacking[key] = _parts(received, array, self._coming, _received)
        for part, layer in self._unpacking[key]:
            np.copyto(layer, part)

    def free(self) -> None:
        """Collective."""
        self._unpacking.clear()
        self._request.Free()


def _sent(face: Face) -> Box:
    return face.send


def _received(face: Face) -> Box:
    return face.recv


def _parts(
    buffer: NDArray[Any], array: NDArray[Any], faces: list[Face], of: Callable[[Face], Box]
) -> list[Pair]:
    """Local. For every face its part of the buffer, shaped like its layer, and the layer."""
    pairs: list[Pair] = []
    start = 0
    for face in faces:
        layer = array[of(face)]
        pairs.append((buffer[start : start + layer.size].reshape(layer.shape), layer))
        start += layer.size
    return pairs
