"""What a plan asks of a kernel: one-dimensional transforms of local data along one axis."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray


class Kernel(Protocol):
    """Local. Transforms along one axis of n-d arrays of any strides.

    ``target`` is filled and nothing else is returned; nothing of the size of the arrays is
    allocated. ``scale`` divides by sqrt(n)**scale, n being the real length of the axis. Arrays of
    one call have one precision. ``c2c`` takes the same array twice to work in place; all other
    overlaps are not allowed.
    """

    def c2c(
        self, source: NDArray[Any], target: NDArray[Any], axis: int, forward: bool, scale: int
    ) -> None:
        """Complex to complex; ``forward`` has the negative sign in the exponent."""
        ...

    def r2c(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        """Real to the n // 2 + 1 non-redundant coefficients, forward."""
        ...

    def c2r(self, source: NDArray[Any], target: NDArray[Any], axis: int, scale: int) -> None:
        """The way back from ``r2c``; ``source`` is left as it is."""
        ...
