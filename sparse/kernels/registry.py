"""The local products by name: a new one is a file in this folder and a line here.

Real rows are multiplied by "sell", complex ones by "csr", both by SciPy where a rank has nothing
compiled; one from outside by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.sparse.kernels.rows import Csr, PlainKernel, compiled, in_slices, rows_as_they_are
from onesided.sparse.product import CompiledProduct, FusedProduct, Product


@dataclass(frozen=True)
class Offer:
    """Local. How a kernel is made of rows, how it multiplies with a halo, and what it needs."""

    make: Callable[[Csr], Any]
    product: Callable[[Any, Csr], Product] = FusedProduct
    present: Callable[[], bool] = lambda: True
    needs: str = ""


_OURS: dict[str, Any] = {"product": CompiledProduct, "present": compiled, "needs": "a C compiler"}
KERNELS = {
    "scipy": Offer(PlainKernel),
    "csr": Offer(rows_as_they_are, **_OURS),
    "sell": Offer(in_slices, **_OURS),
}


def product(name: str, rows: Csr) -> Product:
    """Local. The product of the rows of one rank, by the kernel of this name."""
    offer = KERNELS[name]
    return offer.product(offer.make(rows), rows)


def available() -> list[str]:
    """Local. Names of the kernels that this rank can use."""
    return [name for name, offer in KERNELS.items() if offer.present()]


def check(name: str) -> None:
    """Local. ``ValueError`` for an unknown name, or one whose library is not installed."""
    if name == "auto":
        return
    if name not in KERNELS:
        raise ValueError(f"no kernel {name!r}; there are auto, {', '.join(KERNELS)}")
    if not KERNELS[name].present():
        raise ValueError(f"kernel {name!r} needs {KERNELS[name].needs}, which is not installed")


def usual(dtype: np.dtype[Any]) -> str:
    """Local. What "auto" stands for, where every rank has what is compiled."""
    return "csr" if dtype.kind == "c" else "sell"
