"""Harwell-Boeing and Rutherford-Boeing files, written for tests."""

from __future__ import annotations

import re


def _section(items, repeat):
    """Lines of so many fields each."""
    rows = range(0, len(items), repeat)
    return ["".join(items[start : start + repeat]) for start in rows]


def _repeat(form):
    """How many fields a line has, from its Fortran format."""
    return int(re.search(r"(\d*)[DEFI]\d", form)[1] or 1)


def boeing_file(csc, kind, symmetry, rutherford, form="(3E25.16)", written="{:25.16E}".format):
    """The bytes of a file that holds what ``csc`` stores; ``written`` makes a field of a value."""
    n_rows, n_cols = csc.shape
    if kind == "integer":
        form, written = "(5I12)", lambda value: f"{int(value):12d}"
    values = csc.data.astype(complex)
    numbers = values.view(float) if kind == "complex" else values.real
    sections = [
        _section([f"{pointer + 1:9d}" for pointer in csc.indptr], 8),
        _section([f"{index + 1:8d}" for index in csc.indices], 10),
    ]
    if kind != "pattern":
        sections.append(_section([written(float(number)) for number in numbers], _repeat(form)))
    counts = [len(section) for section in sections] + [0] * (kind == "pattern")
    counts = [sum(counts), *counts, *([] if rutherford else [0])]
    letters = kind[0] + symmetry + "a"
    sizes = "".join(f"{size:14d}" for size in (n_rows, n_cols, csc.nnz, 0))
    lines = [
        f"{'a matrix for tests':<72}{'key':<8}",
        "".join(f"{count:14d}" for count in counts),
        f"{letters.lower() if rutherford else letters.upper():<14}{sizes}",
        f"{'(8I9)':<16}{'(10I8)':<16}{'' if kind == 'pattern' else form:<20}",
        *(line for section in sections for line in section),
    ]
    return ("\n".join(lines) + "\n").encode()
