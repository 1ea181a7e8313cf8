"""What ghosts at the ends of a grid show that is not periodic: conditions, and their adjoints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.collectives.halo.faces import Layers
from onesided.collectives.halo.plan import Combine, Fill

#: Conditions at an end of the grid that have a name; others are numbers and functions.
COPY, REFLECT, ANTIREFLECT = CONDITIONS = ("copy", "reflect", "antireflect")



def read_conditions(boundary: Any, axes: int) -> list[tuple[Any, Any]]:
    """Local. By axis, the conditions at its low and high end; raises :class:`PatternError`.

    One condition for all ends, or a dict of them by axis; a pair is (low, high). None leaves the
    ghosts alone.
    """
    by_axis = boundary if isinstance(boundary, dict) else dict.fromkeys(range(axes), boundary)
    found = []
    for axis in by_axis:
        if not isinstance(axis, int) or not 0 <= axis < axes:
            raise PatternError(f"a boundary condition for axis {axis!r} of {axes}")
    for axis in range(axes):
        given = by_axis.get(axis)
        pair = given if isinstance(given, tuple) and len(given) == 2 else (given, given)
        for condition in pair:
            known = condition is None or callable(condition) or condition in CONDITIONS
            if not known and not isinstance(condition, int | float | complex | np.number):
                raise PatternError(
                    f"a boundary condition is {condition!r:.60}, not a number, a function, None, "
                    f"or one of {', '.join(CONDITIONS)}"
                )
        found.append(pair)
    return found


@dataclass(frozen=True)
class End:
    """The ghosts of an array at one end of the grid, and what a condition sets them to.

    ``ghosts`` and ``inside`` have the same shape; ``inside`` are the layers that they mirror, in
    that order; ``edge`` is the outermost layer of the grid. All other axes have their ghosts, too,
    so that corners are filled when one axis after the other is.
    """

    ghosts: NDArray[Any]
    inside: NDArray[Any]
    edge: NDArray[Any]
    axis: int
    side: int

    @classmethod
    def of(
        cls, array: NDArray[Any], lead: int, axis: int, side: int, layers: Layers, staggered: bool
    ) -> End:
        """Local. Points of a staggered field lie on the boundary: these mirror themselves."""
        wide, at = layers[side], lead + axis
        view = np.moveaxis(array, at, 0)
        view = view if side == 0 else view[::-1]
        if view.shape[0] < 2 * wide + staggered:
            raise PatternError(
                f"{wide} ghost layers at the end of axis {axis} mirror a block that has fewer"
            )
        first = wide + staggered
        ghosts, inside = view[wide - 1 :: -1] if wide else view[:0], view[first : first + wide]
        back = partial(np.moveaxis, source=0, destination=at)
        return cls(back(ghosts), back(inside), back(view[wide : wide + 1]), axis, side)

    def fill(self, condition: Any) -> Fill:
        """Local. What sets the ghosts."""
        if callable(condition):
            return partial(condition, self.ghosts, self.inside, self.axis, self.side)
        if condition == ANTIREFLECT:
            return partial(np.negative, self.inside, out=self.ghosts)
        if condition == COPY:
            return self.ghosts, np.broadcast_to(self.edge, self.ghosts.shape)
        if condition == REFLECT:
            return self.ghosts, self.inside
        value = np.array(condition).astype(self.ghosts.dtype)
        return self.ghosts, np.broadcast_to(value, self.ghosts.shape)

    def give(self, condition: Any, lead: int, combine: Combine, empties: Any) -> Fill:
        """Local. The adjoint of :meth:`fill`: what the ghosts have gathered goes to what they
        show."""
        at = lead + self.axis

        def give() -> None:
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
