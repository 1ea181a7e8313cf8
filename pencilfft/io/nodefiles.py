"""Where the data of a revision lie: a file for each node.

All ranks write their pieces; on rank 0 it is known then what holds the boxes of each piece. The
files are new, complete and on the disk. What the ranks of a node have of a field is one dataset,
where their boxes make one and their rows in it are long, else one for each rank.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed
from onesided.collectives.context import Context
from onesided.pencilfft.io.filebase import CALL_BYTES, naming
from onesided.pencilfft.io.selection import Box
from onesided.pencilfft.io.store import Source, Store, to_disk, written

#: For each piece the datasets that hold it, where they are known: on rank 0.
Sources = list[list[Source]]
#: Where a piece lies: the first byte of a dataset, and its box.
Place = tuple[int, Box] | None
ROW_BYTES = 1 << 12  # of the rows of a rank, in a dataset of several, at least


@dataclass(frozen=True)
class Piece:
    """Local. What this rank has of one dataset: ``data``, to lie at ``box``; None for nothing."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    box: Box | None
    data: NDArray[Any] | None


@dataclass(frozen=True)
class Part:
    """Local. One dataset of a node: its name, its box of the field, and the ranks that fill it."""

    name: str
    box: Box
    ranks: Sequence[int]


def write_node_files(
    comm: MPI.Comm,
    store: Store,
    prefix: str,
    pieces: Sequence[Piece],
    options: dict[str, Any],
    ranks_per_node: int | None,
) -> Sources:
    """Collective. One file for the ranks of each node that have data; works with every h5py.

    The lowest rank of a node makes the file, with contiguous datasets. HDF5 says where in the file
    these begin, and every rank writes its own bytes there.
    """
    node, ranks = _node(comm, ranks_per_node)
    path, made = store.path(prefix, ranks[0]), None
    theirs, places = node.gather([piece.box for piece in pieces]), None
    with agreed(comm):
        if theirs is not None:
            boxes = dict(zip(ranks, theirs, strict=True))
            places, made = _make(path, store.relative(path), pieces, boxes, options)
    own = node.scatter(places)
    with agreed(comm), naming(path):
        if any(own):
            to_disk(path, lambda number: _fill(number, pieces, own))
    nodes = [each for each in comm.gather(made) or () if each is not None]
    return [list(chain(*parts)) for parts in zip(*nodes, strict=True)]


def write_box(
    number: int, start: int, shape: Sequence[int], box: Box, data: NDArray[Any]
) -> None:
    """Local. Write a box of an array, in C order from a place in an open file on, to which ``data``
    belong: as many bytes at a time as lie next to each other."""
    if not data.size:
        return
    along = _row_axis(shape, box)
    strides = [data.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    start += sum(span.start * step for span, step in zip(box, strides, strict=True))
    outer = data.shape[:along]
    rows = np.ascontiguousarray(data).reshape(prod(outer), -1).view(np.uint8)
    for row, place in zip(rows, np.ndindex(*outer), strict=True):
        _write(number, row.data, start + sum(map(prod, zip(place, strides, strict=False))))


def _write(number: int, data: memoryview, place: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(number, data[done : done + CALL_BYTES], place + done)


def _row_axis(shape: Sequence[int], box: Box) -> int:
    """The first of the axes along which a box lies without gaps in an array of this shape."""
    axis = len(shape) - 1
    while axis > 0 and box[axis] == slice(0, shape[axis]):
        axis -= 1
    return axis


def _node(comm: MPI.Comm, ranks_per_node: int | None) -> tuple[MPI.Comm, list[int]]:
    """Collective. Those who write a file together, and their ranks in the communicator."""
    if comm.size == 1:
        return comm, [0]
    node = Context.of(comm).node(ranks_per_node)
    return node.comm, node.ranks


def _parts(piece: Piece, boxes: Mapping[int, Box]) -> list[Part]:
    """Local. The datasets of a node, from the boxes of its ranks."""
    whole = _joined(list(boxes.values()), piece.dtype.itemsize)
    if whole is None:
        return [Part(f"{piece.path}/{rank}", boxes[rank], [rank]) for rank in boxes]
    return [Part(f"{piece.path}/{min(boxes)}", whole, list(boxes))]


def _joined(boxes: Sequence[Box], itemsize: int) -> Box | None:
    """The box that is made up by others, in which they have long rows; None where there is none."""
    if len(boxes) < 2:
        return None
    ends = np.array([[(span.start, span.stop) for span in box] for box in boxes])
    starts, stops = ends[..., 0], ends[..., 1]
    common = np.all((starts[:, None] < stops) & (starts < stops[:, None]), axis=-1)
    whole = tuple(map(slice, starts.min(0).tolist(), stops.max(0).tolist()))
    shape = [span.stop - span.start for span in whole]
    if common.sum() > len(boxes) or np.prod(stops - starts, axis=1).sum() != prod(shape):
        return None
    for box in boxes:
        inside = within(box, whole)
        extents = [span.stop - span.start for span in box]
        if itemsize * prod(extents[_row_axis(shape, inside) :]) < ROW_BYTES:
            return None
    return whole


def within(box: Box, whole: Box) -> Box:
    """Local. A box in the indices of another one."""
    return tuple(slice(a.start - b.start, a.stop - b.start)
                 for a, b in zip(box, whole, strict=True))


def _make(
    path: str,
    reference: str,
    pieces: Sequence[Piece],
    theirs: Mapping[int, Sequence[Box | None]],
    options: dict[str, Any],
) -> tuple[list[list[Place]], Sources]:
    """Local. Make the file of a node without its data, where there are any; by rank and piece
    where the rank's dataset begins, and the box of that; by piece what holds it."""
    places: dict[int, list[Place]] = {rank: [None] * len(pieces) for rank in theirs}
    parts = [
        _parts(piece, {rank: box for rank, mine in theirs.items() if (box := mine[k]) is not None})
        for k, piece in enumerate(pieces)
    ]
    if any(parts):
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        with naming(path), written(path, afresh=True, **options) as file:
            for k, (piece, made) in enumerate(zip(pieces, parts, strict=True)):
                for part in made:
                    shape = tuple(span.stop - span.start for span in part.box)
                    dataset = file.create_dataset(part.name, shape, piece.dtype, dcpl=layout)
                    for rank in part.ranks:
                        places[rank][k] = dataset.id.get_offset(), part.box
    sources = [[Source(reference, part.name, part.box) for part in made] for made in parts]
    return list(places.values()), sources


def _fill(number: int, pieces: Sequence[Piece], places: Sequence[Place]) -> None:
    """Local. Write the own data into the file of the node."""
    for piece, place in zip(pieces, places, strict=True):
        if piece.data is not None and piece.box is not None and place is not None:
            start, box = place
            shape = [span.stop - span.start for span in box]
            write_box(number, start, shape, within(piece.box, box), piece.data)
