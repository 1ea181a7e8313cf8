"""The kernels by name: a new one is a file in this folder and a line here."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.kernels.protocol import Kernel

#: Name of the backend -> package that must be installed for it, in the order of preference.
BACKENDS = {
    "ducc0": "ducc0",
    "scipy": "scipy",
    "pyfftw": "pyfftw",
}


def choose_backend(name: str) -> str:
    """Local. The backend that a name stands for: "auto" is the first one that is installed.

    Raises :class:`PatternError` for an unknown name, :class:`UnsupportedError` for one whose
    package is not installed.
    """
    if name == "auto":
        return next(known for known, package in BACKENDS.items() if find_spec(package))
    if name not in BACKENDS:
        raise PatternError(f"no backend {name!r}; there are auto, {', '.join(BACKENDS)}")
    if find_spec(BACKENDS[name]) is None:
        raise UnsupportedError(f"backend {name!r} needs {BACKENDS[name]}, which is not installed")
    return name


def load_kernel(backend: str) -> Kernel:
    """Local. The kernel of an installed backend."""
    module = import_module(f"{__package__}.{backend}_kernel")
    kernel: Kernel = module.KERNEL
    return kernel
