"""What ranks pass, made alike or refused on all of them: dtypes, indices, blocks of vectors.

A rank may have no rows, and no entries; what it passes for them (an empty list, SciPy's empty
matrix of float64) does not decide anything. What a function here refuses it refuses on this rank:
callers are inside ``agreed``, or the function is Collective.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike, DTypeLike, NDArray

from onesided.collectives import agreed
from onesided.sparse.moving import shared_dtype, shared_form
from onesided.sparse.partition import Integers, index_dtype
from onesided.sparse.vector import DistVector

DTYPES = tuple(np.dtype(kind) for kind in ("f4", "f8", "c8", "c16"))
_NAMES = ", ".join(kind.name for kind in DTYPES)


# -- dtypes --------------------------------------------------------------------------------------


def vector_dtype(values: np.dtype[Any], wanted: DTypeLike | None = None) -> np.dtype[Any]:
    """Local. The dtype of a matrix with such values: the wanted one, or theirs, or float64.

    float32, float64, complex64 and complex128 stay; integers and bools become float64. Raises
    ``TypeError`` for other dtypes, and where complex values would have to become real.
    """
    given = np.dtype(wanted) if wanted is not None else values.newbyteorder("=")
    if wanted is None and given.kind in "biu":
        given = np.dtype(np.float64)
    if given not in DTYPES or (values.kind == "c" and given.kind != "c"):
        raise TypeError(f"values of {values} in a matrix of {given}, which can be {_NAMES}")
    return given


def common_dtype(name: str, vector: np.dtype[Any], matrix: np.dtype[Any]) -> np.dtype[Any]:
    """Local. The dtype of a product, NumPy's of the two; ``TypeError`` where there is none."""
    found = None
    if vector.kind in "biufc":
        found = np.result_type(vector, matrix)
    if found is None or found not in DTYPES:
        raise TypeError(f"{name} is {vector}, the matrix {matrix}; products are of {_NAMES}")
    return found


def entries_dtype(matrix: np.dtype[Any], wanted: np.dtype[Any]) -> np.dtype[Any]:
    """Local. What a matrix is cast to for products of the wanted dtype; a real one stays real."""
    return wanted if matrix.kind == "c" else np.empty(0, wanted).real.dtype


def spelled(dtype: Any) -> str:
    """Local. A dtype in words that ranks can compare, however it is given, or what is given."""
    with suppress(Exception):  # NumPy refuses it when it is used, in its own way
        return "None" if dtype is None else np.dtype(dtype).str
    return repr(dtype)


def plain(value: Any) -> Any:
    """Local. A number of NumPy's as Python's, also in tuples, as ranks compare words, in which the
    two differ; or what is given."""
    if isinstance(value, tuple | list):
        return tuple(plain(each) for each in value)
    return value.item() if isinstance(value, np.generic) else value


def values_dtype(
    comm: MPI.Intracomm, values: NDArray[Any], wanted: DTypeLike | None
) -> np.dtype[Any]:
    """Collective. The dtype of a matrix of the values that the ranks pass, see
    :func:`vector_dtype`; that of a rank without values does not count."""
    kind = shared_dtype(comm, values.dtype, bool(len(values)))
    with agreed(comm):
        return vector_dtype(kind, wanted)


# -- indices -------------------------------------------------------------------------------------


def places(
    rows: ArrayLike, cols: ArrayLike, length: int, shape: tuple[int, int]
) -> tuple[Integers, Integers]:
    """Local. Indices of as many entries of a matrix of that shape, of the type that all ranks use.

    Raises ``ValueError`` for shapes, lengths and indices that do not fit, ``TypeError`` for what
    are no integers.
    """
    if min(shape) < 0:
        raise ValueError(f"shape {shape} is not two numbers from 0 on")
    parts = [np.asarray(part) for part in (rows, cols)]
    lengths = [*(part.shape for part in parts), (length,)]
    if lengths != [(length,)] * 3:
        raise ValueError(
            f"rows, columns and values have shapes {', '.join(map(str, lengths))}, not one length"
        )
    for name, size, part in zip(("row", "column"), shape, parts, strict=True):
        if not len(part):
            continue
        if part.dtype.kind not in "iu":
            raise TypeError(f"{name} indices are {part.dtype}, not integers")
        for at in (int(part.argmin()), int(part.argmax())):
            if not 0 <= part[at] < size:
                raise ValueError(
                    f"{name} index {part[at]} of entry {at} is out of range, there are "
                    f"{size} {name}s"
                )
    kind = index_dtype(max(shape))
    row, col = parts
    return row.astype(kind, copy=False), col.astype(kind, copy=False)


def row_numbers(rows: Any, size: int, name: str = "row") -> NDArray[np.int64]:
    """Local. Numbers of rows, or columns, as an array; those below zero count from the end."""
    if isinstance(rows, slice):
        return np.arange(*rows.indices(size))
    wanted = np.atleast_1d(np.asarray(rows))
    if wanted.ndim != 1 or (len(wanted) and wanted.dtype.kind not in "iu"):
        raise TypeError(f"A[rows] takes a number, a slice or an array of numbers, not {rows!r:.60}")
    bad = np.flatnonzero((wanted < -size) | (wanted >= size))
    if len(bad):
        raise IndexError(f"{name} {wanted[bad[0]]}, there are {size}")
    wanted = wanted.astype(np.int64)
    return np.where(wanted < 0, wanted + size, wanted)


# -- blocks of vectors ---------------------------------------------------------------------------


def block(name: str, vector: Any, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Local. This rank's block of one vector that a matrix of this dtype is used with; it shares
    memory with what was given."""
    given = np.asarray(vector.array if isinstance(vector, DistVector) else vector)
    if given.shape != (length,):
        raise ValueError(f"{name} has shape {given.shape}; this rank's block has {length} entries")
    common_dtype(name, given.dtype, dtype)
    return given


def changed_block(name: str, vector: Any, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Local. This rank's block of a vector that is changed by such numbers, any if it is empty."""
    given = vector.array if isinstance(vector, DistVector) else vector
    given = given if length else np.empty(0, dtype)
    fits = isinstance(given, np.ndarray) and given.shape == (length,)
    if not fits or not given.flags.writeable:
        raise ValueError(f"{name} is no array of this rank's {length} entries to be written to")
    if not np.can_cast(dtype, given.dtype, casting="same_kind"):
        raise TypeError(f"{name} is {given.dtype}, the matrix {dtype}")
    return given


def columns(
    comm: MPI.Intracomm, name: str, vectors: Any, length: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Collective. This rank's block (n, m) of m vectors, m from 0 on, given as (n,), (n, m) or
    DistVector; a rank without rows may pass an empty list.

    Raises the same error on every rank: ``ValueError`` where a block does not fit, or ranks have
    different numbers of vectors, ``TypeError`` where they are complex and the dtype real.
    """
    with agreed(comm, name):
        given = np.asarray(vectors.array if isinstance(vectors, DistVector) else vectors)
        if given.ndim not in (1, 2) or len(given) != length:
            raise ValueError(
                f"{name} has shape {given.shape}; this rank's block has {length} entries"
            )
        if length and not np.can_cast(given.dtype, dtype, casting="same_kind"):
            raise TypeError(f"{name} is {given.dtype}, the matrix {dtype}")
        if given.ndim == 1 and length:
            given = given[:, None]
    _, k, _ = shared_form(comm, name, given)
    return given.reshape(length, k).astype(dtype)
