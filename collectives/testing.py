"""Every exchange and the broadcast in one table, and what tests a method that is not ours.

An :class:`Operation` says what a rank has in its send and in its receive buffer, as counts of
blocks, how they are described, and which blocks of which ranks make the result. :class:`Trial` is
one request of it, in any memory, of any length, with types that have holes, in place, and at any
root. A new operation is a new row. :func:`check_transport` runs the rows of exchanges by a method
that has been registered.
"""

from __future__ import annotations

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
from onesided.collectives.registry import EXCHANGE, find
from onesided.collectives.request import Request

#: What lies in gaps and must stay, and what blocks hold before data come.
GUARD, SCRIBBLE = -7777, -8888

#: Where a rank receives: an array of its own, memory from ``empty``, memory of the request's.
MEMORY = ("plain", "window", "own")

#: How a buffer is described: a block, blocks of one size, with counts, with a type for each.
ONE, EVEN, VECTOR, TYPES = "one", "even", "vector", "types"

#: Rounds of every trial of :func:`check_transport`.
ROUNDS = 3

#: By what the blocks of long trials are longer: beyond what an MPI sends at once.
LONG = 5000

Counts = list[int]
Blocks = list[NDArray[np.int64]]


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    ``sends(rank, size, root)`` and ``receives(rank, size, root)`` are counts of blocks, None for a
    buffer that the rank does not have. ``result(sent, rank, size, root)`` makes the blocks that a
    rank receives of ``sent``, the blocks of all ranks. ``in_place(rank, size, root)`` says which of
    the blocks to be sent lie where in the other buffer, None where the rank sends or receives as
    always; ``kept`` names the buffer that ``MPI.IN_PLACE`` then stands for. ``learns``: the
    receive buffer may be None.
    """

    name: str
    sends: Callable[[int, int, int], Counts | None]
    receives: Callable[[int, int, int], Counts | None]
    result: Callable[[Any, int, int, int], Blocks]
    forms: tuple[str, str]
    in_place: Callable[[int, int, int], dict[int, int] | None] = lambda rank, size, root: None
    kept: str = "send"
    rooted: bool = False
    learns: Callable[[int, int], bool] = lambda rank, root: True
    family: str = EXCHANGE

    @property
    def on_graph(self) -> bool:
        """Whether the communicator needs a topology."""
        return self.name.startswith("Neighbor")

    def arguments(self, send: Any, recv: Any, root: int) -> tuple[Any, ...]:
        """Local. What the initialization function takes."""
        if self.family == "broadcast":
            return (recv if send is None else send), root
        return (send, recv, root) if self.rooted else (send, recv)

    def init(
        self, comm: MPI.Intracomm, send: Any, recv: Any, root: int, **options: Any
    ) -> Request:
        """Collective. The request."""
        function: Callable[..., Request] = getattr(collectives, f"{self.name}_init")
        return function(comm, *self.arguments(send, recv, root), **options)


# -- counts and results --------------------------------------------------------------------------


Counting = Callable[[int, int, int], Counts]


def same(*_: int) -> int:
    return 3


def uneven(one: int, other: int = 0) -> int:
    """The same for a pair of ranks in both directions, so that data can be in place."""
    return (one + other) % 4


def every(count: Callable[[int, int], int]) -> Counting:
    """A block for every rank, everywhere."""
    return lambda rank, size, root: [count(rank, other) for other in range(size)]


def all_of(count: Callable[[int], int]) -> Counting:
    """The block of every rank, everywhere."""
    return lambda rank, size, root: [count(other) for other in range(size)]


def mine(count: Callable[[int], int]) -> Counting:
    return lambda rank, size, root: [count(rank)]


def at_root(counts: Counting) -> Callable[[int, int, int], Counts | None]:
    return lambda rank, size, root: counts(rank, size, root) if rank == root else None


def targets(rank: int, size: int) -> list[int]:
    return [(rank + 1) % size, (rank + 2) % size]


def sources(rank: int, size: int) -> list[int]:
    return [(rank - 1) % size, (rank - 2) % size]


def gathered(sent: Any, rank: int, size: int, root: int) -> Blocks:
    return [sent[other][0] for other in range(size)]


def scattered(sent: Any, rank: int, size: int, root: int) -> Blocks:
    return [sent[root][rank]]


def exchanged(sent: Any, rank: int, size: int, root: int) -> Blocks:
    return [sent[other][rank] for other in range(size)]


def from_neighbors(choose: Callable[[int], int]) -> Callable[[Any, int, int, int], Blocks]:
    """The n-th edge from a rank is matched by its n-th edge to this one."""

    def result(sent: Any, rank: int, size: int, root: int) -> Blocks:
        blocks: Blocks = []
        seen: dict[int, int] = {}
        for other in sources(rank, size):
            places = [i for i, to in enumerate(targets(other, size)) if to == rank]
            seen[other] = seen.get(other, -1) + 1
            blocks.append(sent[other][choose(places[seen[other]])])
        return blocks

    return result


def edge(count: Callable[[int, int], int]) -> tuple[Counting, Counting]:
    return (lambda rank, size, root: [count(rank, other) for other in targets(rank, size)],
            lambda rank, size, root: [count(rank, other) for other in sources(rank, size)])


def own_block(rank: int, size: int, root: int) -> dict[int, int]:
    return {rank: 0}


def own_block_at_root(rank: int, size: int, root: int) -> dict[int, int] | None:
    return {rank: 0} if rank == root else None


def all_blocks(rank: int, size: int, root: int) -> dict[int, int]:
    return {place: place for place in range(size)}


def not_root(rank: int, root: int) -> bool:
    return rank != root


def only_root(rank: int, root: int) -> bool:
    return rank == root


def _gather(name: str, count: Callable[[int], int], form: str) -> Operation:
    return Operation(name, mine(count), at_root(all_of(count)), gathered, (ONE, form),
                     own_block_at_root, rooted=True, learns=only_root)


def _scatter(name: str, count: Callable[[int], int], form: str) -> Operation:
    return Operation(name, at_root(all_of(count)), mine(count), scattered, (form, ONE),
                     own_block_at_root, kept="recv", rooted=True, learns=not_root)


def _allgather(name: str, count: Callable[[int], int], form: str) -> Operation:
    return Operation(name, mine(count), all_of(count), gathered, (ONE, form),
                     in_place=own_block)


def _alltoall(
    name: str, count: Callable[[int, int], int], form: str, **more: Any
) -> Operation:
    return Operation(name, every(count), every(count), exchanged, (form, form),
                     in_place=all_blocks, **more)


def never(rank: int, root: int) -> bool:
    return False


OPERATIONS = {operation.name: operation for operation in (
    _gather("Gather", same, EVEN),
    _gather("Gatherv", uneven, VECTOR),
    _scatter("Scatter", same, EVEN),
    _scatter("Scatterv", uneven, VECTOR),
    _allgather("Allgather", same, EVEN),
    _allgather("Allgatherv", uneven, VECTOR),
    _alltoall("Alltoall", same, EVEN),
    _alltoall("Alltoallv", uneven, VECTOR),
    _alltoall("Alltoallw", uneven, TYPES, learns=never),
    Operation("Neighbor_allgather", mine(same), edge(same)[1], from_neighbors(lambda place: 0),
              (ONE, EVEN)),
    Operation("Neighbor_allgatherv", mine(uneven), lambda rank, size, root: [
              uneven(other) for other in sources(rank, size)], from_neighbors(lambda place: 0),
              (ONE, VECTOR)),
    Operation("Neighbor_alltoall", *edge(same), from_neighbors(lambda place: place),
              (EVEN, EVEN)),
    Operation("Neighbor_alltoallv", *edge(uneven), from_neighbors(lambda place: place),
              (VECTOR, VECTOR)),
    Operation("Neighbor_alltoallw", *edge(uneven), from_neighbors(lambda place: place),
              (TYPES, TYPES), learns=never),
    Operation("Bcast", at_root(mine(same)), lambda rank, size, root: None if rank == root else [3],
              lambda sent, rank, size, root: [sent[root][0]], (ONE, ONE), rooted=True,
              learns=never, family="broadcast"),
)}  # fmt: skip


# -- requests ------------------------------------------------------------------------------------


class Buffer:
    """Blocks in an array with a gap before each that has a displacement of its own; with ``holes``
    every second element does not belong to the type."""

    def __init__(
        self, counts: Sequence[int], form: str, holes: bool,
        make: Callable[[int], NDArray[np.int64]],
    ) -> None:  # fmt: skip
        gap = 1 if form in (VECTOR, TYPES) else 0
        self.counts, self.form, self.step = list(counts), form, 2 if holes else 1
        self.displs, at = [], 0
        for count in counts:
            self.displs.append(at + gap)
            at += count + gap
        self.array = make(self.step * (at + 1))
        self.array[:] = GUARD
        self.kind = MPI.INT64_T
        if holes:
            self.kind = MPI.INT64_T.Create_resized(0, 16).Commit()

    def part(self, place: int) -> NDArray[np.int64]:
        """Local. A block."""
        start, stop = self.displs[place], self.displs[place] + self.counts[place]
        return self.array[self.step * start : self.step * stop : self.step]

    def spec(self) -> list[Any]:
        """Local. The buffer as mpi4py specifies it."""
        if self.form == VECTOR:
            return [self.array, self.counts, self.displs, self.kind]
        if self.form == TYPES:
            places = [8 * self.step * displ for displ in self.displs]
            return [self.array, self.counts, places, [self.kind] * len(self.counts)]
        return [self.array, self.counts[0] if self.counts else 0, self.kind]

    def rest(self) -> NDArray[np.int64]:
        """Local. What belongs to no block."""
        inside = np.zeros(len(self.array), bool)
        for start, count in zip(self.displs, self.counts, strict=True):
            inside[self.step * start : self.step * (start + count) : self.step] = True
        return self.array[~inside]

    def free(self) -> None:
        """Local. The type."""
        if self.step > 1:
            self.kind.Free()


class Trial:
    """One request of an operation.

    ``memory`` is one of :data:`MEMORY`; what is to be "own" is plain where the operation needs a
    receive buffer. ``scale``: blocks are so many times as long.
    """

    def __init__(
        self, comm: MPI.Intracomm, operation: Operation, method: str,
        memory: str = "plain", holes: bool = False, in_place: bool = False, root: int = 0,
        info: Mapping[str, str] | None = None, scale: int = 1,
    ) -> None:  # fmt: skip
        """Collective."""
        self.operation, self.root, self.scale, self.holes = operation, root, scale, holes
        self.rank, self.size = rank, size = comm.rank, comm.size
        sends, receives = self._counts(operation.sends), self._counts(operation.receives)
        self.held = operation.in_place(rank, size, root) if in_place else None
        self.owns = memory == "own" and operation.learns(rank, root) and not in_place
        self.send: Buffer | None = None
        self.recv: Buffer | None = None
        self._window: NDArray[np.int64] | None = None
        if sends is not None:
            self.send = Buffer(sends, operation.forms[0], holes, _plain)

        def make(length: int) -> NDArray[np.int64]:
            if memory != "window":
                return _plain(length)
            self._window = empty(comm, length, np.int64)
            return self._window

        if receives is not None:
            self.recv = Buffer(receives, operation.forms[1], holes, make)
        else:
            make(0)
        send = None if self.send is None else self.send.spec()
        recv = None if self.recv is None or self.owns else self.recv.spec()
        given: tuple[Any, Any] = (send, recv)
        if self.held is not None:
            given = (MPI.IN_PLACE, recv) if operation.kept == "send" else (send, MPI.IN_PLACE)
        self.comm = comm
        if operation.on_graph:
            self.comm = comm.Create_dist_graph_adjacent(sources(rank, size), targets(rank, size))
        try:
            self.request = operation.init(self.comm, *given, root, method=method, info=info)
        except Exception:  # on all ranks
            self._give_back()
            raise

    def _counts(
        self, counts: Callable[[int, int, int], Counts | None], rank: int | None = None
    ) -> Counts | None:
        found = counts(self.rank if rank is None else rank, self.size, self.root)
        return None if found is None else [self.scale * count for count in found]

    def blocks(self, turn: int, rank: int) -> Blocks | None:
        """Local. What a rank sends in a round."""
        counts = self._counts(self.operation.sends, rank)
        step = 1000 * self.scale
        return None if counts is None else [
            ((turn * self.size + rank) * 8 + place) * step + np.arange(count)
            for place, count in enumerate(counts)
        ]

    def fill(self, turn: int) -> None:
        """Local. The data of a round, and nothing where others are to come."""
        mine = self.blocks(turn, self.rank)
        if self.recv is not None:
            for place in range(len(self.recv.counts)):
                self.recv.part(place)[:] = SCRIBBLE
        if mine is None:
            return
        if self.held is not None and self.operation.kept == "send" and self.recv is not None:
            for place, which in self.held.items():
                self.recv.part(place)[:] = mine[which]
        elif self.send is not None:
            for place, block in enumerate(mine):
                self.send.part(place)[:] = block

    def check(self, turn: int, got: Any) -> None:
        """Local. Raise :class:`AssertionError` where ``got``, what Wait returned, is not right."""
        sent = [self.blocks(turn, rank) for rank in range(self.size)]
        if self.send is not None:
            _expect(bool(np.all(self.send.rest() == GUARD)), "the send buffer was written")
        kept = self.held is not None and self.operation.kept == "recv"
        if self.recv is None or kept:
            _expect(got is None or self.operation.name == "Bcast", f"Wait returned {got!r}")
            return
        want = self.operation.result(sent, self.rank, self.size, self.root)
        if self.owns:
            whole = np.concatenate([*want, np.empty(0, np.int64)])
            _expect(np.array_equal(got, whole), f"round {turn}: {got}, not {whole}")
            return
        _expect(got is self.recv.array, "Wait returned another array than the caller's")
        for place, block in enumerate(want):
            found = self.recv.part(place)
            _expect(np.array_equal(found, block), f"round {turn}, block {place}: {found}")
        untouched = bool(np.all(self.recv.rest() == GUARD))
        _expect(untouched, "bytes outside of the blocks were written")

    def scribble(self) -> None:
        """Local. What the caller may do after Wait."""
        if self.send is not None:
            for place in range(len(self.send.counts)):
                self.send.part(place)[:] = SCRIBBLE

    def round(self, turn: int) -> None:
        """A round, checked."""
        self.fill(turn)
        self.request.Start()
        self.check(turn, self.request.Wait())
        self.scribble()

    def free(self) -> None:
        """Collective. The request, and what was made for it."""
        self.request.Free()
        self._give_back()

    def _give_back(self) -> None:
        for buffer in (self.send, self.recv):
            if buffer is not None:
                buffer.free()
        if self._window is not None:
            free(self._window)
        if self.operation.on_graph:
            self.comm.Free()


def _plain(length: int) -> NDArray[np.int64]:
    return np.empty(length, np.int64)


def _expect(right: bool, words: str) -> None:
    if not right:
        raise AssertionError(words)


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
