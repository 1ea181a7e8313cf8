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

*Progress.* Whoever is away between Start and Wait may have to receive for its node, so this needs a
progress thread that may call MPI, and is refused without. A rank that is late with its Ready would
hold up others in the same way: its rounds cannot be opened.
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
from onesided.collectives.pattern import Block, Copy, pieces
from onesided.collectives.program import Chain, address, call, copy, tell, wait_for
from onesided.collectives.schedule import Filling
from onesided.collectives.transport import Cell, Outlet
from onesided.collectives.transports.notify import Stored


@dataclass(frozen=True)
class Part:
    """What a sender tells a rank of another node: its blocks begin at ``offset``, in bytes, in the
    message that ``receiver`` takes in. That one learns the ``nbytes`` of the whole, and all
    ``takers`` of it."""

    receiver: int
    offset: int
    nbytes: int = 0
    takers: tuple[int, ...] = ()


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
        self, exchange: Exchange, resources: Resources, arrays: Sequence[NDArray[Any]],
        far: Sequence[int], turns: int,
    ) -> None:  # fmt: skip
        """Collective. ``far``: the peers on other nodes, ``arrays``: the receive memory by slot."""
        self._exchange, self._resources = exchange, resources
        self._packs: list[Copy] = []
        self._sends: list[MPI.Prequest] = []
        self._begun: list[Cell] = []  # at the ranks that receive for this one
        self._landings: dict[int, Landing] = {}  # by sender
        self._unpacks: dict[int, list[list[Copy]]] = {}  # by sender and turn
        self.arrivals: dict[int, Cell] = {}  # by sender, where another rank receives
        told, outgoing = self._decided(far)
        heard = swapped(exchange.context.comm, exchange.number, told)
        self._receive({s: part for s, part in heard.items() if part is not None}, arrays, turns)
        for receiver, blocks in outgoing:
            data = self._together(blocks)
            self._sends += self._made(exchange.context.comm.Send_init, data, receiver)

    # -- sending -----------------------------------------------------------------------------------

    def _decided(
        self, far: Sequence[int]
    ) -> tuple[dict[int, Part | None], list[tuple[int, list[Block]]]]:
        """Local. What every rank is told about the message with its blocks; by message the receiver
        and all blocks. The next node comes first."""
        exchange, node = self._exchange, self._exchange.node
        firsts, numbers = np.unique(node.firsts, return_inverse=True)
        here = int(numbers[exchange.rank])
        by_node: dict[int, list[int]] = {}
        for peer in far:
            if exchange.blocks_to(peer):
                by_node.setdefault(int(numbers[peer]), []).append(peer)
        told: dict[int, Part] = {}
        outgoing = []
        for number in sorted(by_node, key=lambda number: (number - here) % len(firsts)):
            takers = sorted(by_node[number])
            turn = node.rank_of[exchange.rank] + here + number
            receiver = takers[turn % len(takers)]
            nbytes = 0
            for taker in takers:
                told[taker] = Part(receiver, nbytes)
                nbytes += sum(exchange.source(block).nbytes for block in exchange.blocks_to(taker))
            told[receiver] = replace(told[receiver], nbytes=nbytes, takers=tuple(takers))
            outgoing.append((receiver, [b for each in takers for b in exchange.blocks_to(each)]))
        return dict.fromkeys(far) | told, outgoing

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
                self._copies(sender, memory[start + part.offset :], arrays[turn % len(arrays)])
                for turn, start in enumerate(at)
            ]

    def _copies(
        self, sender: int, data: NDArray[np.uint8], array: NDArray[Any]
    ) -> list[Copy]:
        """Local. The blocks of a sender, to their places."""
        copies, start = [], 0
        for block in self._exchange.blocks_from(sender):
            view = array[block.box]
            packed = data[start : start + view.nbytes].view(view.dtype)
            copies.append((view, packed.reshape(view.shape)))
            start += view.nbytes
        return copies

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
        return [copy(target, source) for target, source in self._unpacks[sender][turn]]


class NodeAware(Stored):
    """Stores and counters on the node; between nodes a message from a rank to a node."""

    puts_off_node = False
    direct = False

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        error = None
        if operation.hints.progress == MANUAL or not progress.may_call_from_any_thread():
            error = UnsupportedError(
                f"{operation.method} has ranks receive for others of their node, for which it "
                "needs a progress thread, and so MPI_THREAD_MULTIPLE and not progress=manual; "
                "use rma-p2p or p2p"
            )
        agree(operation.context.comm, error, f"progress of request {operation.number}")
        super().__init__(operation, resources)
        far = [peer for peer in operation.peers if not self._near(peer)]
        self._messages = NodeMessages(operation, resources, self.arrays, far, self.turns)
        near = {p: cell for p, cell in self.arrivals.items() if self._near(p)}
        self.arrivals = near | self._messages.arrivals

    def outlets(self) -> list[list[list[Outlet]]]:
        return ExchangeTransport.outlets(self)

    def far_chains(self, turn: int, filled: Filling | None) -> list[Chain]:
        return self._messages.chains(turn)
