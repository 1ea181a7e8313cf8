"""Every exchange and the broadcast in one table, and what tests a method that is not ours.

An :class:`Operation` is a collective by its name: what a rank has in its send and in its receive
buffer, as counts of blocks, how they are described, and what may be in place. A new operation is a
new row. :class:`Trial` is one request of it, in any memory, of any length, with types that have
holes, in place, and at any root. :func:`check_transport` runs the rows of exchanges by a method
that has been registered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided import collectives
from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.memory import empty, free
from onesided.collectives.registry import BROADCAST, EXCHANGE, find
from onesided.collectives.request import Request

#: Where a rank receives: an array of its own, memory from ``empty``, memory of the request's.
MEMORY = ("plain", "window", "own")

#: How a buffer is described: a block, blocks of one size, with counts, with a type for each.
ONE, EVEN, VECTOR, TYPES = "one", "even", "vector", "types"

#: What lies in gaps and must stay, and what blocks hold before data come.
GUARD = -7777

#: Rounds of every trial of :func:`check_transport`.
ROUNDS = 3

#: By what the blocks of long trials are longer: beyond what an MPI sends at once.
LONG = 5000

Counts = list[int]


@dataclass(frozen=True)
class Operation:
    """A row of the table: ``count(source, target, size)`` elements go from a rank to another, of so
    many ranks; where all targets get the same block, as many as the first one gets."""

    name: str
    count: Callable[[int, int, int], int]

    @property
    def on_graph(self) -> bool:
        """Whether the communicator needs a topology."""
        return self.name.startswith("Neighbor")

    @property
    def rooted(self) -> bool:
        """Whether one rank is the root."""
        return self.name.startswith(("Gather", "Scatter", "Bcast"))

    @property
    def family(self) -> str:
        """What methods it has."""
        return BROADCAST if self.name == "Bcast" else EXCHANGE

    @property
    def _gathers(self) -> bool:
        return "gather" in self.name.lower()

    @property
    def _from_root(self) -> bool:
        return self.rooted and not self._gathers

    @property
    def forms(self) -> tuple[str, str]:
        """How the send and the receive buffer are described."""
        many = {"v": VECTOR, "w": TYPES}.get(self.name[-1], EVEN)
        return (ONE if self._gathers or self.family == BROADCAST else many,
                ONE if self._from_root else many)  # fmt: skip

    def sends(self, rank: int, size: int, root: int) -> Counts | None:
        """Local. The blocks of a send buffer; None where a rank has none."""
        if self._from_root and rank != root:
            return None
        if self.forms[0] == ONE:
            return [self.count(rank, 0, size)]
        others = targets(rank, size) if self.on_graph else range(size)
        return [self.count(rank, other, size) for other in others]

    def receives(self, rank: int, size: int, root: int) -> Counts | None:
        """Local. The blocks of a receive buffer; None where a rank has none."""
        if self.name.startswith("Gather" if rank != root else "Bcast"):
            return None
        goal = 0 if self.forms[0] == ONE else rank
        if self._from_root:
            return [self.count(root, goal, size)]
        others = sources(rank, size) if self.on_graph else range(size)
        return [self.count(other, goal, size) for other in others]

    def in_place(self, rank: int, size: int, root: int) -> dict[int, int] | None:
        """Local. Which of the blocks to be sent lie where in the other buffer; None where the rank
        sends or receives as always."""
        if self.on_graph or self.family == BROADCAST or (self.rooted and rank != root):
            return None
        if self.rooted or self._gathers:
            return {rank: 0}
        if self.sends(rank, size, root) != self.receives(rank, size, root):
            return None  # what is received takes the place of what is sent
        return {place: place for place in range(size)}

    def result(
        self, sent: Sequence[Any], rank: int, size: int, root: int
    ) -> list[NDArray[Any]]:
        """Local. What a rank receives, of the blocks that all ranks send: the n-th edge from a rank
        is matched by its n-th edge to this one."""
        if self._from_root:
            return [sent[root][0 if self.family == BROADCAST else rank]]
        if not self.on_graph:
            return [sent[other][0 if self._gathers else rank] for other in range(size)]
        blocks, seen = [], Counter[int]()
        for other in sources(rank, size):
            edges = [place for place, to in enumerate(targets(other, size)) if to == rank]
            blocks.append(sent[other][0 if self._gathers else edges[seen[other]]])
            seen[other] += 1
        return blocks

    @property
    def kept(self) -> str:
        """The buffer that ``MPI.IN_PLACE`` stands for."""
        return "recv" if self._from_root else "send"

    def learns(self, rank: int, root: int) -> bool:
        """Local. Whether the receive buffer may be None."""
        if self.forms[1] == TYPES or self.family == BROADCAST:
            return False
        return not self.rooted or (rank == root) == self._gathers

    def arguments(self, send: Any, recv: Any, root: int) -> tuple[Any, ...]:
        """Local. What the initialization function takes."""
        if self.family == BROADCAST:
            return (recv if send is None else send), root
        return (send, recv, root) if self.rooted else (send, recv)

    def init(
        self, comm: MPI.Intracomm, send: Any, recv: Any, root: int, **options: Any
    ) -> Request:
        """Collective. The request."""
        function: Callable[..., Request] = getattr(collectives, f"{self.name}_init")
        return function(comm, *self.arguments(send, recv, root), **options)


def targets(rank: int, size: int) -> list[int]:
    return [(rank + 1) % size, (rank + 2) % size]


def sources(rank: int, size: int) -> list[int]:
    return [(rank - 1) % size, (rank - 2) % size]


def same(*_: int) -> int:
    return 3


def uneven(source: int, target: int, size: int) -> int:
    """The same for a pair of ranks in both directions, so that data can be in place."""
    return (source + target) % 4


OPERATIONS = {
    name: Operation(name, uneven if name[-1] in "vw" else same) for name in (
        "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall",
        "Alltoallv", "Alltoallw", "Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall",
        "Neighbor_alltoallv", "Neighbor_alltoallw", "Bcast",
    )
}  # fmt: skip


# -- requests ------------------------------------------------------------------------------------


class Buffer:
    """Blocks in an array with a gap before each that has a displacement of its own; with ``holes``
    every second element does not belong to the type. In memory from ``empty`` of ``comm``, if that
    is given."""

    def __init__(
        self, counts: Counts, form: str, holes: bool, comm: MPI.Intracomm | None = None
    ) -> None:
        gap = 1 if form in (VECTOR, TYPES) else 0
        self._counts, self._form, self._step = counts, form, 2 if holes else 1
        self._displs, at = [], 0
        for count in counts:
            self._displs.append(at + gap)
            at += count + gap
        room = self._step * (at + 1)
        self._shared = comm is not None
        self.array = np.empty(room, np.int64) if comm is None else empty(comm, room, np.int64)
        self._kind = MPI.INT64_T
        if holes:
            self._kind = MPI.INT64_T.Create_resized(0, 16).Commit()

    def write(self, array: NDArray[Any], blocks: Mapping[int, NDArray[Any]]) -> None:
        """Local. Bring blocks to their places in an array like this one's."""
        for place, block in blocks.items():
            start = self._step * self._displs[place]
            array[start : start + self._step * self._counts[place] : self._step] = block

    def spec(self) -> list[Any]:
        """Local. The buffer as mpi4py specifies it."""
        if self._form == VECTOR:
            return [self.array, self._counts, self._displs, self._kind]
        if self._form == TYPES:
            places = [8 * self._step * displ for displ in self._displs]
            return [self.array, self._counts, places, [self._kind] * len(self._counts)]
        return [self.array, self._counts[0] if self._counts else 0, self._kind]

    def free(self) -> None:
        """Collective where the memory is shared."""
        if self._step > 1:
            self._kind.Free()
        if self._shared:
            free(self.array)


class Trial:
    """One request of an operation; ``memory`` is one of :data:`MEMORY`, ``scale`` says how many
    times as long blocks are. What is to be "own" is plain where the operation needs a buffer."""

    def __init__(
        self, comm: MPI.Intracomm, operation: Operation, method: str,
        memory: str = "plain", holes: bool = False, in_place: bool = False, root: int = 0,
        info: Mapping[str, str] | None = None, scale: int = 1,
    ) -> None:  # fmt: skip
        """Collective."""
        self._operation, self._root, self._scale = operation, root, scale
        self.rank, self._size = rank, size = comm.rank, comm.size
        sends, receives = operation.sends(rank, size, root), operation.receives(rank, size, root)
        self._held = operation.in_place(rank, size, root) if in_place else None
        self._owns = memory == "own" and operation.learns(rank, root) and not in_place
        self._send = Buffer(self._longer(sends), operation.forms[0], holes)
        shared = comm if memory == "window" else None
        self._recv = Buffer(self._longer(receives), operation.forms[1], holes, shared)
        send: Any = None if sends is None else self._send.spec()
        recv: Any = None if receives is None or self._owns else self._recv.spec()
        self._receives = receives is not None
        if self._held is not None and operation.kept == "send":
            send = MPI.IN_PLACE
        elif self._held is not None:
            recv, self._receives = MPI.IN_PLACE, False
        self._graph: MPI.Intracomm | None = None
        if operation.on_graph:
            self._graph = comm.Create_dist_graph_adjacent(sources(rank, size), targets(rank, size))
        try:
            self.request = operation.init(
                self._graph or comm, send, recv, root, method=method, info=info)
        except Exception:  # on all ranks
            self._give_back()
            raise

    def _longer(self, counts: Counts | None) -> Counts:
        return [self._scale * count for count in counts or ()]

    def _blocks(self, turn: int, rank: int) -> list[NDArray[np.int64]]:
        """What a rank sends in a round."""
        counts = self._longer(self._operation.sends(rank, self._size, self._root))
        step = 1000 * self._scale
        return [((turn * self._size + rank) * 8 + place) * step + np.arange(count)
                for place, count in enumerate(counts)]

    def fill(self, turn: int) -> None:
        """Local. The data of a round, and nothing where others are to come."""
        mine, send, recv = self._blocks(turn, self.rank), self._send, self._recv
        send.array[:] = recv.array[:] = GUARD
        if self._held is not None and self._operation.kept == "send":
            recv.write(recv.array, {place: mine[which] for place, which in self._held.items()})
        else:
            send.write(send.array, dict(enumerate(mine)))
        self._before = send.array.copy(), recv.array.copy()

    def check(self, turn: int, got: Any) -> None:
        """Local. Raise :class:`AssertionError` where ``got``, what Wait returned, is not right."""
        sent = [self._blocks(turn, rank) for rank in range(self._size)]
        send, recv = self._before
        if self._receives:
            want = self._operation.result(sent, self.rank, self._size, self._root)
            whole = np.concatenate([*want, recv[:0]])
            if not self._owns:
                self._recv.write(recv, dict(enumerate(want)))
                whole = recv
                if got is not self._recv.array:
                    raise AssertionError("Wait returned another array than the caller's")
            if not np.array_equal(got, whole):
                raise AssertionError(f"round {turn}: {got}, not {whole}")
        if not np.array_equal(self._send.array, send) or not np.array_equal(self._recv.array, recv):
            raise AssertionError(f"round {turn}: what is no block to be received was written")

    def scribble(self) -> None:
        """Local. What the caller may do after Wait, though others have not come so far."""
        self._send.array[:] = GUARD

    def round(self, turn: int) -> None:
        """A round, checked."""
        self.fill(turn)
        self.request.Start()
        self.check(turn, self.request.Wait())

    def free(self) -> None:
        """Collective. The request, and what was made for it."""
        self.request.Free()
        self._give_back()

    def _give_back(self) -> None:
        self._send.free()
        self._recv.free()
        if self._graph is not None:
            self._graph.Free()


# -- a method that is not ours -------------------------------------------------------------------


def variants(operation: Operation, size: int, number: int) -> Iterator[dict[str, Any]]:
    """Local. Arguments of trials: every memory, types with holes, and what is in place; the roots
    in turn, from ``number`` on."""
    chosen = [(memory, False, False) for memory in MEMORY]
    chosen += [("plain", True, False)]
    if operation.in_place(0, size, 0) is not None:
        chosen += [(MEMORY[number % 2], False, True), ("plain", True, True)]
    for turn, (memory, holes, in_place) in enumerate(chosen):
        yield {"memory": memory, "holes": holes, "in_place": in_place,
               "root": (turn + number) % size if operation.rooted else 0}


def check_transport(
    comm: MPI.Intracomm, name: str, info: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Collective. Run every exchange of the table by the method ``name``, in every memory, with
    types that have holes, and in place; where the method takes any order, also two requests that
    ranks start and complete in different orders.

    Parameters
    ----------
    comm
        Repeat it with several numbers of ranks, 1 to 4 at least.
    info
        Hints of all requests: with ``{"ranks_per_node": "1"}`` every rank is a node of its own.
    name
        A method of exchanges that has been registered.

    Returns
    -------
    dict
        Why the method does not take an exchange, by the exchange: :class:`UnsupportedError` is an
        answer.

    Raises
    ------
    AssertionError
        On every rank: an exchange that did not move its data, with the rank and the round.
    MethodError
        No method has this name.

    A round that never ends hangs: run it under a time limit.
    """
    method = find(name)
    refused: dict[str, str] = {}
    for operation in OPERATIONS.values():
        if operation.family != EXCHANGE:
            continue
        for number, kind in enumerate(variants(operation, comm.size, len(name))):
            for scale in (1, LONG):
                what = f"{operation.name} {kind}, blocks times {scale}"
                try:
                    trials = [Trial(comm, operation, name, scale=scale, info=info, **kind)
                              for _ in range(2 if method.any_order else 1)]  # fmt: skip
                except UnsupportedError as error:
                    refused[what] = str(error)
                    continue
                for turn in range(ROUNDS):
                    with agreed(comm):
                        _rounds(trials, turn + number, what)
                for trial in trials:
                    trial.free()
    agree(comm, None, f"check_transport {name}")
    return refused


def _rounds(trials: Sequence[Trial], turn: int, what: str) -> None:
    """One round of each: odd ranks start in the other order, and others wait in it."""
    odd = trials[0].rank % 2
    for place, trial in enumerate(trials):
        trial.fill(turn + place)
    for trial in trials[:: -1 if odd else 1]:
        trial.request.Start()
    answers = {}
    for trial in trials[:: 1 if odd else -1]:
        answers[id(trial)] = trial.request.Wait()
    try:
        for place, trial in enumerate(trials):
            trial.check(turn + place, answers[id(trial)])
            trial.scribble()
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error
