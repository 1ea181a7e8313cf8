"""NumPy's own files: one global array each, which ``np.load`` reads."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Any

import numpy as np

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import PatternError
from onesided.pencilfft.io.filebase import FileError, at_root, check_array, naming
from onesided.pencilfft.io.nodefiles import write_box
from onesided.pencilfft.io.store import remove, to_disk


def save(array: Any, filename: str, global_slice: Any = None) -> None:
    """Collective. Write a distributed array as one file, whole or, where that fails, not at all.

    Every rank writes its own block. PatternError on every rank for elements that are no numbers and
    for a global slice, FileError where the system fails.
    """
    comm, shape = array.comm, tuple(array.global_shape)
    agree(comm, what=("a write", filename, shape, array.dtype))
    with agreed(comm):
        if array.dtype.hasobject:
            raise PatternError(f"{filename}: elements of {array.dtype} are no numbers")
        if global_slice is not None:
            raise PatternError(f"{filename}: a global slice goes to HDF5; here the array is whole")
    # several may write one file, such as all ranks an array that each of them has whole
    new = f"{filename}.{comm.bcast(secrets.token_hex(4))}.new"

    def begin() -> int:
        with naming(new), open(new, "wb") as stream:
            form = np.lib.format.header_data_from_array_1_0(np.empty((), array.dtype))
            np.lib.format.write_array_header_1_0(stream, {**form, "shape": shape})
            start = stream.tell()
            stream.truncate(start + int(np.prod(shape)) * array.dtype.itemsize)
        return start

    def end() -> None:
        with naming(filename):
            to_disk(new)
            os.replace(new, filename)
            to_disk(os.path.dirname(os.path.abspath(filename)))

    try:
        start = at_root(comm, begin)
        box, data = array.local_slice(), array.view(np.ndarray)
        with agreed(comm), naming(new):
            to_disk(new, lambda number: write_box(number, start, shape, box, data))
        at_root(comm, end)
    except Exception:  # agreed: nobody writes any more
        if comm.rank == 0:
            with contextlib.suppress(OSError):  # the first error counts
                remove([new])
        raise


def load(array: Any, filename: str) -> None:
    """Collective. Fill a distributed array from a file of the same shape, whoever has written it.

    Types are converted where nothing but precision is lost. PatternError on every rank for another
    shape or kind of numbers, FileError where the file is missing or is none of NumPy's.
    """
    comm = array.comm
    # until every rank is here one of them may be changing the file by itself
    agree(comm, what=("a read", filename))
    with agreed(comm), naming(filename):
        found = np.load(filename, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise FileError(f"{filename}: it holds several arrays")
        check_array(f"{filename}: it", found.shape, found.dtype, array)
        array.view(np.ndarray)[...] = found[array.local_slice()]
