"""Intel's Math Kernel Library: its transforms, called through ctypes."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

#: Parts of MKL that are needed: computing, without threads, and the interface to it.
LAYERS = ("core", "sequential", "intel_lp64")

# Names and numbers of MKL's own header, mkl_dfti.h.
FORWARD_SCALE, BACKWARD_SCALE, NUMBER_OF_TRANSFORMS = 4, 5, 7
CONJUGATE_EVEN_STORAGE, PLACEMENT = 10, 11
INPUT_STRIDES, OUTPUT_STRIDES, INPUT_DISTANCE, OUTPUT_DISTANCE = 12, 13, 14, 15
THREAD_LIMIT = 27
COMPLEX, REAL, COMPLEX_COMPLEX, IN_PLACE, NOT_IN_PLACE = 32, 33, 39, 43, 44


def find_libraries() -> list[Path]:
    """Local. Files of :data:`LAYERS`; empty where MKL is not installed.

    They are looked for among the files of the Python package, in the environment's folder, and
    where the environment variable ``MKLROOT`` points.
    """
    folders = [Path(sys.prefix) / "lib"]
    try:
        found = [Path(str(file.locate())) for file in files("mkl") or () if _is_core(file.name)]
        folders = [path.resolve().parent for path in found] + folders
    except PackageNotFoundError:
        pass
    if os.environ.get("MKLROOT"):
        folders.append(Path(os.environ["MKLROOT"]) / "lib")
    for folder in folders:
        cores = sorted(path for path in folder.glob("libmkl_core.*") if _is_core(path.name))
        for core in reversed(cores):
            layers = [core.with_name(core.name.replace("core", layer)) for layer in LAYERS]
            if all(path.is_file() for path in layers):
                return layers
    return []


@cache
def load_library() -> ctypes.CDLL:
    """Local. The interface; raises :class:`ImportError` where MKL cannot be used.

    MKL brings functions of FFTW's names that do less than FFTW's own. Its run-time library
    ``libmkl_rt`` shows them to the whole process, and FFTW's users that are loaded later call
    them: so the layers are loaded one by one, and the one with these names for us alone.
    """
    layers = find_libraries()
    if not layers:
        raise ImportError("MKL is not installed")
    try:
        for path in layers[:-1]:
            ctypes.CDLL(str(path), mode=os.RTLD_LAZY | os.RTLD_GLOBAL)
        library = ctypes.CDLL(str(layers[-1]), mode=os.RTLD_LAZY | os.RTLD_LOCAL)
        for name in ("DftiCreateDescriptor_d_1d", "DftiCreateDescriptor_s_1d"):
            getattr(library, name).restype = ctypes.c_long
        for name in ("DftiSetValue", "DftiCommitDescriptor", "DftiFreeDescriptor"):
            getattr(library, name).restype = ctypes.c_long
        for name in ("DftiComputeForward", "DftiComputeBackward"):
            getattr(library, name).restype = ctypes.c_long
            getattr(library, name).argtypes = [ctypes.c_void_p] * 3
    except (OSError, AttributeError) as error:
        raise ImportError(f"MKL in {layers[0].parent} cannot be used: {error}") from error
    return library


def _is_core(name: str) -> bool:
    return name.startswith("libmkl_core.") and not name.endswith(".a")


class Descriptor:
    """Local. One of MKL's transform descriptors; freed with the object.

    The constructors by precision and dimension choose twice as fast code for strided lines as
    ``DftiCreateDescriptor`` does.
    """

    def __init__(self, single: bool, domain: int, length: int) -> None:
        library = load_library()
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
