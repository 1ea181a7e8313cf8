"""One exchange on one rank: its sides, matched with the peers' and agreed on by all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import largest
from onesided.collectives.buffers import Side, check_separate
from onesided.collectives.context import Context, Node, Resources
from onesided.collectives.copies import Copy, copies_between
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.collectives.hints import Hints
from onesided.collectives.memory import Region, find_region
from onesided.collectives.pattern import Block, Cuts, blocks_of_counts
from onesided.collectives.transport import Outlet, Transport


@dataclass(frozen=True)
class Wanted:
    """A block as its receiver describes it to its sender."""

    key: int
    shape: tuple[int, ...]
    contiguous: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class Words:
    """What a rank tells a peer, once: what it sends to it, expects from it, and into which memory.

    ``expects`` is None where the counts are to be learned. ``key`` names the region of the receive
    array, where that comes from :func:`empty`, and ``node_rank`` this rank's segment in it.
    """

    dtype: str
    sends: tuple[tuple[int, tuple[int, ...]], ...]
    expects: tuple[Wanted, ...] | None
    owned: bool
    key: str | None
    node_rank: int
    cuts: Cuts | None

    def wanted(self) -> dict[int, Wanted]:
        """By key."""
        return {block.key: block for block in self.expects or ()}


@dataclass
class Exchange:
    """All that a transport needs to know, the same form for every initialization function.

    ``slots`` is the number of receive slots in turn of this rank (1 with a receive buffer of the
    caller's), ``least_slots`` the fewest of any rank; ``peers`` the ranks that exchange data with
    this one in either direction, without itself, in the order in which they are served: the next
    rank first, so that not all ranks turn to rank 0 at once. ``neighborhood``: the pattern follows
    the communicator's topology, ``by_boxes``: blocks are boxes. ``cuts`` are those of this rank's
    send blocks. ``words`` are what the peers have said to this rank, ``said`` what it has said to
    them.
    """

    method: str
    any_order: bool
    context: Context
    send: Side
    recv: Side
    hints: Hints
    number: int
    words: dict[int, Words]
    said: dict[int, Words]
    peers: list[int]
    slots: int = 1
    least_slots: int = 1
    neighborhood: bool = False
    by_boxes: bool = False
    cuts: Cuts | None = None
    most_chunks: int = 1
    _to: dict[int, list[Block]] = field(default_factory=dict)
    _from: dict[int, list[Block]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for blocks, by_peer in ((self.send.blocks, self._to), (self.recv.blocks, self._from)):
            by_peer.clear()
            for block in sorted(blocks, key=lambda block: block.key):
                by_peer.setdefault(block.peer, []).append(block)

    @property
    def sent(self) -> Any:
        """The send data as the caller gave them."""
        return self.send.given

    @property
    def chunks(self) -> int:
        """Into how many chunks this rank cuts what it sends."""
        return 1 if self.cuts is None else len(self.cuts.stops)

    @property
    def edges(self) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
        """The topology's (destinations, keys) and (sources, keys)."""
        destinations, send_keys, sources, recv_keys = neighbors(self.context.comm)
        return (destinations, send_keys), (sources, recv_keys)

    @property
    def owned(self) -> bool:
        """True where the request owns the receive memory."""
        return self.recv.array is None

    @cached_property
    def region(self) -> Region | None:
        """The region of the receive array, where that comes from :func:`~.memory.empty`."""
        return None if self.recv.array is None else find_region(self.recv.array)

    @property
    def node(self) -> Node:
        """The node of this rank, real or emulated."""
        return self.context.node(self.hints.ranks_per_node)

    @property
    def rank(self) -> int:
        """This rank."""
        return self.context.comm.rank

    def blocks_to(self, peer: int) -> list[Block]:
        """The send blocks for a peer, in the order of their keys."""
        return self._to.get(peer, [])

    def blocks_from(self, peer: int) -> list[Block]:
        """The receive blocks from a peer, in the order of their keys."""
        return self._from.get(peer, [])

    def cuts_to(self, block: Block) -> Cuts | None:
        """The cuts in which a send block travels: the receiver knows where a chunk belongs only
        where both boxes have the same shape."""
        if self.cuts is None or block.peer not in self.words:
            return None
        theirs = self.words[block.peer].wanted().get(block.key)
        return self.cuts if theirs is not None and theirs.shape == block.shape else None

    def cuts_from(self, block: Block) -> Cuts | None:
        """The cuts in which a receive block comes."""
        words = self.words.get(block.peer)
        if words is None or words.cuts is None:
            return None
        return words.cuts if dict(words.sends).get(block.key) == block.shape else None

    def source(self, block: Block) -> NDArray[Any]:
        """Local. A send block in the send array."""
        if self.send.array is None:
            raise ValueError("no send array")
        view: NDArray[Any] = self.send.array[block.box]
        return view

    def to_itself(self, arrays: Sequence[NDArray[Any]]) -> list[list[Copy]]:
        """Local. By slot, how the blocks that this rank sends to itself are copied."""
        copies: list[list[Copy]] = [[] for _ in arrays]
        pairs = zip(self.blocks_to(self.rank), self.blocks_from(self.rank), strict=True)
        for out, into in pairs:
            for turn, array in enumerate(arrays):
                copies[turn] += copies_between(array[into.box], self.source(out))
        return copies

    def parts(self, block: Block) -> list[tuple[slice, ...]]:
        """The parts of the send array that are the chunks of a block."""
        return [block.box] if self.cuts is None else self.cuts.parts(block.box)

    def in_send_array(self, block: Block) -> list[Outlet]:
        """Local. By chunk, outlets of a block where the caller of ``Start`` would write it."""
        array = self.send.array
        if array is None:
            raise ValueError("no send array")
        return [(block.peer, part, array[part]) for part in self.parts(block)]


class ExchangeTransport(Transport):
    """A transport of an exchange; without a direct way to the peers."""

    operation: Exchange

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        for array in (operation.send.array, operation.recv.array):
            region = None if array is None else find_region(array)
            if region is not None:
                resources.use(region)

    @property
    def exchange(self) -> Exchange:
        """What it carries out."""
        return self.operation

    def serve(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Local. Say where the receive memory is; ``Wait`` returns the caller's array as given."""
        exchange = self.exchange
        self.arrays = arrays
        self.answers = arrays if exchange.owned else [exchange.recv.given]
        self.chunks = exchange.chunks
        self.owns_slots = exchange.owned and len(arrays) > 1

    def plain_arrays(self) -> list[NDArray[Any]]:
        """Local. The caller's array, or plain arrays that the request owns, one per slot."""
        recv = self.exchange.recv
        if recv.array is not None:
            return [recv.array]
        return [np.zeros(recv.shape, recv.dtype) for _ in range(self.exchange.slots)]

    def outlets(self) -> list[list[list[Outlet]]]:
        """Local. Parts of the send array."""
        exchange = self.exchange
        by_chunk: list[list[Outlet]] = [[] for _ in range(exchange.chunks)]
        for block in exchange.send.blocks:
            for chunk, outlet in enumerate(exchange.in_send_array(block)):
                by_chunk[chunk].append(outlet)
        return [by_chunk for _ in range(max(len(self.arrays), 1))]

    def watched(self) -> tuple[list[NDArray[Any]], list[list[NDArray[Any]]], np.dtype[Any]]:
        send, recv = self.exchange.send, self.exchange.recv
        out = [] if send.array is None else [send.array[block.box] for block in send.blocks]
        into = [[array[block.box] for block in recv.blocks] for array in self.arrays]
        return out, into or [[]], recv.dtype

    def waiting_for(self, number: int) -> str:
        return "data from or to " + ", ".join(f"rank {peer}" for peer in self.exchange.peers)


# -- matching ------------------------------------------------------------------------------------


def match(
    context: Context,
    call: str,
    method: str,
    any_order: bool,
    send: Side,
    recv: Side | None,
    learned: tuple[list[int], list[int]],
    hints: Hints,
    cuts: Cuts | None,
    neighborhood: bool,
    by_boxes: bool,
) -> Exchange:
    """Collective. Tell the peers, compare every receive block with the sender's, and agree.

    ``learned``: sources and their keys, for a ``recv`` of None.

    Raises :class:`PatternError` on every rank, naming the pair of ranks and both numbers.
    """
    comm = context.comm
    mine = _words(context, send, recv, cuts)
    heard = comm.alltoall(mine)
    theirs = {peer: words for peer, words in enumerate(heard) if words is not None}
    count = 1 if cuts is None else len(cuts.stops)
    number = context.next_tag()
    error: Exception | None = None
    try:
        if recv is None:
            recv = _learned(theirs, send, *learned)
        check_separate(send, recv)
        _compare(comm.rank, send, theirs)
    except Exception as problem:
        error = problem
    slots = hints.slots if recv is not None and recv.array is None else 1
    most = largest(comm, error, (call, "matched", number), [count, -slots])
    if recv is None:
        raise PatternError("no receive buffer")
    others = {b.peer for b in (*send.blocks, *recv.blocks)} - {comm.rank}
    peers = sorted(others, key=lambda peer: (peer - comm.rank) % comm.size)
    return Exchange(
        method, any_order, context, send, recv, hints, number, theirs,
        {peer: words for peer, words in enumerate(mine) if words is not None},
        peers, slots, -most[1],
        neighborhood, by_boxes, cuts, most[0],
    )  # fmt: skip


def _words(
    context: Context, send: Side, recv: Side | None, cuts: Cuts | None
) -> list[Words | None]:
    """By rank, what it is told: nothing where nothing goes either way."""
    sends: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for block in send.blocks:
        sends.setdefault(block.peer, []).append((block.key, block.shape))
    expects: dict[int, list[Wanted]] = {}
    region: Region | None = None
    dtype = send.dtype
    if recv is not None:
        dtype = recv.dtype
        region = None if recv.array is None else find_region(recv.array)
        like = _phantom(recv.shape, recv.dtype) if recv.array is None else recv.array
        flat = like.ndim == 1 and like.flags.c_contiguous
        for block in recv.blocks:
            contiguous = flat or bool(like[block.box].flags.c_contiguous)
            expects.setdefault(block.peer, []).append(Wanted(block.key, block.shape, contiguous))
    words: list[Words | None] = [None] * context.comm.size
    key, segment = (None, 0) if region is None else (region.key, region.node.comm.rank)
    told = range(context.comm.size) if recv is None else sends.keys() | expects.keys()
    for peer in told:
        wanted = None if recv is None else tuple(expects.get(peer, ()))
        words[peer] = Words(
            f"{dtype.str} {send.dtype.str}", tuple(sends.get(peer, ())), wanted,
            recv is None or recv.array is None, key, segment, cuts,
        )  # fmt: skip
    return words


def _phantom(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of this form without memory: every element is the same one."""
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides[::-1])


def _learned(
    theirs: dict[int, Words], send: Side, sources: list[int], keys: list[int]
) -> Side:
    """The receive side as the senders have told it: packed in the order of the sources."""
    sent = {(peer, key): shape for peer, words in theirs.items() for key, shape in words.sends}
    counts = [int(np.prod(sent.get(edge, (0,)))) for edge in zip(sources, keys, strict=True)]
    starts = [0, *accumulate(counts)]
    blocks = blocks_of_counts(counts, starts[:-1], sources, keys)
    return Side(None, (starts[-1],), send.dtype, blocks, None)


def _compare(me: int, send: Side, theirs: dict[int, Words]) -> None:
    """What this rank sends against what its peers expect."""
    sent: dict[int, dict[int, int]] = {}
    for block in send.blocks:
        sent.setdefault(block.peer, {})[block.key] = block.size
    for peer in sorted(sent.keys() | theirs.keys()):
        words, mine = theirs.get(peer), sent.get(peer, {})
        if words is not None and words.expects is None:
            if mine and words.dtype.split()[1] != send.dtype.str:
                raise _other_dtype(me, peer, send, words.dtype.split()[1])
            continue
        expected = {} if words is None else {w.key: w.size for w in words.expects or ()}
        for key in sorted(mine.keys() | expected.keys()):
            have, want = mine.get(key, 0), expected.get(key, 0)
            if have != want:
                raise PatternError(
                    f"rank {me} sends {have} elements to rank {peer}, which expects {want}"
                )
        if expected and words is not None and words.dtype.split()[0] != send.dtype.str:
            raise _other_dtype(me, peer, send, words.dtype.split()[0])


def _other_dtype(me: int, peer: int, send: Side, theirs: str) -> PatternError:
    return PatternError(
        f"rank {me} sends {send.dtype} to rank {peer}, which expects {np.dtype(theirs)}"
    )


# -- topologies ----------------------------------------------------------------------------------


Edges = tuple[list[int], list[int], list[int], list[int]]


def neighbors(comm: MPI.Comm) -> Edges:
    """Local. Destinations and their keys, sources and their keys, in the order of the topology.

    A key tells several edges between two ranks apart. In a graph the n-th edge to a rank matches
    that rank's n-th edge from here. In a Cartesian grid the block sent in the
    negative direction arrives as the one from the positive direction (MPI-4.1 section 8.6), which
    matters where both neighbors are one rank. Ends of a grid that is not periodic have no block:
    their entry is ``MPI.PROC_NULL``.
    """
    if isinstance(comm, MPI.Distgraphcomm):
        sources, destinations, _ = comm.Get_dist_neighbors()
        return list(destinations), _ordinals(destinations), list(sources), _ordinals(sources)
    if isinstance(comm, MPI.Cartcomm):
        ranks = [rank for axis in range(comm.Get_dim()) for rank in comm.Shift(axis, 1)]
        send_keys = list(range(len(ranks)))
        return ranks, send_keys, list(ranks), [key ^ 1 for key in send_keys]
    if isinstance(comm, MPI.Graphcomm):
        near = list(comm.Get_neighbors(comm.rank))
        return near, _ordinals(near), list(near), _ordinals(near)
    raise UnsupportedError(
        "Neighbor_alltoallv_init needs a communicator with a graph or Cartesian topology; this "
        "one has none"
    )


def _ordinals(ranks: list[int]) -> list[int]:
    seen: Counter[int] = Counter()
    keys = []
    for rank in ranks:
        keys.append(seen[rank])
        seen[rank] += 1
    return keys
