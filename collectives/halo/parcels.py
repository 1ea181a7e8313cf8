"""Fields, and the parcels in which they travel: what is asked for, and what every pair agrees on.

All that a rank sends to another one in one stage of a round is one *parcel*: the boxes of all
faces and all fields, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed, told
from onesided.collectives.buffers import overlap
from onesided.collectives.context import Context
from onesided.collectives.errors import PatternError
from onesided.collectives.halo.faces import Face, check_apart, extents, is_empty
from onesided.collectives.pattern import Box

#: The faces of the block that an array shows; it is that of the field of this number.
FacesOf = Callable[[NDArray[Any], int], Iterable[Face]]

#: The ways of a parcel (:mod:`.plan`).
STORE, STAGED, MESSAGE = ("store", "staged", "message")

#: Alignment of the parts of a parcel, in bytes.
PART = 16


@dataclass(frozen=True)
class Field:
    """Arrays of one form that take turns, round by round, and the faces of their block."""

    levels: tuple[NDArray[Any], ...]
    faces: tuple[Face, ...]


#: By level, and part of a parcel: a region by its key, the segment, the offset there, the strides.
Stores = tuple[tuple[tuple[str, int, int, tuple[int, ...]], ...], ...]


@dataclass(frozen=True)
class Advert:
    """How and where a parcel is wanted: its counter, and where its parts go, by slot or level.

    Offsets are in bytes of the receiver's control memory, or of its segment of a region.
    """

    path: str = ""
    cell: int = 0
    slots: tuple[int, ...] = ()
    stores: Stores = ()


@dataclass(eq=False)
class Parcel:
    """What goes to, or comes from, one rank at a time, in one stage.

    ``parts`` are views of the fields, by level. What follows is known when the receiver has told:
    ``places`` where a part goes or lies, in turn; ``cell`` the counter, or the ``messages`` of the
    ``buffer``; and ``chain``, its place in the program.
    """

    peer: int
    stage: int
    parts: list[list[NDArray[Any]]]
    advert: Advert = Advert()
    places: list[list[NDArray[Any]]] = field(default_factory=list)
    cell: Any = None
    buffer: Any = None
    messages: list[MPI.Prequest] = field(default_factory=list)
    chain: int = -1

    @property
    def path(self) -> str:
        """The way it takes; "" from a rank to itself."""
        return self.advert.path

    def level(self, turn: int) -> list[NDArray[Any]]:
        """Local. The parts in a round."""
        return self.parts[turn % len(self.parts)]

    def place(self, turn: int) -> list[NDArray[Any]]:
        """Local. Where they go to or come from in a round."""
        return self.places[turn % len(self.places)]

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


def read_fields(fields: Any, faces_of: FacesOf) -> tuple[Field, ...]:
    """Local. The fields with their faces; raises :class:`PatternError`."""
    if not isinstance(fields, list) or not fields:
        raise PatternError(f"a halo needs a NumPy array, not {type(fields).__name__}")
    found = []
    for number, entry in enumerate(fields):
        levels = tuple(entry) if isinstance(entry, tuple) and entry else (entry,)
        for level in levels:
            _check(level)
            form, first = (level.shape, level.dtype), (levels[0].shape, levels[0].dtype)
            if form != first:
                raise PatternError(f"arrays of {form} and {first} cannot take turns")
        faces = tuple(faces_of(levels[0], number))
        check_apart(faces)
        found.append(Field(tuple(np.asarray(level) for level in levels), faces))
    if len({len(each.faces) for each in found}) > 1:
        raise PatternError("fields of one halo that have not the same faces")
    every = [level for each in found for level in each.levels]
    for number, level in enumerate(every):
        if any(overlap(level, other) for other in every[:number]):
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


#: By field, the shape and dtype of what goes through a face.
Forms = list[tuple[tuple[int, ...], np.dtype[Any]]]


def _box(each: Field, number: int, leaving: bool) -> Box:
    face = each.faces[number]
    return face.send if leaving else face.recv


def _used(fields: Sequence[Field], leaving: bool) -> list[int]:
    """The numbers of the faces through which something leaves, or comes, of whichever field."""
    return [number for number in range(len(fields[0].faces))
            if not all(is_empty(_box(each, number, leaving)) for each in fields)]


def _forms(fields: Sequence[Field], number: int, leaving: bool) -> Forms:
    return [(extents(_box(each, number, leaving)), each.levels[0].dtype) for each in fields]


# -- matching -------------------------------------------------------------------------------------

#: What a rank tells another one about what it sends: by key the face's name, and the forms.
Words = dict[int, tuple[str, Forms]]


def match(context: Context, fields: Sequence[Field]) -> None:
    """Collective. Compare what ranks send with what their neighbors expect.

    Raises :class:`PatternError` on every rank, naming the pair of ranks, where a rank expects
    another shape or dtype than comes, something that nobody sends, or nothing where something
    comes.
    """
    comm = context.comm
    words: dict[int, Words] = {}
    for number in _used(fields, True):
        face = fields[0].faces[number]
        words.setdefault(face.rank, {})[face.send_key] = (
            face.name, _forms(fields, number, True))
    heard = told(comm, context.next_tag(), words)
    with agreed(comm, "boxes of a halo"):
        _compare(comm.rank, fields, heard)


def _compare(me: int, fields: Sequence[Field], heard: Mapping[int, Words]) -> None:
    left = {(rank, key): word for rank, words in heard.items() for key, word in words.items()}
    for number in _used(fields, False):
        face, expected = fields[0].faces[number], _forms(fields, number, False)
        name, sent = left.pop((face.rank, face.recv_key), ("", None))
        if sent is None:
            raise PatternError(
                f"rank {me} expects a box of shape {_first_shape(expected)} from rank {face.rank} "
                f"({face.name}), which sends nothing"
            )
        for (comes, dtype), (wanted, kind) in zip(sent, expected, strict=True):
            if comes != wanted:
                raise PatternError(
                    f"rank {face.rank} sends a box of shape {comes} to rank {me} ({name}), which "
                    f"expects {wanted} ({face.name})"
                )
            if dtype != kind:
                raise PatternError(
                    f"rank {face.rank} sends {dtype} to rank {me}, which expects {kind}"
                )
    for sender, key in sorted(left):
        name, sent = left[sender, key]
        raise PatternError(
            f"rank {sender} sends a box of shape {_first_shape(sent)} to rank {me} ({name}), "
            "which expects nothing"
        )


def _first_shape(forms: Forms) -> tuple[int, ...]:
    return next(shape for shape, _ in forms if 0 not in shape)


def make_parcels(fields: Sequence[Field], leaving: bool) -> list[Parcel]:
    """Local. What leaves, or comes, in an order that is the same on both sides of a pair.

    Field by field: faces of one share pages and cache lines.
    """
    faces = fields[0].faces

    def key(number: int) -> tuple[int, int]:
        return faces[number].stage, faces[number].send_key if leaving else faces[number].recv_key

    numbers: dict[tuple[int, int], list[int]] = {}
    for number in sorted(_used(fields, leaving), key=key):
        numbers.setdefault((faces[number].rank, faces[number].stage), []).append(number)
    levels = math.lcm(*(len(each.levels) for each in fields))
    parcels = []
    for (rank, stage), mine in numbers.items():
        views = [[each.levels[level % len(each.levels)][_box(each, n, leaving)]
                  for each in fields for n in mine] for level in range(levels)]
        parcels.append(Parcel(rank, stage, [[v for v in some if v.size] for some in views]))
    return parcels
