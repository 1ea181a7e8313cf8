"""How the sender of a partitioned send sees the receive buffer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.boards import STEP
from onesided.collectives.memory import Region, find_region
from onesided.collectives.partitioned.letter import BY_WINDOW, NOWHERE, ON_NODE

#: Tells the links of this rank from each other: boards are used again.
_generations = itertools.count(1)
LAST_GENERATION = 0x7FFFFFFF


@dataclass(frozen=True)
class View:
    """What the receiver writes of its buffer; ``give_back`` is to be called when it is freed."""

    visible: int = NOWHERE
    key: str = ""
    segment: int = 0
    offset: int = 0
    board: int = 0
    generation: int = 0
    give_back: Callable[[], object] | None = None

    def fields(self) -> dict[str, int]:
        """Those of a letter."""
        return {
            "visible": self.visible,
            "key_high": int(self.key[:16] or "0", 16),
            "key_low": int(self.key[16:] or "0", 16),
            "segment": self.segment,
            "offset": self.offset,
            "board": self.board,
            "generation": self.generation,
        }


def view_of(comm: MPI.Intracomm, memory: NDArray[np.uint8], peer: int) -> View:
    """Local. The view that ``peer`` has of this memory, with a board where it shares the node.

    Nothing where the memory is not from ``empty``, where the peer has no part in that call, and
    where all links of the array are in use.
    """
    region = find_region(memory)
    if region is None or not memory.size:
        return View()
    offset = memory.ctypes.data - region.address
    if _takes_part(comm, peer, region.node.comm):
        return _on_node(region, offset)
    if region.wide is not None and _takes_part(comm, peer, region.context.comm):
        give_back = _use(region)
        rank = region.context.comm.rank
        return View(BY_WINDOW, region.wide_key, rank, offset, give_back=give_back)
    return View()


def _use(region: Region, place: int | None = None) -> Callable[[], object]:
    """Local. The region cannot be freed until what is returned is called; gives a board back."""
    region.users += 1

    def give_back() -> None:
        region.users -= 1
        if place is not None:
            region.boards.give(place)

    return give_back


def _takes_part(comm: MPI.Intracomm, peer: int, members: MPI.Intracomm) -> bool:
    ours, theirs = comm.Get_group(), members.Get_group()
    (seen,) = ours.Translate_ranks([peer], theirs)
    for group in (ours, theirs):
        group.Free()
    return bool(seen != MPI.UNDEFINED)


def _on_node(region: Region, offset: int) -> View:
    place = region.boards.take()
    if place is None:
        return View()
    rank = region.node.comm.rank
    region.part(rank)[place : place + STEP] = 0
    region.window.Sync()
    generation = next(_generations) & LAST_GENERATION
    give_back = _use(region, place)
    return View(ON_NODE, region.key, rank, offset, place, generation, give_back)
