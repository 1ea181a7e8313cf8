"""MKL's sparse products, called through ctypes, on one thread: there is a rank on every core."""

from __future__ import annotations

import ctypes
import weakref
from functools import cache
from typing import Any

from numpy.typing import NDArray

from onesided.collectives.mkl import load_library
from onesided.sparse.kernels.scipy_calls import Csr

# Numbers of MKL's own header, mkl_spblas.h.
ZERO_BASED, AS_IT_IS, GENERAL, ROW_AFTER_ROW = 0, 10, 20, 101
MANY_CALLS = 1 << 20  # what an optimization is told to pay for


class Description(ctypes.Structure):
    """The kind of a matrix; only the first number means something for a general one."""

    _fields_ = [("kind", ctypes.c_int), ("mode", ctypes.c_int), ("diagonal", ctypes.c_int)]


class _Complex64(ctypes.Structure):
    _fields_ = [("real", ctypes.c_float), ("imag", ctypes.c_float)]


class _Complex128(ctypes.Structure):
    _fields_ = [("real", ctypes.c_double), ("imag", ctypes.c_double)]


_PRECISIONS: dict[str, tuple[str, Any]] = {
    "f": ("s", ctypes.c_float),
    "d": ("d", ctypes.c_double),
    "F": ("c", _Complex64),
    "D": ("z", _Complex128),
}
_GENERAL = Description(GENERAL, 0, 0)


@cache
def _calls(precision: str, width: int) -> dict[str, Any]:
    """Local. MKL's functions for a dtype's letter and indices of so many bytes, with types."""
    library = load_library()
    letter, scalar = _PRECISIONS[precision]
    suffix = "" if width == 4 else "_64"
    integer = ctypes.c_int32 if width == 4 else ctypes.c_int64
    address = ctypes.c_void_p
    types = {
        f"{letter}_create_csr": [address, ctypes.c_int, integer, integer, *[address] * 4],
        "set_mv_hint": [address, ctypes.c_int, Description, integer],
        "optimize": [address],
        "destroy": [address],
        f"{letter}_mv": [
            ctypes.c_int, scalar, address, Description, address, scalar, address
        ],
        f"{letter}_mm": [
            ctypes.c_int, scalar, address, Description, ctypes.c_int, address, integer, integer,
            scalar, address, integer,
        ],
    }  # fmt: skip
    calls = {}
    for name, arguments in types.items():
        call = getattr(library, f"mkl_sparse_{name}{suffix}")
        call.argtypes, call.restype = arguments, ctypes.c_int
        calls[name.removeprefix(f"{letter}_")] = call
    return calls | {"scalar": scalar}


def takes(csr: Csr) -> bool:
    """Local. Whether this MKL has functions for the rows' indices; those of 64 bits are newer."""
    try:
        _calls(csr.data.dtype.char, csr.indptr.itemsize)
    except (ImportError, AttributeError):
        return False
    return True


class MklKernel:
    """Local. y = A x, optimized by MKL, which may add a copy of its own to the rows.

    ``MemoryError`` where MKL cannot have what it needs.
    """

    def __init__(self, csr: Csr) -> None:
        self._csr = csr
        self._calls = _calls(csr.data.dtype.char, csr.indptr.itemsize)
        scalar = self._calls["scalar"]
        self._one = scalar(1.0, 0.0) if csr.data.dtype.kind == "c" else scalar(1.0)
        self._zero = scalar(0.0, 0.0) if csr.data.dtype.kind == "c" else scalar(0.0)
        self._mv, self._mm = self._calls["mv"], self._calls["mm"]
        self._handle = self._made() if len(csr.data) else None

    def _made(self) -> int:
        """Local. MKL's name of the matrix, which goes with this object."""
        csr, calls, handle = self._csr, self._calls, ctypes.c_void_p()
        starts = csr.indptr.ctypes.data
        parts = starts, starts + csr.indptr.itemsize, csr.indices.ctypes.data, csr.data.ctypes.data
        place = ctypes.addressof(handle)
        _check(calls["create_csr"](place, ZERO_BASED, len(csr), csr.n_cols, *parts))
        name = handle.value
        if name is None:
            raise MemoryError("MKL made no matrix")
        weakref.finalize(self, calls["destroy"], name).atexit = False
        _check(calls["set_mv_hint"](name, AS_IT_IS, _GENERAL, MANY_CALLS))
        _check(calls["optimize"](name))
        return name

    def __call__(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Local. Both are contiguous and of the rows' dtype, (n,) or (n, k)."""
        if self._handle is None:
            y.fill(0)
            return
        from_x, to_y = x.ctypes.data, y.ctypes.data
        if x.ndim == 1:
            _check(
                self._mv(AS_IT_IS, self._one, self._handle, _GENERAL, from_x, self._zero, to_y)
            )
            return
        k = x.shape[1]
        given = self._one, self._handle, _GENERAL, ROW_AFTER_ROW, from_x, k, k
        _check(self._mm(AS_IT_IS, *given, self._zero, to_y, k))


def _check(status: int) -> None:
    if status:
        raise MemoryError(f"MKL's sparse product ended with status {status}")
