"""One way of moving data at one level of the machine: LogGP, by the size of a message.

LogGP (Alexandrov, Ionescu, Schauser, Scheiman 1995; :class:`~onesided.collectives.models.Network`)
is one straight line over the bytes. An MPI has several: it sends long messages by another protocol
than short ones, and a copy that has left the cache is slower. So a way has a line for every range
of sizes, each with LogGP parameters of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import PatternError
from onesided.collectives.models import Network

#: Numbers, or arrays of them that broadcast: a formula does not care.
Numbers = float | NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """The parameters that hold for messages of ``start`` bytes and more."""

    start: float
    network: Network


@dataclass(frozen=True)
class Way:
    """Lines in the order of their starts, the first of which is 0.

    ``ends`` is at how many ends of a message a processor spends the overhead o: 2 for messages,
    1 for what is Put or stored.
    """

    lines: tuple[Line, ...]
    ends: int = 1

    def __post_init__(self) -> None:
        starts = [line.start for line in self.lines]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise PatternError(f"lines start at {starts} bytes, not at 0 and then further up")
        if self.ends not in (1, 2):
            raise PatternError(f"a message with {self.ends!r} ends")

    @property
    def short(self) -> Network:
        """The parameters of the shortest messages."""
        return self.lines[0].network

    def at(self, nbytes: float) -> Network:
        """Local. The parameters of a message of so many bytes."""
        return self.lines[int(self._line(nbytes))].network

    def time(self, messages: Any, nbytes: Any, link: Any = 0.0, size: Any = None) -> Numbers:
        """Local. Seconds until so many messages, ``nbytes`` in all, have come; all ranks at once.

        ``L + e o + (k - 1) max(g, e o) + B G``: the first message, the others a gap apart, and
        the bytes; nothing where there are no messages. ``link`` is how long the link of the node
        is busy with what all its ranks send: gaps and bytes take no less. The line is that of the
        mean message; with ``size``, G is that of messages of so many bytes, where that is more.
        """
        count, total = np.asarray(messages, float), np.asarray(nbytes, float)
        mean = total / np.maximum(count, 1.0)
        at = self._line(mean)
        pace = self._of("byte_gap", at)
        if size is not None:
            pace = np.maximum(pace, self._of("byte_gap", self._line(size)))
        busy = self.ends * self._of("overhead", at)
        rest = np.maximum(self._of("gap", at), busy) * (count - 1.0)
        moved = np.maximum(rest + total * pace, link)
        return np.where(count > 0, self._of("latency", at) + busy + moved, 0.0)

    def busy(self, messages: Any) -> Numbers:
        """Local. Seconds that a rank spends on so many short messages beyond the first."""
        each = max(self.short.gap, self.ends * self.short.overhead)
        return np.maximum(np.asarray(messages, float) - 1.0, 0.0) * each

    def _line(self, size: Any) -> NDArray[np.intp]:
        starts = [line.start for line in self.lines]
        found: NDArray[np.intp] = np.searchsorted(starts, size, side="right") - 1
        return found

    def _of(self, name: str, at: NDArray[np.intp]) -> NDArray[np.float64]:
        values = np.array([getattr(line.network, name) for line in self.lines])
        found: NDArray[np.float64] = values[at]
        return found
