"""What the compiled way of parsing lines takes, against the one in Python: every short text, and
many texts with some bytes changed."""

from __future__ import annotations

import itertools
import random
import struct

import pytest

from onesided.sparse import MatrixMarketError
from onesided.sparse.files import entries
from onesided.sparse.files.entries import _parse_slowly, parse_block
from onesided.sparse.files.matrixmarket import Header


def header(field="real", format_="coordinate"):
    return Header("m.mtx", format_, field, "general", (100, 100), 0, 2)


def outcome(parse, head, text):
    """What a way of parsing makes of a text: the entries, or the words of the error."""
    try:
        block = parse(head, text, 1)
    except MatrixMarketError as error:
        return str(error)
    return block.rows.tolist(), block.cols.tolist(), [repr(value) for value in block.values]


@pytest.fixture
def odd(monkeypatch):
    """The lines that are left to Python."""
    if entries._lines is None:
        pytest.skip("sparse/files/lines.c is not compiled")
    lines = []

    def parse(head, text, number):
        lines.append(text)
        return _parse_slowly(head, text, number)

    monkeypatch.setattr(entries, "_parse_slowly", parse)
    return lines


def agree(head, text):
    """Both ways make the same of it; whether it was taken."""
    slow = outcome(_parse_slowly, head, text)
    assert outcome(parse_block, head, text) == slow, text
    return not isinstance(slow, str)


@pytest.mark.parametrize(
    ("field", "format_", "alphabet", "length"),
    [
        ("real", "array", "1.-e\n", 5),
        ("real", "array", "1e+ ", 4),
        ("integer", "array", "1- \n", 4),
        ("pattern", "coordinate", "1 .\n", 5),
        ("real", "coordinate", "1 .\n", 6),
    ],
)
def test_every_short_text_is_taken_as_the_slow_way_takes_it(field, format_, alphabet, length):
    head, seen = header(field, format_), []
    for size in range(1, length + 1):
        for letters in itertools.product(alphabet, repeat=size):
            seen.append(agree(head, ("".join(letters) + "\n").encode()))
    assert set(seen) == {True, False}


VALUES = {
    "real": ["1", "-2.5", "0.25", ".5", "7.", "1e5", "-1.25E-07", "3.5e+10", "2.0000000000000001"],
    "integer": ["1", "-7", "123456789012345678"],
    "complex": ["1 2", "-0.5 1e-3", "2.25 -.5"],
    "pattern": [""],
}
JUNK = [*" \t\r\n.-+eE09x%\0", "  ", "\n\n", "nan"]
ENDS = ["\n", "\n", "\n", "\r\n", " \n", "\n\n", "\n \n"]


def whole_text(rng, field, lines):
    """Lines of plain numbers in all the ways in which they are written."""
    text = ""
    for _ in range(lines):
        words = [str(rng.randint(1, 100)), str(rng.randint(1, 100)), rng.choice(VALUES[field])]
        gap = rng.choice([" ", " ", " ", "  ", "\t", " " * rng.randint(1, 60)])
        text += rng.choice(["", "", "", " ", "\t "]) + gap.join(words).rstrip() + rng.choice(ENDS)
    return text


def changed(rng, text):
    """The text with a few bytes put in, taken out, or moved."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        until = at + rng.choice([0, 0, 1, 1, 2, 5])
        text = text[:at] + rng.choice([*JUNK, ""]) + text[until:]
    return text.rstrip("\n") + "\n"


@pytest.mark.parametrize("field", list(VALUES))
def test_changed_texts_are_taken_as_the_slow_way_takes_them(field, odd):
    rng, head, seen = random.Random(field), header(field), []
    for _ in range(400):
        text = whole_text(rng, field, rng.randint(1, 12))
        odd.clear()
        assert agree(head, text.encode())
        assert not odd
        seen.append(agree(head, changed(rng, text).encode()))
    assert seen.count(True) > 15
    assert seen.count(False) > 150


@pytest.mark.parametrize(
    "lines",
    [
        "1 2.5 6",
        "1 2.5\n1 2 3 4",
        "1 2\n3.0 4 5 6.0",
        "1 2\n3 4 5 6",
        "1 2 3 4\n5 6",
        "1 2 3 4 5 6\n7 8 9",
        "1 2 3\n4 5 6 7 8 9",
        "1 2 3 junk",
        "1 2-5 6",
    ],
)
def test_words_are_not_counted_over_lines(lines):
    for around in ("", "1 1 1.5\n" * 5000):
        head, text = header(), f"{around}{lines}\n{around}".encode()
        number = around.count("\n") + 1 + lines.startswith("1 2 3\n")
        with pytest.raises(MatrixMarketError, match=f"line {number}: "):
            parse_block(head, text, 1)


@pytest.mark.parametrize("length", [1, 18, 19, 20, 21, 63, 400])
def test_long_words_are_never_read_wrongly(length):
    head = header()
    for lead in ("", "0", "0" * 30):
        text = f"{lead}1 2 {lead}.{'3' * length}\n1 2 3{' ' * length}\n"
        text += f"1 1 {'1' * length}e-{length}\n1 {'0' * length}1 {'0' * length}.5\n"
        assert agree(head, text.encode())
    assert not agree(head, f"1 1{'0' * length}00 1\n".encode())


def words_of_numbers():
    """Numbers in many ways of writing them, and those between two doubles."""
    rng = random.Random(0)
    yield from ("0", "-0.0", "0e999999999", "1e400", "-1e400", "1e-400", "4.9e-324")
    yield from ("2.2250738585072011e-308", "179769313486231570814527423731704356798070e267")
    yield from ("nan", "-NaN", "inf", "+Inf", "-infinity", "9007199254740993", "9007199254740992.5")
    for _ in range(3000):
        bits = struct.unpack("d", struct.pack("Q", rng.getrandbits(64)))[0]
        middle = (2 * rng.getrandbits(52) + (1 << 53) + 1) << rng.randint(0, 9)
        yield from (repr(bits), f"{rng.gauss(0, 1):.17g}", f"{rng.random():.19e}", str(middle))
        yield f"{rng.getrandbits(63)}e{rng.randint(-345, 310)}"
        yield f"{middle / 2 ** rng.randint(0, 60)!r}"


def test_numbers_are_those_next_to_what_is_written(odd):
    words = list(words_of_numbers())
    block = parse_block(header(), "".join(f"1 1 {word}\n" for word in words).encode(), 1)
    assert [repr(value) for value in block.values.tolist()] == [repr(float(w)) for w in words]
    assert not odd
