"""Lines of a Matrix Market file, parsed a block at a time: fast where a block is plain numbers,
line by line where it is not. No MPI here.

The fast way is SciPy's compiled reader, which takes a word's valid beginning for the whole word
("1d3" for 1) and ignores what follows an entry on its line; so a block is first checked for
being nothing but well-formed numbers, as many as its entries need.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from onesided.sparse.matrixmarket import Header, quoted

_INTEGER = re.compile(rb"[+-]?[0-9]{1,1000}\Z")
_REAL = re.compile(
    rb"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|inf|infinity)\Z", re.IGNORECASE
)
_CLASSES = (b" \t\r\n", b"0123456789", b"+-", b".", b"eE")  # any other byte makes a block unplain
_SPACE, _DIGIT, _SIGN, _POINT, _EXPONENT, _OTHER = range(6)
_INSIDE, _BEGINS, _WRONG = range(3)


def _pair_table() -> NDArray[np.uint8]:
    """For each pair of bytes: wrong in a list of numbers, the beginning of one, or neither."""
    follows = {
        _SPACE: (_SPACE, _DIGIT, _SIGN, _POINT),
        _DIGIT: (_SPACE, _DIGIT, _POINT, _EXPONENT),
        _SIGN: (_DIGIT, _POINT),
        _POINT: (_SPACE, _DIGIT, _EXPONENT),
        _EXPONENT: (_DIGIT, _SIGN),
    }
    table = np.full((6, 6), _WRONG, np.uint8)
    for first, seconds in follows.items():
        table[first, list(seconds)] = _INSIDE
    table[_SPACE, [_DIGIT, _SIGN, _POINT]] = _BEGINS
    byte_class = np.full(256, _OTHER)
    for number, members in enumerate(_CLASSES):
        byte_class[list(members)] = number
    pair = np.arange(1 << 16)
    pairs: NDArray[np.uint8] = table[byte_class[pair & 255], byte_class[pair >> 8]]
    return pairs


_PAIRS = _pair_table()
_DROPPED = b"0123456789+-"  # what is between the points, exponents and spaces of a block
_TO_CLASS = bytes(
    next((members[0] for members in _CLASSES if byte in members), byte) for byte in range(256)
)


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
    entries = _plain_entries(header, text)
    if entries:
        try:
            return _parse_fast(header, text, entries)
        except (ValueError, OverflowError):
            pass  # the slow way finds the line, or accepts what is written in an unusual way
    return _parse_slowly(header, text, first_line)


def _plain_entries(header: Header, text: bytes) -> int:
    """How many entries the text holds if it is nothing but well-formed numbers, else 0."""
    padded = b" " + text
    half = len(padded) // 2
    even = _PAIRS[np.frombuffer(padded, "<u2", half)]
    odd = _PAIRS[np.frombuffer(padded, "<u2", (len(padded) - 1) // 2, 1)]
    if max(even.max(initial=0), odd.max(initial=0)) == _WRONG:
        return 0
    marks = text.translate(_TO_CLASS, _DROPPED)
    if header.dtype.kind in "iu" or header.field == "pattern":
        if marks.strip(b" "):
            return 0
    elif b".." in marks or b"e." in marks or b"ee" in marks:
        return 0
    words = int(np.count_nonzero(even) + np.count_nonzero(odd))
    return 0 if words % header.words else words // header.words


def _parse_fast(header: Header, text: bytes, entries: int) -> Block:
    """Let SciPy read the block as a file of its own; raises where the lines do not fit that."""
    banner = f"%%MatrixMarket matrix {header.format} {header.field} general\n"
    if header.is_array:
        values = scipy.io.mmread(io.BytesIO(f"{banner}{entries} 1\n".encode() + text))
        return Block(NO_ENTRIES.rows, NO_ENTRIES.cols, np.asarray(values).reshape(entries))
    n_rows, n_cols = header.shape
    size = f"{n_rows} {n_cols} {entries}\n"
    matrix: Any = scipy.io.mmread(io.BytesIO((banner + size).encode() + text))
    return Block(matrix.row, matrix.col, matrix.data)


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
