"""The linear broadcast (paper 003, Figure 3): the root puts the data to one rank after another."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from onesided.collectives.errors import RequestError
from onesided.collectives.passive.extents import (
    Extents,
    as_displacement,
    bytes_of,
    check_alive,
    check_root,
)
from onesided.collectives.passive.puts import put_bytes, store


def bcast_linear(
    window: MPI.Win, buf: Any, displacement: int, root: int, extents: Extents | None = None
) -> None:
    """Local. Called by the root alone: put ``buf`` into the window of every rank, its own too.

    ``buf`` is contiguous, of any type without Python objects, and may be reused at once.
    ``displacement`` counts displacement units of each target's window. When the function returns
    the data are in the memory of all ranks; another rank reads them after the root has told it so
    (by a message or a barrier) and a ``Win.Sync`` or a lock of its own. It needs no thread, so it
    is what programs without ``MPI_THREAD_MULTIPLE`` use. The MPI may need the targets to enter
    MPI before the function can return.

    ``extents`` are those that :func:`extents_of` learned from all ranks. Without them every rank
    is taken to have a window like the root's; data beyond the window of a rank corrupt its memory.

    Raises :class:`PatternError` where the caller is not the root, for a buffer that is not
    contiguous, and where the data do not fit; :class:`RequestError` for a freed window and for
    one with an open epoch. (The paper's loop runs from 0 to p; there are p ranks, 0 to p - 1.)
    """
    check_alive(window)
    group = window.Get_group()
    ranks, rank = group.Get_size(), group.Get_rank()
    group.Free()
    check_root(rank, root)
    if extents is None:
        _, size, unit = window.attrs
        extents = Extents((int(size),) * ranks, (int(unit),) * ranks)
    data, place = bytes_of(buf), as_displacement(displacement)
    extents.check(place, data.size)
    try:
        window.Lock_all()
    except MPI.Exception as error:
        raise RequestError(
            f"the window has an epoch open: MPI: {error.Get_error_string()}"
        ) from error
    try:
        data = store(window, data, place * extents.units[rank])
        for target in range(ranks):
            if target != rank:
                put_bytes(window, data, target, place, extents.units[target])
    finally:
        window.Unlock_all()
