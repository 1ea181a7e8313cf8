"""The Matrix Market format against SciPy, and what is wrong with a file: no MPI."""

from __future__ import annotations

import gzip
import itertools
import random
import struct

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from onesided.sparse import MatrixMarketError
from onesided.sparse.files import entries, textfile
from onesided.sparse.files.entries import _parse_slowly, parse_block
from onesided.sparse.files.matrixmarket import Header, read_header
from onesided.sparse.files.textfile import TextFile, line_blocks


def header(field="real", shape=(3, 3), format_="coordinate"):
    return Header("m.mtx", format_, field, "general", shape, 0, 2)


def read_file(path, block_bytes=64):
    """The whole file as SciPy's COO, in small blocks."""
    file = TextFile(path)
    try:
        head = read_header(file)
        rows, cols, values = [], [], []
        first = 0
        while True:
            line, text = file.block(block_bytes)
            if not text:
                break
            block = parse_block(head, text, line)
            place = block.rows, block.cols
            if head.is_array:
                place = head.positions(first, len(block.values))
            first += len(block.values)
            for target, part in zip(
                (rows, cols, values), head.expand(*place, block.values), strict=True
            ):
                target.extend(part)
    finally:
        file.close()
    return sparse.coo_array((np.array(values, head.dtype), (rows, cols)), shape=head.shape)


COORDINATE = {
    "real": ["2 1 1.5", "3 2 -2e-3", "2 1 .25", "3 1 0"],
    "double": ["2 1 1.", "3 2 1E5", "2 1 -0.5", "3 1 7"],
    "integer": ["2 1 9007199254740993", "3 2 -4", "2 1 1", "3 1 0"],
    "complex": ["2 1 1.5 2", "3 2 -1 0", "2 1 0 -1e1", "3 1 0 0"],
    "pattern": ["2 1", "3 2", "2 1", "3 1"],
    "unsigned-integer": ["2 1 18446744073709551615", "3 2 4", "3 3 1", "3 1 0"],
}


SYMMETRIES = ["general", "symmetric", "skew-symmetric", "hermitian"]


@pytest.mark.parametrize("symmetry", SYMMETRIES)
@pytest.mark.parametrize("field", COORDINATE)
def test_coordinate_files_read_as_scipy_reads_them(tmp_path, field, symmetry):
    if (field, symmetry) == ("unsigned-integer", "skew-symmetric"):
        return  # refused, see below
    path = tmp_path / "m.mtx"
    lines = [f"%%MatrixMarket matrix coordinate {field} {symmetry}", "% c", "", "3 3 4"]
    path.write_text("\n".join([*lines, *COORDINATE[field]]) + "\n")
    mine, theirs = read_file(path).toarray(), scipy.io.mmread(path, spmatrix=False).toarray()
    assert mine.dtype == theirs.dtype
    assert np.count_nonzero(mine)
    assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("field", ["real", "integer", "complex"])
@pytest.mark.parametrize(
    ("symmetry", "shape"),
    [*itertools.product(SYMMETRIES, [(1, 1), (4, 4)]), ("general", (3, 5)), ("general", (5, 2))],
)
def test_array_files_read_as_scipy_reads_them(tmp_path, field, symmetry, shape):
    n = shape[0]
    counts = {"general": shape[0] * shape[1], "skew-symmetric": n * (n - 1) // 2}
    count = counts.get(symmetry, n * (n + 1) // 2)
    path = tmp_path / "m.mtx"
    values = [f"{k % 4} {k}" if field == "complex" else f"{k % 4}" for k in range(count)]
    head = f"%%MatrixMarket matrix array {field} {symmetry}", f"{n} {shape[1]}"
    path.write_text("\n".join([*head, *values]) + "\n")
    mine, theirs = read_file(path, 16), scipy.io.mmread(path, spmatrix=False)
    assert np.array_equal(mine.toarray(), theirs)
    assert mine.nnz == np.count_nonzero(theirs)


@pytest.mark.parametrize(
    ("field", "line", "words"),
    [
        ("real", "1 1 x", "'x' is not a number"),
        ("real", "1 1 1.0 junk", "3 words expected"),
        ("real", "1 1 1.0 5", "3 words expected"),
        ("real", "1 1", "3 words expected"),
        ("real", "1 1 1 2 2 2", "3 words expected"),
        ("real", "1 1 1d3", "'1d3' is not a number"),
        ("real", "1 1 1,5", "'1,5' is not a number"),
        ("real", "1 1 0x10", "'0x10' is not a number"),
        ("real", "1 1 1e", "'1e' is not a number"),
        ("real", "1 1 1.2.3", "'1.2.3' is not a number"),
        ("real", "1 1 1e5.0", "'1e5.0' is not a number"),
        ("real", "1 1 1e5e6", "'1e5e6' is not a number"),
        ("real", "1 1 1-5", "'1-5' is not a number"),
        ("real", "1 1 .", "'.' is not a number"),
        ("real", "1 1 -.", "'-.' is not a number"),
        ("real", "1 1 .e5", "'.e5' is not a number"),
        ("real", "1 1 1_000", "'1_000' is not a number"),
        ("real", "1.0 1 1", "'1.0' is not an index"),
        ("real", "1e0 1 1", "'1e0' is not an index"),
        ("real", "% a late comment", "expected"),
        ("real", "0 1 1", "row index 0 is out of range"),
        ("real", "4 1 1", "row index 4 is out of range, there are 3 rows"),
        ("real", "1 0 1", "column index 0 is out of range"),
        ("real", "1 4 1", "column index 4 is out of range"),
        ("real", "1 -1 1", "column index -1 is out of range"),
        ("real", "1 99999999999999999999999 1", "out of range"),
        ("real", "1 " + "9" * 5000 + " 1", "is not an index"),
        ("integer", "1 1 1.5", "'1.5' is not a number of field integer"),
        ("integer", "1 1 9223372036854775808", "does not fit in 64 bits"),
        ("integer", "1 1 1e3", "'1e3' is not a number of field integer"),
        ("unsigned-integer", "1 1 -5", "does not fit"),
        ("pattern", "1 1 5", "2 words expected"),
        ("pattern", "1", "2 words expected"),
        ("complex", "1 1 5", "4 words expected"),
        ("complex", "1 1 5 i", "'i' is not a number"),
        ("real", "\x00\xff\x80", "words expected"),
    ],
)
def test_a_bad_line_is_named_with_its_number(field, line, words):
    good = {"pattern": "2 2", "complex": "2 2 1 1"}.get(field, "2 2 1")
    text = f"{good}\n\n{line}\n{good}\n".encode("latin-1")
    with pytest.raises(MatrixMarketError, match=r"^m\.mtx, line 19: ") as caught:
        parse_block(header(field), text, 17)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


GOOD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("hello\n", "line 1 is 'hello'"),
        ("\n" + GOOD + "1 1 0\n", "line 1 is ''"),
        ("\x00" * 1000, "line 1 is"),
        ("%%MatrixMarket matrix coordinate real\n1 1 0\n", "line 1: five words"),
        ("%%MatrixMarket vector coordinate real general\n1 1 0\n", "'vector' is none of matrix"),
        ("%%MatrixMarket matrix sparse real general\n1 1 0\n", "'sparse' is none of coordinate"),
        ("%%MatrixMarket matrix coordinate quad general\n1 1 0\n", "'quad' is none of real"),
        ("%%MatrixMarket matrix coordinate real odd\n1 1 0\n", "'odd' is none of general"),
        ("%%MatrixMarket matrix array pattern general\n1 1\n", "cannot be a pattern"),
        (GOOD.replace("real general", "unsigned-integer skew-symmetric"), "be skew-symmetric"),
        (GOOD, "no size line"),
        (GOOD + "% only a comment\n\n", "no size line in its 3 lines"),
        (GOOD + "% c\n2 2\n", "line 3: 3 sizes expected, found '2 2'"),
        (GOOD + "2 2 1 5\n", "line 2: 3 sizes"),
        (GOOD + "-2 2 1\n", "line 2: 3 sizes"),
        (GOOD + "2.0 2 1\n", "line 2: 3 sizes"),
        (GOOD + "2 2 99999999999999999999\n", "line 2: sizes too large"),
        (GOOD + "2 2 " + "9" * 9000 + "\n", "line 2: sizes too large"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n", "2 rows and 3 columns"),
    ],
)
def test_a_bad_header_is_refused_with_a_reason(tmp_path, text, words):
    path = tmp_path / "m.mtx"
    path.write_text(text, encoding="latin-1", newline="")
    file = TextFile(path)
    with pytest.raises(MatrixMarketError) as caught:
        read_header(file)
    file.close()
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_case_and_spaces_of_the_banner_do_not_matter(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text("%%matrixmarket  MATRIX Coordinate Real  General \n%c\n 2\t3 4 \n")
    file = TextFile(path)
    assert read_header(file) == Header(str(path), "coordinate", "real", "general", (2, 3), 4, 3)
    file.close()


@given(
    st.lists(st.text("ab ", max_size=9), min_size=1, max_size=30),
    st.integers(1, 40),
    st.booleans(),
)
def test_blocks_are_whole_lines_and_count_them(tmp_path_factory, lines, size, packed):
    text = "\n".join([*lines, "end"]).encode()
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    file = TextFile(path)
    first = file.readline()
    assert first == lines[0].encode()
    blocks, number = [], 2
    while (block := file.block(size))[1]:
        assert block[0] == number
        assert block[1].endswith(b"\n")
        number += block[1].count(b"\n")
        blocks.append(block[1])
    file.close()
    assert first + b"\n" + b"".join(blocks) == text + b"\n"


@pytest.fixture(params=["gzip", "isal"])
def unpacker(request, monkeypatch):
    """What decompresses: with and without the package isal."""
    if request.param == "isal":
        pytest.importorskip("isal.igzip", reason="isal is not installed")
    else:
        monkeypatch.setattr(textfile, "_igzip", None)


@pytest.mark.usefixtures("unpacker")
def test_gzip_data_of_several_members_and_padding(tmp_path):
    path = tmp_path / "m.mtx.gz"
    lines = [b"%d 1 1\n" % k for k in range(50_000)]
    halves = [b"".join(lines[:20_000]), b"".join(lines[20_000:])]
    path.write_bytes(b"".join(gzip.compress(half) for half in halves) + b"\0" * 700)
    file = TextFile(path)
    blocks = list(iter(lambda: file.block(1 << 15)[1], b""))
    assert len(blocks) > 10
    assert b"".join(blocks) == b"".join(lines)
    assert 0 < file.position <= file.size
    file.close()


@pytest.mark.usefixtures("unpacker")
@pytest.mark.parametrize("damage", ["truncated", "corrupt", "checksum"])
def test_damaged_gzip_data_are_an_error_of_the_file(tmp_path, damage):
    rng = np.random.default_rng(0)
    lines = "".join(f"{a} {b} 1\n" for a, b in rng.integers(1, 1000, (5000, 2)))
    data = bytearray(gzip.compress((GOOD + "1000 1000 5000\n" + lines).encode()))
    if damage == "truncated":
        del data[len(data) // 2 :]
    elif damage == "corrupt":
        data[len(data) // 2 : len(data) // 2 + 50] = b"\xff" * 50
    else:
        data[-8] ^= 1
    path = tmp_path / "m.mtx.gz"
    path.write_bytes(data)
    file = TextFile(path)
    with pytest.raises(MatrixMarketError, match="damaged gzip data somewhere after line"):
        list(iter(lambda: file.block(1 << 14)[1], b""))
    file.close()


def test_a_line_without_end_is_refused(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_bytes(GOOD.encode() + b"1" * (3 << 20))
    file = TextFile(path)
    file.readline()
    with pytest.raises(MatrixMarketError, match="line 2: longer than any entry"):
        file.block(1 << 16)
    file.close()
    with path.open("rb") as share:
        with pytest.raises(MatrixMarketError, match=f"a line near byte {len(GOOD)} is longer"):
            next(line_blocks(share, len(GOOD), 3 << 20, 1 << 16))


# -- the compiled parser against the one in Python: short texts, many with some bytes changed


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
    head, seen = header(field, format_=format_, shape=(100, 100)), []
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
    rng, head, seen = random.Random(field), header(field, shape=(100, 100)), []
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
        head, text = header(shape=(100, 100)), f"{around}{lines}\n{around}".encode()
        number = around.count("\n") + 1 + lines.startswith("1 2 3\n")
        with pytest.raises(MatrixMarketError, match=f"line {number}: "):
            parse_block(head, text, 1)


@pytest.mark.parametrize("length", [1, 18, 19, 20, 21, 63, 400])
def test_long_words_are_never_read_wrongly(length):
    head = header(shape=(100, 100))
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
    assert all(line.split()[2].strip(b"+-").isalpha() for line in odd)  # nan, inf
