"""What can be wrong with a matrix file."""

from onesided.collectives import OnesidedError


class MatrixMarketError(OnesidedError, ValueError):
    """A file that is not, or not whole, or not valid Matrix Market; names the file and line."""
