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
from onesided.sparse.kernels.registry import KERNELS, named
from onesided.sparse.kernels.scipy_calls import Csr
from onesided.sparse.product import PRODUCTS, Product

_ROUNDS = 5  # in which two candidates are timed in turn
_SECONDS = 0.05  # that such a comparison may take, about
_MOST_CALLS = 20  # in a row
_HOPELESS = 1.5  # so much slower in the first call, and a candidate is not looked at again
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
        are in memory at a time. ``kernels`` are this rank's; those are tried that all ranks have.
        """
        shared = set.intersection(*map(set, self._comm.allgather(kernels)))
        usable = [name for name in kernels if name in shared]
        y = np.empty(len(self._rows), self._rows.data.dtype)
        x = np.ones(self._rows.n_cols, self._rows.data.dtype)
        makers = {name: partial(KERNELS[name].make, self._rows) for name in usable}
        kernel, _ = self._winner(makers, (x, y))
        ways = {name: partial(self.product, name, kernel) for name in products}
        name, run = self._winner(ways, (halo, x[: self._n_own], y))
        return Choice(name, kernel, run or self._made(ways[name]))

    def _winner(
        self, makers: Mapping[str, Callable[[], Made]], arguments: tuple[Any, ...]
    ) -> tuple[str, Made | None]:
        """Collective. The name of the fastest, and what was made of it if others were there."""
        names = list(makers)
        if len(names) == 1:
            return names[0], None
        best, champion = names[0], self._made(makers[names[0]])
        for name in names[1:]:
            challenger = self._made(makers[name])
            if self._faster(partial(challenger, *arguments), partial(champion, *arguments)):
                best, champion = name, challenger
        return best, champion

    def _made(self, make: Callable[[], Made]) -> Made:
        """Collective. One rank without memory is an error on all."""
        with agreed(self._comm):
            return make()

    def _faster(self, one: Callable[[], object], other: Callable[[], object]) -> bool:
        """Collective. Whether the first call takes less time than the second one."""
        calls = one, other
        times = np.array([[_seconds(call, 1) for call in calls] for _ in range(2)])
        times = self._slowest(times)[1]
        if times[0] > _HOPELESS * times[1]:
            return False
        count = int(np.clip(_SECONDS / _ROUNDS / max(times.sum(), 1e-9), 1, _MOST_CALLS))
        samples = np.array([[_seconds(call, count) for call in calls] for _ in range(_ROUNDS)])
        medians = np.median(self._slowest(samples), axis=0)
        return bool(medians[0] < medians[1])

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
