"""The steps of a round: what they are called, and what they are to the compiled interpreter.

What a rank does in a round is a set of *chains*, lists of steps that are executed in order. They do
not wait for each other, so what is done for one peer does not hold up another. The steps:

=======  ==========================================================================================
COPY     bytes from one place to another
BOX      the elements of a box, from and to arrays of any strides
GATHER   rows of an array, by their numbers, one after the other
REDUCE   two arrays into one, element by element, by a predefined operation
RAISE    write the number of the round, times ``scale`` plus ``shift``, to a counter: whatever was
         written before is visible to whoever reads the counter (release)
AWAIT    go on when a counter has reached such a number (acquire)
CALL     call Python, where MPI is needed; False means: not yet, call again. A call says of itself
         whether others may wait for what it does, whether it is one for ``Start``, whether it
         waits for other ranks, and whether it ever says "not yet" (:func:`call`)
=======  ==========================================================================================

A counter (*cell*) is an aligned 64-bit integer in memory that the ranks of a node map; it only ever
grows. Who executes chains, and when, says :mod:`.program`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

#: Why the compiled core cannot be loaded, where one was compiled.
broken = ""

try:
    from onesided.collectives import _core as _core
except ImportError as error:
    _core = None  # type: ignore[assignment]
    broken = str(error) if find_spec("onesided.collectives._core") else ""

COPY, BOX, GATHER, RAISE, AWAIT, CALL, REDUCE = range(7)

#: Steps that only scripts have (:mod:`.scripts`).
KERNEL, SCALE, WORK = 16, 17, 18

#: What a CALL is; :func:`call` has the words.
SERVES, LATER, BLOCKS, ONCE = 1, 2, 4, 8

#: What C and Python must agree on.
STEPS = {
    name: globals()[name] for name in (
        "COPY BOX GATHER RAISE AWAIT CALL REDUCE KERNEL SCALE WORK SERVES LATER BLOCKS ONCE"
    ).split()
}  # fmt: skip

#: A step; the first item says which one. Arrays and callables, no addresses.
Step = tuple[Any, ...]
Chain = list[Step]
Plan = list[Chain]


# -- steps ---------------------------------------------------------------------------------------


def copy(target: NDArray[Any], source: NDArray[Any]) -> Step:
    """The step that copies the bytes of one array to another of the same shape and item size."""
    if target.shape != source.shape or target.dtype.itemsize != source.dtype.itemsize:
        raise ValueError(f"blocks of shapes {source.shape} and {target.shape}")
    if target.dtype != source.dtype:
        source = source.view(target.dtype)  # an assignment would convert values
    return (COPY, target, source)


def gather(target: NDArray[Any], source: NDArray[Any], index: NDArray[np.int64]) -> Step:
    """The step ``target[i] = source[index[i]]``, of whole rows; contiguous arrays of one type."""
    arrays = (target, source, index)
    if target.shape != (len(index), *source.shape[1:]) or target.dtype != source.dtype or not all(
            array.flags.c_contiguous for array in arrays):  # fmt: skip
        raise ValueError(f"{len(index)} rows of {source.shape} to {target.shape}")
    return (GATHER, *arrays)


def reduce(
    target: NDArray[Any], left: NDArray[Any], right: NDArray[Any],
    loop: tuple[int, int], ufunc: Callable[..., Any] | None,
) -> Step:  # fmt: skip
    """The step ``target[:] = left op right``; contiguous arrays of one length. ``loop``: numbers of
    operation and type in the compiled core; ``ufunc`` does the same in Python, if any does."""
    return (REDUCE, target, left, right, loop, ufunc)


def tell(cell: NDArray[np.int64], scale: int = 1, shift: int = 0) -> Step:
    """Raise the counter to ``number * scale + shift``."""
    return (RAISE, cell, scale, shift)


def wait_for(cell: NDArray[np.int64], scale: int = 1, shift: int = 0) -> Step:
    """Go on when the counter is at least ``number * scale + shift``."""
    return (AWAIT, cell, scale, shift)


def call(
    function: Callable[[], Any], serves: bool = True, *,
    in_start: bool = True, blocks: bool = False, once: bool = False,
) -> Step:  # fmt: skip
    """Call until the answer is not False.

    ``serves``: another rank may wait for what it does. Without ``in_start`` the chain stops here
    in ``Start``, and goes on in Wait, Test or a progress thread. ``blocks``: it waits for other
    ranks, so only Wait and Test of the request itself call it. ``once``: it never answers False.
    """
    flags = SERVES * serves | ONCE * once | BLOCKS * blocks | LATER * (blocks or not in_start)
    return (CALL, function, flags)


# -- lowering to the compiled interpreter --------------------------------------------------------


def address(array: NDArray[Any]) -> int:
    """Local. Where the first element of an array lies in memory."""
    place: int = array.__array_interface__["data"][0]
    return place


if _core is not None and not TYPE_CHECKING:
    address = _core.address


def lowered(step: Step) -> list[Step]:
    """Local. The step in addresses and numbers; nothing for a copy of nothing."""
    kind = step[0]
    if kind == COPY:
        return lowered_copy(step[1], step[2])
    if kind in (GATHER, REDUCE):
        target, places = step[1], [address(array) for array in step[1:4]]
        rows, items = (len(target), target[:1].nbytes), (target.size, target.itemsize)
        each = rows if kind == GATHER else (*items, *step[4])
        return [(kind, *places, *each)] if target.size else []
    return [step] if kind == CALL else [(kind, address(step[1]), step[2], step[3])]


def lowered_copy(target: NDArray[Any], source: NDArray[Any]) -> list[Step]:
    """Local. A copy in addresses, by bytes or by a box; nothing for one of nothing."""
    if not target.size:
        return []
    item = target.itemsize
    if target.flags.c_contiguous and source.flags.c_contiguous:
        return [(COPY, address(target), address(source), target.nbytes)]
    axes = joined_axes(target.shape, target.strides, source.strides)
    if len(axes) == 1 and axes[0][1] == axes[0][2] == item:
        return [(COPY, address(target), address(source), target.nbytes)]
    shape, to, out = (tuple(int(axis[i]) for axis in axes) for i in range(3))
    return [(BOX, address(target), address(source), item, shape, to, out)]


def joined_axes(
    shape: Sequence[int], target: Sequence[int], source: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Local. The fewest axes of a copy between strided arrays, the target's longest stride first.

    Each is (extent, stride of the target, stride of the source), strides in bytes.
    """
    axes = [axis for axis in zip(shape, target, source, strict=True) if axis[0] != 1]
    axes.sort(key=lambda axis: (-abs(axis[1]), -abs(axis[2])))
    joined: list[tuple[int, int, int]] = []
    for extent, to, out in axes:
        if joined and joined[-1][1] == to * extent and joined[-1][2] == out * extent:
            joined[-1] = (joined[-1][0] * extent, to, out)
        else:
            joined.append((extent, to, out))
    return joined or [(1, 0, 0)]
