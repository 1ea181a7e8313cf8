"""The Harwell-Boeing and Rutherford-Boeing formats: header, Fortran formats, fields. No MPI here.

Sources: I. Duff, R. Grimes, J. Lewis, Users' Guide for the Harwell-Boeing Sparse Matrix
Collection, 1992; I. Duff, R. Grimes, J. Lewis, The Rutherford-Boeing Sparse Matrix Collection,
RAL-TR-97-031. A matrix is in three sections of lines with fields of fixed width: column pointers,
row indices, values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.sparse.errors import HarwellBoeingError
from onesided.sparse.files.entries import parse_block
from onesided.sparse.files.matrixmarket import Header, quoted
from onesided.sparse.files.textfile import TextFile

_FIELDS = {"r": "real", "c": "complex", "p": "pattern", "i": "integer"}
_SYMMETRIES = {
    "s": "symmetric",
    "u": "general",
    "h": "hermitian",
    "z": "skew-symmetric",
    "r": "general",
}
_TYPE = re.compile(rb"([rcpiq])([suhzr])([ae])\b", re.IGNORECASE)
_GROUP = re.compile(rb"\((?:[^()]|\([^()]*\))*\)")
_FORMAT = re.compile(
    r"\(\s*(?:([+-]?\d{1,2})\s*P\s*,?\s*)?\(?\s*(\d{0,4})\s*([IEDFG])\s*(\d{1,4})"
    r"(?:\s*\.\s*(\d{1,2}))?(?:\s*E\s*\d{1,2})?\s*\)?\s*\)\Z",
    re.IGNORECASE,
)
_BARE_EXPONENT = re.compile(rb"(?<=[0-9.])([+-])")
_TO_E = bytes.maketrans(b"DdQq", b"EEEE")
_TO_LINES = bytes.maketrans(b" \t\r", b"\n\n\n")
_LARGEST = np.iinfo(np.int64).max // 4


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
        scale, repeat, letter, width, decimals = match.groups()
        integer = letter.upper() == "I"
        form = cls(int(repeat or 1), int(width), integer, int(decimals or 0), int(scale or 0))
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


@dataclass(frozen=True)
class BoeingHeader:
    """The header as that of any matrix file, and the sections; a pattern has no values."""

    matrix: Header
    pointers: Section
    indices: Section
    values: Section | None


def looks_like_boeing(lines: list[bytes]) -> bool:
    """Local. Whether these first lines of a file can be those of a header."""
    return len(lines) >= 3 and _TYPE.match(lines[2]) is not None


def read_boeing_header(file: TextFile) -> BoeingHeader:
    """Local. Read the first lines; raises :class:`HarwellBoeingError` naming the bad one."""
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
        raise HarwellBoeingError(
            f"{file.path}, line 3: {symmetry}, but {n_rows} rows and {n_cols} columns"
        )
    number = file.line - 1
    matrix = Header(file.path, "coordinate", field, symmetry, (n_rows, n_cols), entries, number)
    formats = _formats(file.path, lines[3], matrix)
    parts = {"pattern": 0, "complex": 2}.get(field, 1)
    return BoeingHeader(
        matrix,
        Section("column pointer", formats[0], n_cols + 1),
        Section("row index", formats[1], entries),
        Section("value", formats[2], parts * entries) if parts else None,
    )


def _numbers(path: str, number: int, line: bytes, least: int) -> list[int]:
    """The numbers of a line; there must be so many at least."""
    words = line.split()
    if len(words) < least or not all(word.isdigit() and len(word) < 20 for word in words):
        raise HarwellBoeingError(f"{path}, line {number}: sizes expected, found {quoted(line)}")
    numbers = [int(word) for word in words]
    if max(numbers) > _LARGEST:
        raise HarwellBoeingError(f"{path}, line {number}: sizes too large: {quoted(line)}")
    return numbers


def _type(path: str, line: bytes) -> tuple[str, str]:
    """Field and symmetry from the type of three letters."""
    match = _TYPE.match(line)
    if match is None:
        raise HarwellBoeingError(f"{path}, line 3: no type of a matrix: {quoted(line)}")
    kind, symmetry, stored = (part.decode().lower() for part in match.groups())
    if stored == "e":
        raise HarwellBoeingError(f"{path}, line 3: a matrix of elements, not assembled")
    if kind == "q":
        raise HarwellBoeingError(f"{path}, line 3: the values are in an auxiliary file")
    return _FIELDS[kind], _SYMMETRIES[symmetry]


def _formats(path: str, line: bytes, matrix: Header) -> list[Format]:
    """The formats of pointers, indices and, but for a pattern, values."""
    wanted = 2 if matrix.field == "pattern" else 3
    found = _GROUP.findall(line)
    if len(found) < wanted:
        raise HarwellBoeingError(f"{path}, line 4: {wanted} formats expected: {quoted(line)}")
    formats = []
    for place, text in enumerate(found[:wanted]):
        try:
            formats.append(Format.of(text.decode("latin-1")))
        except ValueError as error:
            raise HarwellBoeingError(f"{path}, line 4: {error}") from error
        if not formats[-1].integer and (place < 2 or matrix.field == "integer"):
            raise HarwellBoeingError(f"{path}, line 4: {quoted(text)} where integers are expected")
    return formats


@dataclass(frozen=True)
class _FieldLines(Header):
    """Fields one below the other, as parse_block reads the values of an array file."""

    section: str = ""
    repeat: int = 1

    def error(self, line: int, text: str) -> HarwellBoeingError:
        """The error of a field, counted from 1; names its line of the file."""
        number = self.size_line + (line - 1) // self.repeat
        return HarwellBoeingError(f"{self.path}, line {number}: {self.section}: {text}")


def parse_fields(path: str, section: Section, text: bytes, line: int, first: int) -> NDArray[Any]:
    """Local. The numbers of whole lines, which begin with field ``first`` of the section.

    A field reads as Fortran reads it: exponents with D, or with a sign alone; without a point,
    the last ``decimals`` digits are behind it. Raises :class:`HarwellBoeingError` naming the
    line of a field that is no number.
    """
    form = section.format
    kind = "integer" if form.integer else "real"
    shape = (section.fields, 1)
    head = _FieldLines(path, "array", kind, "general", shape, 0, line, section.name, form.repeat)
    whole = min(section.fields - first, text.count(b"\n") * form.repeat)
    values = _parse_apart(head, text.translate(_TO_E), form, whole)
    return _parse_fixed(head, text, form, whole) if values is None else values


def _parse_apart(head: _FieldLines, text: bytes, form: Format, count: int) -> NDArray[Any] | None:
    """The numbers where blanks are between all of them, so that there are as many words as fields.

    Then the words are the fields, in files whose fields have the width that they say, and in
    those of programs that write other widths. None where that is not so, or not sure.
    """
    blank = np.frombuffer(b" " + text, np.uint8) <= ord(" ")
    if np.count_nonzero(blank[:-1] & ~blank[1:]) != count:
        return None
    pointed = not form.decimals or text.count(b".") == count
    if not pointed or (form.scale and text.upper().count(b"E") != count):
        return None
    try:
        values = parse_block(head, text.translate(_TO_LINES), 1).values
    except HarwellBoeingError:
        return None
    return values if len(values) == count else None


def _parse_fixed(head: _FieldLines, text: bytes, form: Format, count: int) -> NDArray[Any]:
    """The numbers, each in its columns."""
    cells = _cells(head.path, text, form, head.size_line)
    fields = cells.reshape(-1, form.width)[:count]
    blank = np.flatnonzero((fields <= ord(" ")).all(axis=1))
    if len(blank):
        raise head.error(int(blank[0]) + 1, "a number is missing")
    lines = np.full((len(fields), form.width + 1), ord("\n"), np.uint8)
    lines[:, :-1] = fields
    if form.integer:
        return parse_block(head, lines.tobytes(), 1).values
    words = lines.tobytes().translate(_TO_E)
    try:
        values = parse_block(head, words, 1).values
    except HarwellBoeingError:
        values = parse_block(head, _BARE_EXPONENT.sub(rb"E\1", words), 1).values
    return _scaled(values, fields, form)


def _cells(path: str, text: bytes, form: Format, line: int) -> NDArray[np.uint8]:
    """One row of bytes for each line, cut or filled with blanks to the columns of its fields."""
    width = form.repeat * form.width
    data = np.frombuffer(text.replace(b"\r", b""), np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if len(ends) * width > 16 * len(text) + (1 << 20):
        raise HarwellBoeingError(
            f"{path}, line {line}: lines are much shorter than {form.repeat} fields of {form.width}"
        )
    lengths = np.diff(ends, prepend=-1) - 1
    cells = np.full((len(ends), width), ord(" "), np.uint8)
    if len(ends) and (lengths == lengths[0]).all():
        common = min(int(lengths[0]), width)
        cells[:, :common] = data.reshape(len(ends), -1)[:, :common]
    else:
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
