"""What can be wrong with a matrix file."""

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

    Errors of the system with a number (no such file, no permission, disk full) stay as they are.
    """
    try:
        yield
    except OnesidedError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
            raise
        words = str(error.args[0] if error.args else "") or type(error).__name__
        raise MatrixFileError(f"{path}: {words}") from error
