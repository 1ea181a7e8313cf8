"""Intel's Math Kernel Library: its transforms, called through ctypes."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

from onesided.collectives.mkl import load_library

# Names and numbers of MKL's own header, mkl_dfti.h.
FORWARD_SCALE, BACKWARD_SCALE, NUMBER_OF_TRANSFORMS = 4, 5, 7
CONJUGATE_EVEN_STORAGE, PLACEMENT = 10, 11
INPUT_STRIDES, OUTPUT_STRIDES, INPUT_DISTANCE, OUTPUT_DISTANCE = 12, 13, 14, 15
THREAD_LIMIT = 27
COMPLEX, REAL, COMPLEX_COMPLEX, IN_PLACE, NOT_IN_PLACE = 32, 33, 39, 43, 44


@cache
def load_transforms() -> ctypes.CDLL:
    """Local. MKL with the types of its transforms told; ``ImportError`` where it is not usable."""
    library = load_library()
    try:
        for name in ("DftiCreateDescriptor_d_1d", "DftiCreateDescriptor_s_1d"):
            getattr(library, name).restype = ctypes.c_long
        for name in ("DftiSetValue", "DftiCommitDescriptor", "DftiFreeDescriptor"):
            getattr(library, name).restype = ctypes.c_long
        for name in ("DftiComputeForward", "DftiComputeBackward"):
            getattr(library, name).restype = ctypes.c_long
            getattr(library, name).argtypes = [ctypes.c_void_p] * 3
    except AttributeError as error:
        raise ImportError(f"MKL cannot be used: {error}") from error
    return library


class Descriptor:
    """Local. One of MKL's transform descriptors; freed with the object.

    The constructors by precision and dimension choose twice as fast code for strided lines as
    ``DftiCreateDescriptor`` does.
    """

    def __init__(self, single: bool, domain: int, length: int) -> None:
        library = load_transforms()
        create = library.DftiCreateDescriptor_s_1d if single else library.DftiCreateDescriptor_d_1d
        self.handle = ctypes.c_void_p()
        self.usable = not create(ctypes.byref(self.handle), domain, ctypes.c_long(length))
        if self.usable and self.handle.value is not None:
            weakref.finalize(self, _free, library, self.handle.value).atexit = False
        self._set_value = library.DftiSetValue
        self._commit = library.DftiCommitDescriptor

    def set(self, parameter: int, value: int | float | Sequence[int]) -> None:
        """Local. Set one parameter; a refusal makes the descriptor unusable."""
        given: Any
        if isinstance(value, float):
            given = ctypes.c_double(value)
        elif isinstance(value, int):
            given = ctypes.c_long(value)
        else:
            given = (ctypes.c_long * len(value))(*value)
        self.usable = self.usable and not self._set_value(self.handle, parameter, given)

    def commit(self) -> bool:
        """Local. Make it ready; False where MKL cannot do such a transform."""
        self.usable = self.usable and not self._commit(self.handle)
        return self.usable


def _free(library: ctypes.CDLL, handle: int) -> None:
    library.DftiFreeDescriptor(ctypes.byref(ctypes.c_void_p(handle)))
