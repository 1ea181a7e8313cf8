"""Which local product, and which way to multiply: measured on all ranks, when a matrix is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import agreed
from onesided.sparse.halo import Halo
from onesided.sparse.kernels.protocol import Kernel
from onesided.sparse.kernels.registry import KERNELS, named
from onesided.sparse.kernels.scipy_calls import Csr
from onesided.sparse.product import PRODUCTS, Product

_LONG = 4e-3  # seconds of a product that needs no more than one look
_GLANCES = 2  # by which a shorter one is seen to be worth more
_CLOSE = 0.25  # if it is not slower than the best by more than this part
_ROUNDS = 3  # in which two candidates are then timed in turn
_SECONDS = 0.03  # that such a comparison may take, about
_MOST_CALLS = 20  # in a row
Made = TypeVar("Made", bound=Callable[..., object])


@dataclass(frozen=True)
class Choice:
    """The names of a product and of its kernel, and the product made of them."""

    product: str
    kernel: str
    run: Product


class Contest:
    """Makes the product of the rows of one rank over [owned | ghost]; the same on all ranks."""

    def __init__(self, comm: MPI.Comm, rows: Csr, n_own: int) -> None:
        """Local."""
        self._comm, self._rows, self._n_own = comm, rows, n_own

    def product(self, product: str, kernel: str) -> Product:
        """Local. That of these names."""
        return PRODUCTS[product](self._rows, self._n_own, KERNELS[kernel].make)

    def choose(self, halo: Halo, products: list[str], kernels: list[str]) -> Choice:
        """Collective. The fastest on the slowest rank; a name alone is taken as it is.

        First among the kernels, on all the rows, then among the products with that kernel. Two
        are in memory at a time. ``kernels`` are this rank's; those are tried that all ranks have
        and that suit the rows of any.
        """
        if len(kernels) > 1:
            kernels = [name for name in kernels if KERNELS[name].works(self._rows)]
        suited = [name for name in kernels if KERNELS[name].suits(self._rows)]
        everyone = self._comm.allgather((kernels, suited))
        shared = set.intersection(*(set(names) for names, _ in everyone))
        wanted = set.union(*(set(names) for _, names in everyone)) or shared
        usable = [name for name in kernels if name in shared & wanted]
        y = np.empty(len(self._rows), self._rows.data.dtype)
        x = np.ones(self._rows.n_cols, self._rows.data.dtype)
        makers = {name: partial(KERNELS[name].make, self._rows) for name in usable}
        kernel, champion = self._winner(makers, (x, y))

        def make(csr: Csr) -> Kernel:
            found = champion if csr is self._rows else None
            return found or KERNELS[kernel].make(csr)

        ways: dict[str, Callable[[], Product]] = {
            name: partial(PRODUCTS[name], self._rows, self._n_own, make) for name in products
        }
        name, run = self._winner(ways, (halo, x[: self._n_own], y))
        return Choice(name, kernel, run or self._made(ways[name]))

    def _winner(
        self, makers: Mapping[str, Callable[[], Made]], arguments: tuple[Any, ...]
    ) -> tuple[str, Made | None]:
        """Collective. The name of the fastest, and what was made of it if others were there."""
        names = list(makers)
        if len(names) == 1:
            return names[0], None
        best, champion, least = names[0], self._made(makers[names[0]]), 0.0
        for name in names[1:]:
            challenger = self._made(makers[name])
            runs = partial(champion, *arguments), partial(challenger, *arguments)
            least = least or self._glance(runs[0])
            seen = self._glance(runs[1])
            if least < _LONG:
                better = seen < (1.0 + _CLOSE) * least and self._loses(*runs, least)
            else:
                better = seen < least
            if better:
                best, champion, least = name, challenger, seen
        return best, champion

    def _made(self, make: Callable[[], Made]) -> Made:
        """Collective. One rank without memory is an error on all."""
        with agreed(self._comm):
            return make()

    def _glance(self, call: Callable[[], object]) -> float:
        """Collective. Seconds of a call that is not the first, by the slowest rank."""
        first = self._slowest(np.array([_seconds(call, 1)]))[0]
        count = _GLANCES if first < _LONG else 1
        return float(self._slowest(np.array([_seconds(call, 1) for _ in range(count)])).min())

    def _loses(
        self, one: Callable[[], object], other: Callable[[], object], seconds: float
    ) -> bool:
        """Collective. Whether the first call takes more time than the second, in turns."""
        count = int(np.clip(_SECONDS / (2 * _ROUNDS) / max(seconds, 1e-9), 1, _MOST_CALLS))
        samples = [[_seconds(call, count) for call in (one, other)] for _ in range(_ROUNDS)]
        medians = np.median(self._slowest(np.array(samples)), axis=0)
        return bool(medians[0] > medians[1])

    def _slowest(self, times: NDArray[Any]) -> NDArray[Any]:
        self._comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
        return times


def _seconds(call: Callable[[], object], count: int) -> float:
    began = perf_counter()
    for _ in range(count):
        call()
    return perf_counter() - began


def candidates(product: str, kernel: str) -> tuple[list[str], list[str]]:
    """Local. The products and kernels that two names stand for; ``ValueError`` for unknown ones."""
    if product not in (*PRODUCTS, "auto"):
        raise ValueError(f"no product {product!r}; there are auto, {', '.join(PRODUCTS)}")
    return list(PRODUCTS) if product == "auto" else [product], named(kernel)
