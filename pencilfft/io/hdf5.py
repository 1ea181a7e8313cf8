"""HDF5 files of distributed arrays, by time step, with mpi4py-fft's interface and layout.

Written by any communicator, read by any other, whatever the decomposition. See
:mod:`onesided.pencilfft.io.store` for what lies where, and what a killed run leaves. HDF5 reads
what a missing file held as fill values, without a word: so every file that holds a part of the
wanted block is looked at first.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI

from onesided.collectives.agreement import agree, agreed, largest
from onesided.collectives.errors import PatternError
from onesided.pencilfft.io.filebase import (
    MODES,
    FileBase,
    FileError,
    at_root,
    check_array,
    is_everyones,
    naming,
)
from onesided.pencilfft.io.nodefiles import write_node_files
from onesided.pencilfft.io.selection import Box, Selection
from onesided.pencilfft.io.snapshot import Snapshot, dataset_path, step_number
from onesided.pencilfft.io.store import (
    JOINED,
    Source,
    Store,
    address_of,
    copy_tree,
    identity,
    sources_of,
)

#: Bytes that are copied at a time when files are joined.
SLAB = 1 << 26


@dataclass(frozen=True)
class _Edit:
    """A file that is open to be changed: by whom, as which revision, and a checksum of it as it was
    then, none where it was not there."""

    comm: MPI.Comm
    prefix: str
    state: int | None


class HDF5File(FileBase):
    """Local. A name for files of distributed arrays; nothing is opened until a read or write.

    Arguments as in mpi4py-fft. ``mode`` is "r" to read only, "a" (or "r+", if the file must be
    there) to add steps, "w" to begin anew: the old file stays until the first write, or the
    first :meth:`close` of a file that was opened to be changed, is complete.
    ``domain`` gives each axis as a pair (origin, length), or as an array of all coordinates; None
    is (0, 2 pi), or what the file has.

    ``comm`` is the communicator of those who read and write, by default that of the arrays
    (of one-dimensional ones, which have none, MPI.COMM_WORLD: all its ranks come), and of
    those who :meth:`open` the file to change it, by default MPI.COMM_WORLD.
    The data of a step lie in one file for each node, which its ranks write side by side;
    ``ranks_per_node`` makes it a file for so many consecutive ranks of a node. Further arguments go
    to h5py.File for these files.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> u = DistArray((4, 4), [0, 1], val=2.0)
    >>> with HDF5File(f"{folder}/u.h5", mode="w") as file:
    ...     file.write(0, {"u": [u]})
    >>> again = DistArray((4, 4), [0, 1])
    >>> HDF5File(f"{folder}/u.h5", mode="r").read(again, "u", step=0)
    >>> bool((again == 2).all())
    True
    """

    def __init__(
        self,
        h5name: str | os.PathLike[str],
        domain: Sequence[Any] | None = None,
        mode: str = "a",
        *,
        comm: MPI.Comm | None = None,
        ranks_per_node: int | None = None,
        **kw: Any,
    ) -> None:
        super().__init__(h5name, domain, mode, comm)
        self._store = Store(h5name)
        if ranks_per_node is not None and ranks_per_node < 1:
            raise PatternError(f"{ranks_per_node=}")
        if "driver" in kw:
            raise PatternError(f"driver={kw['driver']!r}; the files are written by plain HDF5")
        self._ranks_per_node, self._options = ranks_per_node, kw
        self._edit: _Edit | None = None

    @staticmethod
    def backend() -> str:
        """Local. The name of the file format."""
        return "hdf5"

    def open(self, mode: str = "r+") -> None:
        """Collective, but Local for "r". Open the file as an h5py.File, :attr:`f`.

        "r" is to look around, as is "r+" where the constructor said "r". To change it ("r+", "a",
        "w", as h5py has them; "r+" also where the constructor said "a" or "w") every rank gets
        groups, attributes and datasets in its own memory, and changes them as all others do;
        :meth:`close` makes it the file's; nobody else can change it until then. Fields are added by
        :meth:`write`. What is assigned to the dataset of a step that is there goes to the file at
        once. Reads and writes of fields close the file first.

        Raises PatternError for another mode, FileError where the file is missing or the system or
        HDF5 fails.
        """
        self.close()
        if mode == "r" or (mode == "r+" and self._mode == "r"):
            super().open("r")
            return
        comm = MPI.COMM_WORLD if self._comm is None else self._comm
        with agreed(comm, ("an open", self.filename, mode)):
            if mode not in MODES:
                raise PatternError(f"mode is {mode!r}, not one of {MODES}")
            self._require_writable()
        store, afresh = self._store, "w" in (mode, self._mode)
        may_be_new = afresh or "a" in (mode, self._mode)

        def begin() -> tuple[str, bool]:
            if not (may_be_new or os.path.exists(store.main)):
                raise FileError(f"{store.main}: there is no such file")
            prefix = store.edit(afresh)  # which waits for nobody: now it is this rank's
            return prefix, not os.path.exists(store.new)

        try:
            prefix, is_new = at_root(comm, begin)
            with agreed(comm), naming(store.new):
                # HDF5 opens the files of the nodes as it opens this one, for writing: all ranks do
                self.f = file = h5py.File(
                    store.new, "w" if is_new else "r+",
                    driver="core", backing_store=False, locking=False,
                )  # fmt: skip
                state = None if is_new else _state_of(file)
                self._edit = _Edit(comm, prefix, state)
        except Exception:
            self._let_go()
            raise

    def close(self) -> None:
        """Local; Collective where the file was opened to be changed. Close :attr:`f`; what was
        changed is then on the disk: all of it or, when the run is killed, nothing.

        Raises PatternError where ranks changed the file in different ways, FileError where the
        system or HDF5 fails; the file is then as before.
        """
        edit, self._edit = self._edit, None
        if edit is None or self.f is None:
            super().close()
            return
        comm, file, store = edit.comm, self.f, self._store
        try:
            with agreed(comm), naming(store.main):
                file.flush()
                state, image = _state_of(file), file.id.get_file_image()
                super().close()
            most = largest(comm, None, "close", [state, -state])
            if most[0] != -most[1]:
                raise PatternError(
                    f"{store.main}: ranks have changed it in different ways; write() takes what "
                    f"each rank has of a field"
                )
            if state == edit.state:
                at_root(comm, store.abandon)
                return
            at_root(comm, lambda: store.replace(edit.prefix, image))
            self._mode = "a" if self._mode == "w" else self._mode
        except Exception:
            self._let_go()
            raise

    def _let_go(self) -> None:
        self._edit = None
        super()._let_go()
        self._store.abandon()  # what rank 0 has begun

    def write(
        self,
        step: int,
        fields: Mapping[str, Any],
        *,
        as_scalar: bool = False,
        attributes: Mapping[str, Any] | None = None,
        forward_output: bool | None = None,
    ) -> None:
        """Collective. Add the fields of a step, all of them or, when the run is killed, none.

        ``fields`` has names and lists of arrays, or of pairs of an array and a global slice (per
        axis an index or a slice of global indices), which is stored besides as
        ``/u/2D/slice_4_slice/0``. ``as_scalar`` stores the components of tensors as fields of
        their own, u0, u1, ... ``attributes`` are stored with each dataset of the step. What the
        file has of the step under these names is replaced. ``forward_output``, which shenfun's
        programs give, means nothing, as in mpi4py-fft.

        Raises PatternError for arguments that do not fit the file, FileError where the system or
        HDF5 fails; the file is then as before. When it returns the data are on the disk.
        """
        self.close()
        comm, fields = self._writers(fields)
        with agreed(comm):
            self._require_writable()
            snapshot = Snapshot.of(comm, step_number(step), fields, as_scalar, self.domain)
        agree(comm, what=("a write", self.filename, snapshot.forms, self._ranks_per_node))
        store, afresh = self._store, self._mode == "w"
        try:
            prefix = at_root(comm, lambda: self._begin(snapshot))
            sources = write_node_files(
                comm, store, prefix, snapshot.pieces, self._options, self._ranks_per_node
            )

            def change(file: Any) -> bool:
                return snapshot.apply(file, sources, attributes or {})

            at_root(comm, lambda: store.complete(prefix, change, afresh))
        except Exception:  # agreed: every rank is here, and none writes any more
            store.abandon()
            raise
        if afresh:
            self._mode = "a"

    def read(
        self,
        u: Any,
        name: str,
        step: int = 0,
        forward_output: bool | None = None,
    ) -> None:
        """Collective. Read a step of a field into ``u``, however the field was distributed.

        Types are converted where nothing but precision is lost. ``forward_output`` means nothing.

        Raises PatternError for an array of another shape or kind of number, FileError for a file,
        field or step that is missing and for files that are missing or cut short.
        """
        self.close()
        comm, file = self._communicator([u]), None
        # until every rank is here one of them may have the file open, to change it by itself
        agree(comm, what=("a read", self.filename, name, step))
        try:
            with agreed(comm):
                is_everyones(u, comm)
                file = self._store.open()
                with naming(self._store.main):
                    same = zlib.crc32(repr(identity(file)).encode())
                    field, box = _find(file, u, name, step_number(step)), tuple(u.local_slice())
                    if u.size:
                        _check_parts(self._store, field, box)
            most = largest(comm, None, "file", [same, -same])
            if most[0] != -most[1]:
                raise FileError(f"{self._store.main}: it was changed while it was opened")
            with agreed(comm):
                _load(u, field, box)
                if u.size:
                    _check_still_there(self._store, field, box)
        finally:
            if file is not None:
                file.close()

    def steps(self, name: str) -> list[int]:
        """Local. The steps of a field that the file has, in order."""
        with self._store.open() as file, naming(self._store.main):
            group = file.get(f"{name}/{len(_field_shape(file, name))}D", {})
            return sorted(int(key) for key in group if key.isdigit())

    def attributes(self, name: str, step: int = 0) -> dict[str, Any]:
        """Local. The attributes that were stored with a step of a field."""
        with self._store.open() as file, naming(self._store.main):
            whole = Selection.of(_field_shape(file, name))
            path = dataset_path(name, whole, step_number(step))
            return dict(_dataset(file, path).attrs)

    def _opened(self) -> Any:
        """The main file: what is renamed can only be read in place."""
        return self._store.open()

    def _begin(self, snapshot: Snapshot) -> str:
        """Announce the revision, after a look at the file as it is."""
        if self._mode != "w" and (self._mode == "r+" or os.path.exists(self._store.main)):
            with self._store.open() as file:
                snapshot.check(file)
        return self._store.begin(self._mode == "w")


def _state_of(file: Any) -> int:
    """Local. A number that differs, almost surely, where groups, attributes, datasets or links do;
    the times are none of it at which HDF5 says that they were changed."""
    crc, names, links = 0, {address_of(file["/"]): "/"}, [("/", None)]

    def add(value: Any) -> None:
        nonlocal crc
        array = np.asarray(value)
        crc = zlib.crc32(repr((array.dtype, array.shape)).encode(), crc)
        if not array.dtype.hasobject:
            crc = zlib.crc32(array.tobytes(), crc)
            return
        for name in array.dtype.names or ():
            add(array[name])
        for each in () if array.dtype.names else array.flat:  # texts, arrays of any length, ...
            if isinstance(each, np.ndarray):
                add(each)
            elif isinstance(each, h5py.Reference) and each:
                add(h5py.h5r.get_name(each, file.id) or b"")
                # what it refers to may be gone
                with contextlib.suppress(KeyError, OSError, RuntimeError, ValueError):
                    if isinstance(each, h5py.RegionReference):
                        add(h5py.h5r.get_region(each, file.id).encode())
            else:
                crc = zlib.crc32(repr(each).encode(), crc)

    file.visititems_links(lambda *link: links.append(link))
    for name, link in links:
        add(name)
        if link is not None and not isinstance(link, h5py.HardLink):
            add((link.path, getattr(link, "filename", "")))
            continue
        item = file[name]
        if names.setdefault(address_of(item), name) != name:  # a further name of an object
            add(names[address_of(item)])
            continue
        for key in sorted(item.attrs):
            add(key)
            add(item.attrs[key])
        if isinstance(item, h5py.Dataset):
            add(repr((item.dtype, item.shape, item.maxshape, item.chunks, item.compression)))
            if item.is_virtual:
                for source in sources_of(item):
                    add(repr(source))
            else:
                add(item[()])
    return crc


def consolidate(filename: str | os.PathLike[str]) -> None:
    """Local. Join the files with the data of an HDF5 file into it; call it on one rank, or without
    MPI.

    What was one main file and a folder is afterwards one file, which every program can read and
    which no longer needs the folder. Needs room on the disk for a second copy of the data until it
    is complete; when it is ended before, everything is as it was. Steps can be added later.

    Raises FileError for files that are missing or cut short.

    Examples
    --------
    >>> import tempfile
    >>> folder = comm.bcast(tempfile.mkdtemp())
    >>> u = DistArray((4, 4), [0, 1], val=2.0)
    >>> HDF5File(f"{folder}/u.h5", mode="w").write(0, {"u": [u]})
    >>> if comm.rank == 0:
    ...     consolidate(f"{folder}/u.h5")  # a single file from now on
    """
    store = Store(filename)
    with store.open() as file, naming(store.main):
        if not store.referred(file):
            return
    try:
        prefix = store.begin(afresh=False)
        with store.open() as file:

            def change(new: Any) -> None:
                _join(store, file, new)
                new.attrs[JOINED] = True

            store.complete(prefix, change, afresh=True)
    except Exception:
        store.abandon()
        raise


def _join(store: Store, file: Any, new: Any) -> None:
    """Copy a main file, with the data that its datasets refer to."""

    def joined(name: str, item: Any) -> Any:
        if not item.is_virtual:
            return None
        _check_parts(store, item, tuple(slice(0, n) for n in item.shape))
        dataset = new.create_dataset(name, item.shape, item.dtype)
        for box in _boxes(item):
            dataset[box] = item[box]
        return dataset

    copy_tree(file, new, joined)


def _boxes(dataset: Any) -> Iterator[Box]:
    """The boxes that the files of a virtual dataset fill, in slabs of moderate size."""
    for source in sources_of(dataset):
        box = source.box
        row = dataset.dtype.itemsize * prod(span.stop - span.start for span in box[1:])
        rows = max(1, SLAB // row)
        for start in range(box[0].start, box[0].stop, rows):
            yield (slice(start, min(start + rows, box[0].stop)), *box[1:])


def _find(file: Any, array: Any, name: str, step: int) -> Any:
    """Local. The dataset for an array."""
    whole = Selection.of(tuple(array.global_shape)[array.rank :])
    path = dataset_path(name, whole, step)
    found = _dataset(file, path)
    check_array(f"{file.filename}: {path}", found.shape, found.dtype, array)
    return found


def _dataset(file: Any, path: str) -> Any:
    """Local. A dataset of an open main file."""
    if path not in file:
        raise FileError(f"{file.filename}: no {path}; {_what_there_is(file, path)}")
    return file[path]


def _field_shape(file: Any, name: str) -> tuple[int, ...]:
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


def _check_parts(store: Store, field: Any, wanted: Box) -> None:
    """Local. Raise unless every file that holds a part of a box is there and whole."""
    for path, source in _parts(store, field, wanted):
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


def _check_still_there(store: Store, field: Any, wanted: Box) -> None:
    """Local. Raise where a file is gone that holds a part of a box: a step that is replaced loses
    its files, and what HDF5 has read of these may be fill values."""
    for path, _ in _parts(store, field, wanted):
        if not os.path.exists(path):
            raise FileError(f"{store.main}: {field.name} was replaced while it was read")


def _parts(store: Store, field: Any, wanted: Box) -> Iterator[tuple[str, Source]]:
    """The files that hold a part of a box, and which part of the field each holds."""
    for source in sources_of(field):
        spans = zip(source.box, wanted, strict=True)
        if all(a.start < b.stop and b.start < a.stop for a, b in spans):
            yield store.resolve(source.reference), source


def _load(array: Any, field: Any, box: Box) -> None:
    """Local. Read the block into the array, converted where the types differ."""
    target = array.view(np.ndarray)
    if not target.size:
        return
    with naming(field.file.filename):
        if target.dtype == field.dtype and target.flags.c_contiguous:
            field.read_direct(target, box)
        else:
            target[...] = field[box]
