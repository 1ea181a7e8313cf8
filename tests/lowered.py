"""Step lists of transports with names in place of addresses, for :mod:`exploration`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from exploration import Name, Step

from onesided.collectives.program import AWAIT, CALL, COPY, RAISE, REDUCE, address

KINDS = {COPY: "copy", RAISE: "raise", AWAIT: "await", REDUCE: "reduce"}


class Names:
    """What the bytes of the memory that ranks share are called, the same on all of them.

    ``parts``: names and their memory; what lies elsewhere is private to the ``rank``. ``most``:
    bytes of an array that are followed, from its start.
    """

    def __init__(self, parts: Iterable[tuple[Name, Any]], rank: int = 0, most: int = 64) -> None:
        self._parts = [(name, address(part), part.nbytes) for name, part in parts]
        self._rank, self._most = rank, most

    def of(self, array: Any) -> list[Name]:
        """The names of the elements."""
        starts = np.zeros((), np.int64)
        for extent, stride in zip(array.shape, array.strides, strict=True):
            starts = np.add.outer(starts, stride * np.arange(extent))
        first = address(array)
        return [self._name(first + start) for start in starts.ravel()[: self._most].tolist()]

    def cell(self, counter: Any) -> Name:
        """The name of a counter; that of its part where it is the first thing in it."""
        part, offset = self._name(address(counter))
        return (part, offset) if offset else part

    def _name(self, start: int) -> tuple[Name, int]:
        for name, first, nbytes in self._parts:
            if first <= start < first + nbytes:
                return (name, start - first)
        return (("private", self._rank), start)

    def plan(self, chains: Sequence[Sequence[Any]]) -> list[list[Step]] | None:
        """The steps of a round; None where one is not of shared memory."""
        named = [[self._step(step) for step in chain] for chain in chains]
        named = [[step for step in chain if step is None or step[1] != []] for chain in named]
        return None if any(step is None for chain in named for step in chain) else named

    def _step(self, step: Any) -> Step | None:
        if step[0] in (RAISE, AWAIT):
            return (KINDS[step[0]], self.cell(step[1]), *step[2:])
        if step[0] == CALL:
            return self._combination(step[1])
        arrays = {COPY: step[1:3], REDUCE: step[1:4]}.get(step[0])
        return None if arrays is None else (KINDS[step[0]], *map(self.of, arrays))

    def _combination(self, function: Any) -> Step | None:
        """What has come at the owner of ghosts is a reduction by a call of Python."""
        if getattr(getattr(function, "func", None), "__name__", "") != "_combined":
            return None
        _, target, source = function.args
        return ("reduce", self.of(target), self.of(target), self.of(source))
