"""Where the data of a revision lie: a file for each node.

All ranks write their pieces; on rank 0 it is known then what holds the boxes of each piece. The
files are new, complete and on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed
from onesided.collectives.context import Context
from onesided.pencilfft.io.filebase import naming
from onesided.pencilfft.io.quietfile import written
from onesided.pencilfft.io.selection import Box
from onesided.pencilfft.io.store import Source, Store

#: For each piece the datasets that hold it, where they are known: on rank 0.
Sources = list[list[Source]]
CALL_BYTES = 1 << 30  # that one call of the system writes at most


@dataclass(frozen=True)
class Piece:
    """Local. What this rank has of one dataset: ``data``, to lie at ``box``; None for nothing."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    box: Box | None
    data: NDArray[Any] | None


def write_node_files(
    comm: MPI.Comm,
    store: Store,
    prefix: str,
    pieces: Sequence[Piece],
    options: dict[str, Any],
    ranks_per_node: int | None,
) -> Sources:
    """Collective. One file for the ranks of each node that have data; works with every h5py.

    The lowest rank of a node makes the file, with a contiguous dataset for each piece of each rank.
    HDF5 says where in the file these begin, and every rank writes its own bytes there.
    """
    node, ranks = _node(comm, ranks_per_node)
    path, corners = store.path(prefix, ranks[0]), _corners(pieces)
    theirs = _gathered(node, corners)
    places = np.zeros((len(theirs), len(pieces)), np.int64)
    with agreed(comm):
        if theirs.any():
            _make(path, pieces, dict(zip(ranks, theirs, strict=True)), places, options)
    own = np.zeros(len(pieces), np.int64)
    node.Scatter(places, own)
    with agreed(comm):
        if own.any():
            _fill(path, pieces, own)
    sources: Sources = [[] for _ in pieces]
    for rank, (*row, lowest) in enumerate(_gathered(comm, np.append(corners, ranks[0])).tolist()):
        reference = store.relative(store.path(prefix, lowest))
        for piece, found, box in zip(pieces, sources, _boxes(pieces, row), strict=True):
            if box is not None:
                found.append(Source(reference, _dataset(piece, rank), box))
    return sources


def _node(comm: MPI.Comm, ranks_per_node: int | None) -> tuple[MPI.Comm, list[int]]:
    """Collective. Those who write a file together, and their ranks in the communicator."""
    if comm.size == 1:
        return comm, [0]
    node = Context.of(comm).node(ranks_per_node)
    return node.comm, node.ranks


def _gathered(comm: MPI.Comm, words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Collective. A row for each rank, on rank 0; no rows on others."""
    rows = np.empty((comm.size if comm.rank == 0 else 0, len(words)), np.int64)
    comm.Gather(words, rows)
    return rows


def _dataset(piece: Piece, rank: int) -> str:
    return f"{piece.path}/{rank}"


def _corners(pieces: Sequence[Piece]) -> NDArray[np.int64]:
    """Local. Where the boxes of the pieces start and stop; zeros for nothing."""
    ends: list[int] = []
    for piece in pieces:
        for span in piece.box or [slice(0, 0)] * len(piece.shape):
            ends += span.start, span.stop
    return np.array(ends, np.int64)


def _boxes(pieces: Sequence[Piece], corners: Sequence[int]) -> Iterator[Box | None]:
    """Local. The boxes of the pieces of a rank from their corners."""
    ends = iter(corners)
    for piece in pieces:
        box = tuple(slice(next(ends), next(ends)) for _ in piece.shape)
        yield box if all(span.start < span.stop for span in box) else None


def _make(
    path: str,
    pieces: Sequence[Piece],
    theirs: Mapping[int, NDArray[np.int64]],
    places: NDArray[np.int64],
    options: dict[str, Any],
) -> None:
    """Local. Make the file of a node without its data; ``places``: where they begin."""
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with naming(path), written(path, afresh=True, **options) as file:
        for number, (rank, corners) in enumerate(theirs.items()):
            for k, box in enumerate(_boxes(pieces, corners.tolist())):
                if box is not None:
                    shape = tuple(span.stop - span.start for span in box)
                    name, dtype = _dataset(pieces[k], rank), pieces[k].dtype
                    made = file.create_dataset(name, shape, dtype, dcpl=layout)
                    places[number, k] = made.id.get_offset()


def _fill(path: str, pieces: Sequence[Piece], places: NDArray[np.int64]) -> None:
    """Local. Write the own data into the file of the node, and to the disk."""
    with naming(path):
        number = os.open(path, os.O_WRONLY)
        try:
            for piece, place in zip(pieces, places.tolist(), strict=True):
                if piece.data is not None:
                    data = np.ascontiguousarray(piece.data).reshape(-1).view(np.uint8).data
                    done = 0
                    while done < len(data):
                        some = data[done : done + CALL_BYTES]
                        done += os.pwrite(number, some, place + done)
            os.fsync(number)
        finally:
            os.close(number)
