"""Distributed arrays of known values, for the cases and programs that write and read files."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import h5py
import numpy as np

from onesided.pencilfft import DistArray
from onesided.pencilfft.decomposition import balanced, block
from onesided.pencilfft.io.selection import Selection
from onesided.pencilfft.io.snapshot import dataset_path
from onesided.pencilfft.io.store import Store

#: As methods of a DistArray, of whatever knows what a file needs.
read, write = DistArray.read, DistArray.write


class Blocks(np.ndarray):
    """A block with what the files need to know of a distributed array, on any communicator."""

    @classmethod
    def new(cls, comm, shape, dtype=float, components=(), axis=-1):
        """Local. Zeros, whole along ``axis``."""
        shape = tuple(shape)
        whole = axis % len(shape) if len(shape) > 1 else None
        grid = balanced(comm.size, [int(i == whole) for i in range(len(shape))])
        coords = np.unravel_index(comm.rank, grid)
        spans = [block(n, p, int(c)) for n, p, c in zip(shape, grid, coords, strict=True)]
        local = tuple(stop - start for start, stop in spans)
        array = np.zeros(tuple(components) + local, dtype).view(cls)
        array.comm, array.rank, array.whole_shape = comm, len(components), shape
        array.spans = tuple(slice(*span) for span in spans)
        return array

    @classmethod
    def part_of(cls, comm, whole, rank=0, axis=-1):
        """Local. This rank's block of an array that all ranks have."""
        array = cls.new(comm, whole.shape[rank:], whole.dtype, whole.shape[:rank], axis)
        array[...] = whole[array.local_slice()]
        return array

    def __array_finalize__(self, source):
        for name in ("comm", "rank", "whole_shape", "spans"):
            setattr(self, name, getattr(source, name, None))

    def __getitem__(self, index):
        """A component is told by a number, as in shenfun, or by several."""
        found = np.ndarray.__getitem__(self, index)
        if isinstance(index, tuple) and len(index) == 1:
            return found.view(np.ndarray)
        if isinstance(found, Blocks):
            found.rank = self.rank - (self.ndim - found.ndim)
        return found

    @property
    def global_shape(self):
        return self.shape[: self.rank] + self.whole_shape

    def local_slice(self):
        return tuple(slice(0, n) for n in self.shape[: self.rank]) + self.spans

    def is_part_of(self, whole):
        """Local. Whether every bit is that of the whole array."""
        return self.tobytes() == np.ascontiguousarray(whole[self.local_slice()]).tobytes()


def values(shape, dtype, seed=0):
    """Random values of every kind of number, with a few that compare in odd ways."""
    rng = np.random.default_rng([seed, *shape])
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return rng.integers(0, 100, shape).astype(dtype)
    found = rng.standard_normal(shape) + (1j * rng.random(shape) if dtype.kind == "c" else 0)
    found = found.astype(dtype)
    odd = [-0.0, np.nan, np.inf, np.finfo(dtype).tiny / 2]
    found.flat[: len(odd)] = odd[: found.size]
    return found


def new_folder():
    """Local. A new folder, in memory where that is possible: disks are slow."""
    memory = "/dev/shm"
    shared = os.path.isdir(memory) and "ONESIDED_IO_DISK" not in os.environ
    return tempfile.mkdtemp(prefix="onesided-io-", dir=memory if shared else None)


@contextlib.contextmanager
def shared_folder(comm):
    """Collective. A folder that all ranks see, gone when all are through."""
    path = Path(comm.bcast(new_folder() if comm.rank == 0 else ""))
    try:
        yield path
        comm.Barrier()
    finally:
        if comm.rank == 0:
            shutil.rmtree(path)


def check_read(comm, file, name, step, whole, rank=0, axis=-1):
    """Collective. A file has this array, of so many axes of components, to the last bit."""
    found = Blocks.new(comm, whole.shape[rank:], whole.dtype, whole.shape[:rank], axis)
    read(found, file, name, step)
    assert found.is_part_of(whole)


def check_slice(path, name, step, whole, rank, chosen):
    """A file has this global slice of an array, to the last bit."""
    part = whole[(slice(None),) * rank + tuple(chosen)]
    selection = Selection.of(whole.shape[rank:], chosen)
    with h5py.File(path, "r") as file:
        found = file[dataset_path(name, selection, step)][()]
    assert found.dtype == part.dtype
    assert found.shape == part.shape
    assert found.tobytes() == part.tobytes()


def files_in(folder):
    """The names of all files below a folder."""
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file())


def files_of(path):
    """The names of a main file and of all that it refers to, as the folder above has them."""
    store, name = Store(path), os.path.basename(path)
    with store.open() as opened:
        return sorted([name, *(f"{name}.parts/{part}" for part in store.sources(opened))])
