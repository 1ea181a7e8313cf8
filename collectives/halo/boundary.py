"""What ghosts show at ends of a grid that is not periodic: conditions, and their adjoints.

Conditions can change between rounds: a plan knows only of what *kind* each one is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.collectives.halo.decomposition import Decomposition
from onesided.collectives.halo.plan import Combine, Fill

#: Conditions at an end of the grid that have a name; others are numbers and functions.
COPY, REFLECT, ANTIREFLECT = CONDITIONS = ("copy", "reflect", "antireflect")

#: The kinds of the conditions that have a value of their own.
NUMBER, FUNCTION = "number", "function"

#: Those that look at the cells that the ghosts mirror.
MIRRORED = (REFLECT, ANTIREFLECT, FUNCTION)

#: By axis, the conditions at its low and high end.
Conditions = list[tuple[Any, Any]]


def read_conditions(boundary: Any, axes: int) -> Conditions:
    """Local. By axis, the conditions at its low and high end; raises :class:`PatternError`.

    One condition for all ends, or a dict of them by axis; a pair is (low, high). None leaves the
    ghosts alone.
    """
    by_axis = boundary if isinstance(boundary, dict) else dict.fromkeys(range(axes), boundary)
    found = []
    for axis in by_axis:
        if not isinstance(axis, int | np.integer) or not 0 <= axis < axes:
            raise PatternError(f"a boundary condition for axis {axis!r} of {axes}")
    for axis in range(axes):
        given = by_axis.get(axis)
        pair = given if isinstance(given, tuple) and len(given) == 2 else (given, given)
        for condition in pair:
            kind(condition)
        found.append(pair)
    return found


def kind(condition: Any) -> str | None:
    """Local. The name of a condition, :data:`NUMBER`, :data:`FUNCTION` or None; raises
    :class:`PatternError`."""
    if condition is None:
        return None
    if isinstance(condition, str) and condition in CONDITIONS:
        return condition
    if callable(condition):
        return FUNCTION
    if isinstance(condition, int | float | complex | np.number) or (
        isinstance(condition, np.ndarray) and not condition.ndim and condition.dtype.kind in "biufc"
    ):
        return NUMBER
    raise PatternError(
        f"a boundary condition is {condition!r:.60}, not a number, a function, None, or one of "
        f"{', '.join(CONDITIONS)}"
    )


def kinds(boundary: Any) -> Any:
    """Local. Of what kinds given conditions are, in a form that can be compared; of what is none,
    one that no plan has."""
    if isinstance(boundary, dict):
        axes = sorted(boundary, key=repr)
        return tuple([(axis, kinds(boundary[axis])) for axis in axes])
    if isinstance(boundary, tuple):
        return tuple([kinds(given) for given in boundary])
    try:
        return kind(boundary)
    except PatternError:
        return "unknown"


class Boundary:
    """The conditions of the fields of one halo, which are read when a round is completed.

    ``time`` is what functions get as ``t``; the caller may set it until then.
    """

    def __init__(self, conditions: Sequence[Conditions], dtypes: Sequence[np.dtype[Any]]) -> None:
        """Local. By field, the conditions, and the dtype of its values."""
        self.time: Any = None
        self._values = [np.zeros((len(each), 2), dtype)
                        for each, dtype in zip(conditions, dtypes, strict=True)]
        self.set(conditions)

    def set(self, conditions: Sequence[Conditions]) -> None:
        """Local. Other conditions of the same kinds, for the rounds that are not completed yet."""
        self._conditions = list(conditions)
        self.read()

    def read(self) -> None:
        """Local. Look at the numbers: the caller may have written to arrays without axes."""
        for values, of_field in zip(self._values, self._conditions, strict=True):
            for axis, pair in enumerate(of_field):
                for side, condition in enumerate(pair):
                    if kind(condition) == NUMBER:
                        with np.errstate(all="ignore"):
                            values[axis, side] = np.asarray(condition).astype(values.dtype)

    def has(self, wanted: str | None) -> bool:
        """Local. Whether an end of some field has a condition of a kind."""
        return any(kind(given) == wanted for each in self._conditions for pair in each
                   for given in pair)

    @property
    def empty(self) -> bool:
        """Local. True where no end has a condition."""
        return all(pair == (None, None) for each in self._conditions for pair in each)

    @property
    def changes(self) -> bool:
        """Local. True where a number is an array, which may show another one in each round."""
        return any(isinstance(condition, np.ndarray)
                   for each in self._conditions for pair in each for condition in pair)

    def kind(self, field: int, axis: int, side: int) -> str | None:
        """Local. The kind of a condition."""
        return kind(self._conditions[field][axis][side])

    def value(self, field: int, axis: int, side: int) -> NDArray[Any]:
        """Local. The number that an end shows, as an array without axes that keeps its place."""
        return self._values[field][axis, side : side + 1].reshape(())

    def call(self, field: int, end: End) -> None:
        """Local. Let a function write the ghosts of an end."""
        function = self._conditions[field][end.axis][end.side]
        function(end.ghosts, end.inside, end.axis, end.side, end.coordinates, self.time)


@dataclass(frozen=True)
class End:
    """The ghosts of an array at one end of the grid, and what a condition sets them to.

    ``ghosts`` are those beyond the end; ``inside`` are the layers that they mirror, in that order,
    so many as the grid has; ``edge`` is the outermost layer of the grid. What a thin block has not
    itself are ghosts of it that have come before. All other axes have their ghosts, too, so that
    corners are filled when one axis after the other is. ``coordinates`` are those of the ghosts,
    by axis of the grid, shaped to be broadcast.
    """

    ghosts: NDArray[Any]
    inside: NDArray[Any]
    edge: NDArray[Any]
    axis: int
    side: int
    coordinates: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(
        cls, array: NDArray[Any], coordinates: Sequence[NDArray[np.float64]], axis: int, side: int,
        beyond: tuple[int, int], staggered: bool, condition: str | None,
    ) -> End:
        """Local. Points of a staggered field lie on the boundary: these mirror themselves.

        ``coordinates`` are those of all points of the array, by axis of the grid; ``beyond`` how
        many layers of it lie beyond the low and the high end of the grid.
        """
        wide, at = beyond[side], array.ndim - len(coordinates) + axis
        points = list(coordinates)

        def from_the_end(array: NDArray[Any], at: int) -> NDArray[Any]:
            view = np.moveaxis(array, at, 0)
            return view if side == 0 else view[::-1]

        view = from_the_end(array, at)
        if condition in MIRRORED and view.shape[0] - beyond[1 - side] < 2 * wide + staggered:
            raise PatternError(
                f"{wide} ghost layers at the end of axis {axis} mirror layers that the block, with "
                "its ghosts, does not have"
            )
        first = wide + staggered
        back = partial(np.moveaxis, source=0, destination=at)
        points[axis] = np.moveaxis(from_the_end(points[axis], axis)[wide - 1 :: -1], 0, axis)
        return cls(back(view[wide - 1 :: -1]), back(view[first : first + wide]),
                   back(view[wide : wide + 1]), axis, side, tuple(points))

    def fill(self, boundary: Boundary, field: int) -> Fill:
        """Local. What sets the ghosts."""
        condition = boundary.kind(field, self.axis, self.side)
        if condition == FUNCTION:
            return partial(boundary.call, field, self)
        if condition == ANTIREFLECT:
            return partial(np.negative, self.inside, out=self.ghosts)
        if condition == COPY:
            return self.ghosts, np.broadcast_to(self.edge, self.ghosts.shape)
        if condition == REFLECT:
            return self.ghosts, self.inside
        value = boundary.value(field, self.axis, self.side)
        return self.ghosts, np.broadcast_to(value, self.ghosts.shape)

    def give(self, condition: str | None, combine: Combine, empties: Any) -> Fill:
        """Local. The adjoint of :meth:`fill`: what the ghosts have gathered goes to what they
        show."""
        at = self.ghosts.ndim - len(self.coordinates) + self.axis

        def give() -> None:
            with np.errstate(all="ignore"):  # infinities and NaN pass
                if condition == REFLECT:
                    combine(self.inside, self.ghosts, out=self.inside)
                elif condition == ANTIREFLECT:
                    np.subtract(self.inside, self.ghosts, out=self.inside)
                elif condition == COPY:
                    for layer in np.split(self.ghosts, self.ghosts.shape[at], axis=at):
                        combine(self.edge, layer, out=self.edge)
            if empties is not None:
                self.ghosts[...] = empties

        return give


def all_fills(
    blocks: Decomposition, fields: Sequence[Any], forms: Sequence[Sequence[bool]],
    boundary: Boundary, back: tuple[Combine, Any] | None,
) -> list[list[Fill]]:
    """Local. By turn, what fills the ghosts of this block beyond the ends of the grid, or with
    ``back`` the adjoint of that. ``forms``: by field, along which axes it is staggered."""
    levels = [field if isinstance(field, tuple) else (field,) for field in fields]
    for number, of_field in enumerate(levels):
        dtype = of_field[0].dtype
        if dtype.kind not in "iufcm" and _negates(blocks, boundary, number):
            raise PatternError(f"{ANTIREFLECT}: {dtype} has no negatives")
    found: list[list[Fill]] = []
    for turn in range(math.lcm(2, *map(len, levels))):
        fills: list[Fill] = []
        for number, (of_field, staggered) in enumerate(zip(levels, forms, strict=True)):
            array = np.asarray(of_field[turn % len(of_field)])
            ends = list(_ends(blocks, array, staggered, boundary, number))
            if back is None:
                fills += [end.fill(boundary, number) for end in ends]
            else:
                fills += [end.give(boundary.kind(number, end.axis, end.side), *back)
                          for end in reversed(ends)]
        if back is None and boundary.changes:
            fills.insert(0, boundary.read)
        found.append(fills)
    return found


def _negates(blocks: Decomposition, boundary: Boundary, field: int) -> bool:
    """Local, the same on all ranks. Whether ghosts anywhere show negatives."""
    return any(
        boundary.kind(field, axis, side) == ANTIREFLECT and blocks.layers[axis][side]
        for axis, side in product(range(len(blocks.shape)), (0, 1)) if not blocks.periodic[axis]
    )


def _ends(
    blocks: Decomposition, array: NDArray[Any], staggered: Sequence[bool], boundary: Boundary,
    field: int,
) -> Iterator[End]:
    """The ends of the grid at this block that have a condition, in the order of filling."""
    along = [axis for axis, one in enumerate(staggered) if one]
    points = blocks.coordinates(along, ghosts=True)
    for axis, side in product(range(len(blocks.shape)), (0, 1)):
        condition = boundary.kind(field, axis, side)
        beyond = blocks.beyond(axis, staggered[axis])
        if condition is not None and beyond[side]:
            yield End.of(array, points, axis, side, beyond, staggered[axis], condition)
