"""Reading: find a field in a main file, make sure that its data are there, and get a block.

HDF5 reads what a missing file held as fill values, without a word. So every file that holds
a part of the wanted block is looked at first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import h5py
import numpy as np

from onesided.collectives.errors import PatternError
from onesided.pencilfft.io.filebase import FileError, check_array, naming
from onesided.pencilfft.io.selection import Selection
from onesided.pencilfft.io.snapshot import dataset_path
from onesided.pencilfft.io.store import Source, Store, sources_of

Index = tuple[int | slice, ...]


def find(
    file: Any, array: Any, name: str, step: int, global_slice: Sequence[Any] | None
) -> tuple[Any, Index]:
    """Local. The dataset for an array, and which part of it is the array's local block.

    A global slice is looked for as such; where it was not written, it is cut from the whole field.
    """
    local, rank = tuple(array.local_slice()), array.rank
    shape = tuple(array.global_shape)[rank:]
    index: Index = local
    if global_slice is None:
        path = dataset_path(name, Selection.of(shape), step)
    else:
        selection = Selection.of(field_shape(file, name), global_slice)
        path = dataset_path(name, selection, step)
        if path not in file:
            path = dataset_path(name, Selection.of(selection.shape), step)
            if len(shape) != len(selection.result):
                raise PatternError(
                    f"the slice has {len(selection.result)} axes, the array has {len(shape)}")
            index = local[:rank] + selection.source(local[rank:])
    found = dataset(file, path)
    there = found.shape if index is local else found.shape[:rank] + selection.result
    check_array(f"{file.filename}: {path}", there, found.dtype, array)
    return found, index


def dataset(file: Any, path: str) -> Any:
    """Local. A dataset of an open main file."""
    if path not in file:
        raise FileError(f"{file.filename}: no {path}; {_what_there_is(file, path)}")
    return file[path]


def steps(file: Any, name: str) -> list[int]:
    """Local. The steps of a whole field that an open main file has."""
    shape = field_shape(file, name)
    group = file.get(f"{name}/{len(shape)}D", {})
    return sorted(int(key) for key in group if key.isdigit())


def field_shape(file: Any, name: str) -> tuple[int, ...]:
    """Local. Global shape of a field, without components."""
    if name not in file or "shape" not in file[name].attrs:
        raise FileError(f"{file.filename}: no field {name!r}; there is {sorted(file)}")
    return tuple(int(n) for n in file[name].attrs["shape"])


def _what_there_is(file: Any, path: str) -> str:
    """The nearest group above that exists, and what it has."""
    folder = path
    while folder not in file:
        folder = os.path.dirname(folder) or "/"
    return f"{folder} has {sorted(file[folder])}"


def check_parts(store: Store, field: Any, index: Index) -> None:
    """Local. Raise unless every file that holds a part of ``index`` is there and whole."""
    for path, source in _parts(store, field, index):
        if not os.path.exists(path):
            raise FileError(
                f"{path}: this file is missing; it holds a part of {store.main}:{field.name}"
            )
        extent = tuple(span.stop - span.start for span in source.box)
        with naming(path), h5py.File(path, "r") as file:
            part = file.get(source.dataset)
            fits = part is not None and part.dtype == field.dtype
            if not fits or (source.whole and part.shape != extent):
                found = "nothing" if part is None else f"{part.dtype} of shape {part.shape}"
                raise FileError(
                    f"{path}: at {source.dataset} there is {found}, not {field.dtype} of shape "
                    f"{extent}, as {store.main} says"
                )


def check_still_there(store: Store, field: Any, index: Index) -> None:
    """Local. Raise where a file is gone that holds a part of ``index``: a step that is replaced
    loses its files, and what HDF5 has read of these may be fill values."""
    for path, _ in _parts(store, field, index):
        if not os.path.exists(path):
            raise FileError(f"{store.main}: {field.name} was replaced while it was read")


def _parts(store: Store, field: Any, index: Index) -> Iterator[tuple[str, Source]]:
    """The files that hold a part of ``index``, and which part of the field each holds."""
    wanted = [part if isinstance(part, slice) else slice(part, part + 1) for part in index]
    for source in sources_of(field):
        spans = zip(source.box, wanted, strict=True)
        if all(a.start < b.stop and b.start < a.stop for a, b in spans):
            yield store.resolve(source.reference), source


def load(array: Any, field: Any, index: Index) -> None:
    """Local. Read the block into the array, converted where the types differ."""
    target = array.view(np.ndarray)
    if not target.size:
        return
    with naming(field.file.filename):
        if target.dtype == field.dtype and target.flags.c_contiguous:
            field.read_direct(target, index)
        else:
            target[...] = field[index]
