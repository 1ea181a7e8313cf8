"""The Harwell-Boeing and Rutherford-Boeing formats: header, Fortran formats, fields. No MPI here:
rank 0 reads such a file whole.

Sources: I. Duff, R. Grimes, J. Lewis, Users' Guide for the Harwell-Boeing Sparse Matrix
Collection, 1992; I. Duff, R. Grimes, J. Lewis, The Rutherford-Boeing Sparse Matrix Collection,
RAL-TR-97-031. A matrix is in three sections of lines with fields of fixed width: column pointers,
row indices, values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.errors import HarwellBoeingError, MatrixFileError
from onesided.sparse.files.matrixmarket import Header, quoted
from onesided.sparse.files.textfile import TextFile

_FIELDS = {"r": "real", "c": "complex", "p": "pattern", "i": "integer"}
_SYMMETRIES = {"s": "symmetric", "u": "general", "h": "hermitian", "z": "skew-symmetric"}
_SYMMETRIES["r"] = "general"  # a rectangle
_TYPE = re.compile(rb"([rcpiq])([suhzr])([ae])\b", re.IGNORECASE)
_GROUP = re.compile(rb"\((?:[^()]|\([^()]*\))*\)")
_FORMAT = re.compile(
    r"\(\s*(?:([+-]?\d{1,2})\s*P\s*,?\s*)?\(?\s*(\d{0,4})\s*([IEDFG])\s*(\d{1,4})"
    r"(?:\s*\.\s*(\d{1,2}))?(?:\s*E\s*\d{1,2})?\s*\)?\s*\)\Z",
    re.IGNORECASE,
)
_BARE_EXPONENT = re.compile(rb"(?<=[0-9.])([+-])")
_TO_E = bytes.maketrans(b"DdQq", b"EEEE")
_LARGEST = np.iinfo(np.int64).max // 4
BLOCK_BYTES = 1 << 22  # that are parsed at a time
Tell = Callable[[int, int], object] | None


@dataclass(frozen=True)
class Format:
    """Fields of a line: ``repeat`` of ``width`` columns. ``decimals``: digits behind the point of
    a field that has none; ``scale``: the power of ten of a field without an exponent."""

    repeat: int
    width: int
    integer: bool
    decimals: int = 0
    scale: int = 0

    @classmethod
    def of(cls, text: str) -> Format:
        """From Fortran's words, as in (1P,5E16.8); raises ``ValueError`` for others."""
        match = _FORMAT.match(text.strip())
        if match is None:
            raise ValueError(f"{text[:40]!r} is no format of one kind of numbers")
        scale, repeat, letter, *others = match.groups()
        width, decimals = (int(number or 0) for number in others)
        form = cls(int(repeat or 1), width, letter.upper() == "I", decimals, int(scale or 0))
        if form.repeat < 1 or form.width < 1:
            raise ValueError(f"{text[:40]!r} has no fields")
        return form

    def lines(self, count: int) -> int:
        """How many lines so many fields fill."""
        return -(-count // self.repeat)


@dataclass(frozen=True)
class Section:
    """One of the parts of a file: its name, its format, and how many fields it has."""

    name: str
    format: Format
    fields: int


def load_boeing(path: str | os.PathLike[str], tell: Tell = None) -> sparse.coo_array:
    """Local. The matrix of a file, symmetry expanded; :class:`HarwellBoeingError` names the line.

    ``tell(done, total)`` is called now and then, with bytes.
    """
    file = TextFile(path, HarwellBoeingError)
    try:
        head, sections = _header(file)
        pointers, rows, *values = (_numbers_of(file, section, tell) for section in sections)
    finally:
        file.close()
    falls = np.flatnonzero(np.diff(pointers) < 0)
    if len(falls):
        at = int(falls[0])
        now, before = pointers[at + 1] - 1, pointers[at] - 1
        raise MatrixFileError(f"{file.path}: pointer {at + 1} is {now}, the one before it {before}")
    if (pointers[0], pointers[-1]) != (1, head.entries + 1):
        found = f"from {pointers[0] - 1} to {pointers[-1] - 1}, not from 0 to {head.entries}"
        raise MatrixFileError(f"{file.path}: pointers go {found}")
    rows -= 1
    bad = np.flatnonzero((rows < 0) | (rows >= head.shape[0]))
    if len(bad):
        at = int(bad[0])
        raise MatrixFileError(
            f"{file.path}: row index {rows[at]} of entry {at} is out of range, there are "
            f"{head.shape[0]} rows"
        )
    found_values = values[0] if values else np.ones(head.entries)
    if head.field == "complex":
        found_values = found_values.astype(np.float64, copy=False).view(np.complex128)
    cols = np.repeat(np.arange(head.shape[1]), np.diff(pointers))
    rows, cols, found_values = head.expand(rows, cols, found_values)
    return sparse.coo_array((found_values, (rows, cols)), shape=head.shape)


def _numbers_of(file: TextFile, section: Section, tell: Tell) -> NDArray[Any]:
    """The numbers of the next section, read in blocks."""
    form, begin = section.format, file.line
    left, first = form.lines(section.fields), 0
    dtype = np.dtype(np.int64 if form.integer else np.float64)
    found: list[NDArray[Any]] = [np.zeros(0, dtype)]
    while left:
        line, text = file.block(BLOCK_BYTES, left)
        if not text:
            break
        found.append(parse_fields(file.path, section, text, line, first).astype(dtype))
        left, first = left - text.count(b"\n"), first + text.count(b"\n") * form.repeat
        file.tell(tell)
    numbers = np.concatenate(found)
    if len(numbers) < section.fields:
        words = f"of {section.fields} fields of {section.name}s, from line {begin} on"
        raise HarwellBoeingError(f"{file.path} is truncated: {words}, it holds {len(numbers)}")
    return numbers


def _wrong(path: str, line: int, words: str) -> HarwellBoeingError:
    """What to raise for a line."""
    return HarwellBoeingError(f"{path}, line {line}: {words}")


def looks_like_boeing(lines: list[bytes]) -> bool:
    """Local. Whether these first lines of a file can be those of a header."""
    return len(lines) >= 3 and _TYPE.match(lines[2]) is not None


def _header(file: TextFile) -> tuple[Header, list[Section]]:
    """The first lines as the header of any matrix file, and the sections that follow."""
    try:
        lines = [file.readline() for _ in range(4)]
        counts = _numbers(file.path, 2, lines[1], 1)
        field, symmetry = _type(file.path, lines[2])
        sizes = _numbers(file.path, 3, lines[2][3:], 3)
        if len(counts) > 4 and counts[4] > 0:
            file.readline()  # of right-hand sides, which follow the matrix and are not read
    except EOFError as error:
        raise HarwellBoeingError(f"{file.path}: the header has {file.line - 1} lines") from error
    n_rows, n_cols, entries = sizes[:3]
    if symmetry != "general" and n_rows != n_cols:
        raise _wrong(file.path, 3, f"{symmetry}, but {n_rows} rows and {n_cols} columns")
    number = file.line - 1
    matrix = Header(file.path, "coordinate", field, symmetry, (n_rows, n_cols), entries, number)
    formats = _formats(file.path, lines[3], matrix)
    values = entries * {"pattern": 0, "complex": 2}.get(field, 1)
    fields = {"column pointer": n_cols + 1, "row index": entries, "value": values}
    sections = zip(fields, formats, fields.values(), strict=False)
    return matrix, [Section(*section) for section in sections]


def _numbers(path: str, number: int, line: bytes, least: int) -> list[int]:
    """The numbers of a line; there must be so many at least."""
    words = line.split()
    if len(words) < least or not all(word.isdigit() and len(word) < 20 for word in words):
        raise _wrong(path, number, f"sizes expected, found {quoted(line)}")
    numbers = [int(word) for word in words]
    if max(numbers) > _LARGEST:
        raise _wrong(path, number, f"sizes too large: {quoted(line)}")
    return numbers


def _type(path: str, line: bytes) -> tuple[str, str]:
    """Field and symmetry from the type of three letters."""
    match = _TYPE.match(line)
    if match is None:
        raise _wrong(path, 3, f"no type of a matrix: {quoted(line)}")
    kind, symmetry, stored = (part.decode().lower() for part in match.groups())
    if stored == "e":
        raise _wrong(path, 3, "a matrix of elements, not assembled")
    if kind == "q":
        raise _wrong(path, 3, "the values are in an auxiliary file")
    return _FIELDS[kind], _SYMMETRIES[symmetry]


def _formats(path: str, line: bytes, matrix: Header) -> list[Format]:
    """The formats of pointers, indices and, but for a pattern, values."""
    wanted = 2 if matrix.field == "pattern" else 3
    found = _GROUP.findall(line)
    if len(found) < wanted:
        raise _wrong(path, 4, f"{wanted} formats expected: {quoted(line)}")
    formats = []
    for place, text in enumerate(found[:wanted]):
        try:
            formats.append(Format.of(text.decode("latin-1")))
        except ValueError as error:
            raise _wrong(path, 4, str(error)) from error
        if not formats[-1].integer and (place < 2 or matrix.field == "integer"):
            raise _wrong(path, 4, f"{quoted(text)} where integers are expected")
    return formats


def parse_fields(path: str, section: Section, text: bytes, line: int, first: int) -> NDArray[Any]:
    """Local. The numbers of whole lines, which begin with field ``first`` of the section.

    A field reads as Fortran reads it: exponents with D, or with a sign alone; without a point,
    the last ``decimals`` digits are behind it.
    """
    form = section.format
    count = min(section.fields - first, text.count(b"\n") * form.repeat)
    fields = _cells(path, text, form, line).reshape(-1, form.width)[:count]
    lines = np.full((count, form.width + 1), ord("\n"), np.uint8)
    lines[:, :-1] = fields
    joined = lines.tobytes()
    if not form.integer:
        joined, text = (
            _BARE_EXPONENT.sub(rb"E\1", part.translate(_TO_E)) for part in (joined, text)
        )
    words = joined.split(b"\n")[:-1]
    apart = text.split()
    pointed = form.integer or text.count(b".") == count
    if len(apart) == count and pointed and not form.scale:
        words = apart  # programs that write other widths than they say leave blanks
    number: Any = int if form.integer else float
    kind = np.dtype(np.int64 if form.integer else np.float64)
    try:
        values = np.fromiter(map(number, words), kind, count)
    except (ValueError, OverflowError):
        for place, word in enumerate(words):
            try:
                kind.type(number(word))
            except (ValueError, OverflowError) as error:
                what = "a number is missing"
                if word.strip():
                    what = f"{quoted(word.strip())} is no number"
                where = line + place // form.repeat
                raise _wrong(path, where, f"{section.name}: {what}") from error
        raise
    return values if form.integer or words is apart else _scaled(values, fields, form)


def _cells(path: str, text: bytes, form: Format, line: int) -> NDArray[np.uint8]:
    """One row of bytes for each line, cut or filled with blanks to the columns of its fields."""
    width = form.repeat * form.width
    data = np.frombuffer(text.replace(b"\r", b""), np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if len(ends) * width > 16 * len(text) + (1 << 20):
        much = f"lines are much shorter than {form.repeat} fields of {form.width}"
        raise _wrong(path, line, much)
    lengths = np.diff(ends, prepend=-1) - 1
    cells = np.full((len(ends), width), ord(" "), np.uint8)
    column = np.arange(width)
    inside = column < lengths[:, None]
    cells[inside] = data[((ends - lengths)[:, None] + column)[inside]]
    return cells


def _scaled(values: NDArray[Any], fields: NDArray[np.uint8], form: Format) -> NDArray[Any]:
    """The values of fields that have no point, or no exponent, as their format says."""
    if form.decimals:
        values[~(fields == ord(".")).any(axis=1)] /= 10.0**form.decimals
    if form.scale:
        bare = np.isin(fields[:, 1:], list(b"+-")) & (fields[:, :-1] > ord(" "))
        exponent = np.isin(fields, list(b"EeDdQq")).any(axis=1) | bare.any(axis=1)
        values[~exponent] /= 10.0**form.scale
    return values
