"""How two contributions become one: operations, types, and who carries them out.

Predefined operations on predefined types run in loops of the compiled core (``core/folds.c``, which
has the numbers below), or as NumPy's ufuncs where there is none. Everything else, operations of the
caller's above all, is left to ``MPI_Reduce_local``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib
from numpy.typing import NDArray

from onesided.collectives.buffers import as_array
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.collectives.pattern import flat_bytes
from onesided.collectives.program import COMPILED, Step, address, call, copy, fold_exists, reduce

Bytes = NDArray[np.uint8]

INTEGER, FLOATING, COMPLEX = "integers", "floating-point numbers", "complex numbers"
LOGICAL, BYTE, PAIR = "logical values", "bytes", "pairs of value and index"


@dataclass(frozen=True)
class _Operation:
    """A predefined operation: its number in the compiled core, and the types that it takes
    (MPI-4.1 section 6.9.2)."""

    name: str
    number: int
    takes: tuple[str, ...]
    ufunc: Callable[..., Any] | None = None


_ARITHMETIC = (INTEGER, FLOATING, COMPLEX)
_ORDERED = (INTEGER, FLOATING)

#: In the order of the compiled core.
_OPERATIONS: tuple[tuple[MPI.Op, _Operation], ...] = (
    (MPI.SUM, _Operation("MPI.SUM", 0, _ARITHMETIC, np.add)),
    (MPI.PROD, _Operation("MPI.PROD", 1, _ARITHMETIC, np.multiply)),
    (MPI.MAX, _Operation("MPI.MAX", 2, _ORDERED, np.maximum)),
    (MPI.MIN, _Operation("MPI.MIN", 3, _ORDERED, np.minimum)),
    (MPI.LAND, _Operation("MPI.LAND", 4, (INTEGER, LOGICAL), np.logical_and)),
    (MPI.LOR, _Operation("MPI.LOR", 5, (INTEGER, LOGICAL), np.logical_or)),
    (MPI.LXOR, _Operation("MPI.LXOR", 6, (INTEGER, LOGICAL), np.logical_xor)),
    (MPI.BAND, _Operation("MPI.BAND", 7, (INTEGER, BYTE), np.bitwise_and)),
    (MPI.BOR, _Operation("MPI.BOR", 8, (INTEGER, BYTE), np.bitwise_or)),
    (MPI.BXOR, _Operation("MPI.BXOR", 9, (INTEGER, BYTE), np.bitwise_xor)),
    (MPI.MAXLOC, _Operation("MPI.MAXLOC", 10, (PAIR,))),
    (MPI.MINLOC, _Operation("MPI.MINLOC", 11, (PAIR,))),
)

#: Types of numbers by kind and size, and those of pairs, in the order of the compiled core.
_NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8",
            f"f{np.dtype(np.longdouble).itemsize}", "c8", "c16", "b1")  # fmt: skip
_PAIRS = (MPI.FLOAT_INT, MPI.DOUBLE_INT, MPI.LONG_INT, MPI.TWOINT, MPI.SHORT_INT,
          MPI.LONG_DOUBLE_INT)  # fmt: skip
_FAMILIES = {"i": INTEGER, "u": INTEGER, "f": FLOATING, "c": COMPLEX, "b": LOGICAL}
#: Those that are no numbers (MPI-4.1 section 6.9.2 leaves them out).
_CHARACTERS = (MPI.CHAR, MPI.WCHAR)


@dataclass(frozen=True)
class Element:
    """An MPI type as reductions see it: bytes from one element to the next, its NumPy form (bytes
    where it has none), its family, and its number in the compiled core (-1: none)."""

    datatype: MPI.Datatype
    extent: int
    dtype: np.dtype[Any]
    family: str
    number: int

    def __str__(self) -> str:
        return str(self.datatype.name) or f"a derived type of {self.extent} bytes"

    @classmethod
    def of(cls, datatype: MPI.Datatype, role: str) -> Element:
        """Local. Raises :class:`PatternError` for what cannot be an element."""
        if datatype == MPI.DATATYPE_NULL:
            raise PatternError(f"the {role} type is MPI_DATATYPE_NULL")
        lower, extent = datatype.Get_extent()
        true_lower, true_extent = datatype.Get_true_extent()
        if lower != 0 or true_lower < 0 or true_lower + true_extent > extent:
            raise UnsupportedError(f"the {role} type reaches outside of its extent of {extent}")
        whole = np.dtype((np.void, extent))
        for place, pair in enumerate(_PAIRS):
            if datatype == pair:
                return cls(datatype, extent, whole, PAIR, len(_NUMBERS) + place)
        if datatype == MPI.BYTE:
            return cls(datatype, 1, np.dtype(np.uint8), BYTE, _NUMBERS.index("u1"))
        if not datatype.is_predefined or any(datatype == kind for kind in _CHARACTERS):
            return cls(datatype, extent, whole, "", -1)
        try:
            dtype = np.dtype(dtlib.to_numpy_dtype(datatype))
        except (ValueError, TypeError, KeyError):
            return cls(datatype, extent, whole, "", -1)
        code = f"{dtype.kind}{dtype.itemsize}"
        family = _FAMILIES.get(dtype.kind, "")
        return cls(datatype, extent, dtype, family,
                   _NUMBERS.index(code) if code in _NUMBERS else -1)


class Fold:
    """Local. ``left op right`` for elements of one type.

    ``predefined``: it is one of MPI's operations. ``quick``: it takes no call of Python, so a
    thread that has no interpreter may do it.
    Raises :class:`PatternError` where the operation does not take the type.
    """

    def __init__(self, op: MPI.Op, element: Element) -> None:
        if not isinstance(op, MPI.Op) or op == MPI.OP_NULL:
            raise PatternError(f"the operation is {op!r}, not an MPI.Op")
        self.op, self.element = op, element
        self.commutes = bool(op.Is_commutative())
        self.name = "an operation of the caller's"
        self._loop, self._ufunc, self.quick = (-1, -1), None, False
        self.predefined = bool(op.is_predefined)
        if not self.predefined:
            return
        known = next((each for predefined, each in _OPERATIONS if predefined == op), None)
        if known is None:
            raise PatternError("MPI.REPLACE and MPI.NO_OP are operations of windows only")
        self.name = known.name
        if element.family not in known.takes:
            raise PatternError(
                f"{known.name} does not take {element}; it takes {' and '.join(known.takes)}"
            )
        self._loop, self._ufunc = (known.number, element.number), known.ufunc
        self.quick = fold_exists(*self._loop) if COMPILED else known.ufunc is not None

    def __str__(self) -> str:
        order = "" if self.commutes else " (not commutative)"
        return f"{self.name}{order} of {self.element}"

    def step(self, target: Bytes, left: Bytes, right: Bytes) -> Step:
        """Local. ``target = left op right``: all of them bytes, ``target`` maybe one of the two."""
        if not target.size:
            return copy(target, left)
        arrays = [array.view(self.element.dtype) for array in (target, left, right)]
        aligned = all(address(array) % array.dtype.alignment == 0 for array in arrays)
        if self.quick and aligned:
            return reduce(arrays[0], arrays[1], arrays[2], self._loop, self._ufunc or _no_ufunc)
        if self._ufunc is not None and self.quick:
            return call(partial(self._ufunc, arrays[1], arrays[2], arrays[0]), serves=False)
        return call(partial(self._apply, target, left, right, np.empty_like(right)), serves=False)

    def steps(self, target: Bytes, sources: Sequence[Bytes]) -> list[Step]:
        """Local. ``target = sources[0] op sources[1] op ...``, from left to right."""
        if len(sources) == 1:
            return [copy(target, sources[0])]
        steps = [self.step(target, sources[0], sources[1])]
        return steps + [self.step(target, target, each) for each in sources[2:]]

    def _apply(self, target: Bytes, left: Bytes, right: Bytes, between: Bytes) -> None:
        """MPI's own: it leaves its result where the right one was."""
        count, datatype = target.size // self.element.extent, self.element.datatype
        between[:] = right
        self.op.Reduce_local([left, count, datatype], [between, count, datatype])
        target[:] = between


def _no_ufunc(left: Any, right: Any, out: Any) -> None:
    raise UnsupportedError("pairs are reduced by the compiled core, or by MPI")


# -- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """What the caller gave as one buffer: its elements as bytes, and what it was given as."""

    memory: Bytes
    element: Element
    given: Any

    @property
    def count(self) -> int:
        """Number of elements."""
        return self.memory.size // self.element.extent

    @classmethod
    def read(cls, spec: Any, role: str, blocks: int = 1) -> Message:
        """Local. mpi4py's specification of a message: data, ``[data, type]``,
        ``[data, count, type]``, ``[data, (count, displacement), type]``, with the displacement in
        elements; a count is that of each of the ``blocks``. Raises :class:`PatternError` naming
        what does not fit."""
        parts = list(spec) if isinstance(spec, list | tuple) else [spec]
        datatype: Any = None
        if len(parts) > 1 and isinstance(parts[-1], MPI.Datatype | str):
            datatype = parts.pop()
        if not 1 <= len(parts) <= 3:
            raise PatternError(f"the {role} buffer is a list of {len(parts)} items, not 1 to 4")
        data, count, displ = (*parts, None, None)[:3]
        if isinstance(count, list | tuple) and displ is None:
            count, displ = (*count, None)[:2]
        array = as_array(data, role)
        if not array.flags.c_contiguous and not array.flags.f_contiguous:
            raise PatternError(f"the {role} buffer is not contiguous")
        element = Element.of(_datatype(datatype, array, role), role)
        memory = flat_bytes(array)
        start = _natural(displ, 0, f"{role} displacement") * element.extent
        rest = memory.size - start
        if count is None and element.extent and rest % element.extent:
            raise PatternError(
                f"{memory.size} bytes of {role} data are no whole number of {element}"
            )
        whole = max(rest, 0) // max(element.extent, 1)
        length = whole if count is None else blocks * _natural(count, 0, f"{role} count")
        length *= element.extent
        if length > rest:
            raise PatternError(
                f"the {role} buffer has {memory.size} bytes, {start + length} are needed"
            )
        return cls(memory[start : start + length], element, data)


def _natural(value: Any, default: int, name: str) -> int:
    if value is None:
        return default
    if not isinstance(value, int | np.integer) or value < 0:
        raise PatternError(f"the {name} is {value!r}")
    return int(value)


def _datatype(datatype: Any, array: NDArray[Any], role: str) -> MPI.Datatype:
    if isinstance(datatype, MPI.Datatype):
        return datatype
    code = array.dtype.char if datatype is None else datatype
    if datatype is None and not array.dtype.isnative:
        raise PatternError(f"the {role} buffer has dtype {array.dtype}, in another byte order")
    try:
        return MPI.Datatype.fromcode(code)
    except (KeyError, ValueError):
        what = f"dtype {array.dtype}" if datatype is None else f"type code {code!r}"
        raise PatternError(f"the {role} buffer has {what}, which is no MPI type") from None
