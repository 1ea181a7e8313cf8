"""The kernels by name: a new one is a file in this folder and a line here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.kernels.mkl import find_libraries
from onesided.pencilfft.kernels.protocol import Kernel


@dataclass(frozen=True)
class Backend:
    """Local. Where a kernel comes from: distribution, our file and what makes it there, and whether
    it is there.

    ``threads``: whether it has any.
    """

    distribution: str
    maker: str
    present: Callable[[], bool]
    threads: bool = True


def _importable(name: str) -> Callable[[], bool]:
    return lambda: find_spec(name) is not None


#: By name, in the order of preference where nothing is measured.
BACKENDS = {
    "mkl": Backend("mkl", "mkl:MklKernel", lambda: bool(find_libraries()), threads=False),
    "ducc0": Backend("ducc0", "pocketfft:Ducc0Kernel", _importable("ducc0")),
    "scipy": Backend("scipy", "pocketfft:scipy_kernel", _importable("scipy")),
    "pyfftw": Backend("pyfftw", "fftw:pyfftw_kernel", _importable("pyfftw")),
    "mpi4py-fft": Backend("mpi4py-fft", "fftw:mpi4py_fft_kernel", _importable("mpi4py_fft")),
}
#: mpi4py-fft's names for them.
ALIASES = {"mkl_fft": "mkl", "numpy": "scipy", "fftw": "mpi4py-fft"}


def installed() -> list[str]:
    """Local. Names of the backends whose packages are there, in the order of preference."""
    return [name for name, backend in BACKENDS.items() if backend.present()]


def resolve_backend(name: str) -> str:
    """Local. The name in :data:`BACKENDS` that ``name`` stands for; "auto" stays as it is, and is
    what mpi4py-fft's name of a package stands for that is not installed.

    Raises :class:`PatternError` for an unknown name, :class:`UnsupportedError` for one whose
    package is not installed.
    """
    if name in ALIASES:
        name = ALIASES[name] if BACKENDS[ALIASES[name]].present() else "auto"
    if name == "auto":
        return name
    if name not in BACKENDS:
        raise PatternError(f"no backend {name!r}; there are auto, {', '.join(BACKENDS)}")
    if not BACKENDS[name].present():
        package = BACKENDS[name].distribution
        raise UnsupportedError(f"backend {name!r} needs {package}, which is not installed")
    return name


def load_kernel(name: str) -> Kernel:
    """Local. The kernel of an installed backend.

    Raises :class:`UnsupportedError` where its package cannot be loaded.
    """
    try:
        return _made(BACKENDS[name].maker)
    except Exception as error:  # it is broken, in whatever way
        raise UnsupportedError(f"backend {name!r} cannot be loaded: {error}") from error


@cache
def _made(maker: str) -> Kernel:
    """One kernel for all plans of the process."""
    module, _, name = maker.partition(":")
    kernel: Kernel = getattr(import_module(f"{__package__}.{module}"), name)()
    return kernel


@cache
def versions() -> str:
    """Local. Names and versions of what is installed, as one string."""
    found = []
    for name in installed():
        try:
            found.append(f"{name} {_version(BACKENDS[name].distribution)}")
        except PackageNotFoundError:
            found.append(f"{name} of the system")
    return ", ".join(found)


def _version(name: str) -> str:
    """As importlib.metadata has it, which reads all of the metadata, five times as slowly."""
    found = distribution(name)
    line = re.search(r"^Version: *(\S+)", found.read_text("METADATA") or "", re.MULTILINE)
    return line[1] if line else found.version
