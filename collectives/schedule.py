"""From blocks to copies and Puts: what a one-sided transport does in every round.

Built once, collectively, from the matched exchange. For every block the *sender* chooses the
path, because it alone knows which of the peers' memory it can see:

==============  ==============================================================================
store           one copy into the peer's array, through memory shared on the node
store, staged   packed into the peer's staging area on the node; the peer unpacks it
put             Put into the peer's array, through a window on the whole communicator
put, staged     packed, Put into the peer's staging area; the peer unpacks it
==============  ==============================================================================

Blocks are staged where the receive array is strided and not visible to the sender, or where the
two boxes have different shapes. A block that is Put in chunks is staged chunk after chunk, unless
its chunks lie one after the other in the peer's array anyway. Every target range is computed by
its owner from its own memory, so that no Put can be issued out of range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree
from onesided.collectives.chunks import Cuts, chunks_of, whole
from onesided.collectives.context import Resources, refusal
from onesided.collectives.copies import Copy, as_bytes, copies_to_self, copy_of
from onesided.collectives.delivery import Delivery, Route, puts_of
from onesided.collectives.exchange import Exchange
from onesided.collectives.memory import ALIGNMENT, Region, aligned, find_region, region_with_key
from onesided.collectives.pattern import Block

STORE, STORE_STAGED, PUT, PUT_STAGED = "store", "store, staged", "put", "put, staged"
STAGED = (STORE_STAGED, PUT_STAGED)
CONTROL, DATA = 0, 1


@dataclass
class _Advert:
    """Where a peer wants a block, by slot: offsets in bytes from the start of its memory."""

    where: int
    offsets: list[int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass
class _Memory:
    """How a rank's receive memory can be reached: by a region's key, or by a window alone."""

    owned: bool
    key: str | None = None
    node_rank: int = 0


@dataclass
class Schedule:
    """What a round consists of on this rank."""

    exchange: Exchange
    resources: Resources
    share: bool = True
    cells: int = 0
    control: Region = field(init=False)
    arrays: list[NDArray[Any]] = field(init=False)
    deliveries: list[Delivery] = field(default_factory=list)
    local: list[list[Copy]] = field(default_factory=list)
    unpacks: list[list[Copy]] = field(default_factory=list)
    windows: list[MPI.Win | None] = field(default_factory=lambda: [None, None])
    syncs: list[MPI.Win] = field(default_factory=list)
    _data: Region | None = None
    _base: int = 0

    def build(self, overlay: bool = False) -> None:
        """Collective. ``overlay``: a window over the control memory is needed in any case."""
        exchange = self.exchange
        comm = exchange.context.comm
        exchange.context.node(exchange.hints.ranks_per_node)  # collective where it is the first
        self._data = None if exchange.recv.array is None else find_region(exchange.recv.array)
        known = comm.alltoall(self._introduce())
        paths = self._choose_paths(known)
        chosen = comm.alltoall([paths.get(peer) for peer in range(comm.size)])
        adverts = self._lay_out(chosen)
        received = comm.alltoall(adverts)
        self._create_windows(overlay, self._uses(paths, known))
        for peer in self.peers:
            cell, wanted = received[peer]
            self.deliveries.append(
                self._deliver(peer, known[peer], cell, wanted, paths.get(peer, {}))
            )
        self.local = copies_to_self(exchange, self.arrays)
        if not self.share:
            self.local = [[] for _ in self.arrays]
        self._collect_syncs()

    @property
    def peers(self) -> list[int]:
        """The ranks that are served; without sharing, this rank is one like any other."""
        return self.exchange.peers + ([] if self.share else [self.exchange.rank])

    # -- paths ---------------------------------------------------------------------------------

    def _introduce(self) -> list[Any]:
        """For every peer this rank's memory, and by key of its blocks: shape, contiguous or not."""
        recv = self.exchange.recv
        if recv.array is None:
            memory = _Memory(owned=True)
        elif self._data is None:
            memory = _Memory(owned=False)
        else:
            memory = _Memory(False, self._data.key, self._data.node.comm.rank)
        like = recv.array if recv.array is not None else _phantom(recv.shape, recv.dtype)
        words: list[Any] = [None] * self.exchange.context.comm.size
        for peer in self.peers:
            words[peer] = (memory, {})
        for block in recv.blocks:
            if block.peer in self.peers:
                contiguous = like[block.box].flags.c_contiguous
                words[block.peer][1][block.key] = (block.shape, contiguous)
        return words

    def _choose_paths(self, known: list[Any]) -> dict[int, dict[int, str]]:
        """By peer and key, the path of every block that this rank sends to another."""
        paths: dict[int, dict[int, str]] = {}
        for block in self.exchange.send.blocks:
            if block.peer not in self.peers:
                continue
            memory, wanted = known[block.peer]
            shape, contiguous = wanted[block.key]
            paths.setdefault(block.peer, {})[block.key] = self._path(
                block, memory, shape, contiguous
            )
        return paths

    def _path(
        self, block: Block, memory: _Memory, shape: tuple[int, ...], contiguous: bool
    ) -> str:
        near = self.share and block.peer in self.exchange.node.rank_of
        visible = near and (memory.owned or region_with_key(memory.key) is not None)
        if visible and shape == block.shape:
            return STORE
        if near and (visible or not contiguous):
            return STORE_STAGED
        cuts = self.exchange.cuts_to.get(block.peer)
        if contiguous and (cuts is None or _in_sequence(block.shape, cuts)):
            return PUT
        return PUT_STAGED

    @staticmethod
    def _uses(paths: dict[int, dict[int, str]], known: list[Any]) -> tuple[bool, bool]:
        """Whether this rank Puts into control memory, and into data memory, of any peer."""
        control = data = False
        for peer, of_peer in paths.items():
            for path in of_peer.values():
                control |= path == PUT_STAGED or (path == PUT and known[peer][0].owned)
                data |= path == PUT and not known[peer][0].owned
        return control, data

    # -- memory ----------------------------------------------------------------------------------

    def _lay_out(self, chosen: list[dict[int, str] | None]) -> list[Any]:
        """Collective. Allocate the control memory; tell every peer where its blocks belong.

        The control memory of a rank is [counters | slots, where the request owns them | staging].
        """
        exchange, recv = self.exchange, self.exchange.recv
        cell = {p: i * self.cells * ALIGNMENT for i, p in enumerate(self.peers)}
        size = counters = len(self.peers) * self.cells * ALIGNMENT
        nbytes = int(np.prod(recv.shape, dtype=object)) * recv.dtype.itemsize
        slot_at = []
        for _ in range(exchange.slots if recv.array is None else 0):
            slot_at.append(size)
            size += aligned(nbytes)
        staged: dict[tuple[int, int], list[int]] = {}
        for block in recv.blocks:
            if (chosen[block.peer] or {}).get(block.key) in STAGED:
                room = aligned(block.size * recv.dtype.itemsize)
                offsets = [size + turn * room for turn in range(exchange.slots)]
                staged[block.peer, block.key] = offsets
                size += room * exchange.slots
        self.control = Region(exchange.context, exchange.node, size)
        self.resources.on_release(self.control.retire)
        root = self.control.take_root()
        root[:counters] = 0
        self._place(root, slot_at, nbytes)
        adverts: list[Any] = [None] * exchange.context.comm.size
        for peer in self.peers:
            wanted = {b.key: self._advert(b, staged) for b in recv.blocks if b.peer == peer}
            adverts[peer] = (cell[peer], wanted)
        self._unpack_later(root, staged, chosen)
        return adverts

    def _place(self, root: NDArray[np.uint8], slot_at: list[int], nbytes: int) -> None:
        recv = self.exchange.recv
        if recv.array is None:
            parts = [root[at : at + nbytes].view(recv.dtype) for at in slot_at]
            self.arrays = [part.reshape(recv.shape) for part in parts]
            self._base = self.control.address
        else:
            self.arrays = [recv.array]
            self._base = recv.array.ctypes.data if self._data is None else self._data.address

    def _advert(self, block: Block, staged: dict[tuple[int, int], list[int]]) -> _Advert:
        offsets = staged.get((block.peer, block.key))
        if offsets is not None:
            return _Advert(CONTROL, offsets, (), ())  # packed: its form is the sender's
        views = [array[block.box] for array in self.arrays]
        where = CONTROL if self.exchange.owned else DATA
        starts = [view.ctypes.data - self._base for view in views]
        return _Advert(where, starts, block.shape, views[0].strides)

    def _unpack_later(
        self,
        root: NDArray[np.uint8],
        staged: dict[tuple[int, int], list[int]],
        chosen: list[dict[int, str] | None],
    ) -> None:
        recv = self.exchange.recv
        self.unpacks = [[] for _ in self.arrays]
        for block in recv.blocks:
            cuts = None
            if (chosen[block.peer] or {}).get(block.key) == PUT_STAGED:
                cuts = self.exchange.cuts_from.get(block.peer)
            parts = [whole(block.shape)] if cuts is None else cuts.parts(whole(block.shape))
            for turn, offset in enumerate(staged.get((block.peer, block.key), ())):
                for part in parts:
                    view = self.arrays[turn][block.box][part]
                    packed = root[offset : offset + view.nbytes].view(recv.dtype)
                    self.unpacks[turn].append(copy_of(view, packed.reshape(view.shape)))
                    offset += view.nbytes

    def _create_windows(self, overlay: bool, uses: tuple[bool, bool]) -> None:
        """Collective. The windows that some rank Puts through; all ranks of the communicator."""
        exchange = self.exchange
        comm = exchange.context.comm
        far = not exchange.node.alone and self.cells > 0  # counters travel through it as well
        mine = (uses[0] or overlay or far, uses[1])
        wanted = agree(comm, None, ("windows", exchange.number), mine)
        memory: list[Any] = [self.control.segment(self.control.node.comm.rank), None]
        if self._data is not None:
            memory[DATA] = self._data.segment(self._data.node.comm.rank)
        elif exchange.recv.array is not None:
            memory[DATA] = as_bytes(exchange.recv.array)
        for where in (CONTROL, DATA):
            if any(needs[where] for needs in wanted):
                self.windows[where] = self._create(memory[where])
        if self._data is not None:
            self._data.users += 1
            self.resources.on_release(self._leave_data)

    def _create(self, memory: Any) -> MPI.Win:
        try:
            window = MPI.Win.Create(memory, 1, MPI.INFO_NULL, self.exchange.context.comm)
        except MPI.Exception as error:
            raise refusal(error) from error
        self.resources.on_release(window.Free)
        return window

    def _leave_data(self) -> None:
        if self._data is not None:
            self._data.users -= 1
            self._data = None

    # -- operations -------------------------------------------------------------------------------

    def _deliver(
        self, peer: int, known: Any, cell: int, wanted: dict[int, _Advert], paths: dict[int, str]
    ) -> Delivery:
        turns = self.exchange.slots
        shared = self.share and peer in self.exchange.node.rank_of
        delivery = Delivery(peer, shared, cell, [[] for _ in range(turns)],
                            [[] for _ in range(turns)])
        for block in self.exchange.blocks_to(peer):
            source = self._source(block)
            advert = wanted[block.key]
            if paths[block.key] in STAGED:  # packed in this rank's form of the block
                strides = _c_strides(block.shape, source.itemsize)
                advert = _Advert(CONTROL, advert.offsets, block.shape, strides)
            route = Route(block)
            delivery.routes.append(route)
            if paths[block.key] in (STORE, STORE_STAGED):
                for turn in range(turns):
                    target = self._target(known[0], peer, advert, turn)
                    route.targets.append(target)
                    delivery.stores[turn].append(copy_of(target, source))
                continue
            route.chunks = chunks_of(source, self.exchange.cuts_to.get(peer))
            window = self.windows[advert.where]
            if window is None:
                raise ValueError("no window to Put through")
            for turn in range(turns):
                puts = puts_of(window, peer, route.chunks, advert.offsets[turn])
                route.puts.append(puts)
                delivery.puts[turn] += puts
        return delivery

    def _source(self, block: Block) -> NDArray[Any]:
        array = self.exchange.send.array
        if array is None:
            raise ValueError("no send array")
        view: NDArray[Any] = array[block.box]
        return view

    def _target(self, memory: _Memory, peer: int, advert: _Advert, turn: int) -> NDArray[Any]:
        """The peer's block, as an array in the memory that this rank shares with it."""
        region: Region | None = self.control
        node_rank = self.exchange.node.rank_of[peer]
        if advert.where == DATA:
            region, node_rank = region_with_key(memory.key), memory.node_rank
        if region is None:
            raise ValueError(f"the memory of rank {peer} is not visible")
        return np.ndarray(
            advert.shape,
            self.exchange.send.dtype,
            region.part(node_rank),
            advert.offsets[turn],
            advert.strides,
        )

    def _collect_syncs(self) -> None:
        """The shared windows whose memory this rank stores into, or reads."""
        windows = [self.control.window]
        if self._data is not None:
            windows.append(self._data.window)
        self.syncs = windows

    def forget(self) -> None:
        """Local. Drop every view of the memory."""
        self.deliveries, self.local, self.unpacks, self.arrays = [], [], [], []
        self.syncs, self.windows = [], [None, None]


def _in_sequence(shape: tuple[int, ...], cuts: Cuts) -> bool:
    """Whether the chunks of a contiguous block of this shape are contiguous themselves."""
    return all(extent == 1 for extent in shape[: cuts.axis])


def _phantom(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of this form without memory: every element is the same one."""
    strides = _c_strides(shape, dtype.itemsize)
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)


def _c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))
