"""The local products by name: a new one is a file in this folder and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from onesided.collectives import mkl
from onesided.sparse.kernels.compiled import compiled, in_slices, rows_as_they_are, sliceable
from onesided.sparse.kernels.mkl_kernel import MklKernel, takes
from onesided.sparse.kernels.plain import PlainKernel
from onesided.sparse.kernels.scipy_calls import Csr
from onesided.sparse.product import FusedProduct, Product, SplitProduct


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

    ``works`` tells whether it can take some rows, ``suits`` whether it is worth trying, and
    ``product`` how it multiplies with a halo.
    """

    make: Callable[[Csr], Any]
    product: Callable[[Any, Csr], Product] = FusedProduct
    present: Callable[[], bool] = lambda: True
    needs: str = ""
    suits: Callable[[Csr], bool] = lambda csr: True
    works: Callable[[Csr], bool] = lambda csr: True


_OURS: dict[str, Any] = {"product": SplitProduct, "present": compiled, "needs": "a C compiler"}
KERNELS = {
    "scipy": Offer(PlainKernel, suits=lambda csr: not compiled()),
    "csr": Offer(rows_as_they_are, **_OURS, suits=lambda csr: not sliceable(csr)),
    "sell": Offer(in_slices, **_OURS, works=sliceable),
    "mkl": Offer(MklKernel, present=_mkl_usable, needs="MKL", works=takes),
}


def product(name: str, rows: Csr) -> Product:
    """Local. The product of the rows of one rank, by the kernel of this name."""
    offer = KERNELS[name]
    return offer.product(offer.make(rows), rows)


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
