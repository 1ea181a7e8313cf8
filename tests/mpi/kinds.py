"""The types of elements that the conformance table moves, and the operations it reduces them by.

``ELEMENTS`` are types by name. ``KINDS`` are an MPI type with an operation: how contributions are
made, and how two of them are joined, by NumPy. Nothing is compared with the code under test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

#: Types of elements; "nan" has one among its doubles.
ELEMENTS = ["i8", "f4", "f8", "c8", "c16", "?", "V12", "V24", "V40", ">i4", "nan"]


def element(kind: str) -> np.dtype:
    return np.dtype("f8" if kind == "nan" else kind)


def values(kind: str, numbers: Any) -> np.ndarray:
    """An element for each number; equal ones for equal numbers."""
    numbers = np.asarray(numbers, np.int64)
    dtype = element(kind)
    if dtype.kind == "V":
        return _bytes(dtype.itemsize)[numbers % 251]
    if dtype.kind == "b":
        few = np.arange(30)
        return ((few * 7 // 3 + few // 5) % 2 == 0)[numbers % 30]
    found = (numbers % (1 << 22)).astype(dtype)
    if dtype.kind == "c":
        found += 1j * (numbers % 13).astype(dtype)
    if kind == "nan":
        found[numbers % 5 == 2] = np.nan
    return found


@functools.cache
def _bytes(itemsize: int) -> np.ndarray:
    """An element of so many bytes for each number below 251."""
    columns = np.arange(251)[:, None] * 31 + np.arange(itemsize)
    return (columns % 251).astype(np.uint8).view(f"V{itemsize}").reshape(-1)


def array(dtype: np.dtype, count: int, odd: bool = False) -> np.ndarray:
    """Of so many elements; ``odd``: at an address that suits no type."""
    if odd:
        return np.frombuffer(bytearray(dtype.itemsize * count + 8), dtype, count, 1)
    return np.empty(count, dtype)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and (a.tobytes() == b.tobytes())


def datatype(kind: str) -> tuple[MPI.Datatype, bool]:
    """The MPI's type of an element, and whether it has to be freed."""
    dtype = element(kind)
    if dtype.kind == "V":
        return MPI.BYTE.Create_contiguous(dtype.itemsize).Commit(), True
    return MPI.Datatype.fromcode(dtype.newbyteorder("=").char), False


# -- kinds: a type and an operation ----------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """``dtype``: an element; ``make(random, count)`` contributions, ``join(left, right)`` two of
    them. ``datatype`` and ``op`` make what MPI is given; the latter is the caller's own where
    it is a function. ``ours``: of NaN and of overflow MPI says nothing (Open MPI 5.0 saturates sums
    of 8 bits), so its own methods, which auto may take, are not asked for these."""

    dtype: np.dtype
    datatype: Callable[[], MPI.Datatype]
    op: object
    make: Callable
    join: Callable
    commutes: bool = True
    ours: bool = False


def small(dtype):
    """Whole numbers whose sums and products are exact in every type."""
    return lambda random, count: random.integers(0, 3, count).astype(dtype)


def full(dtype):
    """The whole range: sums and products wrap around."""
    return lambda random, count: random.integers(0, 256, (count, np.dtype(dtype).itemsize),
                                                 np.uint8).view(dtype).reshape(-1)


def with_nan(random, count):
    """NaN here and there on this rank."""
    values = random.standard_normal(count)
    values[random.integers(0, 4, count) == 0] = np.nan
    return values


def huge(dtype):
    """Numbers whose sums overflow."""
    return lambda random, count: (random.integers(2, 4, count) * np.finfo(dtype).max / 3).astype(
        dtype)


def _number(code, op, ufunc, make=small, **more):
    dtype = np.dtype(code)

    def join(left, right):
        with np.errstate(all="ignore"):
            return ufunc(left, right).astype(dtype)

    datatype = MPI.Datatype.fromcode(dtype.char)
    make = make if make is with_nan else make(dtype)
    return Kind(dtype, lambda: datatype, op, make, join, **more)


def _pair(name, value, op, better):
    dtype = np.dtype([("value", value), ("index", "i4")], align=True)

    def make(random, count):
        made = np.zeros(count, dtype)
        made["value"], made["index"] = random.integers(0, 3, count), random.integers(0, 9, count)
        return made

    def join(left, right):
        same = left["value"] == right["value"]
        first = better(left["value"], right["value"]) | (same & (left["index"] < right["index"]))
        return np.where(first, left, right)

    return Kind(dtype, lambda: getattr(MPI, name), op, make, join)


def _derived(words, joined, commutes):
    """A type of some 32-bit numbers, with an operation of the caller's."""
    dtype = np.dtype(("V", 4 * words))

    def op(a, b, datatype):
        left, right = (np.frombuffer(each, np.int32).reshape(-1, words) for each in (a, b))
        right[:] = joined(left, right)

    def make(random, count):
        return random.integers(-9, 9, (count, words)).astype(np.int32).view(dtype).reshape(-1)

    def join(left, right):
        left, right = (each.view(np.int32).reshape(-1, words) for each in (left, right))
        return np.ascontiguousarray(joined(left, right), np.int32).view(dtype).reshape(-1)

    return Kind(dtype, lambda: MPI.INT32_T.Create_contiguous(words).Commit(), op, make, join,
                commutes)


def _columns(joined):
    """One of two columns of doubles: the other one does not belong to the type."""
    dtype = np.dtype([("inside", "f8"), ("hole", "f8")])

    def op(a, b, datatype):
        left, right = (np.frombuffer(each, np.float64)[::2] for each in (a, b))
        right[:] = joined(left, right)

    def make(random, count):
        made = np.zeros(count, dtype)
        made["inside"] = random.integers(-9, 9, count)
        return made

    def join(left, right):
        made = left.copy()
        made["inside"] = joined(left["inside"], right["inside"])
        return made

    return Kind(dtype, lambda: MPI.DOUBLE.Create_resized(0, 16).Commit(), op, make, join)


def first_counts(left, right):
    """Associative, and the order matters: what is not zero hides what comes after it."""
    return np.where(left != 0, left, right)


def multiplied(left, right):
    """Of 2 x 2 matrices, which do not commute; only the first four numbers are one."""
    made = left + right
    made[:, :4] = (left[:, :4].reshape(-1, 2, 2) @ right[:, :4].reshape(-1, 2, 2)).reshape(-1, 4)
    return made


KINDS = {
    "f8": _number("f8", MPI.SUM, np.add),
    "i8": _number("i8", MPI.SUM, np.add),
    "f4 SUM": _number("f4", MPI.SUM, np.add),
    "f4 SUM overflows": _number("f4", MPI.SUM, np.add, huge, ours=True),
    "g PROD": _number("g", MPI.PROD, np.multiply),
    "c8 SUM": _number("c8", MPI.SUM, np.add),
    "c16 PROD": _number("c16", MPI.PROD, np.multiply),
    "i1 SUM wraps": _number("i1", MPI.SUM, np.add, full, ours=True),
    "i2 PROD wraps": _number("i2", MPI.PROD, np.multiply, full),
    "i4 SUM wraps": _number("i4", MPI.SUM, np.add, full),
    "i8 PROD wraps": _number("i8", MPI.PROD, np.multiply, full),
    "u2 PROD wraps": _number("u2", MPI.PROD, np.multiply, full),
    "u8 SUM wraps": _number("u8", MPI.SUM, np.add, full),
    "u1 BXOR": _number("u1", MPI.BXOR, np.bitwise_xor, full),
    "u4 BAND": _number("u4", MPI.BAND, np.bitwise_and, full),
    "i8 BOR": _number("i8", MPI.BOR, np.bitwise_or, full),
    "b1 LAND": _number("?", MPI.LAND, np.logical_and),
    "b1 LXOR": _number("?", MPI.LXOR, np.logical_xor),
    "i4 LOR": _number("i4", MPI.LOR, np.logical_or),
    "f8 MAX of NaN": _number("f8", MPI.MAX, np.maximum, with_nan, ours=True),
    "f8 MIN of NaN": _number("f8", MPI.MIN, np.minimum, with_nan, ours=True),
    "f4 MIN": _number("f4", MPI.MIN, np.minimum),
    "i2 MAX": _number("i2", MPI.MAX, np.maximum, full),
    "FLOAT_INT MAXLOC": _pair("FLOAT_INT", "f4", MPI.MAXLOC, np.greater),
    "DOUBLE_INT MINLOC": _pair("DOUBLE_INT", "f8", MPI.MINLOC, np.less),
    "LONG_INT MAXLOC": _pair("LONG_INT", "i8", MPI.MAXLOC, np.greater),
    "TWOINT MINLOC": _pair("TWOINT", "i4", MPI.MINLOC, np.less),
    "SHORT_INT MAXLOC": _pair("SHORT_INT", "i2", MPI.MAXLOC, np.greater),
    "LONG_DOUBLE_INT MAXLOC": _pair("LONG_DOUBLE_INT", "g", MPI.MAXLOC, np.greater),
    "12 bytes added": _derived(3, np.add, True),
    "24 bytes in order": _derived(6, first_counts, False),
    "40 bytes in order": _derived(10, multiplied, False),
    "a column added": _columns(np.add),
}
