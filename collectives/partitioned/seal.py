"""``ONESIDED_DEBUG=1``: a partition must not change from its mark until the round is complete."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from onesided.collectives.errors import RequestError
from onesided.collectives.partitioned.arguments import Arguments


class Seal:
    """The sums of the marked partitions of a round."""

    def __init__(self, arguments: Arguments) -> None:
        self._memory = arguments.memory
        self._part = arguments.memory.size // arguments.partitions
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
