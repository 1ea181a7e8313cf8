"""The Harwell-Boeing and Rutherford-Boeing formats: header, Fortran formats, fields. No MPI here:
rank 0 reads such a file whole.

Sources: I. Duff, R. Grimes, J. Lewis, Users' Guide for the Harwell-Boeing Sparse Matrix
Collection, 1992; I. Duff, R. Grimes, J. Lewis, The Rutherford-Boeing Sparse Matrix Collection,
RAL-TR-97-031. A matrix is in three sections of lines with fields of fixed width: column pointers,
row indices, values.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from onesided.sparse.errors import HarwellBoeingError, MatrixFileError
from onesided.sparse.files.matrixmarket import Header, quoted
from onesided.sparse.files.textfile import BLOCK_BYTES, Advance, TextFile

_FIELDS = {"r": "real", "c": "complex", "p": "pattern", "i": "integer"}
_SYMMETRIES = {
    "s": "symmetric", "u": "general", "h": "hermitian", "z": "skew-symmetric", "r": "general",
}  # fmt: skip
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


@dataclass(frozen=True)
class Section:
    """One of the parts of a file: so many fields, ``repeat`` of them with ``width`` columns in a
    line. ``decimals``: digits behind the point of a field that has none; ``scale``: the power of
    ten of a field without an exponent."""

    name: str
    fields: int
    repeat: int
    width: int
    integer: bool
    decimals: int
    scale: int

    @classmethod
    def of(cls, name: str, fields: int, form: str) -> Section:
        """With Fortran's words, as in (1P,5E16.8); raises ``ValueError`` for others."""
        match = _FORMAT.match(form.strip())
        if match is None:
            raise ValueError(f"{form[:40]!r} is no format of one kind of numbers")
        scale, repeat, letter, width, decimals = match.groups()
        made = cls(
            name, fields, int(repeat or 1), int(width), letter.upper() == "I",
            int(decimals or 0), int(scale or 0),
        )  # fmt: skip
        if made.repeat < 1 or made.width < 1:
            raise ValueError(f"{form[:40]!r} has no fields")
        return made

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers."""
        return np.dtype(np.int64 if self.integer else np.float64)


def load_boeing(path: str, progress: Advance = None) -> sparse.coo_array:
    """Local. The matrix of a file, symmetry expanded; :class:`HarwellBoeingError` names the line.

    ``progress(done, total)`` is called now and then, with bytes.
    """
    with closing(TextFile(path, HarwellBoeingError)) as file:
        head, sections = _header(file)
        pointers, rows, *values = (_numbers(file, section, progress) for section in sections)
    pointers -= 1
    rows -= 1
    falls = np.flatnonzero(np.diff(pointers) < 0)
    if len(falls):
        at = int(falls[0]) + 1
        words = f"pointer {at} is {pointers[at]}, the one before it {pointers[at - 1]}"
        raise MatrixFileError(f"{path}: {words}")
    if (pointers[0], pointers[-1]) != (0, head.entries):
        found = f"from {pointers[0]} to {pointers[-1]}, not from 0 to {head.entries}"
        raise MatrixFileError(f"{path}: pointers go {found}")
    bad = np.flatnonzero((rows < 0) | (rows >= head.shape[0]))
    if len(bad):
        words = f"row index {rows[bad[0]]} of entry {bad[0]} is out of range"
        raise MatrixFileError(f"{path}: {words}, there are {head.shape[0]} rows")
    found_values = values[0] if values else np.ones(head.entries)
    if head.field == "complex":
        found_values = found_values.astype(np.float64, copy=False).view(np.complex128)
    cols = np.repeat(np.arange(head.shape[1]), np.diff(pointers))
    rows, cols, found_values = head.expand(rows, cols, found_values)
    return sparse.coo_array((found_values, (rows, cols)), shape=head.shape)


def looks_like_boeing(lines: list[bytes]) -> bool:
    """Local. Whether these first lines of a file can be those of a header."""
    return len(lines) >= 3 and _TYPE.match(lines[2]) is not None


def _header(file: TextFile) -> tuple[Header, list[Section]]:
    """The first lines as the header of any matrix file, and the sections that follow."""
    try:
        lines = [file.readline() for _ in range(4)]
        counts = _sizes(file, 2, lines[1], 1)
        field, symmetry = _type(file, lines[2])
        n_rows, n_cols, entries = _sizes(file, 3, lines[2][3:], 3)[:3]
        if len(counts) > 4 and counts[4] > 0:
            file.readline()  # of right-hand sides, which follow the matrix and are not read
    except EOFError as error:
        raise HarwellBoeingError(f"{file.path}: the header has {file.line - 1} lines") from error
    if symmetry != "general" and n_rows != n_cols:
        raise file.error(3, f"{symmetry}, but {n_rows} rows and {n_cols} columns")
    shape, size_line = (n_rows, n_cols), file.line - 1
    matrix = Header(file.path, "coordinate", field, symmetry, shape, entries, size_line)
    values = matrix.words - 2  # numbers of an entry beside its row and column
    fields = {"column pointer": n_cols + 1, "row index": entries}
    if values:
        fields["value"] = entries * values
    forms = _GROUP.findall(lines[3])
    if len(forms) < len(fields):
        raise file.error(4, f"{len(fields)} formats expected: {quoted(lines[3])}")
    sections = []
    for (name, count), form in zip(fields.items(), forms, strict=False):
        try:
            sections.append(Section.of(name, count, form.decode("latin-1")))
        except ValueError as error:
            raise file.error(4, str(error)) from error
        if not sections[-1].integer and (name != "value" or field == "integer"):
            raise file.error(4, f"{quoted(form)} where integers are expected")
    return matrix, sections


def _sizes(file: TextFile, number: int, line: bytes, least: int) -> list[int]:
    """The numbers of a line of the header; there must be so many at least."""
    words = line.split()
    if len(words) < least or not all(word.isdigit() and len(word) < 20 for word in words):
        raise file.error(number, f"sizes expected, found {quoted(line)}")
    numbers = [int(word) for word in words]
    if max(numbers) > _LARGEST:
        raise file.error(number, f"sizes too large: {quoted(line)}")
    return numbers


def _type(file: TextFile, line: bytes) -> tuple[str, str]:
    """Field and symmetry from the type of three letters."""
    match = _TYPE.match(line)
    if match is None:
        raise file.error(3, f"no type of a matrix: {quoted(line)}")
    kind, symmetry, stored = list(match[0].decode().lower())
    if stored == "e":
        raise file.error(3, "a matrix of elements, not assembled")
    if kind == "q":
        raise file.error(3, "the values are in an auxiliary file")
    return _FIELDS[kind], _SYMMETRIES[symmetry]


def _numbers(file: TextFile, section: Section, progress: Advance) -> NDArray[Any]:
    """The numbers of the next section, read in blocks."""
    begin, left = file.line, -(-section.fields // section.repeat)
    found, first, width = [np.zeros(0, section.dtype)], 0, 0
    while left:
        line, text = file.block(BLOCK_BYTES, left)
        if not text:
            break
        before, width = width, len(text[text.rfind(b"\n", 0, -1) + 1 :].rstrip(b"\r\n"))
        columns = ((section.fields - 1) % section.repeat + 1) * section.width
        if not file.ended and width < columns <= section.repeat * section.width <= before:
            words = f"its last line has {width} of {columns} columns, those before it have all"
            raise HarwellBoeingError(f"{file.path} is truncated: {words}")
        found.append(_parsed(file, section, text, line, first))
        left, first = left - (file.line - line), first + (file.line - line) * section.repeat
        file.tell(progress)
    numbers = np.concatenate(found)
    if len(numbers) < section.fields:
        words = f"of {section.fields} fields of {section.name}s, from line {begin} on"
        raise HarwellBoeingError(f"{file.path} is truncated: {words}, it holds {len(numbers)}")
    return numbers


def _parsed(file: TextFile, section: Section, text: bytes, line: int, first: int) -> NDArray[Any]:
    """The numbers of whole lines, which begin with field ``first`` of the section.

    A field reads as Fortran reads it: exponents with D, or with a sign alone; without a point,
    the last ``decimals`` digits are behind it.
    """
    count = min(section.fields - first, text.count(b"\n") * section.repeat)
    fields = _cells(file, section, text, line).reshape(-1, section.width)[:count]
    lines = np.full((count, section.width + 1), ord("\n"), np.uint8)
    lines[:, :-1] = fields
    joined = lines.tobytes()
    if not section.integer:
        joined, text = (
            _BARE_EXPONENT.sub(rb"E\1", part.translate(_TO_E)) for part in (joined, text)
        )
    words = joined.split(b"\n")[:-1]
    apart = text.split()
    pointed = section.integer or text.count(b".") == count
    if len(apart) == count and pointed and not section.scale:
        words = apart  # programs that write other widths than they say leave blanks
    number: Any = int if section.integer else float
    rest = iter(words)
    try:
        values = np.fromiter(map(number, rest), section.dtype, count)
    except (ValueError, OverflowError) as error:
        place = count - 1 - len(list(rest))
        word = words[place].strip()
        what = f"{quoted(word)} is no number" if word else "a number is missing"
        where = line + place // section.repeat
        raise file.error(where, f"{section.name}: {what}") from error
    return values if section.integer or words is apart else _scaled(values, fields, section)


def _cells(file: TextFile, section: Section, text: bytes, line: int) -> NDArray[np.uint8]:
    """One row of bytes for each line, cut or filled with blanks to the columns of its fields."""
    width = section.repeat * section.width
    data = np.frombuffer(text.replace(b"\r", b""), np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if len(ends) * width > 16 * len(text) + (1 << 20):
        form = f"{section.repeat} fields of {section.width}"
        raise file.error(line, f"lines are much shorter than {form}")
    lengths = np.diff(ends, prepend=-1) - 1
    cells = np.full((len(ends), width), ord(" "), np.uint8)
    column = np.arange(width)
    inside = column < lengths[:, None]
    cells[inside] = data[((ends - lengths)[:, None] + column)[inside]]
    return cells


def _scaled(values: NDArray[Any], fields: NDArray[np.uint8], section: Section) -> NDArray[Any]:
    """The values of fields that have no point, or no exponent, as their format says."""
    if section.decimals:
        values[~(fields == ord(".")).any(axis=1)] /= 10.0**section.decimals
    if section.scale:
        bare = np.isin(fields[:, 1:], list(b"+-")) & (fields[:, :-1] > ord(" "))
        exponent = np.isin(fields, list(b"EeDdQq")).any(axis=1) | bare.any(axis=1)
        values[~exponent] /= 10.0**section.scale
    return values
