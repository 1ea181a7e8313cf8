"""Lines of a Matrix Market file, parsed a block at a time: fast where a block is plain numbers,
line by line where it is not. No MPI here.

The fast way is SciPy's compiled reader, which takes a word's valid beginning for the whole word
("1d3" for 1, "1 2.5" for 1 2 .5) and ignores what follows an entry on its line; so a block is
first checked for having nothing but plain numbers on its lines, as many as an entry needs. The
reader is called on one thread, since there is a rank on every core; where this SciPy does not
offer that, through ``mmread``.
"""

from __future__ import annotations

import importlib
import io
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.files.grammar import Lines, plain_entries
from onesided.sparse.files.matrixmarket import Header, quoted
from onesided.sparse.partition import index_dtype

_INTEGER = re.compile(rb"[+-]?[0-9]{1,1000}\Z")
_REAL = re.compile(
    rb"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|inf|infinity)\Z", re.IGNORECASE
)


_PLUS = re.compile(rb"(?<=[ \t])\+(?=[0-9.])")
_CALLS = ("open_read_stream", "read_body_array", "read_body_coo")


@cache
def _reader() -> Any:
    """Local. SciPy's compiled reader, or None where this SciPy has no such functions."""
    try:
        found = importlib.import_module("scipy.io._fast_matrix_market._fmm_core")
    except ImportError:
        return None
    return found if all(callable(getattr(found, name, None)) for name in _CALLS) else None


@dataclass(frozen=True, eq=False)
class Block:
    """Entries of consecutive lines, zero-based; an array file's have no rows and columns."""

    rows: NDArray[Any]
    cols: NDArray[Any]
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)


NO_ENTRIES = Block(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def parse_block(header: Header, text: bytes, first_line: int) -> Block:
    """Local. Parse whole lines, the first of which has number ``first_line`` in the file.

    Blank lines are skipped. Raises :class:`MatrixMarketError` naming the first line that is not
    an entry, or whose index is out of range.
    """
    plain = _PLUS.sub(b" ", text) if b"+" in text else text
    entries = _plain_entries(header, plain)
    if entries:
        try:
            return _parse_fast(header, plain, entries)
        except (ValueError, OverflowError, TypeError):
            pass  # the slow way finds the line, or accepts what is written in an unusual way
    return _parse_slowly(header, text, first_line)


def _plain_entries(header: Header, text: bytes) -> int:
    """How many entries the text holds if its lines are nothing but theirs, in plain numbers; or 0.

    Not all of what is refused is wrong, and what is taken may be out of range.
    """
    indices = [] if header.is_array else [Lines.index, Lines.index]
    value = Lines.integer if header.dtype.kind in "iu" else Lines.real
    return plain_entries(text, indices + [value] * (header.words - len(indices)))


def _parse_fast(header: Header, text: bytes, entries: int) -> Block:
    """Let SciPy read the block as a file of its own; raises where the lines do not fit that."""
    banner = f"%%MatrixMarket matrix {header.format} {header.field} general\n"
    if header.is_array:
        values = _read_array(f"{banner}{entries} 1\n".encode() + text, entries, header.dtype)
        return Block(NO_ENTRIES.rows, NO_ENTRIES.cols, values)
    n_rows, n_cols = header.shape
    size = f"{n_rows} {n_cols} {entries}\n"
    return _read_coordinates((banner + size).encode() + text, header, entries)


def _read_array(file: bytes, entries: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values of a file of one column."""
    reader = _reader()
    if reader is None:
        import scipy.io  # slow to import

        return np.asarray(scipy.io.mmread(io.BytesIO(file))).reshape(entries)
    values = np.zeros((entries, 1), dtype)
    reader.read_body_array(reader.open_read_stream(io.BytesIO(file), 1), values)
    return values.reshape(entries)


def _read_coordinates(file: bytes, header: Header, entries: int) -> Block:
    """The entries of a file in coordinate format."""
    reader = _reader()
    if reader is None:
        import scipy.io

        matrix: Any = scipy.io.mmread(io.BytesIO(file))
        return Block(matrix.row, matrix.col, matrix.data)
    index = index_dtype(max(header.shape))
    rows, cols = np.zeros(entries, index), np.zeros(entries, index)
    values = np.zeros(entries, header.dtype)
    cursor = reader.open_read_stream(io.BytesIO(file), 1)
    reader.read_body_coo(cursor, rows, cols, values)
    return Block(rows, cols, values)


def _parse_slowly(header: Header, text: bytes, first_line: int) -> Block:
    rows, cols, values = [], [], []
    for number, line in enumerate(text.split(b"\n"), first_line):
        words = line.split()
        if not words:
            continue
        if len(words) != header.words:
            raise header.error(number, f"{header.words} words expected, found {quoted(line)}")
        if not header.is_array:
            row, col = (_index(header, number, axis, words[axis]) for axis in (0, 1))
            rows.append(row)
            cols.append(col)
            words = words[2:]
        values.append(_value(header, number, words))
    return Block(np.array(rows, np.int64), np.array(cols, np.int64), np.array(values, header.dtype))


def _index(header: Header, number: int, axis: int, word: bytes) -> int:
    if not _INTEGER.match(word):
        raise header.error(number, f"{quoted(word)} is not an index")
    index = int(word)
    if not 1 <= index <= header.shape[axis]:
        name = ("row", "column")[axis]
        raise header.error(
            number, f"{name} index {index} is out of range, there are {header.shape[axis]} {name}s"
        )
    return index - 1


def _value(header: Header, number: int, words: list[bytes]) -> float | complex | int:
    kind = header.dtype.kind
    form = _INTEGER if kind in "iu" else _REAL
    for word in words:
        if not form.match(word):
            raise header.error(number, f"{quoted(word)} is not a number of field {header.field}")
    if kind in "iu":
        limits = np.iinfo(header.dtype)
        integer = int(words[0])
        if not limits.min <= integer <= limits.max:
            raise header.error(number, f"{integer} does not fit in 64 bits")
        return integer
    parts = [float(word) for word in words]
    if kind == "c":
        return complex(*parts)
    return parts[0] if parts else 1.0


def excess_line(text: bytes, first_line: int, entries: int) -> tuple[int, bytes]:
    """Number and text of the line that follows the first ``entries`` entries of a block."""
    left = entries
    for number, line in enumerate(text.split(b"\n"), first_line):
        if line.strip():
            if left == 0:
                return number, line
            left -= 1
    raise ValueError(f"the block has no entry after the first {entries}")
