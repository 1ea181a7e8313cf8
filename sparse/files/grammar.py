"""Whether text is nothing but lines of numbers: all lines of a piece at once. No MPI here.

A class of bytes, such as the digits, is one bit for each byte of the text. So is a set of marks,
which holds one mark for each line, at first at its beginning. Marks walk through their lines
together: added to a class, as integers are, a mark at the beginning of a run of that class is
carried to the byte behind the run. A mark that does not find the class that must come next is
dropped. The text is what it should be if every line's mark arrives at the line's end.

What is refused here may still be valid: words such as "nan", or runs of more than 63 bytes. What
is taken can only be wrong in a number without digits, or in one that is out of its range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

PIECE_BYTES = 1 << 18  # that are looked at together: they stay in the cache
_WORD = 64
_ONE, _LAST = np.uint64(1), np.uint64(_WORD - 1)
_ALL = np.uint64((1 << _WORD) - 1)

Bits = NDArray[np.uint64]


def _packed(members: NDArray[np.bool_]) -> Bits:
    """The first byte is the lowest bit of the first word."""
    return np.packbits(members, bitorder="little").view("<u8")


def _next(marks: Bits) -> Bits:
    """Every mark one byte further on."""
    moved = marks << _ONE
    moved[1:] |= marks[:-1] >> _LAST
    return moved


class Run:
    """A class of bytes over which marks walk."""

    def __init__(self, members: Bits) -> None:
        self.members, self._others = members, ~members

    def over(self, marks: Bits) -> Bits:
        """Every mark behind the run in which it is, if it is in one.

        One that a run of more than 63 bytes holds may be lost.
        """
        behind = marks + self.members
        carried = (behind | self._others)[:-1]  # where a run goes on in the next word
        np.invert(carried, out=carried)
        carried >>= _LAST
        behind[1:] += carried
        behind &= self._others
        return behind


class Lines:
    """The classes of bytes of some whole lines; blank ones are added to fill the last word.

    ``room``: two rows of memory of whole words, as long as the text or longer.
    """

    def __init__(self, text: NDArray[np.uint8], room: NDArray[np.uint8]) -> None:
        size = -(-len(text) // _WORD) * _WORD
        self._text, self._members = room[0, :size], room[1, :size].view(np.bool_)
        self._text[: len(text)] = text
        self._text[len(text) :] = ord("\n")
        self.ends, self.points = self._where("\n"), self._where(".")
        self.minus, spaces = self._where("-"), self._where(" ")
        digits = np.subtract(self._text, ord("0"), out=self._members.view(np.uint8))
        known = _packed(np.less(digits, 10, out=self._members))
        self.digits = Run(known)
        self.exponents, self.signs = np.zeros_like(known), self.minus
        known = known | self.ends | self.points | self.minus | spaces
        if int(known.min()) != _ALL:
            self._rare(known, spaces)
        self.spaces = Run(spaces)

    def _where(self, byte: str) -> Bits:
        return _packed(np.equal(self._text, ord(byte), out=self._members))

    def _rare(self, known: Bits, spaces: Bits) -> None:
        """Add the classes that mostly few of the words have."""
        some = np.flatnonzero(known != _ALL)
        words = some if 4 * len(some) < len(known) else slice(None)
        text = self._text.reshape(-1, _WORD)[words].reshape(-1)
        members = self._members[: len(text)]

        def where(byte: str) -> Bits:
            return _packed(np.equal(text, ord(byte), out=members))

        exponents, plus = where("e") | where("E"), where("+")
        self.exponents[words] = exponents
        self.signs = self.minus.copy()
        self.signs[words] |= plus
        if int((known[words] | exponents | plus).min()) != _ALL:
            spaces[words] |= where("\t") | where("\r")

    def begins(self) -> Bits:
        """A mark at the beginning of every line."""
        marks = _next(self.ends)
        marks[0] |= _ONE
        return marks

    def blanks(self, marks: Bits) -> Bits:
        """Behind the spaces in which a mark is, if it is in any."""
        inside = marks & self.spaces.members
        return self.spaces.over(marks) if inside.any() else marks

    def gap(self, marks: Bits) -> Bits:
        """Behind spaces, of which there must be one, and mostly is."""
        return self.blanks(_next(marks & self.spaces.members))

    def index(self, marks: Bits) -> Bits:
        """Behind digits, of which there must be one."""
        return self.digits.over(marks & self.digits.members)

    def integer(self, marks: Bits) -> Bits:
        """Behind an integer."""
        return self.index(_over_one(marks, self.minus))

    def real(self, marks: Bits) -> Bits:
        """Behind a number with or without a point and an exponent."""
        marks = self.digits.over(_over_one(marks, self.minus))
        marks = self.digits.over(_over_one(marks, self.points))
        powers = marks & self.exponents
        if not powers.any():
            return marks
        return (marks ^ powers) | self.index(_over_one(_next(powers), self.signs))

    def entries(self, words: Sequence[Word]) -> int:
        """How many lines hold these words and nothing else, the others being blank; or -1."""
        marks = self.blanks(self.begins())
        blank = marks & self.ends
        marks ^= blank
        for number, word in enumerate(words):
            if number:
                marks = self.gap(marks)
            marks = word(self, marks)
        if not np.array_equal(self.blanks(marks) | blank, self.ends):
            return -1
        return int(np.bitwise_count(self.ends).sum()) - int(np.bitwise_count(blank).sum())


Word = Callable[[Lines, Bits], Bits]


def _over_one(marks: Bits, single: Bits) -> Bits:
    """Every mark that is at one of these bytes behind it."""
    here = marks & single
    return (marks ^ here) | _next(here) if here.any() else marks


def plain_entries(text: bytes, words: Sequence[Word]) -> int:
    """Local. How many lines of a text hold these words, the others being blank.

    0 where a line holds anything else, or where this cannot tell.
    """
    total, room = 0, np.empty((2, PIECE_BYTES + _WORD), np.uint8)
    for piece in _pieces(text):
        if len(piece) > PIECE_BYTES:
            room = np.empty((2, len(piece) + _WORD), np.uint8)
        found = Lines(piece, room).entries(words)
        if found < 0:
            return 0
        total += found
    return total


def _pieces(text: bytes) -> Iterator[NDArray[np.uint8]]:
    """The text in pieces of whole lines; a last line without an end is a piece of its own."""
    whole, start = np.frombuffer(text, np.uint8), 0
    while start < len(text):
        stop = text.rfind(b"\n", start, start + PIECE_BYTES) + 1
        stop = stop or text.find(b"\n", start) + 1 or len(text)
        yield whole[start:stop]
        start = stop
