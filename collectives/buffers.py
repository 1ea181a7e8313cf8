"""mpi4py's buffer specifications, read once: what the caller passed becomes array and blocks."""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError, UnsupportedError, in_forked_child
from onesided.collectives.pattern import (
    Block,
    blocks_of_boxes,
    check_counts,
    check_disjoint,
    flat_bytes,
    one_piece,
)
from onesided.collectives.steps import address

#: Steps after which NumPy gives up deciding whether two strided blocks overlap.
_EFFORT: Any = 10_000

_BYTE = np.dtype(np.uint8)


@dataclass
class Side:
    """One side of an exchange on one rank.

    ``array`` is the memory (None: the request owns it), ``shape`` and ``dtype`` its form,
    ``blocks`` the parts of it that travel, ``given`` what the caller passed as data. ``slots``:
    ``Wait`` returns the request's memory, otherwise what was given. ``kept`` is a block that is in
    its place already (``MPI.IN_PLACE``).

    What does not lie in memory as it travels (types with holes, data that are sent from where
    others arrive) is brought to ``array`` by ``before``, in Start, and taken out of the receive
    memory by ``after``, when the round is complete. ``native`` is then what MPI itself is given.
    """

    array: NDArray[Any] | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: tuple[Block, ...]
    given: Any
    slots: bool = False
    kept: Block | None = None
    before: Callable[[], object] | None = None
    after: Callable[[NDArray[Any]], object] | None = None
    native: Any = None

    def plain(self, other: Side, in_place: bool) -> Side:
        """The same blocks beside this other side, without what touches the caller's memory;
        ``in_place``: MPI is told so where it was, as far as this other side can be its own."""
        stays = in_place and self.native is MPI.IN_PLACE and other.native is None
        return replace(self, before=None, after=None, native=MPI.IN_PLACE if stays else None)


def nothing() -> Side:
    """Local. The side of a rank that takes no part in it; ``Wait`` returns None."""
    return Side(None, (0,), _BYTE, (), None)


def read_rows(rows: Any, send: Side) -> NDArray[np.int64]:
    """Local. The numbers of the rows of a send array; :class:`PatternError` where there is another
    number of them, or a box is not of whole rows that lie one after the other."""
    given = np.asarray(rows)
    if given.size and given.dtype.kind not in "iu":
        raise PatternError(f"rows has entries of type {given.dtype}, not integers")
    numbers = np.array(given, np.int64)
    if numbers.shape != send.shape[:1]:
        raise PatternError(f"rows is of shape {numbers.shape}, the send array of {send.shape}")
    whole = all(block.shape[1:] == send.shape[1:] for block in send.blocks)
    if send.array is None or not whole or not send.array.flags.c_contiguous:
        raise PatternError("rows of a send array that are not sent as wholes, or lie apart")
    if send.native is not None or send.before is not None:
        raise PatternError("rows of a send array that is described by MPI's types, or in place")
    return numbers


# -- types ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """An MPI type: entries of ``factor`` elements each, ``extent`` bytes apart.

    ``native`` is the type where its entries are not simply the bytes of their extent in order.
    ``span``: where in bytes an entry begins and ends, counted from where it is said to be.
    ``given``: the type that the caller named, if any.
    """

    dtype: np.dtype[Any]
    factor: int
    extent: int
    span: tuple[int, int]
    native: MPI.Datatype | None = None
    given: MPI.Datatype | None = None

    def reach(self, count: int) -> tuple[int, int]:
        """Where so many entries in a row begin and end, in bytes."""
        further = (count - 1) * self.extent
        return self.span[0] + min(0, further), self.span[1] + max(0, further)


def kind_of(kind: MPI.Datatype | str, role: str) -> Kind:
    """Local. Read a type; :class:`PatternError` for what is none."""
    if isinstance(kind, str):
        try:
            kind = MPI.Datatype.fromcode(kind)
        except (KeyError, ValueError):
            raise PatternError(f"{role} type {kind!r} is no MPI type code") from None
    if not isinstance(kind, MPI.Datatype):
        raise PatternError(f"the {role} type is {kind!r:.60}, no MPI type")
    if kind == MPI.DATATYPE_NULL:
        raise PatternError(f"the {role} type is MPI_DATATYPE_NULL")
    size, (_, extent) = kind.Get_size(), kind.Get_extent()
    low, true = kind.Get_true_extent()
    basic = _basic(kind)
    if basic is None and _in_order(kind):
        basic = _record(kind, extent)
    if basic is None or not basic.itemsize or size % basic.itemsize:
        basic = np.dtype((np.void, size)) if size else _BYTE
    native = None if _in_order(kind) else kind
    return Kind(basic, size // basic.itemsize, extent, (low, low + true), native, kind)


def _basic(kind: MPI.Datatype) -> np.dtype[Any] | None:
    """The one NumPy type of which an MPI type consists; None where there are several, or none."""
    if kind.is_predefined:
        try:
            dtype = np.dtype(dtlib.to_numpy_dtype(kind))
        except (ValueError, TypeError, KeyError):
            return None
        return dtype if dtype.itemsize == kind.Get_size() and dtype.names is None else None
    found: set[np.dtype[Any] | None] = set()
    for part in kind.Get_contents()[-1]:
        found.add(_basic(part))
        if not part.is_predefined:
            part.Free()
    return found.pop() if len(found) == 1 else None


def _record(kind: MPI.Datatype, extent: int) -> np.dtype[Any] | None:
    try:
        dtype = np.dtype(dtlib.to_numpy_dtype(kind))
    except (ValueError, TypeError, KeyError):
        return None
    return dtype if dtype.itemsize == extent and dtype.subdtype is None else None


def _in_order(kind: MPI.Datatype) -> bool:
    """Whether entries of the type are the bytes of their extent, one after the other."""
    if kind.Get_extent() != (0, kind.Get_size()):
        return False
    if kind.is_predefined:
        return True
    if kind.combiner not in (MPI.COMBINER_CONTIGUOUS, MPI.COMBINER_DUP, MPI.COMBINER_RESIZED):
        return False
    parts = kind.Get_contents()[-1]
    answer = all(_in_order(part) for part in parts)
    for part in parts:
        if not part.is_predefined:
            part.Free()
    return answer


class Layout:
    """Blocks of types with holes as one MPI type, which packs and unpacks all of them at once."""

    def __init__(self, flat: Any, pieces: Sequence[Piece], nbytes: int) -> None:
        """Local. ``flat``: the data, which stay where they are; None for pieces at addresses."""
        self._flat, where = flat, 0 if flat is None else address(flat)
        if nbytes > np.iinfo(np.int32).max and MPI.VERSION < 4:
            raise UnsupportedError(
                f"{nbytes} bytes of types with holes; this MPI packs {np.iinfo(np.int32).max}"
            )
        kinds = [piece.mpi_kind() for piece in pieces]
        counts, starts = [p.count for p in pieces], [p.offset for p in pieces]
        low = min(p.offset + p.kind.reach(p.count)[0] for p in pieces)
        made = MPI.Datatype.Create_struct(counts, [start - low for start in starts], kinds)
        self._kind = made.Create_resized(0, 1).Commit()
        self._memory = MPI.memory.fromaddress(where + low, 1)  # an entry reaches out from there
        made.Free()
        for piece, kind in zip(pieces, kinds, strict=True):
            if piece.kind.native is None:
                kind.Free()
        weakref.finalize(self, free_types, [self._kind]).atexit = False

    def pack(self, into: NDArray[Any]) -> None:
        self._kind.Pack(self._memory, flat_bytes(into), 0, MPI.COMM_SELF)

    def unpack(self, packed: NDArray[Any]) -> None:
        self._kind.Unpack(flat_bytes(packed), 0, self._memory, MPI.COMM_SELF)


def free_types(kinds: Sequence[MPI.Datatype]) -> None:
    """Local. Free types that were made here, unless MPI has ended or is a parent's."""
    if not (in_forked_child() or MPI.Is_finalized()):
        for kind in kinds:
            kind.Free()


# -- specifications ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A block as the caller describes it: entries of a type from an offset in bytes."""

    count: int
    offset: int
    kind: Kind

    @property
    def size(self) -> int:
        return self.count * self.kind.factor

    @property
    def nbytes(self) -> int:
        return self.size * self.kind.dtype.itemsize

    def mpi_kind(self) -> MPI.Datatype:
        """A type that must be freed where the caller gave none, or one that need not be packed."""
        if self.kind.native is not None:
            return self.kind.native
        return MPI.BYTE.Create_contiguous(self.kind.factor * self.kind.dtype.itemsize)


@dataclass
class Spec:
    """A specification taken apart: the data in one dimension and their blocks.

    ``flat`` is None for ``MPI.BOTTOM``: offsets are addresses. ``native`` is what MPI is given
    for types with holes; ``kind`` the type where there is one for all.
    """

    flat: NDArray[Any] | None
    pieces: list[Piece]
    given: Any
    role: str
    native: Any = None
    kind: Kind | None = None

    @property
    def packs(self) -> bool:
        """True where the blocks are not simply elements of the array."""
        return self.flat is None or any(piece.kind.native is not None for piece in self.pieces)

    def side(self, peers: Sequence[int], keys: Sequence[int], kept: int = -1) -> Side:
        """The blocks, number ``i`` with rank ``peers[i]``, or the only one with all of them.

        A negative peer is ``MPI.PROC_NULL``: nothing travels; ``kept`` is the number of a block
        that stays where it is.
        """
        places = [0] * len(peers) if len(self.pieces) == 1 else range(len(peers))
        chosen = [
            (place, peer, key) for place, peer, key in zip(places, peers, keys, strict=True)
            if peer >= 0 and self.pieces[place].nbytes
        ]
        used = sorted({place for place, _, _ in chosen})
        if self.packs:
            return self._packed(chosen, used)
        dtypes = {self.pieces[i].kind.dtype for i in used} or {self._dtype()}
        dtype = dtypes.pop() if len(dtypes) == 1 else _BYTE
        if any(self.pieces[i].offset % dtype.itemsize for i in used):
            dtype = _BYTE
        array = self.viewed(dtype)
        starts = {i: self.pieces[i].offset // dtype.itemsize for i in used}
        blocks = self._blocks(chosen, starts, dtype)
        if self.role == "recv":
            check_disjoint(blocks)
        stays = [block for block in blocks if block.peer == kept]
        blocks = tuple(block for block in blocks if block.peer != kept)
        return Side(array, array.shape, dtype, blocks, self.given, native=self.native,
                    kept=stays[0] if stays else None)

    def _packed(self, chosen: Sequence[tuple[int, int, int]], used: Sequence[int]) -> Side:
        """Types with holes: the blocks that are used, one after the other."""
        dtypes = {self.pieces[i].kind.dtype for i in used} or {self._dtype()}
        dtype = dtypes.pop() if len(dtypes) == 1 else _BYTE
        at, starts = 0, {}
        for i in used:
            starts[i] = at
            at += self.pieces[i].nbytes // dtype.itemsize
        blocks = self._blocks(chosen, starts, dtype)
        side = Side(None, (at,), dtype, blocks, self.given, native=self.native)
        if not used:
            return side
        layout = Layout(self.flat, [self.pieces[i] for i in used], at * dtype.itemsize)
        if self.role == "recv":
            return replace(side, after=layout.unpack)
        array = np.empty(at, dtype)
        return replace(side, array=array, before=partial(layout.pack, array))

    def _blocks(
        self, chosen: Sequence[tuple[int, int, int]], starts: dict[int, int], dtype: np.dtype[Any]
    ) -> tuple[Block, ...]:
        blocks = []
        for place, peer, key in chosen:
            piece = self.pieces[place]
            element = None if piece.kind.dtype == dtype else piece.kind.dtype
            start, count = starts[place], piece.nbytes // dtype.itemsize
            blocks.append(Block(peer, key, (slice(start, start + count),), (count,), element))
        return tuple(blocks)

    def _dtype(self) -> np.dtype[Any]:
        return _BYTE if self.kind is None else self.kind.dtype

    def viewed(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Local. The data as elements of this type, as far as they are whole ones."""
        flat = self.flat
        if flat is None:
            raise UnsupportedError(f"the {self.role} buffer is MPI.BOTTOM; give an array")
        if flat.dtype == dtype:
            return flat
        whole = flat.nbytes // dtype.itemsize * dtype.itemsize
        return flat.view(_BYTE)[:whole].view(dtype)

    def elements(self) -> NDArray[Any]:
        """Local. The blocks, which must lie one after the other in memory without holes."""
        for piece in self.pieces:
            if piece.kind.native is not None:
                raise UnsupportedError(f"the {self.role} type has holes; give one without")
        array = self.viewed(self._dtype())
        start = self.pieces[0].offset // array.itemsize
        return array[start : start + sum(piece.size for piece in self.pieces)]

    def only(self, place: int) -> Spec:
        """One of the blocks, to be sent from where it is."""
        return replace(self, pieces=[self.pieces[place]], role="send", native=MPI.IN_PLACE)

    def room(self, place: int) -> Side:
        """Memory of the request for one of the blocks, which nobody looks at: it is in place."""
        piece = self.pieces[place]
        blocks = [Block(place, 0, (slice(0, piece.size),), (piece.size,))] if piece.size else []
        return Side(None, (piece.size,), piece.kind.dtype, tuple(blocks), None,
                    native=MPI.IN_PLACE)

    def aside(self, peers: Sequence[int], keys: Sequence[int]) -> Side:
        """The send side where the receive buffer holds what is sent: it is copied in Start."""
        side = replace(self, role="send", native=MPI.IN_PLACE).side(peers, keys)
        return side if side.before is not None else copied_aside(side)


def copied_aside(side: Side) -> Side:
    """Local. The same blocks, sent from memory of the request to which Start copies them."""
    data = side.array
    if data is None:
        return side
    array = np.empty_like(data)
    pairs = [(array[block.box], data[block.box]) for block in side.blocks]

    def copy_all() -> None:
        for target, source in pairs:
            target[...] = source

    return replace(side, array=array, before=copy_all, native=MPI.IN_PLACE)


def in_place(data: Any) -> bool:
    """Local. Whether the caller says that the data are in their place; None is as good."""
    return data is None or data is MPI.IN_PLACE


def simple(spec: Any, blocks: int, role: str) -> Spec:
    """Read a specification of ``blocks`` blocks of one size in a row.

    Data alone, ``[data, count]``, ``[data, type]``, ``[data, count, type]``, each also with
    ``(count, displ)`` for the count, and ``[data, count, displ, type]``; ``count`` is that of one
    block. Raises :class:`PatternError` naming the values that do not fit.
    """
    data, count, displ, kind = _parts(spec, role, (tuple, list))
    flat, one, given = _read(data, kind, role)
    length = _length(flat, one, role, exact=count is None)
    start = 0 if displ is None else as_number(displ, f"{role} displacement")
    if start < 0:
        raise PatternError(f"the {role} displacement is {start}, negative")
    if count is None:
        entries = max(length - start, 0)
        if blocks > 1 and entries % blocks:
            raise PatternError(
                f"the {entries} elements of the {role} buffer cannot be split evenly into "
                f"{blocks} blocks"
            )
        count = entries // max(blocks, 1)
    each = as_number(count, f"{role} count")
    starts = [start + i * each for i in range(blocks)]
    native = [given, (each, start), one.native]
    return _spec(flat, one, [each] * blocks, starts, given, role, native)


def vector(spec: Any, blocks: int, role: str) -> Spec:
    """Read a specification of ``blocks`` blocks with counts and displacements of their own.

    ``[data, counts]``, ``[data, counts, displs]``, ``[data, (counts, displs)]``, each also with a
    type at the end, and plain data, split into blocks as even as possible. One number instead of
    the counts is that of every block, one instead of the displacements that between two blocks.
    Raises :class:`PatternError` naming the values that do not fit.
    """
    data, counts, displs, kind = _parts(spec, role, (tuple,))
    flat, one, given = _read(data, kind, role)
    length = _length(flat, one, role, exact=counts is None)
    if counts is None:
        counts = [length // blocks + (i < length % blocks) for i in range(blocks)]
    numbers = _integers(counts, blocks, f"{role}counts")
    if displs is None:
        starts = list(accumulate(numbers, initial=0))[:blocks]
    elif isinstance(displs, int | np.integer):
        starts = [i * int(displs) for i in range(blocks)]
    else:
        starts = _integers(displs, blocks, f"{role}displs")
    return _spec(flat, one, numbers, starts, given, role, [given, (numbers, starts), one.native])


def is_typed(spec: Any) -> bool:
    """Local. Whether blocks are described by types, as MPI_Alltoallw has it, and not by boxes."""
    if not isinstance(spec, list | tuple) or not spec:
        return False
    last = spec[-1]
    kinds = isinstance(last, list | tuple) and all(isinstance(k, MPI.Datatype | str) for k in last)
    return len(spec) > 2 or spec[0] is MPI.BOTTOM or (kinds and bool(last))


def typed(spec: Any, blocks: int, role: str) -> Spec:
    """Read ``[data, counts, displs, types]``, ``[data, (counts, displs), types]`` or ``[data,
    types]``: a type for every block, displacements in bytes. ``data`` may be ``MPI.BOTTOM``."""
    data, counts, displs = (*spec[:-1], None, None)[:3]
    kinds = spec[-1]
    if len(spec) == 3:
        if not isinstance(counts, list | tuple) or len(counts) != 2:
            raise PatternError(f"the {role} buffer has {counts!r:.60}, not (counts, displs)")
        counts, displs = counts
    if not 2 <= len(spec) <= 4 or not isinstance(kinds, list | tuple):
        raise PatternError(f"the {role} buffer is no list [data, counts, displs, types]")
    if len(kinds) != blocks:
        raise PatternError(f"{len(kinds)} {role} types for {blocks} blocks")
    flat = None if data is MPI.BOTTOM else as_vector(data, role)
    numbers = _integers(1 if counts is None else counts, blocks, f"{role}counts")
    starts = _integers(0 if displs is None else displs, blocks, f"{role}displs")
    pieces = [
        Piece(n, at, kind_of(kind if n else MPI.BYTE, role))
        for n, at, kind in zip(numbers, starts, kinds, strict=True)
    ]
    _check_bytes(pieces, flat, role)
    native = [data, numbers, starts, [piece.kind.given for piece in pieces]]
    return Spec(flat, pieces, data, role, native)


def _spec(
    flat: NDArray[Any], one: Kind, counts: list[int], starts: list[int], given: Any, role: str,
    native: list[Any],
) -> Spec:  # fmt: skip
    pieces = [Piece(n, at * one.extent, one) for n, at in zip(counts, starts, strict=True)]
    if one.native is None:
        check_counts(counts, starts, flat.nbytes // max(one.extent, 1), role)
        return Spec(flat, pieces, given, role, kind=one)
    _check_bytes(pieces, flat, role)
    return Spec(flat, pieces, given, role, native, kind=one)


def _check_bytes(pieces: Sequence[Piece], flat: NDArray[Any] | None, role: str) -> None:
    for place, piece in enumerate(pieces):
        if piece.count < 0:
            raise PatternError(f"{role}counts[{place}] is {piece.count}, negative")
        low, high = (piece.offset + end for end in piece.kind.reach(piece.count))
        if flat is not None and piece.nbytes and (low < 0 or high > flat.nbytes):
            raise PatternError(
                f"{role} block {place} reaches over the bytes [{low}, {high}), out of bounds of "
                f"the {flat.nbytes} of the buffer"
            )


def _read(data: Any, kind: Any, role: str) -> tuple[NDArray[Any], Kind, Any]:
    """The data in one dimension, the type of an entry, and the data as given."""
    flat = as_vector(data, role)
    if kind is not None:
        return flat, kind_of(kind, role), data
    return flat, Kind(flat.dtype, 1, flat.itemsize, (0, flat.itemsize)), data


def _length(flat: NDArray[Any], kind: Kind, role: str, exact: bool) -> int:
    """How many entries the data are."""
    if kind.extent <= 0:
        if exact and flat.nbytes:
            raise PatternError(f"the {role} type has an extent of {kind.extent}: give a count")
        return 0
    if exact and flat.nbytes % kind.extent:
        raise PatternError(
            f"{flat.nbytes} bytes of {role} data are no whole number of entries of {kind.extent}"
        )
    return flat.nbytes // kind.extent


def _parts(spec: Any, role: str, pairs: Any) -> tuple[Any, Any, Any, Any]:
    """Data, counts, displacements and type. ``pairs``: what may stand for the counts as a pair of
    counts and displacements, a tuple, or a list as well where there is one count only."""
    if not isinstance(spec, list | tuple):
        return spec, None, None, None
    parts: list[Any] = list(spec)
    kind = None
    if len(parts) > 1 and isinstance(parts[-1], MPI.Datatype | str):
        kind = parts.pop()
    if not 1 <= len(parts) <= 3:
        raise PatternError(f"the {role} buffer is a list of {len(spec)} items, not 1 to 4")
    data, counts, displs = parts + [None] * (3 - len(parts))
    if isinstance(counts, pairs) and displs is None:
        if len(counts) != 2:
            raise PatternError(
                f"the {role} buffer has a tuple of {len(counts)}; a tuple is (counts, displs), "
                "counts alone are a list or an array"
            )
        counts, displs = counts
    return bytearray() if data is None else data, counts, displs, kind


def as_number(value: Any, name: str) -> int:
    """Local. An integer; :class:`PatternError` for what is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise PatternError(f"the {name} is {value!r:.60}, not an integer") from None


def _integers(values: Any, length: int, name: str) -> list[int]:
    if isinstance(values, int | np.integer):
        values = [values] * length
    array = np.asarray(values)
    if array.ndim != 1 or array.size != length:
        raise PatternError(f"{name} has {array.size} entries, {length} are needed")
    if array.size and array.dtype.kind not in "iu":
        raise PatternError(f"{name} has entries of type {array.dtype}, not integers")
    return [int(value) for value in array]


def as_array(data: Any, role: str) -> NDArray[Any]:
    """Local. The data as an array of the same memory."""
    if data is MPI.IN_PLACE or data is MPI.BOTTOM:
        raise UnsupportedError(f"the {role} buffer is {data!r}; give separate arrays")
    if data is None:
        raise PatternError(f"the {role} buffer is None; an array is needed")
    if hasattr(data, "__cuda_array_interface__"):
        raise UnsupportedError(
            f"the {role} buffer is in the memory of an accelerator; copy it to an array of the host"
        )
    if not isinstance(data, np.ndarray):
        try:
            if hasattr(data, "__dlpack__"):
                data = np.from_dlpack(data)
            else:
                data = np.asarray(memoryview(data))
        except (TypeError, BufferError) as error:
            raise PatternError(f"the {role} buffer is no buffer: {error}") from error
    data = np.asarray(data)  # subclasses keep their own shapes
    if data.dtype.hasobject:
        raise PatternError(f"the {role} buffer has dtype {data.dtype}: Python objects")
    if not data.dtype.itemsize:
        raise PatternError(f"the {role} buffer has dtype {data.dtype}: elements of no bytes")
    if role == "recv" and not data.flags.writeable:
        raise PatternError("the receive buffer is read-only")
    array: NDArray[Any] = data
    return array


def as_vector(data: Any, role: str) -> NDArray[Any]:
    """Local. The data in one dimension, in the order of memory."""
    array = as_array(data, role)
    if not array.flags.c_contiguous:
        if not array.flags.f_contiguous:
            raise PatternError(f"the {role} buffer is not contiguous")
        array = array.T
    return array.reshape(-1)


# -- boxes ---------------------------------------------------------------------------------------


def send_boxes(spec: Any, peers: Sequence[int], keys: Sequence[int]) -> Side:
    """Read ``[array, boxes]``; the array may have any strides."""
    array, boxes = _pair(spec, len(peers), "send")
    data = as_array(array, "send")
    if not data.ndim:
        raise PatternError("the send buffer is an array of no dimensions; boxes are parts of axes")
    blocks = blocks_of_boxes(boxes, data.shape, "send", peers, keys)
    return Side(data, data.shape, data.dtype, blocks, array)


def recv_boxes(spec: Any, peers: Sequence[int], keys: Sequence[int]) -> Side:
    """Read ``[array, boxes]`` or ``[(shape, dtype), boxes]``, the request's own memory."""
    given, boxes = _pair(spec, len(peers), "recv")
    if isinstance(given, tuple):
        shape, dtype = _form(given)
        array = None
    else:
        array = as_array(given, "recv")
        shape, dtype = array.shape, array.dtype
        if not one_piece(array):
            raise PatternError("the receive buffer is not contiguous in any order of its axes")
    if not shape:
        raise PatternError("the receive buffer has no dimensions; boxes are parts of axes")
    blocks = blocks_of_boxes(boxes, shape, "recv", peers, keys)
    check_disjoint(blocks)
    return Side(array, shape, dtype, blocks, given, slots=array is None)


def _form(given: tuple[Any, ...]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """``(shape, dtype)`` of an array that can be made."""
    if len(given) != 2:
        raise PatternError(f"the receive buffer is {given!r}, not (shape, dtype)")
    shape, dtype = read_form(*given, "the receive buffer")
    most = np.iinfo(np.intp).max
    if math.prod(max(extent, 1) for extent in shape) * dtype.itemsize > most:
        raise PatternError(f"the receive buffer of shape {shape} has more bytes than {most}")
    return shape, dtype


def read_form(shape: Any, dtype: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Local. Shape and dtype of an array whose elements can be exchanged; ``name`` is for the words
    of the :class:`PatternError` where they cannot."""
    kind = np.dtype(dtype)
    wrong = (
        "Python objects" if kind.hasobject else "elements of no bytes" if not kind.itemsize
        else "elements that are arrays" if kind.subdtype is not None else ""
    )
    if wrong:
        raise PatternError(f"{name} has dtype {kind}: {wrong}")
    sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    form = tuple(as_number(extent, f"extent of {name}") for extent in sizes)
    if min(form, default=0) < 0:
        raise PatternError(f"{name} has negative dimensions: {form}")
    return form, kind


def _pair(spec: Any, blocks: int, role: str) -> tuple[Any, Sequence[Any]]:
    if not isinstance(spec, list | tuple) or len(spec) != 2:
        raise PatternError(f"the {role} buffer is not a list [array, boxes]: {spec!r:.60}")
    array, boxes = spec
    if not isinstance(boxes, Sequence) or len(boxes) != blocks:
        count = len(boxes) if isinstance(boxes, Sequence) else "no"
        raise PatternError(f"{count} {role} boxes, one for each of {blocks} is needed")
    return array, boxes


def overlap(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Local. Whether two arrays have memory in common; where that is hard to tell the caller's word
    is taken."""
    try:
        return np.shares_memory(one, other, max_work=_EFFORT)
    except np.exceptions.TooHardError:
        return False


def check_separate(send: Side, recv: Side) -> None:
    """Raise :class:`PatternError` where a send and a receive block overlap in memory."""
    if send.array is None or recv.array is None:
        return
    if not recv.blocks or not np.may_share_memory(send.array, recv.array):
        return
    different = {tuple((p.start, p.stop) for p in block.box): block for block in send.blocks}
    bounds = np.lib.array_utils.byte_bounds
    lows, highs = np.array([bounds(recv.array[block.box]) for block in recv.blocks]).T
    for mine in different.values():
        low, high = bounds(send.array[mine.box])
        for place in np.flatnonzero((lows < high) & (low < highs)).tolist():
            theirs = recv.blocks[place]
            if overlap(send.array[mine.box], recv.array[theirs.box]):
                raise PatternError(
                    f"the send block for rank {mine.peer} and the receive block from rank "
                    f"{theirs.peer} overlap in memory"
                )
