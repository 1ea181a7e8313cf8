"""How two contributions become one: operations, types, and who carries them out.

Predefined operations on predefined types run in loops of the compiled core (``core/folds.c``, which
has the numbers below), or as NumPy's ufuncs where there is none. Everything else, operations of the
caller's above all, is left to ``MPI_Reduce_local``.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib
from numpy.typing import NDArray

from onesided.collectives.buffers import free_types, simple
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.collectives.pattern import LARGEST_PIECE, flat_bytes
from onesided.collectives.program import COMPILED
from onesided.collectives.steps import Step, _core, address, call, copy, reduce

Bytes = NDArray[np.uint8]

INTEGER, FLOATING, COMPLEX = "integers", "floating-point numbers", "complex numbers"
LOGICAL, BYTE, PAIR = "logical values", "bytes", "pairs of value and index"

_ARITHMETIC = (INTEGER, FLOATING, COMPLEX)
_ORDERED = (INTEGER, FLOATING)

#: The predefined operations in the order of the compiled core, and the types that they take
#: (MPI-4.1 section 6.9.2).
_OPERATIONS: tuple[tuple[str, MPI.Op, tuple[str, ...], Callable[..., Any] | None], ...] = (
    ("MPI.SUM", MPI.SUM, _ARITHMETIC, np.add),
    ("MPI.PROD", MPI.PROD, _ARITHMETIC, np.multiply),
    ("MPI.MAX", MPI.MAX, _ORDERED, np.maximum),
    ("MPI.MIN", MPI.MIN, _ORDERED, np.minimum),
    ("MPI.LAND", MPI.LAND, (INTEGER, LOGICAL), np.logical_and),
    ("MPI.LOR", MPI.LOR, (INTEGER, LOGICAL), np.logical_or),
    ("MPI.LXOR", MPI.LXOR, (INTEGER, LOGICAL), np.logical_xor),
    ("MPI.BAND", MPI.BAND, (INTEGER, BYTE), np.bitwise_and),
    ("MPI.BOR", MPI.BOR, (INTEGER, BYTE), np.bitwise_or),
    ("MPI.BXOR", MPI.BXOR, (INTEGER, BYTE), np.bitwise_xor),
    ("MPI.MAXLOC", MPI.MAXLOC, (PAIR,), None),
    ("MPI.MINLOC", MPI.MINLOC, (PAIR,), None),
)

#: Types of numbers by kind and size, and those of pairs, in the order of the compiled core.
_NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8",
            f"f{np.dtype(np.longdouble).itemsize}", "c8", "c16", "b1")  # fmt: skip
_PAIRS = ((MPI.FLOAT_INT, "f4"), (MPI.DOUBLE_INT, "f8"), (MPI.LONG_INT, "l"), (MPI.TWOINT, "i4"),
          (MPI.SHORT_INT, "i2"), (MPI.LONG_DOUBLE_INT, "g"))  # fmt: skip
_FAMILIES = {"i": INTEGER, "u": INTEGER, "f": FLOATING, "c": COMPLEX, "b": LOGICAL}


@dataclass(frozen=True)
class Element:
    """An MPI type as reductions see it: bytes from one element to the next, its NumPy form (bytes
    where it has none), its family, and its number in the compiled core (-1: none).

    ``alignment``: of its address in bytes, where that matters. ``gaps``: between its bytes are some
    that do not belong to it and must not be written.
    """

    datatype: MPI.Datatype
    extent: int
    dtype: np.dtype[Any]
    family: str = ""
    number: int = -1
    alignment: int = 1
    gaps: bool = False

    def __str__(self) -> str:
        if self.datatype.is_predefined:
            return str(self.datatype.name)
        return f"a derived type of {self.datatype.Get_size()} bytes, {self.extent} apart"

    @classmethod
    def of(cls, datatype: MPI.Datatype, role: str) -> Element:
        """Local. Raises :class:`PatternError` for what cannot be an element."""
        if datatype == MPI.DATATYPE_NULL:
            raise PatternError(f"the {role} type is MPI_DATATYPE_NULL")
        lower, extent = datatype.Get_extent()
        true_lower, true_extent = datatype.Get_true_extent()
        if lower != 0 or extent < 1 or true_lower < 0 or true_lower + true_extent > extent:
            raise UnsupportedError(f"the {role} type reaches outside of its extent of {extent}")
        whole = np.dtype((np.void, extent))
        for place, (pair, value) in enumerate(_PAIRS):
            if datatype == pair:
                aligned = max(np.dtype(value).alignment, np.dtype(np.intc).alignment)
                return cls(datatype, extent, whole, PAIR, len(_NUMBERS) + place, aligned,
                           gaps=datatype.Get_size() != extent)
        if datatype == MPI.BYTE:
            return cls(datatype, 1, np.dtype(np.uint8), BYTE, _NUMBERS.index("u1"))
        if not datatype.is_predefined:
            own = datatype.Dup()  # the caller may free his
            element = cls(own, extent, whole, gaps=datatype.Get_size() != extent)
            weakref.finalize(element, free_types, [own]).atexit = False
            return element
        try:
            dtype = np.dtype(dtlib.to_numpy_dtype(datatype))
        except (ValueError, TypeError, KeyError):
            return cls(datatype, extent, whole)
        code = f"{dtype.kind}{dtype.itemsize}"
        family = _FAMILIES.get(dtype.kind, "")
        return cls(datatype, extent, dtype, family,
                   _NUMBERS.index(code) if code in _NUMBERS else -1, dtype.alignment)

    def aligned(self, memory: Bytes) -> bool:
        """Local. Whether these bytes lie where the loops of the compiled core want them."""
        return address(memory) % self.alignment == 0 or not memory.size

    def copy(self, target: Bytes, source: Bytes) -> None:
        """Local. Copy elements, and nothing that is between their bytes."""
        if not self.gaps:
            target[:] = source
            return
        count = target.size // self.extent
        packed = bytearray(self.datatype.Pack_size(count, MPI.COMM_SELF))
        self.datatype.Pack(source, packed, 0, MPI.COMM_SELF)
        self.datatype.Unpack(packed, 0, target, MPI.COMM_SELF)


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
        self._between = np.empty(0, np.uint8)
        self._loop, self.quick = (-1, -1), False
        self._ufunc: Callable[..., Any] | None = None
        self.predefined = bool(op.is_predefined)
        if not self.predefined:
            return
        number = next((n for n, each in enumerate(_OPERATIONS) if each[1] == op), None)
        if number is None:
            raise PatternError("MPI.REPLACE and MPI.NO_OP are operations of windows only")
        self.name, _, takes, self._ufunc = _OPERATIONS[number]
        if element.family not in takes:
            raise PatternError(
                f"{self.name} does not take {element}; it takes {' and '.join(takes)}"
            )
        self._loop = (number, element.number)
        self.quick = _core.fold_exists(*self._loop) if COMPILED else self._ufunc is not None

    def __str__(self) -> str:
        order = "" if self.commutes else " (not commutative)"
        return f"{self.name}{order} of {self.element}"

    def step(self, target: Bytes, left: Bytes, right: Bytes) -> Step:
        """Local. ``target = left op right``: all of them bytes, ``target`` maybe one of the two;
        aligned as the element wants it."""
        if not target.size:
            return copy(target, left)
        if self.quick:
            into, one, other = (array.view(self.element.dtype) for array in (target, left, right))
            return reduce(into, one, other, self._loop, self._ufunc)
        most = self.element.extent * max(1, LARGEST_PIECE // self.element.extent)
        if min(most, target.size) > self._between.size:
            self._between = np.empty(min(most, target.size), np.uint8)
        cuts = [slice(low, low + most) for low in range(0, target.size, most)]
        return call(partial(self._apply, [(target[cut], left[cut], right[cut]) for cut in cuts]),
                    serves=False)

    def steps(self, target: Bytes, sources: Sequence[Bytes]) -> list[Step]:
        """Local. ``target = sources[0] op sources[1] op ...``, from left to right."""
        if len(sources) == 1:
            return [copy(target, sources[0])]
        steps = [self.step(target, sources[0], sources[1])]
        return steps + [self.step(target, target, each) for each in sources[2:]]

    def _apply(self, pieces: Sequence[tuple[Bytes, Bytes, Bytes]]) -> None:
        """MPI's own, piece by piece: it leaves its result where the right one was."""
        for target, left, right in pieces:
            count, datatype = target.size // self.element.extent, self.element.datatype
            between = self._between[: right.size]
            between[:] = right
            self.op.Reduce_local([left, count, datatype], [between, count, datatype])
            target[:] = between


# -- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """What the caller gave as one buffer: its elements as bytes, and what it was given as."""

    memory: Bytes
    element: Element
    given: Any

    @property
    def count(self) -> int:
        return self.memory.size // self.element.extent

    @classmethod
    def read(cls, spec: Any, role: str, blocks: int = 1) -> Message:
        """Local. mpi4py's specification of a message, see :func:`~..buffers.simple`; a count is
        that of each of the ``blocks``. Raises :class:`PatternError` naming what does not fit."""
        found = simple(spec, blocks, role)
        flat, kind, first = found.flat, found.kind, found.pieces[0]
        if flat is None or kind is None:
            raise UnsupportedError(f"the {role} buffer is MPI.BOTTOM; give an array")
        element = Element.of(kind.given or _native(flat.dtype, role), role)
        memory = flat_bytes(flat)
        stop = first.offset + sum(piece.count for piece in found.pieces) * element.extent
        if stop > memory.size:
            raise PatternError(f"the {role} buffer has {memory.size} bytes, {stop} are needed")
        return cls(memory[first.offset : stop], element, found.given)


def _native(dtype: np.dtype[Any], role: str) -> MPI.Datatype:
    """The MPI type of an array's elements."""
    if not dtype.isnative:
        raise PatternError(f"the {role} buffer has dtype {dtype}, in another byte order")
    if dtype.kind in "biufc":  # of text and times an MPI type would forget length and unit
        with contextlib.suppress(KeyError, ValueError):
            return MPI.Datatype.fromcode(dtype.char)
    raise PatternError(f"the {role} buffer has dtype {dtype}, which is no MPI type")


def made_of(kind: MPI.Datatype) -> Any:
    """Local. A predefined type, or how a type has been made of others; that of a copy is equal."""
    if kind.is_predefined:
        return kind
    *numbers, parts = kind.Get_contents()
    made = [made_of(part) for part in parts]
    free_types([part for part in parts if not part.is_predefined])
    return made[0] if kind.combiner == MPI.COMBINER_DUP else (kind.combiner, numbers, made)
