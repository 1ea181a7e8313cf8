"""Fields, and the parcels in which they travel: what is asked for, and what every pair agrees on.

*Fields* that travel together are a bundle. All that a rank sends to another one in a round is one
*parcel*: the boxes of all faces and all fields, one after the other. Where faces are marked piece
by piece, every piece of a face is a parcel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed, told
from onesided.collectives.context import Context
from onesided.collectives.errors import PatternError
from onesided.collectives.halo.faces import (
    Face,
    Pieces,
    check_apart,
    extents,
    is_empty,
    memory_order,
    read_partitions,
)
from onesided.collectives.pattern import Box

#: Alignment of the parts of a parcel, in bytes.
PART = 16


@dataclass(frozen=True)
class Field:
    """Arrays of one form that take turns, round by round, and the faces of their block."""

    levels: tuple[NDArray[Any], ...]
    faces: tuple[Face, ...]


@dataclass(eq=False)
class Parcel:
    """What goes to, or comes from, one rank at a time, in one stage.

    ``faces`` are (face, piece) by part; ``parts`` are views of the fields, by level. ``path`` and
    what follows is known when the receiver has told: ``places`` where a part goes or lies, by
    turn; ``cell`` the counter.
    """

    peer: int
    faces: list[tuple[int, int]]
    parts: list[list[NDArray[Any]]]
    stage: int = 0
    marked: bool = False
    path: str = ""
    places: list[list[NDArray[Any]]] = field(default_factory=list)
    cell: Any = None
    chain: int = -1  # its place in the program

    @property
    def room(self) -> int:
        """Bytes, with every part where it can be aligned."""
        return sum(_room(part) for part in self.parts[0])

    def packed(self, memory: NDArray[np.uint8]) -> list[NDArray[Any]]:
        """Local. The parts in memory of that size."""
        found, start = [], 0
        for part in self.parts[0]:
            found.append(np.ndarray(part.shape, part.dtype, memory, start))
            start += _room(part)
        return found


def _room(part: NDArray[Any]) -> int:
    return -(-part.size * part.itemsize // PART) * PART


# -- what is asked for ----------------------------------------------------------------------------


def read_fields(
    fields: Any, faces_of: Callable[[NDArray[Any]], Iterable[Face]]
) -> tuple[Field, ...]:
    """Local. The fields with their faces; raises :class:`PatternError`."""
    given = [fields] if isinstance(fields, np.ndarray) else fields
    if not isinstance(given, list | tuple) or not given:
        raise PatternError(f"a halo needs a NumPy array, not {type(fields).__name__}")
    found = []
    for entry in given:
        levels = tuple(entry) if isinstance(entry, tuple) and entry else (entry,)
        for level in levels:
            _check(level)
            form, first = (level.shape, level.dtype), (levels[0].shape, levels[0].dtype)
            if form != first:
                raise PatternError(f"arrays of {form} and {first} cannot take turns")
        faces = tuple(faces_of(levels[0]))
        check_apart(faces)
        found.append(Field(tuple(np.asarray(level) for level in levels), faces))
    every = [level for each in found for level in each.levels]
    for number, level in enumerate(every):
        if any(np.may_share_memory(level, other) for other in every[:number]):
            raise PatternError("two arrays of one halo share memory")
    return tuple(found)


def _check(array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise PatternError(f"a halo needs a NumPy array, not {type(array).__name__}")
    if not array.ndim:
        raise PatternError("a halo needs an array of one axis at least")
    if array.dtype.hasobject or not array.dtype.itemsize:
        raise PatternError(f"dtype {array.dtype} has no fixed size that could be sent")
    if not array.flags.writeable:
        raise PatternError("the array cannot be written")


def cut_faces(fields: Sequence[Field], partitions: Any) -> list[Pieces | None]:
    """Local. By face, how this rank cuts what it sends: alike in all fields."""
    first = fields[0].levels[0]
    wanted = 1 if partitions is None else read_partitions(partitions, first.ndim)
    return [
        None if is_empty(face.send)
        else Pieces.of(extents(face.send), (0,) * face.lead + face.offset, wanted,
                       memory_order(first))
        for face in fields[0].faces
    ]  # fmt: skip


# -- matching -------------------------------------------------------------------------------------

#: What a rank tells another one about what it sends: whether in pieces, and by key the face's
#: name, its cuts, and shape and dtype by field.
Words = tuple[bool, dict[int, tuple[str, tuple[int, ...], list[tuple[tuple[int, ...], str]]]]]


def match(
    context: Context, fields: Sequence[Field], cuts: Sequence[Pieces | None], marked: bool
) -> tuple[list[Pieces | None], dict[int, bool]]:
    """Collective. By face, how what comes is cut, and by rank whether it marks pieces.

    Raises :class:`PatternError` on every rank, naming the pair of ranks, where a rank expects
    another shape or dtype than comes, something that nobody sends, or nothing where something
    comes.
    """
    comm = context.comm
    words: dict[int, Words] = {}
    for number, pieces in enumerate(cuts):
        if pieces is None:
            continue
        face = fields[0].faces[number]
        said = words.setdefault(face.rank, (marked, {}))
        said[1][face.send_key] = (face.name, pieces.counts, [
            (extents(f.faces[number].send), f.levels[0].dtype.str) for f in fields])
    heard = told(comm, context.next_tag(), words)
    with agreed(comm, "boxes of a halo"):
        _compare(comm.rank, fields, heard)
    expected: list[Pieces | None] = []
    for face in fields[0].faces:
        sender = heard.get(face.rank)
        if is_empty(face.recv) or sender is None:
            expected.append(None)
        else:
            expected.append(Pieces(extents(face.recv), sender[1][face.recv_key][1]))
    return expected, {rank: sender[0] for rank, sender in heard.items()}


def _compare(me: int, fields: Sequence[Field], heard: Mapping[int, Words]) -> None:
    left = {(rank, key) for rank, said in heard.items() for key in said[1]}
    for number, face in enumerate(fields[0].faces):
        if is_empty(face.recv):
            continue
        shape, sender = extents(face.recv), face.rank
        said = heard.get(sender)
        if said is None or face.recv_key not in said[1]:
            raise PatternError(
                f"rank {me} expects a box of shape {shape} from rank {sender} ({face.name}), "
                "which sends nothing"
            )
        left.discard((sender, face.recv_key))
        name, _, forms = said[1][face.recv_key]
        for each, (sent, dtype) in zip(fields, forms, strict=True):
            wanted, kind = extents(each.faces[number].recv), each.levels[0].dtype
            if sent != wanted:
                raise PatternError(
                    f"rank {sender} sends a box of shape {sent} to rank {me} ({name}), which "
                    f"expects {wanted} ({face.name})"
                )
            if dtype != kind.str:
                raise PatternError(
                    f"rank {sender} sends {np.dtype(dtype)} to rank {me}, which expects {kind}"
                )
    for sender, key in sorted(left):
        name, _, forms = heard[sender][1][key]
        raise PatternError(
            f"rank {sender} sends a box of shape {forms[0][0]} to rank {me} ({name}), which "
            "expects nothing"
        )


def make_parcels(
    fields: Sequence[Field], cuts: Sequence[Pieces | None], marked: Mapping[int, bool],
    leaving: bool, flips: bool,
) -> list[Parcel]:
    """Local. What leaves, or comes, in an order that is the same on both sides of a pair."""

    def key(number: int) -> tuple[int, int]:
        face = fields[0].faces[number]
        return face.stage, face.send_key if leaving else face.recv_key

    levels = math.lcm(*(len(each.levels) for each in fields))
    parcels: list[Parcel] = []
    whole: dict[tuple[int, int], Parcel] = {}
    for number in sorted((n for n, pieces in enumerate(cuts) if pieces is not None), key=key):
        pieces, face = cuts[number], fields[0].faces[number]
        rank, at = face.rank, (face.rank, face.stage)
        if pieces is None:
            continue
        views = [[_view(each, number, level, leaving, flips) for level in range(levels)]
                 for each in fields]
        if not marked[rank]:
            if at not in whole:
                whole[at] = Parcel(rank, [], [[] for _ in range(levels)], face.stage)
                parcels.append(whole[at])
            whole[at].faces.append((number, -1))
            for of_field in views:
                for level, view in enumerate(of_field):
                    whole[at].parts[level].append(view)
            continue
        of_fields = [pieces.boxes if n == 0 else _alike(pieces, views[n][0].shape)
                     for n in range(len(fields))]
        for piece in range(pieces.count):
            parts = [[views[n][level][of_fields[n][piece]] for n in range(len(fields))]
                     for level in range(levels)]
            parcels.append(Parcel(rank, [(number, piece)], parts, marked=True))
    for parcel in whole.values():  # field by field: faces of one share pages and cache lines
        count = len(fields)
        parcel.parts = [[part for n in range(count) for part in level[n::count]]
                        for level in parcel.parts]
    return parcels


def _alike(pieces: Pieces, shape: tuple[int, ...]) -> tuple[Box, ...]:
    """A face of another field, cut as the first one is along the axes counted from the last."""
    more = len(shape) - len(pieces.counts)
    counts = (1,) * more + pieces.counts[max(-more, 0) :]
    cut = Pieces(shape, counts)
    if cut.count != pieces.count:
        raise PatternError(f"a face of shape {shape} in pieces {pieces.counts}")
    return cut.boxes


def _view(each: Field, number: int, level: int, leaving: bool, flips: bool) -> NDArray[Any]:
    face, array = each.faces[number], each.levels[level % len(each.levels)]
    view: NDArray[Any] = array[face.send if leaving else face.recv]
    return np.flip(view, face.flip) if flips and face.flip else view
