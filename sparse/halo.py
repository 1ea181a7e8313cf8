"""Ghosts brought up to date: who needs which entries of x, and the request that sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Alltoallw_init, PersistentRequest
from onesided.sparse.partition import LocalColumns, Partition

Info = Mapping[str, str] | MPI.Info | None


class Halo:
    """The ghosts of one partition of x, refreshed by one persistent request.

    ``request`` sends from a packed buffer straight into the ghost part of the neighbors' local
    vectors [owned | ghost], which lie in its own window memory; so ``finish`` returns another
    local vector every second time, and its owned part is left for the caller to fill.

    ``send_index``: the owned entries that neighbors need, by destination, ``send_counts[p]`` of
    them for rank ``p``; ``recv_counts[p]``: ghosts that rank ``p`` owns.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        columns: LocalColumns,
        partition: Partition,
        dtype: np.dtype[Any],
        *,
        method: str,
        info: Info,
    ) -> None:
        """Collective. Find the neighbors and initialize the request; its errors are agreed."""
        self.n_own = columns.n_own
        self.n_local = columns.n_local
        self.recv_counts = columns.ghost_counts
        self.send_counts, needed = _requested(comm, columns)
        self.send_index = (needed - partition.range(comm.rank)[0]).astype(np.intp)
        self.sendbuf: NDArray[Any] = np.zeros(len(self.send_index), dtype)
        self.request: PersistentRequest = Alltoallw_init(
            comm,
            [self.sendbuf, _boxes(self.send_counts, 0)],
            [((self.n_local,), dtype), _boxes(self.recv_counts, self.n_own)],
            method=method,
            info=info,
        )

    @property
    def neighbors(self) -> int:
        """Local. Number of ranks that this one sends to or receives from."""
        return int(np.count_nonzero(self.send_counts + self.recv_counts))

    def start(self, x: NDArray[Any]) -> None:
        """Local. Pack the entries of ``x`` (owned, of the halo's dtype) and start the request.

        ``x`` may be changed as soon as this returns.
        """
        np.take(x, self.send_index, out=self.sendbuf, mode="clip")
        self.request.Start()

    def finish(self) -> NDArray[Any]:
        """Wait for the ghosts; returns the local vector, valid until the next ``start``.

        Only ``[n_own:]`` has been filled; all of it is the caller's to write until then.
        """
        local: NDArray[Any] = self.request.Wait()
        return local

    def update(self, x: NDArray[Any]) -> NDArray[Any]:
        """The local vector [owned | ghost] of ``x``: start, finish, and a copy of ``x``."""
        self.start(x)
        local = self.finish()
        local[: self.n_own] = x
        return local

    def Free(self) -> None:
        """Collective. Free the request; a second time has no effect."""
        self.request.Free()


def _requested(
    comm: MPI.Comm, columns: LocalColumns
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Collective. How many entries each rank needs from this one, and their global indices."""
    recv_counts = columns.ghost_counts
    send_counts = np.empty_like(recv_counts)
    comm.Alltoall(recv_counts, send_counts)
    needed = np.empty(int(send_counts.sum()), np.int64)
    comm.Alltoallv(
        [columns.ghosts, (recv_counts.tolist(), _displacements(recv_counts).tolist())],
        [needed, (send_counts.tolist(), _displacements(send_counts).tolist())],
    )
    return send_counts, needed


def _displacements(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(counts) - counts


def _boxes(counts: NDArray[np.int64], offset: int) -> list[tuple[slice] | None]:
    """Consecutive one-dimensional boxes, None for a rank without entries."""
    starts = _displacements(counts) + offset
    return [
        (slice(int(start), int(start + count)),) if count else None
        for start, count in zip(starts, counts, strict=True)
    ]
