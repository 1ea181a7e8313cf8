"""What an array tells as a field of a grid: for which grid it was made, where it is staggered.

The *form* of a grid is what its fields have to agree with: its shape first, its layers last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.collectives.memory import Region, find_region

#: By form of a grid a number, which takes its place where plans are looked for.
_FORMS: dict[tuple[Any, ...], int] = {}

#: The form of the grid that memory has been made for, and the axes along which it is staggered.
_MADE: WeakKeyDictionary[Region, tuple[tuple[Any, ...], Sequence[int]]] = WeakKeyDictionary()


def number_of(form: tuple[Any, ...]) -> int:
    """Local. The number of a form, the same for all grids of it in this process."""
    return _FORMS.setdefault(form, len(_FORMS))


def made_for(region: Region, form: tuple[Any, ...], staggered: Sequence[int]) -> None:
    """Local. Remember what memory is made for."""
    _MADE[region] = form, staggered


def in_use(region: Region) -> bool:
    """Local. Whether the memory of a field has not been given back."""
    return region.key in region.context.allocations


def first(field: Any) -> NDArray[Any]:
    """Local. The array of a field, or the first of those that take turns."""
    found: NDArray[Any] = field[0] if isinstance(field, tuple) else field
    return found


def staggering(
    array: Any, form: tuple[Any, ...], extents: Sequence[int], last: Sequence[bool]
) -> NDArray[np.int64]:
    """Local. By axis, 1 where a field is staggered.

    ``extents`` are those of a field that is not, ghosts included; ``last`` says along which axes
    this rank has a point more of one that is. Raises :class:`PatternError` for what is no field
    of a grid of this form.
    """
    if not isinstance(array, np.ndarray):
        raise PatternError(f"a field is an array, not {type(array).__name__}")
    lead = array.ndim - len(extents)
    if lead < 0:
        raise PatternError(f"an array of shape {array.shape} in a grid of {len(extents)} axes")
    more = np.subtract(array.shape[lead:], extents)
    for axis, (extra, has_more) in enumerate(zip(more.tolist(), last, strict=True)):
        if extra not in (0, int(has_more)):
            raise PatternError(
                f"a field of this grid has {extents[axis]} layers along axis {axis} on this "
                f"rank, ghosts included, not {array.shape[lead + axis]}: shape {array.shape}"
            )
    region = find_region(array)
    made, along = (form, ()) if region is None else _MADE.get(region, (form, ()))
    if made != form:
        raise PatternError(
            f"a field of another grid, of shape {made[0]} with {made[-1]} layers of ghosts"
        )
    found = np.zeros(len(extents), np.int64)
    found[list(along)] = 1
    staggered: NDArray[np.int64] = found | more
    return staggered
