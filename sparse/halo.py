"""Ghosts brought up to date, and what was added to ghosts brought home: who needs which entries of
x, and the persistent requests that carry them, for vectors and for blocks of k of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallw_init, Request, agreed
from onesided.collectives.scripts import Gather, Place, Step
from onesided.sparse.kernels.rows import IndexedSum
from onesided.sparse.moving import counterparts, moved
from onesided.sparse.partition import Integers, Partition, split_columns

Info = Mapping[str, str] | MPI.Info | None

#: Bytes that a rank sends at least, in all and on average to a neighbor, where it stores them
#: straight into the neighbors' memory.
DIRECT_BYTES, DIRECT_BLOCK_BYTES = 1 << 16, 1 << 13


@dataclass(frozen=True, eq=False)
class HaloPattern:
    """Who needs which entries of x, on one rank; all requests of a matrix are made from it.

    ``send_index``: the owned entries that neighbors need, by destination, ``send_counts[p]`` of
    them for rank ``p``; ``recv_counts[p]``: ghosts that rank ``p`` owns; ``ghosts``: their global
    indices.

    Examples
    --------
    >>> nothing = np.zeros(0, int)
    >>> HaloPattern(4, nothing, nothing, nothing, nothing).n_own
    4
    """

    n_own: int
    ghosts: NDArray[np.int64]
    send_index: NDArray[np.intp]
    send_counts: NDArray[np.int64]
    recv_counts: NDArray[np.int64]

    @classmethod
    def of(
        cls, comm: MPI.Intracomm, columns: Integers, partition: Partition, what: object = None
    ) -> tuple[HaloPattern, Integers]:
        """Collective. The pattern of the columns that ranks use, by their global numbers, and their
        places in [owned | ghost]. The owners of the ghosts are asked.

        ``ValueError`` on every rank for one that nobody owns; ``what`` names the call.
        """
        with agreed(comm, what):
            places, ghosts, counts = split_columns(columns, partition, comm.rank)
        send_counts = counterparts(comm, counts)
        needed = moved(comm, ghosts, counts, send_counts)
        start, stop = partition.range(comm.rank)
        index = (needed - start).astype(np.intp)
        return cls(stop - start, ghosts, index, send_counts, counts), places

    @property
    def n_local(self) -> int:
        """Number of owned and ghost entries together."""
        return self.n_own + len(self.ghosts)

    @property
    def neighbors(self) -> int:
        """Local. Number of ranks that this one sends to or receives from."""
        return int(np.count_nonzero(self.send_counts + self.recv_counts))


class Ghosts(Protocol):
    """What brings the ghosts of x up to date for a product: :class:`Halo`, or another way.

    ``k`` vectors travel at once.
    """

    k: int

    def start(self, x: NDArray[Any]) -> None:
        """Send what neighbors need of ``x``, which may be changed as soon as this returns."""

    def finish(self) -> NDArray[Any]:
        """Wait for the ghosts, and return them; they stay until the next start."""

    def Free(self) -> None:
        """Collective. Give everything back; a second time has no effect."""


class Halo:
    """The ghosts of one partition of x, refreshed by one persistent request.

    ``request`` sends from a packed buffer straight into the neighbors' ghosts, which lie in its own
    window memory; so ``finish`` returns another array every second time. A method that sends to
    nodes sends an entry that several ranks of a node want to that node once.

    ``k`` vectors travel at once: x is (n,) for one, (n, k) for more. The numbers of the
    :class:`HaloPattern` count rows of k elements.

    Examples
    --------
    >>> nothing = np.zeros(0, int)
    >>> counts = np.zeros(comm.size, int)
    >>> pattern = HaloPattern(4, nothing, nothing, counts, counts)
    >>> halo = Halo(comm, pattern, np.dtype(float), method="p2p", info=None)
    >>> halo.Free()
    """

    def __init__(
        self, comm: MPI.Intracomm, pattern: HaloPattern, dtype: np.dtype[Any], k: int = 1,
        *, method: str, info: Info,
    ) -> None:  # fmt: skip
        """Collective. Initialize the request; its errors are agreed, a lack of memory, too."""
        self.pattern, self.k = pattern, k
        with agreed(comm):
            index = np.ascontiguousarray(pattern.send_index, np.int64)
            entries = np.zeros(shaped(len(index), k), dtype)
        self.request: Request = Alltoallw_init(
            comm,
            [entries, _boxes(pattern.send_counts)],
            [(shaped(len(pattern.ghosts), k), dtype), _boxes(pattern.recv_counts)],
            method=method,
            info=info,
            rows=index,
        )
        self.sendbuf, index = self.request.packed
        self._pack = Gather(index)
        # less is packed once, and copied out of the cache, sooner than by a call per neighbor
        neighbors = int(np.count_nonzero(pattern.send_counts))
        least = max(DIRECT_BYTES, neighbors * DIRECT_BLOCK_BYTES, 1)
        self._direct = self.request.direct and self.sendbuf.nbytes >= least
        self._routes: dict[int, list[tuple[NDArray[np.intp], NDArray[Any]]]] = {}

    def start(self, x: NDArray[Any]) -> None:
        """Local. Pack the entries of ``x`` (owned, of the halo's dtype) and start the request.

        Where the method can do that, long blocks are packed straight into the neighbors' memory.
        ``x`` may be changed as soon as this returns.
        """
        request = self.request
        if self._direct and request.Open():
            for index, place in self._places():
                np.take(x, index, axis=0, out=place, mode="clip")
            request.Ready(0)
            return
        request.check_start()  # before what is on its way is overwritten
        self._pack(x, self.sendbuf)
        request.Start()

    def sending(self, x: Place) -> list[Step]:
        """Local. What ``start`` does, as steps of a script."""
        if self._direct:
            return [(lambda x, _: self.start(x), x, x)]
        return [self.request.check_start, (self._pack, x, self.sendbuf), self.request.Start]

    def _places(self) -> list[tuple[NDArray[np.intp], NDArray[Any]]]:
        """Local. Which entries of x go where in the round that was opened."""
        outlets = self.request.outlets
        key = id(outlets)  # of one slot; the request keeps it
        if key not in self._routes:
            index = self.pattern.send_index
            self._routes[key] = [
                (index[box[0]], place) for _, box, place in outlets[0] if len(place)
            ]
        return self._routes[key]

    def finish(self) -> NDArray[Any]:
        """Wait for the ghosts, (ghosts,) or (ghosts, k), valid until the next ``start``."""
        ghosts: NDArray[Any] = self.request.Wait()
        return ghosts

    def update(self, x: NDArray[Any]) -> NDArray[Any]:
        """The ghosts of ``x``: start, finish."""
        self.start(x)
        return self.finish()

    def Free(self) -> None:
        """Collective. Free the request; a second time has no effect."""
        self._routes.clear()
        self.request.Free()


class ReverseHalo:
    """What ranks add to their ghosts, sent to the owners and summed there: a halo backwards.

    The caller writes to ``ghosts``, (ghosts,) or (ghosts, k), between ``finish`` and ``start``,
    once ``request.check_start`` has said that nothing is on its way.
    Contributions are added by ascending rank of their senders, so the sum is the same in every
    round and by every method.
    """

    def __init__(
        self, comm: MPI.Intracomm, pattern: HaloPattern, dtype: np.dtype[Any], k: int = 1,
        *, method: str, info: Info,
    ) -> None:  # fmt: skip
        """Collective. Initialize the request; its errors are agreed, a lack of memory, too."""
        self.pattern, self.k = pattern, k
        with agreed(comm):
            self.ghosts: NDArray[Any] = np.zeros(shaped(len(pattern.ghosts), k), dtype)
            self._add = IndexedSum(pattern.send_index, pattern.n_own, dtype)
        self.request: Request = Alltoallw_init(
            comm,
            [self.ghosts, _boxes(pattern.recv_counts)],
            [(shaped(len(pattern.send_index), k), dtype), _boxes(pattern.send_counts)],
            method=method,
            info=info,
        )

    def start(self) -> None:
        """Local. Send ``ghosts``, which stay unchanged until ``finish``."""
        self.request.Start()

    def finish(self, y: NDArray[Any]) -> None:
        """Wait for what the neighbors added to this rank's entries, and add it to ``y`` (owned)."""
        received: NDArray[Any] = self.request.Wait()
        self._add(received, y)

    def Free(self) -> None:
        """Collective. Free the request; a second time has no effect."""
        self.request.Free()


def shaped(n: int, k: int) -> tuple[int, ...]:
    """Local. The shape of n rows of one vector, or of k."""
    return (n,) if k == 1 else (n, k)


def _boxes(counts: NDArray[np.int64]) -> list[tuple[slice] | None]:
    """Consecutive boxes of whole rows, None for a rank without entries."""
    starts = np.cumsum(counts) - counts
    return [
        (slice(int(start), int(start + count)),) if count else None
        for start, count in zip(starts, counts, strict=True)
    ]
