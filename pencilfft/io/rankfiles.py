"""Where the data of a revision lie: a file for each rank, or one that all ranks write together.

A writer is called by all ranks with their pieces, and gives for each piece the boxes of the
dataset that its files hold. The files are new, complete and on the disk when it returns,
but for their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.io.fileerrors import naming
from onesided.pencilfft.io.quietfile import written
from onesided.pencilfft.io.selection import Box
from onesided.pencilfft.io.store import Store, remove, to_disk

#: For each piece the files that hold it: reference and box of the dataset.
Sources = list[list[tuple[str, Box]]]


@dataclass(frozen=True)
class Piece:
    """Local. What this rank has of one dataset: ``data``, to lie at ``box``; None for nothing."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    box: Box | None
    data: NDArray[Any] | None


Writer = Callable[[MPI.Comm, Store, str, Sequence[Piece], dict[str, Any]], Sources]


def write_rank_files(
    comm: MPI.Comm, store: Store, prefix: str, pieces: Sequence[Piece], options: dict[str, Any]
) -> Sources:
    """Collective. One file for each rank that has data; works with every h5py."""
    path, error = store.path(prefix, comm.rank), None
    mine = [None if piece.box is None else _bounds(piece.box) for piece in pieces]
    try:
        if any(mine):
            _write(path, pieces, options)
    except Exception as found:
        error = found
    everyone = agree(comm, error, value=mine)
    sources: Sources = [[] for _ in pieces]
    for rank, boxes in enumerate(everyone):
        reference = store.relative(store.path(prefix, rank))
        for k, bounds in enumerate(boxes):
            if bounds is not None:
                sources[k].append((reference, tuple(slice(*pair) for pair in bounds)))
    return sources


def _write(path: str, pieces: Sequence[Piece], options: dict[str, Any]) -> None:
    """Write a rank file under another name, then give it its own."""
    new = path + ".new"
    try:
        with naming(path):
            with written(new, afresh=True, **options) as file:
                for piece in pieces:
                    if piece.data is not None:
                        file.create_dataset(piece.path, data=piece.data)
            os.replace(new, path)
    except Exception:
        remove([new])
        raise


def write_together(
    comm: MPI.Comm, store: Store, prefix: str, pieces: Sequence[Piece], options: dict[str, Any]
) -> Sources:
    """Collective. One file, by HDF5's MPI driver, where h5py is built with it."""
    if not h5py.get_config().mpi:
        raise UnsupportedError("driver='mpio' needs an h5py that is built with MPI")
    path, error = store.path(prefix, "all"), None
    try:
        with naming(path), h5py.File(path, "w", driver="mpio", comm=comm, **options) as file:
            for piece in pieces:  # all ranks make all datasets, in the same order
                file.create_dataset(piece.path, piece.shape, piece.dtype)
            for piece in pieces:
                if piece.data is not None:
                    file[piece.path][piece.box] = piece.data
            file.flush()
        with naming(path):
            to_disk(path)
    except Exception as found:
        error = found
    agree(comm, error)
    reference = store.relative(path)
    return [[(reference, tuple(slice(0, n) for n in piece.shape))] for piece in pieces]


def _bounds(box: Box) -> tuple[tuple[int, int], ...]:
    return tuple((span.start, span.stop) for span in box)


#: By the name of the driver that a user gives.
WRITERS: dict[str | None, Writer] = {None: write_rank_files, "mpio": write_together}


def writer(driver: str | None) -> Writer:
    """Local. The writer for a driver of h5py."""
    if driver not in WRITERS:
        raise PatternError(f"driver={driver!r} is not one of {list(WRITERS)}")
    return WRITERS[driver]
