"""Between nodes one message from a rank, or from all of a node, out of which all ranks copy.

On the node blocks are stored, as by every method of :mod:`.notify`. What a rank has for the ranks
of another node travels together, in one persistent message: straight from the send array where
these blocks lie there one after the other, else packed. One of the ranks that it is for receives
it, in memory that its node shares, and tells the others by a counter; each copies its blocks from
there to its own array. Of a dense exchange that is a message per rank and node, where every pair of
ranks has one otherwise: A. Bienz, W. Gropp, L. Olson, Reducing communication in algebraic multigrid
with multi-step node aware communication, 2020, call it two-step.

*Short ones together*, three-step there. Where all that a node has for another one is short
(:data:`PAIR`), it is one message. One of its sources, for each node another one, leads: it has
memory into which all store their parts, each with a counter of its own, and sends when all are
there.

*Two places* for every message where it leaves and where it arrives, used in turn. A rank that has
begun round k has sent what it had to in round k - 1, and has copied what came; it says so when it
begins, by a counter. So a receiver takes round k in when all takers have begun round k - 1, and
nobody looks at that place any more, and a source stores when its leader has. That holds also where
the rounds of several requests are counted together (:func:`~..request.alternate`): the last one
that both know of is then an earlier one, or they are in the same.

*No row twice.* Where the caller has told which rows of the send array are the same (``rows``), a
message has each row of a rank once that any rank of its node wants, and every rank there gathers
its own by their numbers in it. The caller writes them to the message itself, or to what is stored
into it, beside the blocks for this node.

*Progress.* Whoever is away between Start and Wait may have to send or receive for its node, so this
needs a progress thread that may call MPI, and is refused without. A rank that is late with its
Ready would hold up others in the same way: its rounds cannot be opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from onesided.collectives.pattern import Block, pieces
from onesided.collectives.schedule import Filling
from onesided.collectives.steps import Chain, address, call, copy, gather, tell, wait_for
from onesided.collectives.transport import Cell, Outlet
from onesided.collectives.transports.notify import Stored

#: Bytes from a node to another up to which they are one message: collecting them takes a copy more,
#: and one rank sends what all could.
PAIR = 1 << 16

#: What the counters of a rank are about: rounds that it has begun, messages that have arrived, or
#: parts that others have stored into those that will leave.
BEGUN, ARRIVED, FILLED = "begun", "arrived", "filled"


@dataclass(frozen=True)
class Part:
    """What a source tells a rank of another node: its blocks begin at ``offset``, in bytes, after
    the ``start`` of its part of the message from ``sender`` that ``receiver`` takes in; or they are
    those of its rows, of ``row`` bytes each, whose numbers are in ``index``. That one learns the
    ``nbytes`` of the whole, and all ``takers`` of it."""

    sender: int
    receiver: int
    start: int
    offset: int
    row: int = 0
    index: NDArray[np.int64] | None = None
    nbytes: int = 0
    takers: Sequence[int] = ()


@dataclass
class Message:
    """What this rank sends to the ranks of a node: their blocks, in this order of ranks; where
    each rank's begin; and the array in which they lie one after the other. Where rows are sent
    once, the numbers of each rank's."""

    number: int
    takers: list[int]
    blocks: list[Block]
    nbytes: int
    offsets: list[int]
    indices: list[NDArray[np.int64] | None]
    data: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class Passage:
    """How a message gets to a node: in the one of ``nbytes`` from ``sender`` to ``receiver``, of
    which the part of each source begins somewhere, and out of which ``takers`` copy."""

    sender: int
    receiver: int
    starts: dict[int, int]
    nbytes: int
    takers: list[int]

    @property
    def joint(self) -> bool:
        """Whether several ranks store what one sends."""
        return len(self.starts) > 1


def node_numbers(exchange: Exchange) -> NDArray[np.int64]:
    """Local. The number of every rank's node."""
    return np.unique(exchange.node.firsts, return_inverse=True)[1]


def messages_of(exchange: Exchange) -> list[Message]:
    """Local. Those of this rank, the next node first."""
    node, numbers = exchange.node, node_numbers(exchange)
    here, count = int(numbers[exchange.rank]), int(numbers.max()) + 1
    by_node: dict[int, list[int]] = {}
    for peer in exchange.peers:
        if peer not in node.rank_of and exchange.blocks_to(peer):
            by_node.setdefault(int(numbers[peer]), []).append(peer)
    made = []
    for number in sorted(by_node, key=lambda number: (number - here) % count):
        takers = sorted(by_node[number])
        of_each = [exchange.blocks_to(taker) for taker in takers]
        sizes = [sum(exchange.source(block).nbytes for block in blocks) for blocks in of_each]
        *offsets, nbytes = accumulate(sizes, initial=0)
        made.append(Message(number, takers, [block for blocks in of_each for block in blocks],
                            nbytes, offsets, [None] * len(takers)))  # fmt: skip
    return made


def passages_of(exchange: Exchange, messages: Sequence[Message]) -> list[Passage]:
    """Collective on the node. That of every message: the short ones for a node go together. To each
    another rank sends, and another one receives."""
    node, rank, most = exchange.node, exchange.rank, PAIR // exchange.factor
    if node.alone:
        return []
    words = {m.number: (m.nbytes, m.takers if m.nbytes <= most else []) for m in messages}
    everyone = dict(zip(node.ranks, node.comm.allgather(words), strict=True))
    here, made = int(node_numbers(exchange)[rank]), []
    for message in messages:
        number, turn, takers = message.number, here + message.number, message.takers
        of_all = {source: said[number] for source, said in everyone.items() if number in said}
        if len(of_all) == 1 or sum(nbytes for nbytes, _ in of_all.values()) > most:
            receiver = takers[(turn + node.rank_of[rank]) % len(takers)]
            made.append(Passage(rank, receiver, {rank: 0}, message.nbytes, takers))
            continue
        sources = list(of_all)
        takers = sorted({taker for _, some in of_all.values() for taker in some})
        *starts, end = accumulate((-(-n // 8) * 8 for n, _ in of_all.values()), initial=0)
        made.append(Passage(sources[turn % len(sources)], takers[turn % len(takers)],
                            dict(zip(sources, starts, strict=True)), end, takers))  # fmt: skip
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
            message.offsets, message.indices = [], []
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
            message.nbytes = message.data.nbytes
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
class Layout:
    """Where the counters of a rank are, and, by turn, the places of the messages that it receives
    or sends for others, by sender and by receiver; offsets in its control memory, which begins at
    ``place``."""

    place: tuple[int, int]
    cells: dict[tuple[Any, ...], int]
    landings: dict[int, list[int]]
    leavings: dict[int, list[int]]


@dataclass
class Landing:
    """A message that this rank receives for its node: who of the others has to have begun, by
    turn the requests, and the counter for those others, None where there is nobody else."""

    begun: list[Cell]
    receives: list[list[MPI.Prequest]]
    arrived: Cell | None


class NodeMessages:
    """The messages between this rank and other nodes, what it stores into those that others send,
    and what it copies out of those that others receive.

    Everything is decided by sources, who choose a receiver among the ranks that they send to, for
    each message another one.
    """

    def __init__(
        self, exchange: Exchange, resources: Resources, messages: Sequence[Message], row: int,
        arrays: Sequence[NDArray[Any]], turns: int,
    ) -> None:  # fmt: skip
        """Collective. ``messages`` of rows of so many bytes, or of blocks; ``arrays``: the receive
        memory by slot."""
        self._exchange, self._resources = exchange, resources
        self._packs: Chain = []
        self._sends: list[MPI.Prequest] = []
        self._joint: list[list[Chain]] = [[] for _ in range(turns)]  # what goes with others'
        self._landings: dict[int, Landing] = {}  # by sender
        self._unpacks: dict[int, list[Chain]] = {}  # by sender and turn
        self.arrivals: dict[int, Cell] = {}  # by sender, where another rank receives
        self.filled: dict[int, list[Cell]] = {}  # by source, where this rank sends
        told: dict[int, Part | None] = dict.fromkeys(
            peer for peer in exchange.peers if peer not in exchange.node.rank_of)
        passages = passages_of(exchange, messages)
        for message, passage in zip(messages, passages, strict=True):
            told |= self._told(message, passage, row)
        heard = swapped(exchange.context.comm, exchange.number, told)
        parts = {source: part for source, part in heard.items() if part is not None}
        self._lay_out(passages, parts, turns)
        self._receive(parts, arrays, turns)
        for message, passage in zip(messages, passages, strict=True):
            if passage.joint:
                self._store(message, passage)
            else:
                data = self._together(message)
                self._sends += self._made(exchange.context.comm.Send_init, data, passage.receiver)

    def _told(self, message: Message, passage: Passage, row: int) -> dict[int, Part | None]:
        """Local. What the ranks that a message is for are told about it."""
        start = passage.starts[self._exchange.rank]
        parts: dict[int, Part | None] = {
            taker: Part(passage.sender, passage.receiver, start, offset, row, index)
            for taker, offset, index in zip(
                message.takers, message.offsets, message.indices, strict=True)
        }  # fmt: skip
        part = parts.get(passage.receiver)
        if part is not None:
            parts[passage.receiver] = replace(
                part, nbytes=passage.nbytes, takers=tuple(passage.takers))
        return parts

    def _lay_out(
        self, passages: Sequence[Passage], parts: dict[int, Part], turns: int
    ) -> None:
        """Collective. Take memory, and tell those who look there what is where.

        The memory of a rank is [counters | places of messages].
        """
        exchange, rank = self._exchange, self._exchange.rank
        landing = {p.sender: p for p in parts.values() if p.receiver == rank}
        leaving = {p.receiver: p for p in passages if p.joint and p.sender == rank}
        mates = {taker for part in landing.values() for taker in part.takers}
        mates |= {source for passage in leaving.values() for source in passage.starts}
        mates |= {p.receiver for p in parts.values()} | {p.sender for p in passages}
        mates |= {rank} if mates else set()
        named: list[tuple[Any, ...]] = [(BEGUN,), *((ARRIVED, sender) for sender in landing)]
        named += [(FILLED, receiver, source) for receiver, passage in leaving.items()
                  for source in passage.starts if source != rank]  # fmt: skip
        mine = Layout((0, 0), {name: i * ALIGNMENT for i, name in enumerate(named)}, {}, {})
        counters = size = len(named) * ALIGNMENT * bool(mates)
        for places, messages in ((mine.landings, landing), (mine.leavings, leaving)):
            for end, message in messages.items():
                room = aligned(message.nbytes)
                places[end] = [size + turn * room for turn in range(turns)]
                size += turns * room
        self._control = control = ControlMemory(exchange, self._resources, size, [])
        control.root[:counters] = 0
        mine.place = control.place
        words = dict.fromkeys(sorted(mates), mine)
        self._layouts = swapped(exchange.context.comm, exchange.number, words)
        control.hear({mate: layout.place for mate, layout in self._layouts.items()})

    def _cell(self, owner: int, *name: Any) -> Cell:
        """Local. A counter of a rank of this node."""
        return self._control.cell(owner, self._layouts[owner].cells[name])

    def _made(self, start: Any, data: NDArray[np.uint8], peer: int) -> list[MPI.Prequest]:
        """Local. The persistent requests of a message."""
        made = [start([piece, MPI.BYTE], peer, self._exchange.number) for piece in pieces(data)]
        for request in made:
            self._resources.on_release(request.Free)
        return made

    # -- sending -----------------------------------------------------------------------------------

    def _as_one(self, message: Message) -> NDArray[np.uint8] | None:
        """Local. A message as it lies in the send array, where its blocks are one after the
        other."""
        if message.data is not None:
            return message.data
        views = [self._exchange.source(block) for block in message.blocks]
        starts = accumulate((view.nbytes for view in views), initial=address(views[0]))
        if not all(view.flags.c_contiguous and address(view) == start
                   for view, start in zip(views, starts, strict=False)):  # fmt: skip
            return None
        data = views[0].reshape(-1).view(np.uint8)
        return np.lib.stride_tricks.as_strided(data, (message.nbytes,), (1,))

    def _packed(self, message: Message, target: NDArray[np.uint8]) -> Chain:
        """Local. The steps that bring the blocks of a message to other memory."""
        whole = self._as_one(message)
        if whole is not None:
            return [copy(target, whole)]
        steps, start = [], 0
        for view in map(self._exchange.source, message.blocks):
            end = start + view.nbytes
            steps.append(copy(target[start:end].view(view.dtype).reshape(view.shape), view))
            start = end
        return steps

    def _together(self, message: Message) -> NDArray[np.uint8]:
        """Local. A message in the send array, or in a buffer that is packed."""
        whole = self._as_one(message)
        if whole is None:
            whole = np.empty(message.nbytes, np.uint8)
            self._resources.keep.append(whole)
            self._packs += self._packed(message, whole)
        return whole

    def _store(self, message: Message, passage: Passage) -> None:
        """Local. The steps by which a part gets to the rank that sends it, and by which that is
        this one, which sends when all parts are there."""
        rank, sender, receiver = self._exchange.rank, passage.sender, passage.receiver
        others = [source for source in passage.starts if source != sender]
        filled = {source: self._cell(sender, FILLED, receiver, source) for source in others}
        memory, start = self._control.part(sender), passage.starts[rank]
        for turn, place in enumerate(self._layouts[sender].leavings[receiver]):
            whole = memory[place : place + passage.nbytes]
            chain = self._packed(message, whole[start : start + message.nbytes])
            if rank == sender:
                chain += [wait_for(cell) for cell in filled.values()]
                send = self._exchange.context.comm.Send_init
                chain += moved(self._made(send, whole, receiver), serves=True)
            else:
                chain = [wait_for(self._cell(sender, BEGUN), 1, -1), *chain, tell(filled[rank])]
            self._joint[turn].append(chain)
        if rank == sender:
            for source, cell in filled.items():
                self.filled.setdefault(source, []).append(cell)

    # -- receiving ---------------------------------------------------------------------------------

    def _receive(
        self, parts: dict[int, Part], arrays: Sequence[NDArray[Any]], turns: int
    ) -> None:
        """Local. What arrives here, and what this rank copies out of it, and elsewhere."""
        rank, start = self._exchange.rank, self._exchange.context.comm.Recv_init
        for source, part in parts.items():
            sender, receiver = part.sender, part.receiver
            memory = self._control.part(receiver)
            places = self._layouts[receiver].landings[sender]
            unpacks = self._unpacks.setdefault(sender, [[] for _ in range(turns)])
            for turn, place in enumerate(places):
                unpacks[turn] += self._copies(
                    source, part, memory[place + part.start :], arrays[turn % len(arrays)])
            if receiver != rank:
                self.arrivals[sender] = self._cell(receiver, ARRIVED, sender)
            elif sender not in self._landings:
                others = [taker for taker in part.takers if taker != rank]
                self._landings[sender] = Landing(
                    [self._cell(taker, BEGUN) for taker in others],
                    [self._made(start, memory[at : at + part.nbytes], sender) for at in places],
                    self._cell(rank, ARRIVED, sender) if others else None,
                )

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
        seen = len(self._layouts) > 1  # by others
        chains: list[Chain] = [[tell(self._cell(self._exchange.rank, BEGUN))] if seen else []]
        for sender, landing in self._landings.items():
            chain = [wait_for(cell, 1, -1) for cell in landing.begun]
            chain += moved(landing.receives[turn])
            if landing.arrived is not None:
                chain.append(tell(landing.arrived))
            chains.append(chain + self._unpacks[sender][turn])
        chains += self._joint[turn]
        if self._sends:
            chains.append([*self._packs, *moved(self._sends)])
        for sender, arrived in self.arrivals.items():
            chains.append([wait_for(arrived), *self._unpacks[sender][turn]])
        return chains


def moved(messages: list[MPI.Prequest], serves: bool = False) -> Chain:
    """Local. The steps that start messages, and wait until they have come or left; ``serves``: for
    which others wait."""
    return [call(partial(MPI.Prequest.Startall, messages), once=True),
            call(partial(MPI.Prequest.Testall, messages), serves)]  # fmt: skip


class NodeAware(Stored):
    """Stores and counters on the node; between nodes a message from a rank or a node to a node."""

    puts_off_node = False
    puts_first = True  # others may have to wait for a whole way
    direct = False

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        error: Exception | None = None
        messages: list[Message] = []
        once: Distinct | None = None
        try:
            if operation.hints.progress == MANUAL or not progress.may_call_from_any_thread():
                raise UnsupportedError(
                    f"{operation.method} has ranks send and receive for others of their node, for "
                    "which it needs a progress thread, and so MPI_THREAD_MULTIPLE and not "
                    "progress=manual; use rma-p2p or p2p"
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

    def waiting_for(self, number: int) -> str:
        missing = [f"what rank {source} has for another node" for source, cells in
                   self._messages.filled.items() if any(cell[0] < number for cell in cells)]
        return ", ".join(filter(None, [super().waiting_for(number), *missing]))
