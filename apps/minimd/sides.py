"""The two sides of a rank along an axis of the process grid, and what there is of each."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

LOW, HIGH = 0, 1
SIDES = (LOW, HIGH)
#: For the lower and the higher neighbor, or from them.
Counts = tuple[int, int]
Pair = tuple[NDArray[Any], NDArray[Any]]
