"""What can be wrong with the files of distributed arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onesided.collectives.errors import OnesidedError


class FileError(OnesidedError, OSError):
    """A file that is missing, cut short, not ours, or cannot be read or written; names it."""


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Local. What HDF5 or the system say about ``path`` becomes a :class:`FileError`.

    h5py tells a file that is cut short by OSError, RuntimeError, KeyError or ValueError, depending
    on what is missing.
    """
    try:
        yield
    except OnesidedError:
        raise
    except OSError as error:
        raise FileError(f"{error.filename or path}: {error.strerror or error}") from error
    except (KeyError, RuntimeError, ValueError) as error:
        words = error.args[0] if error.args else type(error).__name__
        raise FileError(f"{path}: {words}") from error
