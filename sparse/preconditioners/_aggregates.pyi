"""Aggregates of the nodes of a graph, in C; see :mod:`.amg`."""

from typing import Any

from numpy.typing import NDArray

def aggregate(
    indptr: NDArray[Any], indices: NDArray[Any], strong: NDArray[Any], label: NDArray[Any], /
) -> int: ...
