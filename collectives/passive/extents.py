"""How much memory a window exposes on every rank, and whether a broadcast fits into it.

MPI does not check where a Put goes: one beyond the window of its target corrupts the memory of
the target, or ends it, on both MPICH and Open MPI.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree
from onesided.collectives.buffers import as_array
from onesided.collectives.errors import PatternError, RequestError, UnsupportedError


@dataclass(frozen=True)
class Extents:
    """Of every rank: ``sizes``, the bytes of its window, and ``units``, those of a displacement."""

    sizes: tuple[int, ...]
    units: tuple[int, ...]

    def check(self, displacement: int, nbytes: int) -> None:
        """Local. Raise :class:`PatternError` where so many bytes do not fit on every rank."""
        for rank, (size, unit) in enumerate(zip(self.sizes, self.units, strict=True)):
            if displacement < 0 or displacement * unit + nbytes > size:
                raise PatternError(
                    f"{nbytes} bytes at displacement {displacement} (of {unit} bytes) are not "
                    f"inside the window of rank {rank}, which has {size} bytes"
                )


def extents_of(comm: MPI.Comm, window: MPI.Win) -> Extents:
    """Collective. What a window on ``comm`` exposes on every rank.

    Raises on every rank: :class:`RequestError` where the window has been freed,
    :class:`PatternError` where its ranks are not those of ``comm`` in the same order,
    :class:`UnsupportedError` for a dynamic window, or one without the unified memory model.
    """
    error: Exception | None = None
    mine = (0, 1)
    try:
        mine = _extent(comm, window)
    except Exception as problem:
        error = problem
    words = agree(comm, error, "extents of a window", mine)
    return Extents(tuple(size for size, _ in words), tuple(unit for _, unit in words))


def _extent(comm: MPI.Comm, window: MPI.Win) -> tuple[int, int]:
    """Local. Bytes and displacement unit of this rank's part of the window."""
    check_alive(window)
    group, ranks = window.Get_group(), comm.Get_group()
    same = MPI.Group.Compare(group, ranks) == MPI.IDENT
    ranks.Free()
    group.Free()
    if not same:
        raise PatternError("the ranks of the window are not those of the communicator, in order")
    if window.flavor == MPI.WIN_FLAVOR_DYNAMIC:
        raise UnsupportedError("a dynamic window has no displacements that all ranks share")
    if window.model != MPI.WIN_UNIFIED:
        raise UnsupportedError("this MPI has no unified memory model for this window")
    _, size, unit = window.attrs
    return int(size), int(unit)


def check_alive(window: MPI.Win) -> None:
    """Local. Raise for what is no window, or has been freed."""
    if not isinstance(window, MPI.Win):
        raise PatternError(f"{window!r:.60} is no window")
    if window == MPI.WIN_NULL:
        raise RequestError("the window has been freed")


def bytes_of(buf: Any) -> NDArray[np.uint8]:
    """Local. The memory of a contiguous buffer; :class:`PatternError` for any other."""
    array = as_array(buf, "broadcast")
    if not array.flags.c_contiguous:
        if not array.flags.f_contiguous:
            raise PatternError("the broadcast buffer is not contiguous")
        array = array.T
    return array.reshape(-1).view(np.uint8)


def as_displacement(displacement: Any) -> int:
    """Local. The displacement as an int; :class:`PatternError` for what is no integer."""
    try:
        return operator.index(displacement)
    except TypeError:
        raise PatternError(f"the displacement is {displacement!r:.60}, not an integer") from None


def check_root(rank: int, root: Any) -> None:
    """Local. Raise :class:`PatternError` unless the caller is the root."""
    if rank != root:
        raise PatternError(
            f"rank {rank} broadcasts with root {root!r:.20}; a broadcast is called by its root "
            "alone"
        )
