"""Loops of preconditioners, in C; see :mod:`.blocks` and :mod:`.amg`."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

def factor(indptr: Array, indices: Array, values: Array, pivot: Array, place: Array, /) -> int: ...
def solve(indptr: Array, indices: Array, values: Array, pivot: Array, x: Array, /) -> int: ...
def aggregate(indptr: Array, indices: Array, strong: Array, label: Array, /) -> None: ...
