"""What a debugged send knows of its partitions: whether they change after their marks."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import RequestError


class Checksums:
    """``ONESIDED_DEBUG=1``: a partition must not change from its mark to the end of the round."""

    def __init__(self, memory: NDArray[np.uint8], part: int) -> None:
        """``part``: bytes of a partition."""
        self._memory, self._part = memory, part
        self._sums: dict[int, int] = {}

    def marked(self, partitions: Iterable[int]) -> None:
        """Local. These are ready."""
        for index in partitions:
            self._sums[index] = self._sum(index)

    def check(self, request: object) -> None:
        """Local. Raises :class:`RequestError` where a partition has changed since its mark."""
        sums, self._sums = self._sums, {}
        changed = sorted(index for index, found in sums.items() if self._sum(index) != found)
        if changed:
            raise RequestError(
                f"partitions {changed[:8]} were changed after they had been marked: {request!r}"
            )

    def _sum(self, index: int) -> int:
        return zlib.crc32(self._memory[index * self._part : (index + 1) * self._part].tobytes())
