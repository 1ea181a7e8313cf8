"""How a pass over local data goes about its blocks, and where these are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Bytes that a block may touch so that it stays in the second-level cache between two kernels.
CACHE_BYTES = 1 << 20

#: Caches that one index of the axis of blocks may fill before blocks are cut once more.
MOST_CACHES = 2

#: Fewest neighboring elements in a block that cuts the last axis: whole cache lines.
COLUMNS = 16


#: Bytes of a message between nodes from which on its latency hardly counts.
MESSAGE_BYTES = 1 << 15


@dataclass(frozen=True)
class Blocking:
    """How passes go about their blocks: what is measured, beside kernels.

    ``nbytes`` is what a block may touch. ``in_source``: transforms in place are made in the
    source, where that is memory of the plan; otherwise a block is copied first. ``in_target``:
    the last steps are made in the target, or write to it; otherwise their result is copied.
    ``straight``: a transform goes from the source to where its result belongs, without a copy that
    it is made in.
    """

    nbytes: int = CACHE_BYTES
    in_source: bool = False
    in_target: bool = False
    straight: bool = False


def ranges(stops: Sequence[int]) -> list[tuple[int, int]]:
    """Local. Start and end of every part, from the ends."""
    return list(zip([0, *stops[:-1]], stops, strict=True))


def _stops(length: int, step: int) -> list[int]:
    return [*range(step, length, step), length] if length else []


def chunks(blocks: Sequence[int], nbytes: int, least: int) -> list[int]:
    """Local. The ends of chunks of ``least`` bytes at least, each of whole blocks.

    ``blocks`` are the ends of the blocks of a result of ``nbytes``. The last chunk may have less.
    """
    found = []
    start = 0
    for stop in blocks:
        if (stop - start) * nbytes >= least * blocks[-1]:
            found.append(stop)
            start = stop
    return found if start == blocks[-1] else [*found, blocks[-1]]


def cut(
    axes: Sequence[int], shape: Sequence[int], caches: float
) -> tuple[int, list[int], int, list[int]]:
    """Local. The axis of the blocks and their ends; a second axis and its ends, or -1.

    ``caches`` is how many caches the whole array would fill. Blocks are cut along the first axis
    that no operation changes and of which one index about fits the cache, else along the longest
    and along a second one. Of the last axis a block holds whole cache lines at least.
    """
    last = len(shape) - 1
    free = [axis for axis in range(len(shape)) if axis not in axes]
    axis = next((a for a in free if shape[a] > 1 and caches <= MOST_CACHES * shape[a]), None)
    if axis is None:
        axis = max(free, key=lambda a: (shape[a], -a))
    planes = max(round(shape[axis] / max(caches, 1e-9)), COLUMNS if axis == last else 1)
    stops = _stops(shape[axis], min(planes, max(1, shape[axis])))
    left = caches * planes / max(1, shape[axis])
    others = [a for a in free if a != axis and shape[a] > 1]
    if left < MOST_CACHES or not others:
        return axis, stops, -1, []
    inner = max(others, key=lambda a: (shape[a], a))
    step = max(int(shape[inner] / left), COLUMNS if inner == last else 1)
    return axis, stops, inner, _stops(shape[inner], min(step, shape[inner]))
