"""Faces from a list of neighbors with boxes: pure geometry, no MPI call."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.errors import PatternError
from onesided.collectives.halo.face import Face, extents, is_empty, text
from onesided.collectives.halo.grid import read_width
from onesided.collectives.pattern import Block, Box, check_disjoint, full_box


def listed_faces(neighbors: Any, shape: tuple[int, ...], ranks: int, width: Any) -> list[Face]:
    """Local. A face for every entry ``(rank, send box, receive box)``, or with a tag as a fourth.

    Without a tag the n-th entry for a rank is matched with that rank's n-th entry for this one.
    ``MPI.PROC_NULL`` as the rank, or None as a box, exchanges nothing. With a ``width`` other
    than None the send boxes must lie in the block inside the ghost layers, the others outside.

    Raises :class:`PatternError` for an entry of another form, ranks that do not exist, a tag
    that occurs twice for one rank, and boxes that reach beyond the array.
    """
    if not isinstance(neighbors, Sequence) or isinstance(neighbors, str):
        raise PatternError(f"the neighbors are {neighbors!r:.60}, not a list of (rank, box, box)")
    seen: Counter[int] = Counter()
    taken: set[tuple[int, int]] = set()
    faces = []
    for number, entry in enumerate(neighbors):
        if not isinstance(entry, list | tuple) or len(entry) not in (3, 4):
            raise PatternError(
                f"neighbor {number} is {entry!r:.60}, not (rank, send box, receive box) or that "
                "and a tag"
            )
        rank = _integer(entry[0], f"the rank of neighbor {number}")
        if not (0 <= rank < ranks or rank == MPI.PROC_NULL):
            raise PatternError(f"neighbor {number} is rank {rank}; there are {ranks} ranks")
        send = read_box(entry[1], shape, f"the send box for neighbor {number} (rank {rank})")
        recv = read_box(entry[2], shape, f"the receive box for neighbor {number} (rank {rank})")
        if rank == MPI.PROC_NULL:
            send = recv = _nothing(shape)
        key = _integer(entry[3], f"the tag of neighbor {number}") if len(entry) == 4 else seen[rank]
        seen[rank] += 1
        if rank >= 0 and (rank, key) in taken:
            raise PatternError(f"tag {key} occurs twice for rank {rank}")
        taken.add((rank, key))
        faces.append(Face(rank, send, recv, (), key, key))
    if width is not None:
        _check_width(faces, shape, width)
    return faces


def read_box(box: Any, shape: tuple[int, ...], name: str) -> Box:
    """Local. A box from slices or pairs (start, stop), one per axis; an empty one from None."""
    if box is None:
        return _nothing(shape)
    if isinstance(box, slice):
        box = (box,)
    if not isinstance(box, list | tuple):
        raise PatternError(f"{name} is {box!r:.60}, not a tuple of slices or of (start, stop)")
    parts = []
    for part in box:
        if isinstance(part, slice):
            start, stop = (
                None if end is None else _integer(end, name) for end in (part.start, part.stop)
            )
            parts.append(slice(start, stop, part.step))
        elif isinstance(part, list | tuple) and len(part) == 2:
            parts.append(slice(_integer(part[0], name), _integer(part[1], name)))
        else:
            raise PatternError(f"{name} has {part!r:.60}, neither a slice nor (start, stop)")
    return full_box(parts, shape, name)


def check_apart(faces: Sequence[Face]) -> None:
    """Local. Raise :class:`PatternError` where a receive box overlaps another one or a send box."""
    recvs = [face for face in faces if not is_empty(face.recv)]
    sends = [face for face in faces if not is_empty(face.send)]
    check_disjoint([Block(face.rank, 0, face.recv, extents(face.recv)) for face in recvs])
    starts, stops = _ends([face.send for face in sends])
    for face in recvs if sends else []:
        low, high = _ends([face.recv])
        clash = np.flatnonzero(np.all((starts < high) & (low < stops), axis=1))
        if clash.size:
            other = sends[int(clash[0])]
            raise PatternError(
                f"the receive box from rank {face.rank} {text(face.recv)} and the send box for "
                f"rank {other.rank} {text(other.send)} overlap"
            )


def _ends(boxes: Sequence[Box]) -> tuple[Any, Any]:
    starts = np.array([[part.start for part in box] for box in boxes])
    stops = np.array([[part.stop for part in box] for box in boxes])
    return starts, stops


def _check_width(faces: Sequence[Face], shape: tuple[int, ...], width: Any) -> None:
    layers = np.array(read_width(width, shape, len(shape)))
    low, high = layers[:, 0], np.array(shape) - layers[:, 1]
    for number, face in enumerate(faces):
        starts, stops = _ends([face.send])
        if not is_empty(face.send) and np.any((starts < low) | (stops > high)):
            raise PatternError(
                f"the send box for neighbor {number} {text(face.send)} reaches into ghost layers"
            )
        starts, stops = _ends([face.recv])
        if not is_empty(face.recv) and np.all((starts < high) & (low < stops)):
            raise PatternError(
                f"the receive box for neighbor {number} {text(face.recv)} reaches into the block "
                "inside the ghost layers"
            )


def _integer(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise PatternError(f"{name} has {value!r:.60}, not an integer") from None


def _nothing(shape: tuple[int, ...]) -> Box:
    return (slice(0, 0),) * len(shape)
