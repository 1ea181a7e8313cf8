from typing import Any

from numpy.typing import NDArray

def factor(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    pivot: NDArray[Any],
    place: NDArray[Any],
) -> int: ...
def solve(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    pivot: NDArray[Any],
    x: NDArray[Any],
) -> None: ...
