"""What ghosts show at ends of a grid that is not periodic: conditions, and their adjoints.

Conditions can change between rounds: a plan knows only of what *kind* each one is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
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

#: By axis, the conditions at its low and high end.
Conditions = list[tuple[Any, Any]]

#: The number of a field, an axis of the grid, and the side of it.
Where = tuple[int, int, int]


def read_conditions(boundary: Any, axes: int) -> Conditions:
    """Local. By axis, the conditions at its low and high end; raises :class:`PatternError`."""
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
    if isinstance(condition, int | float | complex | np.number | np.bool_) or (
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
        return tuple([(axis, kinds(boundary[axis])) for axis in sorted(boundary, key=repr)])
    if isinstance(boundary, tuple):
        return tuple([kinds(given) for given in boundary])
    try:
        return kind(boundary)
    except PatternError:
        return "unknown"


class Boundary:
    """The conditions of the fields of one halo, which are read when a round is completed.

    ``time`` is what functions get as ``t``; ``shown`` are the conditions, in the order of filling.
    """

    def __init__(self, conditions: Sequence[Conditions], dtypes: Sequence[np.dtype[Any]]) -> None:
        """Local. By field, the conditions, and the dtype of its values."""
        self.time: Any = None
        self._dtypes = list(dtypes)
        self._values: dict[Where, NDArray[Any]] = {}  # of numbers, which keep their places
        self.set(conditions)

    def set(self, conditions: Sequence[Conditions]) -> None:
        """Local. Other conditions of the same kinds, for the rounds that are not completed yet. An
        array without axes is looked at here, and in every round where there was one at first."""
        self.shown: dict[Where, Any] = {
            (field, axis, side): condition for field, of_field in enumerate(conditions)
            for axis, pair in enumerate(of_field) for side, condition in enumerate(pair)
            if condition is not None
        }  # fmt: skip
        self.read(everything=True)

    def read(self, everything: bool = False) -> None:
        """Local. Look at the arrays without axes, to which the caller may have written, or at
        ``everything`` that is a number."""
        for where, given in self.shown.items():
            if (everything or isinstance(given, np.ndarray)) and kind(given) == NUMBER:
                value = self.value(where)
                with np.errstate(all="ignore"):
                    value[...] = np.asarray(given).astype(value.dtype)

    def value(self, where: Where) -> NDArray[Any]:
        """Local. The number that an end shows, as an array without axes that keeps its place."""
        if where not in self._values:
            self._values[where] = np.zeros((), self._dtypes[where[0]])
        return self._values[where]


def _from_the_end(array: NDArray[Any], axis: int, side: int) -> NDArray[Any]:
    """Local. The layers along an axis, the outermost at one of its ends first."""
    view = np.moveaxis(array, axis, 0)
    return view[::-1] if side else view


class End:
    """The ghosts of an array at one end of the grid, and what a condition sets them to.

    ``ghosts`` are those beyond the end, ``coordinates`` theirs; ``inside`` are the layers that they
    mirror, in that order, so many as the grid has; ``edge`` is the outermost layer of the grid.
    What a thin block has not itself are ghosts of it that have come before. All other axes have
    their ghosts, too, so that corners are filled when one axis after the other is.
    """

    def __init__(
        self, boundary: Boundary, where: Where, array: NDArray[Any],
        coordinates: Sequence[NDArray[np.float64]], beyond: tuple[int, int], staggered: bool,
    ) -> None:
        """Local. Points of a staggered field lie on the boundary: these mirror themselves.

        ``coordinates`` are those of all points of the array, by axis of the grid; ``beyond`` how
        many layers of it lie beyond the low and the high end of the grid.
        """
        self._boundary, self._where = boundary, where
        self._kind = kind(boundary.shown[where])
        _, axis, side = where
        wide, self._at = beyond[side], array.ndim - len(coordinates) + axis
        view = _from_the_end(array, self._at, side)
        mirrored = self._kind in (REFLECT, ANTIREFLECT, FUNCTION)
        if mirrored and len(view) - beyond[1 - side] < 2 * wide + staggered:
            raise PatternError(
                f"{wide} ghost layers at the end of axis {axis} mirror layers that the block, with "
                "its ghosts, does not have"
            )
        if self._kind == ANTIREFLECT and array.dtype.kind not in "iufcm":
            raise PatternError(f"{ANTIREFLECT}: {array.dtype} has no negatives")
        first = wide + staggered
        self.ghosts, self.inside, self.edge = (
            np.moveaxis(part, 0, self._at)
            for part in (view[wide - 1 :: -1], view[first : first + wide], view[wide : wide + 1])
        )
        beside = _from_the_end(coordinates[axis], axis, side)[wide - 1 :: -1]
        self.coordinates = (*coordinates[:axis], np.moveaxis(beside, 0, axis),
                            *coordinates[axis + 1 :])

    def fill(self) -> Fill:
        """Local. What sets the ghosts."""
        if self._kind == FUNCTION:
            return self._call
        if self._kind == ANTIREFLECT:
            return partial(np.negative, self.inside, out=self.ghosts)
        shown = {REFLECT: self.inside, COPY: self.edge}.get(self._kind or "")
        value = self._boundary.value(self._where) if shown is None else shown
        return self.ghosts, np.broadcast_to(value, self.ghosts.shape)

    def _call(self) -> None:
        """Local. Let the function write the ghosts."""
        boundary, (_, axis, side) = self._boundary, self._where
        function = boundary.shown[self._where]
        function(self.ghosts, self.inside, axis, side, self.coordinates, boundary.time)

    def give(self, combine: Combine, empties: Any) -> None:
        """Local. The adjoint of :meth:`fill`: what the ghosts have gathered goes to what they
        show."""
        with np.errstate(all="ignore"):  # infinities and NaN pass
            if self._kind == REFLECT:
                combine(self.inside, self.ghosts, out=self.inside)
            elif self._kind == ANTIREFLECT:
                np.subtract(self.inside, self.ghosts, out=self.inside)
            elif self._kind == COPY:
                for layer in np.split(self.ghosts, self.ghosts.shape[self._at], axis=self._at):
                    combine(self.edge, layer, out=self.edge)
        if empties is not None:
            self.ghosts[...] = empties


def all_fills(
    blocks: Decomposition, fields: Sequence[Any], forms: Sequence[Sequence[int]],
    boundary: Boundary, back: tuple[Combine, Any] | tuple[()],
) -> list[list[Fill]]:
    """Local. By turn, what fills the ghosts of this block beyond the ends of the grid, or with
    ``back`` the adjoint of that. ``forms``: by field, along which axes it is staggered."""
    levels = [field if isinstance(field, tuple) else (field,) for field in fields]
    points = [blocks.coordinates(form, ghosts=True) for form in forms]
    reads = any(isinstance(given, np.ndarray) for given in boundary.shown.values())
    found: list[list[Fill]] = []
    for turn in range(math.lcm(2, *map(len, levels))):
        ends = []
        for number, axis, side in boundary.shown:
            staggered = axis in forms[number]
            beyond = blocks.beyond(axis, staggered)
            if beyond[side]:
                array = np.asarray(levels[number][turn % len(levels[number])])
                ends.append(End(boundary, (number, axis, side), array, points[number], beyond,
                                staggered))
        if back:
            found.append([partial(end.give, *back) for end in reversed(ends)])
        else:
            found.append([boundary.read] * reads + [end.fill() for end in ends])
    return found
