"""What the fast way of parsing lines takes, against the slow one: every short text, and many texts
with some bytes changed, also where pieces of them meet."""

from __future__ import annotations

import itertools
import random

import pytest

from onesided.sparse import MatrixMarketError
from onesided.sparse.files import grammar
from onesided.sparse.files.entries import _parse_slowly, _plain_entries, parse_block
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


def agree(head, text):
    """Both ways make the same of it; whether it was taken, and whether by the fast way."""
    slow = outcome(_parse_slowly, head, text)
    assert outcome(parse_block, head, text) == slow, text
    return not isinstance(slow, str), _plain_entries(head, text) > 0


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
    assert {(True, True), (False, False)} <= set(seen)


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
@pytest.mark.parametrize("piece", [16, 100, 1 << 18])
def test_changed_texts_are_taken_as_the_slow_way_takes_them(monkeypatch, field, piece):
    monkeypatch.setattr(grammar, "PIECE_BYTES", piece)
    rng, head, seen = random.Random(f"{field} {piece}"), header(field), []
    for _ in range(150):
        text = whole_text(rng, field, rng.randint(1, 12))
        assert agree(head, text.encode()) == (True, True)
        seen.append(agree(head, changed(rng, text).encode()))
    assert seen.count((True, True)) > 5
    assert seen.count((False, False)) > 50


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
        assert _plain_entries(head, text) == 0


@pytest.mark.parametrize("length", [1, 31, 62, 63, 64, 65, 127, 128, 200])
def test_long_runs_are_never_read_wrongly(length):
    head = header()
    for shift in range(0, 70, 3):
        text = "1 1 1\n" * 11 + " " * shift + f"1 2 0.{'3' * length}\n1 2 3" + " " * length + "\n"
        taken, fast = agree(head, text.encode())
        assert taken
        assert fast or length > 62


@pytest.mark.parametrize("length", range(50, 70))
def test_a_last_line_without_an_end_is_a_line(length):
    text = b"1 2 3\n4 5 6." + b"0" * (length - 12)
    assert len(text) == length
    assert agree(header(), text)[0]
    assert not agree(header(), text + b" 7")[0]
