"""A global array cut into blocks with ghost layers, and what every block must show."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

#: What nobody has written.
GUARD = 113


@dataclass(frozen=True)
class World:
    """Blocks of ``sizes[axis][coordinate]`` own layers, ghost layers (low, high) per axis.

    Axes beyond those of ``periods`` are not decomposed; their one size is all there is.
    """

    sizes: tuple[tuple[int, ...], ...]
    periods: tuple[bool, ...]
    layers: tuple[tuple[int, int], ...]
    dtype: str = "i8"

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(len(self.sizes[axis]) for axis in range(len(self.periods)))

    @property
    def coordinates(self) -> list[tuple[int, ...]]:
        """Of all ranks, in their order."""
        return list(itertools.product(*(range(extent) for extent in self.dims)))

    def shape(self, coords) -> tuple[int, ...]:
        """Of a rank's array, ghost layers included."""
        own = [self._own(axis, coords) for axis in range(len(self.sizes))]
        return tuple(stop - start + sum(self.layers[axis])
                     for axis, (start, stop) in enumerate(own))

    def values(self, turn: int) -> np.ndarray:
        """The global array; its values change every turn."""
        shape = tuple(sum(sizes) for sizes in self.sizes)
        numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape) * 7 + 1009 * turn
        return filled(numbers, self.dtype)

    def guard(self) -> np.ndarray:
        return filled(np.array([GUARD]), self.dtype)[0]

    def before(self, coords, turn: int) -> np.ndarray:
        """A block whose ghost layers nobody has written."""
        return self._shown(coords, turn, lambda ghosts: ghosts == 0)

    def after(self, coords, turn: int, ghosts: str = "all") -> np.ndarray:
        """The block after an exchange."""
        most = {"faces": 1, "edges": 2, "all": 9}[ghosts]
        return self._shown(coords, turn, lambda across: across <= most)

    def _own(self, axis, coords) -> tuple[int, int]:
        place = coords[axis] if axis < len(coords) else 0
        start = sum(self.sizes[axis][:place])
        return start, start + self.sizes[axis][place]

    def _shown(self, coords, turn, wanted) -> np.ndarray:
        """Global values where ``wanted(axes along which a point is a ghost)``, else the guard."""
        shape = self.shape(coords)
        there, ghosts, index = np.ones(shape, bool), np.zeros(shape, int), []
        for axis, (low, high) in enumerate(self.layers):
            start, stop = self._own(axis, coords)
            total = sum(self.sizes[axis])
            points = np.arange(start - low, stop + high)
            along = [1] * len(shape)
            along[axis] = -1
            periodic = axis < len(self.periods) and self.periods[axis]
            inside = (points >= 0) & (points < total) | periodic
            there &= inside.reshape(along)
            ghosts += ((points < start) | (points >= stop)).astype(int).reshape(along)
            index.append(points % max(total, 1))
        shown = self.values(turn)[np.ix_(*index)]
        shown[~(there & wanted(ghosts))] = self.guard()
        return shown


def filled(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers in a dtype, small ones wrapped round."""
    kind = np.dtype(dtype)
    if kind.names:
        made = np.zeros(numbers.shape, kind)
        for name in kind.names:
            made[name] = filled(numbers, kind[name].base.str).reshape(
                numbers.shape + (1,) * len(kind[name].shape))
        return made
    if kind.kind in "SU":
        return (numbers % 9973).astype(kind)
    if kind.kind == "V":
        return np.ascontiguousarray(numbers % 251, np.uint8).repeat(kind.itemsize, -1).view(
            kind).reshape(numbers.shape)
    if kind.kind == "c":
        return numbers.astype(kind) * (1 - 2j)
    if kind.kind == "b":
        return numbers % 3 == 0
    limit = 251 if kind.itemsize == 1 else 32003 if kind.itemsize == 2 else 1 << 62
    return (numbers % limit).astype(kind)


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal in every byte, whatever the strides."""
    return got.shape == want.shape and np.ascontiguousarray(got).tobytes() == want.tobytes()
