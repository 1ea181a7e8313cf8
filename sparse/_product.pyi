"""The compiled product: see sparse/core/product.c."""

from typing import Any

from numpy.typing import NDArray

ADDRESSES: dict[str, int]

class Product:
    def __new__(
        cls, kind: int, own: int, ghosts: int, sliced: bool, units: int, loads: int,
        indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], /,
    ) -> Product: ...
    def __call__(self, x: NDArray[Any], y: NDArray[Any], /) -> None: ...
    def interior(self, x: NDArray[Any], y: NDArray[Any], /) -> None: ...
    def boundary(self, x: NDArray[Any], ghosts: NDArray[Any], y: NDArray[Any], /) -> None: ...
