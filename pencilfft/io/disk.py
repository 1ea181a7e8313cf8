"""Files on the disk, and one that keeps its errors to itself until HDF5 is through with it.

Where a write or the close of a file fails, as on a full disk, HDF5 keeps the file open and may
crash when the program ends. So it is not told.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h5py


class QuietFile(io.FileIO):
    """Local. A file into which nothing is written from its first error on."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of ``data`` at the current place."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while self.error is None and done < len(view):
                done += super().write(view[done:]) or 0
        except OSError as error:
            self.error = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Cut or extend the file."""
        try:
            if self.error is None:
                return super().truncate(size)
        except OSError as error:
            self.error = error
        return size or 0

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``; what the file does not have reads as zeros."""
        view = memoryview(buffer).cast("B")
        done = 0
        while count := super().readinto(view[done:]):
            done += count
        view[done:] = bytes(len(view) - done)
        return len(view)


@contextmanager
def written(path: str, afresh: bool, **options: Any) -> Iterator[Any]:
    """Local. An h5py.File to write a new file (``afresh``) or change one; at the end on the disk.

    Raises OSError, of the first write that failed, when the block is left.
    """
    with QuietFile(path, "w+" if afresh else "r+") as quiet:
        try:
            with h5py.File(quiet, "w" if afresh else "r+", **options) as file:
                yield file
        finally:
            if quiet.error is not None:
                raise quiet.error from None
        os.fsync(quiet.fileno())


def to_disk(path: str, fill: Callable[[int], object] | None = None) -> None:
    """Local. Return when what was written to a file, or the names in a folder, are on the disk;
    ``fill`` writes to the file before, whose number it gets."""
    number = os.open(path, os.O_RDONLY if fill is None else os.O_WRONLY)
    try:
        if fill is not None:
            fill(number)
        os.fsync(number)
    finally:
        os.close(number)


def remove(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Local. Remove files; those that are gone already are no matter."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.remove(path)
