"""Fields, and the parcels in which they travel: what is asked for, and what every pair agrees on.

All that a rank sends to another one in one stage of a round is one *parcel*: the boxes of all
faces and all fields, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.buffers import overlap
from onesided.collectives.errors import PatternError
from onesided.collectives.halo.faces import Face

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


#: By the key of a face and the number of a field: the name of the face, what goes through it.
Forms = dict[tuple[int, int], tuple[str, tuple[int, ...], np.dtype[Any]]]

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

    ``parts`` are views of the fields, by level, ``forms`` what they are called and look like. What
    follows is known when the receiver has told:
    ``places`` where a part goes or lies, in turn; ``cell`` the counter, or the ``messages`` of the
    ``buffer``; and ``chain``, its place in the program.
    """

    peer: int
    stage: int
    parts: list[list[NDArray[Any]]]
    forms: Forms = field(default_factory=dict)
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
        found.append(Field(tuple(np.asarray(level) for level in levels), faces))
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


# -- matching -------------------------------------------------------------------------------------


def make_parcels(fields: Sequence[Field], leaving: bool) -> list[Parcel]:
    """Local. What leaves through the faces, or comes, in an order that is the same on both sides
    of a pair.

    Field by field: faces of one share pages and cache lines.
    """
    levels = math.lcm(*(len(each.levels) for each in fields))
    parcels: dict[tuple[int, int], Parcel] = {}
    for number, each in enumerate(fields):
        faces = each.faces if leaving else [face.back for face in each.faces]
        for face in sorted(faces, key=attrgetter("stage", "send_key")):
            views = [each.levels[turn % len(each.levels)][face.send] for turn in range(levels)]
            if not views[0].size:
                continue
            parcel = parcels.setdefault(
                (face.rank, face.stage), Parcel(face.rank, face.stage, [[] for _ in views]))
            parcel.forms[face.send_key, number] = face.name, views[0].shape, views[0].dtype
            for part, view in zip(parcel.parts, views, strict=True):
                part.append(view)
    return list(parcels.values())


def forms_of(parcels: Iterable[Parcel]) -> Forms:
    """Local. All that one rank sends to another one."""
    return {where: form for parcel in parcels for where, form in parcel.forms.items()}


def match(me: int, into: Iterable[Parcel], heard: Mapping[int, Forms]) -> None:
    """Local. Compare what ranks send with what this one expects.

    Raises :class:`PatternError`, naming the pair of ranks, where another shape or dtype comes than
    it expects, nothing where it expects something, or something where it expects nothing.
    """
    left = {(rank, *where): form for rank, forms in heard.items() for where, form in forms.items()}
    for parcel in into:
        for where, (face, wanted, kind) in parcel.forms.items():
            name, comes, dtype = left.pop((parcel.peer, *where), ("", None, kind))
            if comes is None:
                raise PatternError(
                    f"rank {me} expects a box of shape {wanted} from rank {parcel.peer} ({face}), "
                    "which sends nothing"
                )
            if comes != wanted:
                raise PatternError(
                    f"rank {parcel.peer} sends a box of shape {comes} to rank {me} ({name}), which "
                    f"expects {wanted} ({face})"
                )
            if dtype != kind:
                raise PatternError(
                    f"rank {parcel.peer} sends {dtype} to rank {me}, which expects {kind}"
                )
    for where in sorted(left):
        name, comes, _ = left[where]
        raise PatternError(
            f"rank {where[0]} sends a box of shape {comes} to rank {me} ({name}), which expects "
            "nothing"
        )
