"""The memory that the requests of a communicator share: bytes of every rank, and what lies in them.

The *arena* of a communicator is a few regions (:mod:`.memory`) that grow when they are full. A
request takes bytes of it on every rank, its *control memory*: counters, slots and staging areas.
Every rank lays out its own, and tells its peers where it is and what is where in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import largest, swapped, words_of_all
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import RequestError, ResourceError
from onesided.collectives.memory import ALIGNMENT, Region, aligned

#: Bytes per rank of the first region of an arena, and of those that one request has for itself.
FIRST_REGION, OWN_REGION = 1 << 17, 1 << 20


class Share:
    """A part of an arena on this rank: bytes of a request.

    ``root`` shows them to this rank; ``region`` is that of ``number`` in the arena, ``offset`` the
    place in this rank's segment. ``own`` is the number of the region that was made for this request
    alone, where the bytes of those ranks are that had no room for it; 0 where there is none.
    """

    def __init__(
        self, arena: Arena, number: int, offset: int, nbytes: int, own: int
    ) -> None:
        self.number, self.offset, self.nbytes, self.own = number, offset, nbytes, own
        self.region = region = arena.regions[number]
        self._arena = arena
        memory = region.segment(region.node.comm.rank)[offset : offset + nbytes]
        root: NDArray[np.uint8] = np.frombuffer(memory, np.uint8)
        self.root: NDArray[np.uint8] | None = root
        self._look = weakref.ref(root)

    def lend(self) -> NDArray[np.uint8]:
        """Local. The bytes, for a caller to receive in: peers on the node store straight there."""
        if self.root is None:
            raise RequestError("the memory has been given back")
        self.region.lent.append((self.offset, self.offset + self.nbytes))
        return self.root

    def unused(self) -> bool:
        """Local. True where no array shows these bytes any more."""
        return self._look() is None

    def release(self) -> None:
        """Collective, in the same order on all ranks. The request needs them no more; others get
        them when nobody looks any more."""
        self.root = None
        self.region.lent = [part for part in self.region.lent if part[0] != self.offset]
        self._arena.give(self)


class Arena:
    """The shared memory of the requests of one communicator.

    Every rank divides its own segments as it likes; that one of them is full somewhere is agreed
    at initialization, and then all ranks get another region.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.regions: dict[int, Region] = {}  # by number, the same on all ranks
        self._free: dict[int, list[tuple[int, int]]] = {}  # (start, stop), in order
        self._taken: list[Share] = []
        self._given: list[Share] = []  # back, but somebody may look at them
        self._born = 0
        self._next = FIRST_REGION

    @classmethod
    def of(cls, context: Context) -> Arena:
        if context.arena is None:
            context.arena = cls(context)
        arena: Arena = context.arena
        return arena

    def claim(
        self, nbytes: int, what: str, numbers: Sequence[int] = (), error: Exception | None = None
    ) -> tuple[Share | None, list[int]]:
        """Collective. Bytes of this rank, as they are, None where no rank wants any; and the
        largest of each of the ``numbers`` over all ranks. ``what`` names the call.

        Raises the ``error`` of any rank on every rank, and :class:`ResourceError` where a node's
        shared memory does not suffice.
        """
        self._reclaim()
        room = aligned(max(nbytes, 1))
        lacking = 0 if self._place(room) is not None else room
        words = [nbytes, lacking, *numbers]
        wanted, most, *largest_of = largest(self.context.comm, error, what, words)
        if not wanted:
            return None, largest_of
        own = self._grow(most, lacking) if most else 0
        return self._take(room, own), largest_of

    def _grow(self, lacking: int, mine: int) -> int:
        """Collective. ``lacking``: the largest number of bytes for which a rank has no room,
        ``mine``: those of this rank. The number of the region where it is for one request alone."""
        own = lacking >= OWN_REGION
        while not own and self._next < 2 * lacking:
            self._next *= 2
        node = self.context.node()
        region = Region(self.context, node, mine if own else self._next)
        region.lent.clear()  # not memory of the caller's
        self._born += 1
        self.regions[self._born] = region
        self._free[self._born] = [(0, region.nbytes)] if region.nbytes else []
        if own:
            return self._born
        self._next = min(2 * self._next, OWN_REGION // 2)
        return 0

    def widen(self) -> None:
        """Collective. Windows through which ranks of other nodes, emulated ones too, can Put."""
        for number in sorted(self.regions):
            self.regions[number].widen()

    def _take(self, room: int, own: int) -> Share:
        """Local. Bytes of this rank, for which there is room."""
        place = self._place(room)
        if place is None:
            raise ResourceError(f"the arena has no room for {room:,} bytes")
        number, gap = place
        start, stop = self._free[number][gap]
        if start + room == stop:
            del self._free[number][gap]
        else:
            self._free[number][gap] = (start + room, stop)
        share = Share(self, number, start, room, own)
        self._taken.append(share)
        return share

    def give(self, share: Share) -> None:
        """Collective, in the same order on all ranks. Bytes come back."""
        if share not in self._taken:
            return  # the arena has been closed
        self._taken.remove(share)
        if share.own:
            del self._free[share.own]
            self.regions.pop(share.own).release()
        if share.number != share.own:
            self._given.append(share)

    def close(self) -> None:
        """Collective. All of it is given back; what somebody looks at stays where it is."""
        for share in self._taken:  # of requests that were given up, or dropped
            share.root = None
        self._taken, self._given = [], []
        while self.regions:
            self.regions.pop(next(iter(self.regions))).release()

    def _place(self, room: int) -> tuple[int, int] | None:
        for number, gaps in self._free.items():
            for i, (start, stop) in enumerate(gaps):
                if stop - start >= room:
                    return number, i
        return None

    def _reclaim(self) -> None:
        """Local. What has come back, and nobody looks at, can be taken again."""
        if not self._given:
            return
        back = [share for share in self._given if share.unused()]
        self._given = [share for share in self._given if not share.unused()]
        for share in back:
            gaps = sorted([*self._free[share.number], (share.offset, share.offset + share.nbytes)])
            joined = [gaps[0]]
            for start, stop in gaps[1:]:
                if start == joined[-1][1]:
                    joined[-1] = (joined[-1][0], stop)
                else:
                    joined.append((start, stop))
            self._free[share.number] = joined


# -- the control memory of a request --------------------------------------------------------------


class ControlMemory:
    """The counters, slots and staging areas of one request: a part of the arena on every rank.

    Every rank lays out its own, tells its peers :attr:`place` and what is where in it, and hears
    theirs. ``most`` has the largest of the ``numbers`` of all ranks.
    """

    def __init__(
        self, operation: Any, resources: Resources, nbytes: int, numbers: Sequence[int] = (),
        error: Exception | None = None,
    ) -> None:
        """Collective. ``nbytes`` may differ between ranks; the bytes are as they are. Where no
        rank wants any, there are none. Raises the ``error`` of any rank on every rank."""
        self._arena = arena = Arena.of(operation.context)
        name = f"memory of request {operation.number}"
        self._share, self.most = arena.claim(nbytes, name, numbers, error)
        self.place = (0, 0)
        if self._share is not None:
            # others may still write there
            resources.on_release(self._share.release, in_step=True)
            self.place = (self._share.number, self._share.offset)
        self._places: dict[int, tuple[int, int]] = {operation.context.comm.rank: self.place}

    @property
    def share(self) -> Share:
        """Local. The part of the arena."""
        if self._share is None:
            raise ValueError("no control memory")
        return self._share

    @property
    def root(self) -> NDArray[np.uint8]:
        """Local. The bytes of this rank."""
        if self._share is None:
            return np.zeros(0, np.uint8)
        if self._share.root is None:
            raise RequestError("the memory has been given back")
        return self._share.root

    def widen(self) -> None:
        """Collective. Let ranks of other nodes Put."""
        self._arena.widen()

    def hear(self, places: Mapping[int, tuple[int, int]]) -> None:
        """Local. Where the control memory of other ranks is."""
        self._places |= places

    def part(self, rank: int) -> NDArray[np.uint8]:
        """Local. The control memory of a rank of this node, from its start on."""
        number, offset = self._places[rank]
        region = self._arena.regions[number]
        found: NDArray[np.uint8] = region.part(region.node.rank_of[rank])[offset:]
        return found

    def cell(self, rank: int, offset: int) -> NDArray[np.int64]:
        """Local. A counter of a rank of this node."""
        return cell_of(self.part(rank), offset)

    def window(self, rank: int) -> MPI.Win:
        """Local. The window through which the control memory of any rank is reached."""
        window = self._arena.regions[self._places[rank][0]].wide
        if window is None:
            raise ValueError("no window to Put through")
        return window

    def start(self, rank: int) -> int:
        """Local. Where a rank's control memory begins in :meth:`window`, in bytes."""
        return self._places[rank][1]


def cell_of(memory: NDArray[np.uint8], offset: int) -> NDArray[np.int64]:
    """Local. The counter at an offset: an aligned 64-bit integer."""
    return memory[offset : offset + 8].view(np.int64)


#: Offsets in bytes of the counters of a rank, in cache lines of their own.
FILLED, TAKEN, ARRIVED, COUNTERS = (i * ALIGNMENT for i in range(4))


class Control(ControlMemory):
    """Control memory that is [counters | ring] on every rank, zero at first."""

    def __init__(
        self, operation: Any, resources: Resources, room: int, far: bool,
        linked: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Collective. ``room``: bytes of this rank's ring. ``far``: ranks of other nodes Put.
        ``linked``: those to which this rank Puts, or which Put to it; each of two names the
        other."""
        super().__init__(operation, resources, COUNTERS + room, [int(far)])
        if self.most[0]:
            self.widen()
        self.root[:] = 0
        node = operation.node
        everyone = words_of_all(len(node.ranks), (np.int64, 2))
        node.comm.Allgather(np.array(self.place, np.int64), everyone)
        self.hear(dict(zip(node.ranks, map(tuple, everyone.tolist()), strict=True)))
        words = dict.fromkeys(linked, self.place)
        self.hear(swapped(operation.context.comm, operation.number, words))

    def ring(self, rank: int, room: int) -> NDArray[np.uint8]:
        """Local. The first bytes of the ring of a rank of this node."""
        return self.part(rank)[COUNTERS : COUNTERS + room]
