"""Step lists of transports with names in place of addresses, for :mod:`exploration`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from exploration import Name, Participant, Step
from mpi4py import MPI

from onesided.collectives.steps import AWAIT, CALL, COPY, GATHER, RAISE, REDUCE, address

#: Who sends to whom, under which tag.
Between = tuple[int, int, int]

KINDS = {COPY: "copy", RAISE: "raise", AWAIT: "await", REDUCE: "reduce"}


class Names:
    """What the bytes of the memory that ranks share are called, the same on all of them.

    ``parts``: names and their memory; what lies elsewhere is private to the ``rank``. ``most``:
    bytes of an array that are followed, from its start. ``ends``: of the messages of this rank.
    """

    def __init__(
        self, parts: Iterable[tuple[Name, Any]], rank: int = 0, most: int = 64,
        ends: Ends | None = None,
    ) -> None:  # fmt: skip
        self._parts = [(name, address(part), part.nbytes) for name, part in parts]
        self._rank, self._most, self._ends = rank, most, ends

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
        named = [[each for step in chain for each in self._steps(step)] for chain in chains]
        named = [[step for step in chain if step is None or step[1] != []] for chain in named]
        return None if any(step is None for chain in named for step in chain) else named

    def _steps(self, step: Any) -> list[Step | None]:
        of_messages = self._ends.steps(step[1]) if step[0] == CALL and self._ends else []
        return [*of_messages] or [self._step(step)]

    def _step(self, step: Any) -> Step | None:
        if step[0] in (RAISE, AWAIT):
            return (KINDS[step[0]], self.cell(step[1]), *step[2:])
        if step[0] == CALL:
            return self._combination(step[1])
        if step[0] == GATHER:
            _, target, source, index = step
            return ("copy", self.of(target), [p for i in index for p in self.of(source[i])])
        arrays = {COPY: step[1:3], REDUCE: step[1:4]}.get(step[0])
        return None if arrays is None else (KINDS[step[0]], *map(self.of, arrays))

    def _combination(self, function: Any) -> Step | None:
        """What has come at the owner of ghosts is a reduction by a call of Python."""
        if getattr(getattr(function, "func", None), "__name__", "") != "_combined":
            return None
        _, target, source = function.args
        return ("reduce", self.of(target), self.of(target), self.of(source))


class Ends:
    """The persistent messages of this rank, of a communicator that notes them, as steps: a counter
    says that an end has been started, another one that it is complete."""

    def __init__(self, context: Any) -> None:
        """From now on what is made on the communicator is noted."""
        made = self._made = list[tuple[Any, str, Between, Any]]()

        class Noting(MPI.Intracomm):
            def Send_init(self, spec: Any, peer: int, tag: int) -> Any:
                request = super().Send_init(spec, peer, tag)
                made.append((request, "send", (self.rank, peer, tag), spec[0]))
                return request

            def Recv_init(self, spec: Any, peer: int, tag: int) -> Any:
                request = super().Recv_init(spec, peer, tag)
                made.append((request, "receive", (peer, self.rank, tag), spec[0]))
                return request

        context.comm = Noting(context.comm)

    def steps(self, function: Any) -> list[Step]:
        """Those of a call that starts messages, or waits for them; else none."""
        kinds = {"Startall": ("raise", "begun"), "Testall": ("await", "complete")}
        kind = kinds.get(getattr(getattr(function, "func", None), "__name__", ""))
        if kind is None:
            return []
        return [(kind[0], (kind[1], end, between), 1, 0) for each in function.args[0]
                for request, end, between, _ in self._made if request is each]  # fmt: skip

    def begun(self, arrays: Iterable[Any]) -> list[Step]:
        """The steps that start the messages out of these arrays."""
        starts = {address(array) for array in arrays}
        return [("raise", ("begun", end, between), 1, 0) for _, end, between, buffer in self._made
                if end == "send" and address(buffer) in starts]  # fmt: skip

    def named(self, names: Names) -> dict[tuple[str, Between], list[list[Name]]]:
        """The buffers of the ends, by turn."""
        found: dict[tuple[str, Between], list[list[Name]]] = {}
        for _, end, between, buffer in self._made:
            found.setdefault((end, between), []).append(names.of(buffer))
        return found


def wires(ends: Iterable[dict[tuple[str, Between], list[list[Name]]]]) -> list[Participant]:
    """What MPI does with messages, each a participant: it takes the data when the send has been
    started, which is complete then, and brings them when the receive has been."""
    buffers = {key: places for each in ends for key, places in each.items()}
    found = []
    for (end, between), places in buffers.items():
        if end == "receive":
            continue
        way = [("wire", between, i) for i in range(len(places[0]))]
        plans = [[[
            ("await", ("begun", "send", between), 1, 0), ("copy", way, source),
            ("raise", ("complete", "send", between), 1, 0),
            ("await", ("begun", "receive", between), 1, 0), ("copy", target, way),
            ("raise", ("complete", "receive", between), 1, 0),
        ]] for source, target in zip(cycle(places), buffers["receive", between])]  # fmt: skip
        found.append(Participant(plans))
    return found
