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
    stage: int = 0
    parts: list[list[NDArray[Any]]] = field(default_factory=list)
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


def sends(fields: Sequence[Field], number: int) -> bool:
    """Local. Whether anything leaves through a face, of whichever field."""
    return not all(is_empty(each.faces[number].send) for each in fields)


def receives(fields: Sequence[Field], number: int) -> bool:
    """Local. Whether anything comes through a face."""
    return not all(is_empty(each.faces[number].recv) for each in fields)


# -- matching -------------------------------------------------------------------------------------

#: What a rank tells another one about what it sends: by key the face's name, and shape and dtype
#: by field.
Words = dict[int, tuple[str, list[tuple[tuple[int, ...], np.dtype[Any]]]]]


def match(context: Context, fields: Sequence[Field]) -> None:
    """Collective. Compare what ranks send with what their neighbors expect.

    Raises :class:`PatternError` on every rank, naming the pair of ranks, where a rank expects
    another shape or dtype than comes, something that nobody sends, or nothing where something
    comes.
    """
    comm = context.comm
    words: dict[int, Words] = {}
    for number, face in enumerate(fields[0].faces):
        if sends(fields, number):
            words.setdefault(face.rank, {})[face.send_key] = (face.name, [
                (extents(f.faces[number].send), f.levels[0].dtype) for f in fields])
    heard = told(comm, context.next_tag(), words)
    with agreed(comm, "boxes of a halo"):
        _compare(comm.rank, fields, heard)


def _compare(me: int, fields: Sequence[Field], heard: Mapping[int, Words]) -> None:
    left = {(rank, key) for rank, said in heard.items() for key in said}
    for number, face in enumerate(fields[0].faces):
        if not receives(fields, number):
            continue
        sender = face.rank
        said = heard.get(sender, {})
        if face.recv_key not in said:
            shape = next(extents(f.faces[number].recv) for f in fields
                         if not is_empty(f.faces[number].recv))
            raise PatternError(
                f"rank {me} expects a box of shape {shape} from rank {sender} ({face.name}), "
                "which sends nothing"
            )
        left.discard((sender, face.recv_key))
        name, forms = said[face.recv_key]
        for each, (sent, dtype) in zip(fields, forms, strict=True):
            wanted, kind = extents(each.faces[number].recv), each.levels[0].dtype
            if sent != wanted:
                raise PatternError(
                    f"rank {sender} sends a box of shape {sent} to rank {me} ({name}), which "
                    f"expects {wanted} ({face.name})"
                )
            if dtype != kind:
                raise PatternError(
                    f"rank {sender} sends {dtype} to rank {me}, which expects {kind}"
                )
    for sender, key in sorted(left):
        name, forms = heard[sender][key]
        shape = next(sent for sent, _ in forms if 0 not in sent)
        raise PatternError(
            f"rank {sender} sends a box of shape {shape} to rank {me} ({name}), which "
            "expects nothing"
        )


def make_parcels(fields: Sequence[Field], leaving: bool) -> list[Parcel]:
    """Local. What leaves, or comes, in an order that is the same on both sides of a pair.

    Field by field: faces of one share pages and cache lines.
    """
    moves = sends if leaving else receives
    faces = fields[0].faces

    def key(number: int) -> tuple[int, int]:
        return faces[number].stage, faces[number].send_key if leaving else faces[number].recv_key

    levels = math.lcm(*(len(each.levels) for each in fields))
    numbers = sorted((n for n in range(len(faces)) if moves(fields, n)), key=key)
    parcels: dict[tuple[int, int], Parcel] = {}
    for number in numbers:
        face = faces[number]
        parcels.setdefault((face.rank, face.stage), Parcel(face.rank, face.stage))
    for at, parcel in parcels.items():
        mine = [n for n in numbers if (faces[n].rank, faces[n].stage) == at]
        for level in range(levels):
            views = [_view(each, n, level, leaving) for each in fields for n in mine]
            parcel.parts.append([view for view in views if view.size])
    return list(parcels.values())


def _view(each: Field, number: int, level: int, leaving: bool) -> NDArray[Any]:
    face, array = each.faces[number], each.levels[level % len(each.levels)]
    view: NDArray[Any] = array[face.send if leaving else face.recv]
    return view
