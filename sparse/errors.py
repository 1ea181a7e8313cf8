"""What can be wrong with a matrix file."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from onesided.collectives import OnesidedError


class MatrixFileError(OnesidedError, ValueError):
    """A file that holds no valid matrix, or not the whole of it; names the file."""


class MatrixMarketError(MatrixFileError):
    """A file that is not, or not whole, or not valid Matrix Market; names the file and line."""


class HarwellBoeingError(MatrixFileError):
    """A Harwell-Boeing or Rutherford-Boeing file that is not valid; names the file and line."""


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Local. What a library says of a damaged file becomes a :class:`MatrixFileError`.

    Errors of the system with a number (no such file, no permission, disk full) stay what they
    are; but a place in the file that is not there is the file's own fault.
    """
    try:
        yield
    except OnesidedError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, 0, errno.EINVAL):
            found = error.filename or path
            raise OSError(error.errno, os.strerror(error.errno), found) from error
        words = str(error.args[0] if error.args else "") or type(error).__name__
        raise MatrixFileError(f"{path}: {words}") from error
