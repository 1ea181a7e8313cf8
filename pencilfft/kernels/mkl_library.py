"""Intel's Math Kernel Library, found and loaded once.

No package does the same: the one of the name mkl has no Python module, mkl-service loads
``libmkl_rt``, which must not be loaded (see :func:`load_library`), and threadpoolctl knows only
what is loaded already.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

#: Parts of MKL that are needed: computing, without threads, and the interface to it.
LAYERS = ("core", "sequential", "intel_lp64")


@cache
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
        return ctypes.CDLL(str(layers[-1]), mode=os.RTLD_LAZY | os.RTLD_LOCAL)
    except OSError as error:
        raise ImportError(f"MKL in {layers[0].parent} cannot be used: {error}") from error


def _is_core(name: str) -> bool:
    return name.startswith("libmkl_core.") and not name.endswith(".a")
