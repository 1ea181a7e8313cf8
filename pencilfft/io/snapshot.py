"""What one write puts into a file: the fields of a step, their groups, and where they lie there.

The layout is mpi4py-fft's: ``/u/3D/0`` is step 0 of the three-dimensional field u,
``/u/2D/slice_4_slice/0`` a global slice of it; ``/u`` has attributes ``shape`` and ``rank``, and
``/u/domain`` or ``/u/mesh`` the origin and length, or the coordinates, of each axis.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.pencilfft.io.filebase import is_everyones
from onesided.pencilfft.io.nodefiles import Piece, Sources
from onesided.pencilfft.io.selection import Selection
from onesided.pencilfft.io.store import create_virtual


@dataclass(frozen=True)
class Domain:
    """Local. Per axis all coordinates (``mesh``), or origin and length (``domain``)."""

    word: str
    arrays: list[NDArray[Any]]

    @classmethod
    def of(cls, given: Sequence[Any], shape: tuple[int, ...]) -> Domain:
        """Local. From a sequence of arrays, or one of pairs, with an entry for each axis.

        Of a spectrum mpi4py-fft's programs give the coordinates of physical space, which are more.
        """
        if len(given) != len(shape):
            raise PatternError(f"the domain has {len(given)} axes, the array {len(shape)}: {shape}")
        meshed = isinstance(given[0], np.ndarray)
        arrays = []
        for axis, (part, n) in enumerate(zip(given, shape, strict=True)):
            if isinstance(part, np.ndarray) != meshed:
                raise PatternError("a domain is all arrays, or all pairs of origin and length")
            array = part.reshape(-1) if meshed else np.asarray(part, dtype=float)
            if len(array) < n if meshed else array.shape != (2,):
                wanted = f"{n} coordinates" if meshed else "(2,): origin and length"
                raise PatternError(
                    f"axis {axis} of the domain has shape {array.shape}, not {wanted}"
                )
            arrays.append(array)
        return cls("mesh" if meshed else "domain", arrays)


@dataclass(frozen=True)
class Group:
    """Local. A field's name, global shape without components, tensor rank, and domain if given."""

    name: str
    shape: tuple[int, ...]
    rank: int
    domain: Domain | None


@dataclass(frozen=True)
class Snapshot:
    """Local. This rank's pieces of the fields of one step, the groups that these belong to, and by
    path a checksum of what all ranks have, which is a piece of rank 0."""

    groups: list[Group]
    pieces: list[Piece]
    everyones: dict[str, int]

    @classmethod
    def of(
        cls,
        comm: MPI.Comm,
        step: int,
        fields: Mapping[str, list[Any]],
        as_scalar: bool,
        domain: Sequence[Any] | None,
    ) -> Snapshot:
        """Local. From the arguments of :meth:`HDF5File.write`."""
        groups: dict[str, Group] = {}
        pieces: dict[str, Piece] = {}
        everyones: dict[str, int] = {}
        for name, array, global_slice in _components(fields, as_scalar):
            shape = tuple(array.global_shape)[array.rank :]
            given = None if domain is None else Domain.of(domain, shape)
            group = Group(name, shape, array.rank, given)
            if name in groups and (groups[name].shape, groups[name].rank) != (shape, array.rank):
                raise PatternError(f"two arrays of different shape or rank are both named {name!r}")
            groups[name] = group
            selection = Selection.of(shape, global_slice)
            path = dataset_path(name, selection, step)
            piece = _piece(path, array, selection)
            if path in pieces and _place(pieces[path]) != _place(piece):
                raise PatternError(f"two arrays are both named {path!r}")
            pieces[path] = piece
            if is_everyones(array, comm):
                everyones[path] = zlib.crc32(b"" if piece.data is None else piece.data.tobytes())
        for path in everyones if comm.rank else ():
            pieces[path] = replace(pieces[path], box=None, data=None)
        return cls(list(groups.values()), list(pieces.values()), everyones)

    @property
    def forms(self) -> list[tuple[Any, ...]]:
        """Local. Path, shape and dtype of the datasets, in order: the same on all ranks."""
        forms: list[tuple[Any, ...]] = [
            (piece.path, piece.shape, piece.dtype.str) for piece in self.pieces
        ]
        return forms + list(self.everyones.items())

    def check(self, file: Any) -> None:
        """Local. Raise when an open main file has a field of a name, but another shape or rank."""
        for group in self.groups:
            if group.name not in file:
                continue
            attributes = file[group.name].attrs
            if "shape" not in attributes or "rank" not in attributes:
                raise PatternError(f"{file.filename}: {group.name!r} is not a field")
            there = tuple(int(n) for n in attributes["shape"]), int(attributes["rank"])
            if there != (group.shape, group.rank):
                raise PatternError(
                    f"{file.filename}: {group.name!r} has shape {there[0]} and rank {there[1]}, "
                    f"the array {group.shape} and rank {group.rank}"
                )

    def apply(self, file: Any, sources: Sources, attributes: Mapping[str, Any]) -> bool:
        """Local. Enter the pieces into a main file; whether it had some of them."""
        self.check(file)
        replaces = False
        for group in self.groups:
            _enter_group(file.require_group(group.name), group)
        for piece, places in zip(self.pieces, sources, strict=True):
            if piece.path in file:
                del file[piece.path]
                replaces = True
            dataset = create_virtual(file, piece.path, piece.shape, piece.dtype, places)
            for key, value in attributes.items():
                try:
                    dataset.attrs[key] = value
                except (TypeError, ValueError) as error:
                    raise PatternError(f"attribute {key!r}: {value!r}: {error}") from error
        return replaces


def dataset_path(name: str, selection: Selection, step: int) -> str:
    """Local. Where a field, or a global slice of it, lies in the file."""
    part = "" if selection.whole else f"/{selection.name}"
    return f"{name}/{len(selection.axes)}D{part}/{step}"


def step_number(step: Any) -> int:
    """Local. A step as a number that is not negative."""
    try:
        number = operator.index(step)
    except TypeError as error:
        raise PatternError(f"step is {step!r}, not an integer") from error
    if number < 0:
        raise PatternError(f"step is {number}; steps are counted from 0")
    return number


def _components(
    fields: Mapping[str, list[Any]], as_scalar: bool
) -> Iterator[tuple[str, Any, Any]]:
    """Name, array and global slice of everything to be written; a tensor's components apart."""
    for name, entries in fields.items():
        if not isinstance(name, str) or not name.strip(".") or "/" in name:
            raise PatternError(f"{name!r} is no name for a field")
        for entry in entries:
            pair = isinstance(entry, list | tuple)
            if pair and len(entry) != 2:
                raise PatternError(f"{name!r}: {len(entry)} things are not an array and a slice")
            array: Any = entry[0] if pair else entry
            global_slice = entry[1] if pair else None
            if not hasattr(array, "global_shape"):
                raise PatternError(f"{name!r}: {type(array).__name__} is no distributed array")
            if not as_scalar:
                yield name, array, global_slice
                continue
            for index in np.ndindex(array.shape[: array.rank]):
                # one index as a number: shenfun's arrays take a tuple for a part of the block
                component = array[index if len(index) > 1 else index[0]] if index else array
                yield name + "".join(map(str, index)), component, global_slice


def _place(piece: Piece) -> Any:
    """Where the data of a piece lie in memory."""
    return None if piece.data is None else piece.data.__array_interface__


def _piece(path: str, array: Any, selection: Selection) -> Piece:
    components = tuple(array.global_shape)[: array.rank]
    shape = components + selection.result
    if not selection.axes:
        raise PatternError(f"{path}: the global slice leaves a single point, not a field")
    found = selection.cut(tuple(array.local_slice())[array.rank :])
    if found is None or 0 in components:
        return Piece(path, shape, array.dtype, None, None)
    here, there = found
    data = array.view(np.ndarray)[(slice(None),) * array.rank + here]
    return Piece(path, shape, array.dtype, tuple(slice(0, n) for n in components) + there, data)


def _enter_group(entry: Any, group: Group) -> None:
    """Write attributes and domain of a field; a domain that is there stays unless one is given."""
    entry.attrs["shape"], entry.attrs["rank"] = group.shape, group.rank
    domain = group.domain
    if domain is None:
        if "domain" in entry or "mesh" in entry:
            return
        domain = Domain.of([(0.0, 2 * np.pi)] * len(group.shape), group.shape)
    for word in ("domain", "mesh"):
        if word in entry:
            del entry[word]
    place = entry.create_group(domain.word)
    for axis, array in enumerate(domain.arrays):
        place.create_dataset(f"x{axis}", data=array)
