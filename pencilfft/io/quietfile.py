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


class QuietFile:
    """Local. What h5py wants of a Python file; from the first error on, nothing is written."""

    def __init__(self, path: str, mode: str) -> None:
        self._file: io.FileIO = io.FileIO(path, mode)
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of ``data`` at the current place."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while self.error is None and done < len(view):
                done += self._file.write(view[done:]) or 0
        except OSError as error:
            self.error = error
        return len(view)

    def truncate(self, size: int) -> int:
        """Cut or extend the file."""
        try:
            if self.error is None:
                self._file.truncate(size)
        except OSError as error:
            self.error = error
        return size

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer``; what the file does not have reads as zeros."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            count = self._file.readinto(view[done:])
            if not count:
                view[done:] = bytes(len(view) - done)
                break
            done += count
        return len(view)

    def read(self, size: int) -> bytes:
        """The next bytes, as :meth:`readinto` has them."""
        data = bytearray(size)
        self.readinto(data)
        return bytes(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The current place."""
        return self._file.tell()

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Raise the first error; else return when everything is on the disk."""
        try:
            if self.error is not None:
                raise self.error
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()


@contextmanager
def written(path: str, afresh: bool, **options: Any) -> Iterator[Any]:
    """Local. An h5py.File to write a new file (``afresh``) or change one; at the end on the disk.

    Raises OSError, of the first write that failed, when the block is left.
    """
    quiet = QuietFile(path, "w+" if afresh else "r+")
    try:
        with h5py.File(quiet, "w" if afresh else "r+", **options) as file:
            yield file
    except BaseException:
        quiet.abandon()
        if quiet.error is not None:
            raise quiet.error from None
        raise
    quiet.close()


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


def remove(paths: Iterable[str]) -> None:
    """Local. Remove files; those that are gone already are no matter."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.remove(path)
