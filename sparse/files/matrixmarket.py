"""The Matrix Market format: header, positions of dense entries, symmetry. No MPI here.

Source: R. Boisvert, R. Pozo, K. Remington, The Matrix Market Exchange Formats: Initial Design,
NISTIR 5935, 1996.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.errors import MatrixFileError, MatrixMarketError
from onesided.sparse.files.textfile import TextFile
from onesided.sparse.partition import index_dtype

_FORMATS = ("coordinate", "array")
_DTYPES: dict[str, type[np.generic]] = {
    "real": np.float64,
    "double": np.float64,
    "integer": np.int64,
    "unsigned-integer": np.uint64,
    "complex": np.complex128,
    "pattern": np.float64,
}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_LARGEST_SIZE = np.iinfo(np.int64).max


def quoted(line: bytes) -> str:
    """A line as an error message shows it: printable, and short."""
    text = line.decode("latin-1").strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")


@dataclass(frozen=True)
class Header:
    """What the first lines say. ``entries``: how many follow, before symmetry is expanded."""

    path: str
    format: str
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int
    size_line: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values; a pattern's values are 1.0."""
        return np.dtype(_DTYPES[self.field])

    @property
    def is_array(self) -> bool:
        """Whether entries are values alone, column after column."""
        return self.format == "array"

    @property
    def words(self) -> int:
        """Words on the line of one entry."""
        values = {"pattern": 0, "complex": 2}.get(self.field, 1)
        return values + (0 if self.is_array else 2)

    def error(self, line: int, text: str) -> MatrixFileError:
        """The error to raise for a line of the file."""
        return MatrixMarketError(f"{self.path}, line {line}: {text}")

    def check_whole(self, entries: int) -> None:
        """Raise where so many entries are fewer, or more, than the file says."""
        if entries != self.entries:
            words = "is truncated: it holds"
            if entries > self.entries:
                words = "goes on behind its last entry: it holds at least"
            says = f"its line {self.size_line} says {self.entries}"
            raise MatrixMarketError(f"{self.path} {words} {entries} entries, {says}")

    def positions(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows and columns of the entries ``first:first + count`` of an array file.

        Symmetric and hermitian files hold the lower triangle, skew-symmetric ones that without
        the diagonal.
        """
        entry = np.arange(first, first + count, dtype=np.int64)
        n_rows, n_cols = self.shape
        index = index_dtype(max(self.shape))
        if self.symmetry == "general":
            return (entry % n_rows).astype(index), (entry // n_rows).astype(index)
        skip = int(self.symmetry == "skew-symmetric")
        column = np.arange(n_cols + 1, dtype=np.int64)
        starts = column * (n_rows - skip) - column * (column - 1) // 2
        cols = np.searchsorted(starts[:n_cols], entry, side="right") - 1
        return (entry - starts[cols] + cols + skip).astype(index), cols.astype(index)

    def mirrored(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values on the other side of the diagonal."""
        if self.symmetry == "skew-symmetric":
            return -values
        return values.conj() if self.symmetry == "hermitian" else values

    def expand(
        self, rows: NDArray[Any], cols: NDArray[Any], values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Add the entries that the symmetry implies; zeros of an array file are left out."""
        if self.is_array:
            kept = values != 0
            rows, cols, values = rows[kept], cols[kept], values[kept]
        if self.symmetry == "general":
            return rows, cols, values
        off = rows != cols
        both = np.concatenate([rows, cols[off]]), np.concatenate([cols, rows[off]])
        return *both, np.concatenate([values, self.mirrored(values[off])])


def read_header(file: TextFile) -> Header:
    """Local. Read a file's first lines; raises :class:`MatrixMarketError` naming the bad one."""
    try:
        format_, field, symmetry = _banner(file)
        while not (line := file.readline()).strip() or line.lstrip().startswith(b"%"):
            pass
    except EOFError as error:
        what = "it is empty" if file.line == 1 else f"no size line in its {file.line - 1} lines"
        raise MatrixMarketError(f"{file.path} is not a Matrix Market file: {what}") from error
    number = file.line - 1
    words = line.split()
    wanted = 3 if format_ == "coordinate" else 2
    if len(words) != wanted or not all(word.isdigit() for word in words):
        raise file.error(number, f"{wanted} sizes expected, found {quoted(line)}")
    sizes = [int(word[:20]) for word in words]
    n_rows, n_cols = sizes[:2]
    if max(sizes) > _LARGEST_SIZE or (format_ == "array" and n_rows * n_cols > _LARGEST_SIZE):
        raise file.error(number, f"sizes too large: {quoted(line)}")
    if symmetry != "general" and n_rows != n_cols:
        raise file.error(number, f"{symmetry}, but {n_rows} rows and {n_cols} columns")
    entries = sizes[-1] if format_ == "coordinate" else n_rows * n_cols
    if format_ == "array" and symmetry != "general":
        entries = n_rows * (n_rows - 1 if symmetry == "skew-symmetric" else n_rows + 1) // 2
    return Header(file.path, format_, field, symmetry, (n_rows, n_cols), entries, number)


def _banner(file: TextFile) -> tuple[str, str, str]:
    """Format, field and symmetry from the first line."""
    line = file.readline()
    words = line.decode("latin-1").lower().split()
    if not words or words[0] not in ("%%matrixmarket", "%matrixmarket"):
        raise MatrixMarketError(
            f"{file.path} is not a Matrix Market file: line 1 is {quoted(line)}, "
            "not '%%MatrixMarket matrix ...'"
        )
    if len(words) < 5:
        raise file.error(1, f"five words expected, found {quoted(line)}")
    known = (("matrix",), _FORMATS, tuple(_DTYPES), _SYMMETRIES)
    for word, names in zip(words[1:], known, strict=False):
        if word not in names:
            raise file.error(1, f"{word[:40]!r} is none of {', '.join(names)}")
    format_, field, symmetry = words[2:5]
    if format_ == "array" and field == "pattern":
        raise file.error(1, "an array file cannot be a pattern")
    if field == "unsigned-integer" and symmetry == "skew-symmetric":
        raise file.error(1, "unsigned integers cannot be skew-symmetric")
    return format_, field, symmetry
