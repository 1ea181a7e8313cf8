"""Making one plain file of a main file and the files of its nodes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

from onesided.pencilfft.io import loading
from onesided.pencilfft.io.filebase import naming
from onesided.pencilfft.io.selection import Box
from onesided.pencilfft.io.store import JOINED, Store, copy_tree, sources_of

SLAB = 1 << 26  # bytes that are copied at a time


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
                _copy(store, file, new)
                new.attrs[JOINED] = True

            store.complete(prefix, change, afresh=True)
    except Exception:
        store.abandon()
        raise


def _copy(store: Store, file: Any, new: Any) -> None:
    """Copy a main file, with the data that its datasets refer to."""

    def joined(name: str, item: Any) -> Any:
        if not item.is_virtual:
            return None
        loading.check_parts(store, item, tuple(slice(0, n) for n in item.shape))
        dataset = new.create_dataset(name, item.shape, item.dtype)
        for box in _boxes(item):
            dataset[box] = item[box]
        return dataset

    copy_tree(file, new, joined)


def _boxes(dataset: Any) -> Iterator[Box]:
    """The boxes that the files of a virtual dataset fill, in slabs of moderate size."""
    for source in sources_of(dataset):
        box = source.box
        row = dataset.dtype.itemsize * math.prod(span.stop - span.start for span in box[1:])
        rows = max(1, SLAB // row)
        for start in range(box[0].start, box[0].stop, rows):
            yield (slice(start, min(start + rows, box[0].stop)), *box[1:])
