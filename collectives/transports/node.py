"""Between nodes one message from a rank to a node, out of which all ranks there copy.

On the node blocks are stored, as by every method of :mod:`.notify`. What a rank has for the ranks
of another node travels together, in one persistent message: straight from the send array where
these blocks lie there one after the other, else packed. One of the ranks that it is for receives
it, in memory that its node shares, and tells the others by a counter; each copies its blocks from
there to its own array. Of a dense exchange that is a message per rank and node, where every pair of
ranks has one otherwise: A. Bienz, W. Gropp, L. Olson, Reducing communication in algebraic multigrid
with multi-step node aware communication, 2020, call it two-step.

*Two landing places* for every message, used in turn. A rank that has begun round k has copied what
came in round k - 1; it says so when it begins, by a counter at each rank that receives for it. So a
receiver takes round k in when all have begun round k - 1, and nobody looks at that place any more.

*No row twice.* Where the caller has told which rows of the send array are the same (``rows``), a
message has each row once that any rank of its node wants, and every rank there gathers its own by
their numbers in it. The caller writes them to the message itself, beside the blocks for this node.

*Progress.* Whoever is away between Start and Wait may have to receive for its node, so this needs a
progress thread that may call MPI, and is refused without. A rank that is late with its Ready would
hold up others in the same way: its rounds cannot be opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import progress
from onesided.collectives.agreement import agree, swapped
from onesided.collectives.arena import ControlMemory
from onesided.collectives.context import Resources
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.exchange import Exchange, ExchangeTransport
from onesided.collectives.hints import MANUAL
from onesided.collectives.memory import ALIGNMENT, aligned
from onesided.collectives.pattern import Block, Copy, pieces
from onesided.collectives.program import Chain, address, call, copy, gather, tell, wait_for
from onesided.collectives.schedule import Filling
from onesided.collectives.transport import Cell, Outlet
from onesided.collectives.transports.notify import Stored


@dataclass(frozen=True)
class Part:
    """What a sender tells a rank of another node: its blocks begin at ``offset``, in bytes, in the
    message that ``receiver`` takes in; or they are those of its rows, of ``row`` bytes each, whose
    numbers are in ``index``. That one learns the ``nbytes`` of the whole, and all ``takers`` of
    it."""

    receiver: int
    offset: int
    nbytes: int = 0
    takers: tuple[int, ...] = ()
    row: int = 0
    index: NDArray[np.int64] | None = None


@dataclass
class Message:
    """What this rank sends to the ranks of a node: their blocks, in this order of ranks; where
    each rank's begin; and the array in which they lie one after the other. Where rows are sent
    once, the numbers of each rank's."""

    receiver: int
    takers: list[int]
    blocks: list[Block]
    offsets: list[int] = field(default_factory=list)
    indices: list[NDArray[np.int64] | None] = field(default_factory=list)
    data: NDArray[np.uint8] | None = None


def messages_of(exchange: Exchange) -> list[Message]:
    """Local. Those of this rank, the next node first; to each another receiver."""
    node = exchange.node
    firsts, numbers = np.unique(node.firsts, return_inverse=True)
    here = int(numbers[exchange.rank])
    by_node: dict[int, list[int]] = {}
    for peer in exchange.peers:
        if peer not in node.rank_of and exchange.blocks_to(peer):
            by_node.setdefault(int(numbers[peer]), []).append(peer)
    made = []
    for number in sorted(by_node, key=lambda number: (number - here) % len(firsts)):
        takers = sorted(by_node[number])
        turn = node.rank_of[exchange.rank] + here + number
        blocks = [block for taker in takers for block in exchange.blocks_to(taker)]
        made.append(Message(takers[turn % len(takers)], takers, blocks))
    return made


class Distinct:
    """The rows that this rank sends, in another array than the caller's: first the blocks for its
    own node, which ``exchange`` sends from here, then of every message each row once.

    ``rows`` are their numbers.
    """

    def __init__(self, exchange: Exchange, messages: Sequence[Message]) -> None:
        """Local. Lay out the messages."""
        given, numbers = exchange.send.array, exchange.rows
        if given is None or numbers is None:
            raise ValueError("rows without numbers")
        row = int(np.prod(given.shape[1:], dtype=int)) * given.itemsize
        near, rows, top = [], [numbers[:0]], 0
        for block in exchange.send.blocks:
            if block.peer in exchange.node.rank_of:
                rows.append(numbers[block.box[0]])
                near.append(replace(block, box=(slice(top, top + block.shape[0]), *block.box[1:])))
                top += block.shape[0]
        self.near, ends = top, []
        for message in messages:
            wanted = [np.concatenate([numbers[b.box[0]] for b in exchange.blocks_to(taker)])
                      for taker in message.takers]
            once, where = distinct(np.concatenate(wanted))
            for index in np.split(where, np.cumsum([len(each) for each in wanted])[:-1]):
                first = int(index[0])
                apart = not np.array_equal(index, np.arange(first, first + len(index)))
                message.offsets.append(0 if apart else first * row)
                message.indices.append(np.ascontiguousarray(index) if apart else None)
            rows.append(once)
            ends.append((top, top + len(once)))
            top += len(once)
        self.row, self.rows = row, np.concatenate(rows)
        self.array: NDArray[Any] = np.zeros((top, *given.shape[1:]), given.dtype)
        for message, (start, end) in zip(messages, ends, strict=True):
            message.data = self.array[start:end].reshape(-1).view(np.uint8)
        self.exchange = replace(
            exchange, send=replace(exchange.send, array=self.array, blocks=tuple(near)))


def distinct(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Local. The numbers, each once, in the order in which they come first; where there each is."""
    found, first, where = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return found[order], place[where]


@dataclass
class Landing:
    """A message that this rank receives for its node: who of the others has to have begun, by
    turn the requests, and the counter for those others, None where there is nobody else."""

    begun: list[Cell]
    receives: list[list[MPI.Prequest]]
    arrived: Cell | None


class NodeMessages:
    """The messages between this rank and other nodes, and what it copies out of those of others.

    Everything is decided by senders, who choose a receiver among the ranks that they send to, for
    each message another one.
    """

    def __init__(
        self, exchange: Exchange, resources: Resources, messages: Sequence[Message], row: int,
        arrays: Sequence[NDArray[Any]], turns: int,
    ) -> None:  # fmt: skip
        """Collective. ``messages`` of rows of so many bytes, or of blocks that are not laid out
        yet; ``arrays``: the receive memory by slot."""
        self._exchange, self._resources = exchange, resources
        self._packs: list[Copy] = []
        self._sends: list[MPI.Prequest] = []
        self._begun: list[Cell] = []  # at the ranks that receive for this one
        self._landings: dict[int, Landing] = {}  # by sender
        self._unpacks: dict[int, list[Chain]] = {}  # by sender and turn
        self.arrivals: dict[int, Cell] = {}  # by sender, where another rank receives
        told: dict[int, Part | None] = dict.fromkeys(
            peer for peer in exchange.peers if peer not in exchange.node.rank_of)
        for message in messages:
            told |= self._told(message, row)
        heard = swapped(exchange.context.comm, exchange.number, told)
        self._receive({s: part for s, part in heard.items() if part is not None}, arrays, turns)
        for message in messages:
            data = self._together(message.blocks) if message.data is None else message.data
            self._sends += self._made(exchange.context.comm.Send_init, data, message.receiver)

    # -- sending -----------------------------------------------------------------------------------

    def _told(self, message: Message, row: int) -> dict[int, Part | None]:
        """Local. What the ranks that a message is for are told about it."""
        if message.data is None:
            sizes = [sum(self._exchange.source(b).nbytes for b in self._exchange.blocks_to(taker))
                     for taker in message.takers]
            *message.offsets, nbytes = accumulate(sizes, initial=0)
            message.indices = [None] * len(sizes)
        else:
            nbytes = message.data.nbytes
        parts: dict[int, Part | None] = {
            taker: Part(message.receiver, offset, row=row, index=index)
            for taker, offset, index in zip(
                message.takers, message.offsets, message.indices, strict=True)
        }  # fmt: skip
        place = message.takers.index(message.receiver)
        parts[message.receiver] = Part(message.receiver, message.offsets[place], nbytes,
                                       tuple(message.takers), row, message.indices[place])
        return parts

    def _together(self, blocks: Sequence[Block]) -> NDArray[np.uint8]:
        """Local. Blocks one after the other: in the send array, or in a buffer that is packed."""
        views = [self._exchange.source(block) for block in blocks]
        ends = list(accumulate(view.nbytes for view in views))
        starts = [0, *ends[:-1]]
        first = address(views[0])
        if all(view.flags.c_contiguous and address(view) == first + start
               for view, start in zip(views, starts, strict=True)):
            data = views[0].reshape(-1).view(np.uint8)
            return np.lib.stride_tricks.as_strided(data, (ends[-1],), (1,))
        buffer = np.empty(ends[-1], np.uint8)
        self._resources.keep.append(buffer)
        for view, start, end in zip(views, starts, ends, strict=True):
            self._packs.append((buffer[start:end].view(view.dtype).reshape(view.shape), view))
        return buffer

    def _made(self, start: Any, data: NDArray[np.uint8], peer: int) -> list[MPI.Prequest]:
        """Local. The persistent requests of a message."""
        made = [start([piece, MPI.BYTE], peer, self._exchange.number) for piece in pieces(data)]
        for request in made:
            self._resources.on_release(request.Free)
        return made

    # -- receiving ---------------------------------------------------------------------------------

    def _receive(
        self, parts: dict[int, Part], arrays: Sequence[NDArray[Any]], turns: int
    ) -> None:
        """Collective. Lay out the landing places, and tell those who copy from there.

        The memory of a rank is [counters of what has arrived | counters of who has begun | places].
        """
        exchange, comm = self._exchange, self._exchange.context.comm
        own = [sender for sender, part in parts.items() if part.receiver == exchange.rank]
        others = {s: [t for t in parts[s].takers if t != exchange.rank] for s in own}
        mates = sorted({taker for takers in others.values() for taker in takers})
        cells = {key: i * ALIGNMENT for i, key in enumerate([*own, *mates])}
        size = len(cells) * ALIGNMENT
        places: dict[int, list[int]] = {}
        for sender in own:
            room = aligned(parts[sender].nbytes)
            places[sender] = [size + turn * room for turn in range(turns)]
            size += room * turns
        control = ControlMemory(exchange, self._resources, size, [])
        control.root[: len(cells) * ALIGNMENT] = 0
        words: dict[int, Any] = dict.fromkeys(
            {part.receiver for part in parts.values()} - {exchange.rank})
        for mate in mates:
            mine = {s: (cells[s], places[s]) for s in own if mate in others[s]}
            words[mate] = (control.place, cells[mate], mine)
        told = {rank: word for rank, word in swapped(comm, exchange.number, words).items() if word}
        control.hear({rank: place for rank, (place, _, _) in told.items()})
        self._begun = [control.cell(rank, at) for rank, (_, at, _) in told.items()]
        for sender in own:
            landings = [control.root[at : at + parts[sender].nbytes] for at in places[sender]]
            self._landings[sender] = Landing(
                [control.cell(exchange.rank, cells[mate]) for mate in others[sender]],
                [self._made(comm.Recv_init, each, sender) for each in landings],
                control.cell(exchange.rank, cells[sender]) if others[sender] else None,
            )
        found = {rank: mine for rank, (_, _, mine) in told.items()}
        found[exchange.rank] = {s: (cells[s], places[s]) for s in own}
        for sender, part in parts.items():
            cell, at = found[part.receiver][sender]
            memory = control.part(part.receiver)
            if part.receiver != exchange.rank:
                self.arrivals[sender] = control.cell(part.receiver, cell)
            self._unpacks[sender] = [
                self._copies(sender, part, memory[start:], arrays[turn % len(arrays)])
                for turn, start in enumerate(at)
            ]

    def _copies(
        self, sender: int, part: Part, data: NDArray[np.uint8], array: NDArray[Any]
    ) -> Chain:
        """Local. The blocks of a sender, out of its message to their places."""
        steps: Chain = []
        start = part.offset
        for block in self._exchange.blocks_from(sender):
            view = array[block.box]
            end = start + view.nbytes
            if part.index is None:
                packed = data[start:end].view(view.dtype)
                steps.append(copy(view, packed.reshape(view.shape)))
            else:
                steps += self._gathered(view, data, part.row, part.index[
                    start // part.row : end // part.row])  # fmt: skip
            start = end
        return steps

    @staticmethod
    def _gathered(
        view: NDArray[Any], data: NDArray[np.uint8], row: int, index: NDArray[np.int64]
    ) -> Chain:
        """Local. Rows of a message, by their numbers, to a block."""
        flat = view if view.flags.c_contiguous else np.empty(view.shape, view.dtype)
        count = int(index.max()) + 1
        target = flat.reshape(-1).view(np.uint8).reshape(-1, row)
        steps = [gather(target, data[: count * row].reshape(-1, row), index)]
        return steps if flat is view else [*steps, copy(view, flat)]

    # -- a round -----------------------------------------------------------------------------------

    def chains(self, turn: int) -> list[Chain]:
        """Local. A round: say that it has begun, receive for the node, send, and copy."""
        chains: list[Chain] = [[tell(cell) for cell in self._begun]]
        for sender, landing in self._landings.items():
            messages = landing.receives[turn]
            chain = [wait_for(cell, 1, -1) for cell in landing.begun]
            chain.append(call(partial(MPI.Prequest.Startall, messages), once=True))
            chain.append(call(partial(MPI.Prequest.Testall, messages), serves=False))
            if landing.arrived is not None:
                chain.append(tell(landing.arrived))
            chains.append(chain + self._steps(turn, sender))
        if self._sends:
            chains.append([
                *(copy(target, source) for target, source in self._packs),
                call(partial(MPI.Prequest.Startall, self._sends), once=True),
                call(partial(MPI.Prequest.Testall, self._sends), serves=False),
            ])
        for sender, arrived in self.arrivals.items():
            chains.append([wait_for(arrived), *self._steps(turn, sender)])
        return chains

    def _steps(self, turn: int, sender: int) -> Chain:
        return self._unpacks[sender][turn]


class NodeAware(Stored):
    """Stores and counters on the node; between nodes a message from a rank to a node."""

    puts_off_node = False
    direct = False

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        error: Exception | None = None
        messages: list[Message] = []
        once: Distinct | None = None
        try:
            if operation.hints.progress == MANUAL or not progress.may_call_from_any_thread():
                raise UnsupportedError(
                    f"{operation.method} has ranks receive for others of their node, for which it "
                    "needs a progress thread, and so MPI_THREAD_MULTIPLE and not progress=manual; "
                    "use rma-p2p or p2p"
                )
            messages = messages_of(operation)
            if operation.rows is not None:
                once = Distinct(operation, messages)
                resources.keep.append(once.array)  # MPI may read it after a round was given up
        except Exception as problem:
            error = problem
        agree(operation.context.comm, error, f"messages of request {operation.number}")
        super().__init__(operation if once is None else once.exchange, resources)
        self._messages = NodeMessages(
            operation, resources, messages, 0 if once is None else once.row, self.arrays,
            self.turns,
        )  # fmt: skip
        near = {p: cell for p, cell in self.arrivals.items() if self._near(p)}
        self.arrivals = near | self._messages.arrivals
        self._far_rows: list[NDArray[Any]] = []
        if once is not None:
            self.packed = once.array, once.rows
            self._far_rows = [once.array[once.near :]]

    def watched(self) -> tuple[list[NDArray[Any]], list[list[NDArray[Any]]], np.dtype[Any]]:
        out, into, dtype = super().watched()
        return [*out, *self._far_rows], into, dtype

    def outlets(self) -> list[list[list[Outlet]]]:
        if self.packed is not None:
            raise UnsupportedError("rows that have numbers are written to Request.packed")
        return ExchangeTransport.outlets(self)

    def far_chains(self, turn: int, filled: Filling | None) -> list[Chain]:
        return self._messages.chains(turn)
