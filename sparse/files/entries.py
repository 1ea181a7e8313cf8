"""One block of a Matrix Market file's lines becomes arrays. No MPI here.

The lines are checked and read in one pass, in C; a line that is wrong, or written in an unusual
way, is left to Python, which names it or takes it. Where nothing was compiled Python reads all.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.files.matrixmarket import Header, quoted
from onesided.sparse.moving import Triplets
from onesided.sparse.partition import index_dtype

try:
    from onesided.sparse.files import _lines
except ImportError:  # no compiler was present
    _lines = None  # type: ignore[assignment]

_INTEGER = re.compile(rb"[+-]?[0-9]{1,1000}\Z")
_REAL = re.compile(
    rb"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|inf|infinity)\Z", re.IGNORECASE
)
_NO_PLACES = np.zeros(0, np.int64)


def _powers(least: int, most: int) -> bytes:
    """Local. The first 128 bits of 5^q for these q; of -27 to -1, which 128 bits may decide
    exactly, rounded up."""
    table = []
    for q in range(least, most + 1):
        power = 5 ** abs(q)
        if q < 0:
            size = (power - 1).bit_length()
            power = (1 << (size + 127 if q >= -27 else 2 * size + 128)) // power + 1
        beyond = power.bit_length() - 128
        first = power >> beyond if beyond > 0 else power << -beyond
        table.append(struct.pack("=QQ", first >> 64, first & (1 << 64) - 1))
    return b"".join(table)


if _lines is not None:
    _lines.set_powers(_powers(_lines.LEAST, _lines.MOST))


class Entries:
    """Local. What has been parsed of consecutive lines, in arrays with room for more. Entries of an
    array file have no rows and columns."""

    def __init__(self, header: Header, room: int) -> None:
        """Room for so many entries at first."""
        self._header, self._filled = header, 0
        index = index_dtype(max(header.shape))
        self._kind = "n" if header.field == "pattern" else header.dtype.kind
        kinds = [header.dtype] if header.is_array else [index, index, header.dtype]
        self._arrays: list[NDArray[Any]] = [np.empty(room, kind) for kind in kinds]

    def __len__(self) -> int:
        return self._filled

    def triplets(self) -> Triplets:
        """All entries, in this memory."""
        parts = [array[: self._filled] for array in self._arrays]
        return Triplets(*[_NO_PLACES] * (3 - len(parts)), *parts)

    def add(self, text: bytes, first_line: int) -> None:
        """Parse whole lines, the first of which has number ``first_line`` in the file.

        Blank lines are skipped. Raises :class:`MatrixMarketError` naming the first line that is
        not an entry, or whose index is out of range.
        """
        room = self._filled + most_entries(self._header, len(text))
        for array in self._arrays:
            if room > len(array):
                array.resize(max(room, 3 * len(array) // 2), refcheck=False)
        if _lines is None:
            self._append(_parse_slowly(self._header, text, first_line))
            return
        at = counted = 0
        while True:
            free = [array[self._filled :] for array in self._arrays]
            places = [None] * (3 - len(free))
            shape = self._header.shape
            found, at = _lines.parse(text, at, shape, self._kind, *places, *free)
            self._filled += found
            if at == len(text):
                return
            first_line += text.count(b"\n", counted, at)
            counted, at = at, text.index(b"\n", at) + 1
            self._append(_parse_slowly(self._header, text[counted:at], first_line))

    def _append(self, more: Triplets) -> None:
        stop = self._filled + len(more.values)
        parts = more.rows, more.cols, more.values
        for array, part in zip(self._arrays, parts[-len(self._arrays) :], strict=True):
            array[self._filled : stop] = part
        self._filled = stop


def most_entries(header: Header, size: int) -> int:
    """Local. How many entries a text of so many bytes can hold: a word has a byte at least, and
    one behind it."""
    return size // (2 * header.words)


def parser() -> str:
    """Local. Who parses lines, and why, in words."""
    return "compiled" if _lines else "Python (the package was installed without a compiler)"


def parse_block(header: Header, text: bytes, first_line: int) -> Triplets:
    """Local. Parse whole lines into memory of their own; see :meth:`Entries.add`."""
    parsed = Entries(header, most_entries(header, len(text)))
    parsed.add(text, first_line)
    found = parsed.triplets()
    return Triplets(found.rows.copy(), found.cols.copy(), found.values.copy())


def _parse_slowly(header: Header, text: bytes, first_line: int) -> Triplets:
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
    places = np.array(rows, np.int64), np.array(cols, np.int64)
    return Triplets(*places, np.array(values, header.dtype))


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
