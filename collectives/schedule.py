"""From blocks to copies and Puts: what a one-sided transport does in every round.

Built once, collectively, from the matched exchange. The path of a block follows from what sender
and receiver have told each other, so both compute the same one:

==============  ==============================================================================
store           one copy into the peer's array, through memory shared on the node
store, staged   packed into the peer's staging area on the node; the peer unpacks it
put             Put into the peer's array, through a window on the whole communicator
put, staged     packed, Put into the peer's staging area; the peer unpacks it
send            left to a transport that sends messages off the node
==============  ==============================================================================

Blocks are staged where the sender does not see the receive array, where it is the caller's and
short (then nobody waits for a credit), or where the two boxes have different shapes. A block that
is Put in chunks is staged chunk after chunk, unless its chunks lie one after the other in the
peer's array anyway. Every target range is computed by its owner from its own memory, so that no Put
can be issued out of range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import swapped
from onesided.collectives.arena import ControlMemory, Share, cell_of
from onesided.collectives.context import Resources, acquired
from onesided.collectives.exchange import (
    Exchange,
    ExchangeTransport,
    Outlets,
    Words,
    cuts_between,
)
from onesided.collectives.memory import ALIGNMENT, aligned, region_with_key
from onesided.collectives.pattern import (
    Block,
    Chunk,
    Cuts,
    as_bytes,
    chunks_of,
    flat_bytes,
    pieces,
    row_strides,
    whole,
)
from onesided.collectives.program import fence
from onesided.collectives.steps import Chain, address, call, copy
from onesided.collectives.transport import Cell, Outlet

STORE, STORE_STAGED, PUT, PUT_STAGED, SEND = (
    "store", "store, staged", "put", "put, staged", "send")  # fmt: skip
STAGED = (STORE_STAGED, PUT_STAGED)
CONTROL, DATA = 0, 1

#: What was written before is there before what is written, or read, after.
FENCED = call(fence, False, once=True)

#: Offset of the credit from the counter of arrivals, in bytes: a cache line of its own.
CREDIT = ALIGNMENT // 2


@dataclass
class Advert:
    """Where a peer wants a block, by slot: offsets in bytes from the start of its memory."""

    where: int
    offsets: list[int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass
class Put:
    """A block, or a chunk of one, on its way through a window; cut in pieces where it is large."""

    window: MPI.Win
    peer: int
    pieces: list[tuple[Any, Any]]
    pack: Chain

    def send(self) -> None:
        """Local. Put what has been packed; complete at the target after a flush or fence."""
        for origin, target in self.pieces:
            self.window.Put(origin, self.peer, target)

    def steps(self) -> Chain:
        return [*self.pack, call(self.send, once=True)]


@dataclass
class Route:
    """How one block goes: stored into ``targets``, or Put from ``chunks``; by slot."""

    block: Block
    targets: list[NDArray[Any]] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    puts: list[list[Put]] = field(default_factory=list)


@dataclass
class Delivery:
    """All that this rank sends to one peer in a round, by slot; possibly nothing but a signal.

    ``shared`` tells that counters are stored too. ``arrival`` is the peer's counter of rounds that
    have come from this rank; where the peer is not on the node it is reached through ``window`` at
    ``cell``. ``grant`` is the peer's counter of the rounds that this rank allows it. ``direct``:
    the peer's memory may be in use, so this rank needs its credit.
    """

    peer: int
    shared: bool
    cell: int
    stores: list[Chain]
    puts: list[list[Put]]
    routes: list[Route] = field(default_factory=list)
    arrival: Cell | None = None
    grant: Cell | None = None
    direct: bool = False
    window: MPI.Win | None = None

    @property
    def carries(self) -> bool:
        return bool(self.routes)

    def steps(self, turn: int) -> Chain:
        """Local. Those of the data: Puts, then stores."""
        return [*(step for put in self.puts[turn] for step in put.steps()), *self.stores[turn]]


class OneSided(ExchangeTransport):
    """Blocks are stored where the target's memory is visible on the node, else Put.

    Subclasses say how ranks learn that memory is free and that data have come.
    """

    #: Shared memory is used; otherwise every block is Put, on the node and to oneself as well.
    share: ClassVar[bool] = True
    #: Blocks for ranks of other nodes are Put; otherwise the subclass sends them.
    puts_off_node: ClassVar[bool] = True
    #: What leaves the node is issued before anything is stored on it (Algorithm 2).
    puts_first: ClassVar[bool] = False
    #: Windows of the request's own, for their synchronization, rather than those of the arena.
    own_windows: ClassVar[bool] = False
    #: Every rank needs the control window, also where nobody Puts.
    overlay: bool = False
    #: Counters of arrivals and credits lie in the control memory.
    counts: ClassVar[bool] = False
    #: Bytes from one rank, up to which blocks into the caller's memory are staged.
    spare: ClassVar[int] = 0

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        exchange = self.operation
        self.slots = exchange.slots if self.counts else min(exchange.least_slots, self.most_slots)
        self.turns = 2 if self.counts else self.slots
        self.peers = exchange.peers + ([] if self.share else [exchange.rank])
        self._paths_in: dict[int, dict[int, str]] = {}  # by peer and key
        self._paths_out: dict[int, dict[int, str]] = {}
        for peer in self.peers:
            theirs, said = exchange.words.get(peer), exchange.said.get(peer)
            seen = exchange.region is not None and exchange.region.seen_by(exchange.context, peer)
            self._paths_in[peer] = self._paths(peer, theirs, said, seen)
            seen = theirs is not None and region_with_key(theirs.key) is not None
            self._paths_out[peer] = self._paths(peer, said, theirs, seen)
        self.windows: list[MPI.Win | None] = [None, None]
        self.deliveries: list[Delivery] = []
        heard = swapped(exchange.context.comm, exchange.number, self._lay_out())
        self.control.hear({peer: words[2] for peer, words in heard.items()})
        self.deliveries = [self._deliver(peer, *heard[peer][:2]) for peer in self.peers]
        self.local: list[Chain] = [[] for _ in range(self.turns)]
        if self.share:
            local = exchange.to_itself(self.arrays)
            self.local = [local[turn % len(local)] for turn in range(self.turns)]
        self._filling: Filling | None = None
        self.answers = [self.answers[t % len(self.answers)] for t in range(self.turns)]

    # -- paths ---------------------------------------------------------------------------------

    def _near(self, peer: int) -> bool:
        return self.share and peer in self.operation.node.rank_of

    def _paths(
        self, peer: int, sender: Words | None, receiver: Words | None, seen: bool
    ) -> dict[int, str]:
        """By key, the path of every block that goes one way between this rank and a peer, the same
        on both; ``seen``: the sender sees the receive array."""
        if sender is None or receiver is None:
            return {}
        total = sum(count * dtype.itemsize for count, dtype in (b.elements for b in sender.sends))
        two_slots = receiver.owned and self.operation.hints.slots > 1
        spare = 0 if self.operation.by_boxes else self.spare
        direct = two_slots or ((receiver.owned or seen) and total > spare)
        at_any_time = self.own_windows or two_slots or (receiver.owned and not self.counts)
        wanted = receiver.wanted()  # nothing where it takes what comes
        paths = {}
        for block in sender.sends:
            target = wanted.get(block.key, block)
            if self._near(peer):
                alike = target.shape == block.shape
                paths[block.key] = STORE if direct and alike else STORE_STAGED
            elif not self.puts_off_node:
                paths[block.key] = SEND
            else:
                cuts = cuts_between(sender, receiver, block.key)
                as_it_lies = cuts is None or _in_sequence(block.shape, cuts)
                in_place = at_any_time and target.contiguous and as_it_lies
                paths[block.key] = PUT if in_place else PUT_STAGED
        return paths

    # -- memory ----------------------------------------------------------------------------------

    def _lay_out(self) -> dict[int, Any]:
        """Collective. Take control memory; tell every peer where its blocks belong.

        The control memory of a rank is [counters | slots, where the request owns them | staging].
        """
        exchange, recv = self.operation, self.operation.recv
        cell = {p: i * ALIGNMENT for i, p in enumerate(self.peers)} if self.counts else {}
        size = counters = len(cell) * ALIGNMENT
        nbytes = int(np.prod(recv.shape, dtype=object)) * recv.dtype.itemsize
        slot_at = []
        for _ in range(self.slots if recv.array is None else 0):
            slot_at.append(size)
            size += aligned(nbytes)
        staged: dict[tuple[int, int], list[int]] = {}
        for peer in self.peers:
            for block in exchange.blocks_from(peer):
                if self._paths_in[peer].get(block.key) in STAGED:
                    room = aligned(block.size * recv.dtype.itemsize)
                    staged[peer, block.key] = [size + turn * room for turn in range(self.turns)]
                    size += room * self.turns
        self.control = self._take(size)
        root = self.control.root
        root[:counters] = 0
        self._place(root, slot_at, nbytes)
        adverts: dict[int, Any] = {}
        for peer in self.peers:
            wanted = {
                b.key: self._advert(b, staged) for b in exchange.blocks_from(peer)
                if self._paths_in[peer].get(b.key) != SEND
            }
            adverts[peer] = (cell.get(peer, 0), wanted, self.control.place)
        self._unpack_later(root, staged)
        self.arrivals = {p: cell_of(root, at) for p, at in cell.items()}
        self.credits = {p: cell_of(root, at + CREDIT) for p, at in cell.items()}
        return adverts

    def _take(self, size: int) -> ControlMemory:
        """Collective. Bytes of the arena, which grows where it must, and the windows."""
        control, data = self._uses()
        far = self.puts_off_node and not all(map(self._near, self.peers))
        control |= self.overlay or (self.counts and far)
        taken = ControlMemory(
            self.operation, self.resources, max(size, 1), [int(control), int(data)])
        if self.own_windows:
            self._create_windows(taken.share, bool(taken.most[0]), bool(taken.most[1]))
        elif taken.most[0]:
            taken.widen()
        return taken

    def _uses(self) -> tuple[bool, bool]:
        """Whether this rank Puts into control memory, and into the arrays of any peer."""
        control = data = False
        for peer, of_peer in self._paths_out.items():
            owned = peer in self.operation.words and self.operation.words[peer].owned
            for path in of_peer.values():
                control |= path == PUT_STAGED or (path == PUT and owned)
                data |= path == PUT and not owned
        return control, data

    def _create_windows(self, share: Share, control: bool, data: bool) -> None:
        """Collective. Windows that only this request uses."""
        if control:
            at = share.offset
            memory = share.region.segment(share.region.node.comm.rank)[at : at + share.nbytes]
            self.windows[CONTROL] = self._create(memory)
        if data:
            array = self.operation.recv.array
            self.windows[DATA] = self._create(None if array is None else as_bytes(array))

    def _create(self, memory: Any) -> MPI.Win:
        comm = self.operation.context.comm
        window: MPI.Win = acquired(MPI.Win.Create, memory, 1, MPI.INFO_NULL, comm)
        self.resources.on_release(window.Free, in_step=True)
        return window

    def _place(self, root: NDArray[np.uint8], slot_at: list[int], nbytes: int) -> None:
        recv = self.operation.recv
        if recv.array is None:
            parts = [root[at : at + nbytes].view(recv.dtype) for at in slot_at]
            self.serve([part.reshape(recv.shape) for part in parts])
        else:
            self.serve([recv.array])

    def _advert(self, block: Block, staged: dict[tuple[int, int], list[int]]) -> Advert:
        offsets = staged.get((block.peer, block.key))
        if offsets is not None:
            return Advert(CONTROL, offsets, (), ())  # packed: its form is the sender's
        views = [self.arrays[turn % len(self.arrays)][block.box] for turn in range(self.turns)]
        where = CONTROL if self.operation.owned else DATA
        starts = [address(view) - self._base(where, block.peer) for view in views]
        return Advert(where, starts, block.shape, views[0].strides)

    def _base(self, where: int, peer: int) -> int:
        """Where the memory begins in which a peer addresses this rank's blocks."""
        array, region = self.operation.recv.array, self.operation.region
        if where == CONTROL:
            return address(self.control.root)
        if region is not None and self._near(peer):
            return region.address
        if array is None:
            raise ValueError("no receive array")
        return address(flat_bytes(array))

    def _unpack_later(
        self, root: NDArray[np.uint8], staged: dict[tuple[int, int], list[int]]
    ) -> None:
        recv = self.operation.recv
        self.unpacks: list[dict[int, Chain]] = [{} for _ in range(self.turns)]
        for peer in self.peers:
            for block in self.operation.blocks_from(peer):
                path = self._paths_in[peer].get(block.key)
                if path not in STAGED:
                    continue
                cuts = self.operation.cuts_from(block) if path == PUT_STAGED else None
                box = whole(block.shape)
                parts = [box] if cuts is None else cuts.parts(box)
                for turn, offset in enumerate(staged[peer, block.key]):
                    for part in parts:
                        view = self.arrays[turn % len(self.arrays)][block.box][part]
                        packed = root[offset : offset + view.nbytes].view(recv.dtype)
                        step = copy(view, packed.reshape(view.shape))
                        self.unpacks[turn].setdefault(peer, []).append(step)
                        offset += view.nbytes

    # -- operations -------------------------------------------------------------------------------

    def _deliver(self, peer: int, cell: int, wanted: dict[int, Advert]) -> Delivery:
        turns, paths, control = range(self.turns), self._paths_out[peer], self.control
        shared, at = self._near(peer), control.start(peer) + cell
        delivery = Delivery(peer, shared, at, [[] for _ in turns], [[] for _ in turns])
        if shared and self.counts:
            delivery.arrival = control.cell(peer, cell)
            delivery.grant = control.cell(peer, cell + CREDIT)
        elif not shared and self.puts_off_node and not self.own_windows:
            delivery.window = control.window(peer)
        for block in self.operation.blocks_to(peer):
            path = paths[block.key]
            if path != SEND:
                delivery.routes.append(self._route(delivery, block, path, wanted[block.key]))
        return delivery

    def _route(self, delivery: Delivery, block: Block, path: str, advert: Advert) -> Route:
        peer, source = block.peer, self.operation.source(block)
        route = Route(block)
        if path in STAGED:  # packed in this rank's form of the block
            strides = row_strides(block.shape, source.itemsize)
            advert = Advert(CONTROL, advert.offsets, block.shape, strides)
        if path in (STORE, STORE_STAGED):
            two_slots = self.operation.words[peer].owned and self.operation.hints.slots > 1
            delivery.direct |= path == STORE and not two_slots
            for turn in range(self.turns):
                target = self._target(peer, advert, turn)
                route.targets.append(target)
                delivery.stores[turn].append(copy(target, source))
            return route
        route.chunks = chunks_of(source, self.operation.cuts_to(block))
        self.resources.keep += [chunk.array for chunk in route.chunks if chunk.pack is not None]
        window = self._window_to(peer, advert.where)
        base = 0 if self.own_windows else self.control.start(peer)
        for turn in range(self.turns):
            puts = _puts_of(window, peer, route.chunks, base + advert.offsets[turn])
            route.puts.append(puts)
            delivery.puts[turn] += puts
        return route

    def _window_to(self, peer: int, where: int) -> MPI.Win:
        """The window through which a peer's memory is reached."""
        window = self.windows[where] if self.own_windows else self.control.window(peer)
        if window is None:
            raise ValueError("no window to Put through")
        return window

    def _target(self, peer: int, advert: Advert, turn: int) -> NDArray[Any]:
        """The peer's block, as an array in the memory that this rank shares with it."""
        words = self.operation.words[peer]
        memory: NDArray[np.uint8]
        if advert.where == DATA:
            region = region_with_key(words.key)
            if region is None:
                raise ValueError(f"the memory of rank {peer} is not visible")
            memory = region.part(words.node_rank)
        else:
            memory = self.control.part(peer)
        return np.ndarray(
            advert.shape, self.operation.send.dtype, memory, advert.offsets[turn], advert.strides
        )

    # -- for the methods ---------------------------------------------------------------------------

    def to_others(self, turn: int) -> Chain:
        """Local. The steps of what goes to all peers in a slot."""
        deliveries = self.deliveries
        if self.puts_first:
            deliveries = sorted(deliveries, key=lambda delivery: delivery.shared)
        return [step for delivery in deliveries for step in delivery.steps(turn)]

    def destinations(self) -> list[Delivery]:
        """Local. The deliveries that carry data."""
        return [d for d in self.deliveries if d.carries]

    def sources(self) -> set[int]:
        """Local. The peers that send data to this rank."""
        return {b.peer for b in self.operation.recv.blocks} - {self.operation.rank}

    def own(self) -> list[MPI.Win]:
        """Local. The windows of this request alone."""
        return [window for window in self.windows if window is not None]

    def unpacks_of(self, turn: int, peers: Iterable[int]) -> Chain:
        """Local. The steps that bring what has come from some peers to its place."""
        return [step for peer in peers for step in self.unpacks[turn].get(peer, ())]

    def come(self, turn: int, peers: Iterable[int]) -> Chain:
        """Local. The steps when all has come from some peers, told otherwise than by counters."""
        return [FENCED, *self.unpacks_of(turn, peers)]

    # -- filled rounds -----------------------------------------------------------------------------

    def outlets(self) -> list[list[list[Outlet]]]:
        return self.filling().by_slot

    def filling(self) -> Filling:
        """Local. What the caller of a filled round writes."""
        if self._filling is None:
            self._filling = Filling(self)
        return self._filling

    def send_chunk(self, slot: int, chunk: int) -> bool:
        puts = self.filling().puts[slot][chunk]
        for put in puts:
            put.send()
        return bool(puts)

    def sends_chunks(self) -> bool:
        return any(puts for of_slot in self.filling().puts for puts in of_slot)


class Filling(Outlets):
    """A round that the caller fills: what leaves with every chunk, and what with the last one.

    Stored blocks are written by the caller where they belong. ``puts[slot][chunk]`` are sent when
    that chunk is ready, ``last[slot]`` when all are. A block that cannot travel in chunks is
    written to the send array, and leaves as a whole when the last chunk is ready.
    """

    def __init__(self, transport: OneSided) -> None:
        exchange, turns = transport.operation, range(transport.turns)
        super().__init__(exchange, len(turns))
        self.puts: list[list[list[Put]]] = [[[] for _ in range(exchange.chunks)] for _ in turns]
        self.last: list[list[Put]] = [[] for _ in turns]
        for delivery in transport.deliveries:
            for route in delivery.routes:
                self._add(route)
        arrays = transport.arrays
        self.keep([arrays[turn % len(arrays)] for turn in turns])

    def rest(self, slot: int) -> Chain:
        """Local. The steps of what leaves when all chunks are ready."""
        return [step for put in self.last[slot] for step in put.steps()]

    def _add(self, route: Route) -> None:
        for slot, target in enumerate(route.targets):
            self.into(route.block, slot, target)
        for slot, puts in enumerate(route.puts):
            if len(puts) == len(self.puts[slot]):
                self.put(route.block, slot, [chunk.array for chunk in route.chunks])
                for of_chunk, put in zip(self.puts[slot], puts, strict=True):
                    of_chunk.append(put)
            else:
                self.in_send_array(route.block, slot)
                self.last[slot] += puts


def _puts_of(window: MPI.Win, peer: int, chunks: list[Chunk], offset: int) -> list[Put]:
    """Local. The chunks of a block, to be Put one after the other from ``offset``, in bytes."""
    puts = []
    for chunk in chunks:
        parts: list[tuple[Any, Any]] = []
        for part in pieces(chunk.array):
            parts.append(([part, part.size, MPI.BYTE], [offset, part.size, MPI.BYTE]))
            offset += part.size
        puts.append(Put(window, peer, parts, [] if chunk.pack is None else [copy(*chunk.pack)]))
    return puts


def _in_sequence(shape: tuple[int, ...], cuts: Cuts) -> bool:
    """Whether the chunks of a contiguous block of this shape are contiguous themselves."""
    return all(extent == 1 for extent in shape[: cuts.axis])
