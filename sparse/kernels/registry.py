"""The local products by name: a new one is a file in this folder and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from onesided.collectives import mkl
from onesided.sparse.kernels.mkl_kernel import MklKernel, takes
from onesided.sparse.kernels.plain import PlainKernel
from onesided.sparse.kernels.protocol import Kernel, MakeKernel
from onesided.sparse.kernels.scipy_calls import Csr
from onesided.sparse.kernels.sorted_rows import SortedRows, irregular


@cache
def _mkl_usable() -> bool:
    """Local. Whether MKL is installed and can be loaded."""
    try:
        mkl.load_library()
    except ImportError:
        return False
    return True


@dataclass(frozen=True)
class Offer:
    """Local. How a kernel is made of rows, whether that is possible here, and what it needs.

    ``suits`` tells cheaply whether it is worth trying with some rows, ``works`` whether it can take
    them at all.
    """

    make: MakeKernel
    present: Callable[[], bool] = lambda: True
    needs: str = ""
    suits: Callable[[Csr], bool] = lambda csr: True
    works: Callable[[Csr], bool] = lambda csr: True


def _sorted(make: MakeKernel) -> Callable[[Csr], Kernel]:
    return lambda csr: SortedRows(csr, make)


_TUNED = partial(MklKernel, optimized=True)
KERNELS = {
    "scipy": Offer(PlainKernel),
    "scipy-sorted": Offer(_sorted(PlainKernel), suits=irregular),
    "mkl": Offer(partial(MklKernel, optimized=False), _mkl_usable, "MKL", works=takes),
    "mkl-tuned": Offer(_TUNED, _mkl_usable, "MKL", works=takes),
    "mkl-sorted": Offer(_sorted(_TUNED), _mkl_usable, "MKL", irregular, takes),
}


def available() -> list[str]:
    """Local. Names of the kernels that this rank can use."""
    return [name for name, offer in KERNELS.items() if offer.present()]


def named(name: str) -> list[str]:
    """Local. The kernels that a name stands for: itself, or with "auto" all that there are.

    ``ValueError`` for an unknown name, or one whose library is not installed.
    """
    if name == "auto":
        return available()
    if name not in KERNELS:
        raise ValueError(f"no kernel {name!r}; there are auto, {', '.join(KERNELS)}")
    if not KERNELS[name].present():
        raise ValueError(f"kernel {name!r} needs {KERNELS[name].needs}, which is not installed")
    return [name]
