"""One exchange on one rank: its sides, matched with the peers' and agreed on by all ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.lib.format import drop_metadata
from numpy.typing import NDArray

from onesided.collectives.agreement import largest, swapped, told
from onesided.collectives.buffers import Side, check_separate
from onesided.collectives.context import Context, Resources
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.collectives.hints import Hints
from onesided.collectives.memory import Region, find_region, hold
from onesided.collectives.pattern import (
    INT_MAX,
    Block,
    Cuts,
    blocks_of_counts,
    copies_between,
    row_strides,
    whole,
)
from onesided.collectives.registry import Method
from onesided.collectives.steps import Chain, copy
from onesided.collectives.transport import Operation, Outlet, Transport


@dataclass(frozen=True)
class Described:
    """A block as one rank describes it to the other one; ``elements`` are what travels, however it
    lies, and a receiver says whether it is ``contiguous`` there."""

    key: int
    shape: tuple[int, ...]
    elements: tuple[int, np.dtype[Any]]
    contiguous: bool = True


@dataclass(frozen=True)
class Words:
    """What a rank tells a peer, once: what it sends to it, expects from it, and into which memory.

    ``expects`` is None where the counts are to be learned. ``key`` names the region of the receive
    array, where that comes from :func:`empty`, and ``node_rank`` this rank's segment in it.
    """

    sends: tuple[Described, ...]
    expects: tuple[Described, ...] | None
    owned: bool
    key: str | None
    node_rank: int
    cuts: Cuts | None

    def sent(self) -> dict[int, Described]:
        """By key."""
        return {block.key: block for block in self.sends}

    def wanted(self) -> dict[int, Described]:
        """By key."""
        return {block.key: block for block in self.expects or ()}

    def shortened(self, factor: int) -> Words:
        """Local. The same where all blocks are shorter by a factor."""

        def of(block: Described) -> Described:
            count, dtype = block.elements
            size = math.prod(block.shape)
            shape = _shorter(block.shape, size // count if count else 1, factor)
            return replace(block, shape=shape, elements=(count * math.prod(shape) // size, dtype))

        expects = None if self.expects is None else tuple(map(of, self.expects))
        return replace(self, sends=tuple(map(of, self.sends)), expects=expects, cuts=None)


def cuts_between(sender: Words | None, receiver: Words | None, key: int) -> Cuts | None:
    """Local. The cuts in which a block travels: the receiver knows where a chunk belongs only where
    both boxes have the same shape."""
    if sender is None or receiver is None or sender.cuts is None:
        return None
    sent, wanted = sender.sent().get(key), receiver.wanted().get(key)
    alike = sent is not None and wanted is not None and sent.shape == wanted.shape
    return sender.cuts if alike else None


#: More than any factor by which blocks are made shorter.
LONGEST = 1 << 62


def _shorter(shape: tuple[int, ...], unit: int, factor: int) -> tuple[int, ...]:
    """The shape of a block that is shorter by a factor; in one dimension an element of it is
    ``unit`` entries, of which one element is left at least."""
    return (max(1, shape[0] // unit // factor) * unit, *shape[1:]) if shape[0] else shape


def _shortened(side: Side, factor: int, fresh: bool) -> Side:
    """Local. A side with shorter blocks. Those of vectors lie one after the other, in the order in
    which they lay. ``fresh``: memory of the caller's is replaced by other memory."""
    every = side.blocks if side.kept is None else (*side.blocks, side.kept)
    room, at, starts, ends = side.shape[0], 0, {}, 0
    made: dict[int, Block] = {}
    shapes = {}
    for block in every:
        unit = 1 if block.element is None else block.element.itemsize // side.dtype.itemsize
        shapes[id(block)] = _shorter(block.shape, unit, factor)
    # of blocks that begin at the same place the longest one says where that is
    for block in sorted(every, key=lambda block: (block.box[0].start, -shapes[id(block)][0])):
        shape, start = shapes[id(block)], block.box[0].start
        if len(side.shape) > 1:
            starts[start] = start // factor
        elif start not in starts:
            starts[start] = min(at, room - shape[0])
            at += shape[0]
        first = slice(starts[start], starts[start] + shape[0])
        ends = max(ends, first.stop)
        made[id(block)] = replace(block, box=(first, *block.box[1:]), shape=shape)
    array, shape = side.array, (ends, *side.shape[1:])
    if array is not None and fresh:
        array = np.empty_like(array[:ends])  # its axes lie in the same order
    elif array is not None:
        shape = side.shape
    return replace(
        side, array=array, shape=shape, blocks=tuple(made[id(block)] for block in side.blocks),
        kept=None if side.kept is None else made[id(side.kept)],
    )  # fmt: skip


@dataclass
class Sides:
    """Both sides as read on this rank; ``recv`` is None where the counts are to be learned, from
    ``sources`` with their ``keys``."""

    send: Side
    recv: Side | None
    sources: Sequence[int] = ()
    keys: Sequence[int] = ()
    cuts: Cuts | None = None
    by_boxes: bool = False
    sparse: bool = True  # there is nothing for some other rank
    rows: NDArray[np.int64] | None = None

    @cached_property
    def words(self) -> tuple[dict[int, Words], Words]:
        """By rank, what it is told, and what others are told who ask."""
        return _words(self.send, self.recv, self.cuts)

    def in_place(self, root: int | None) -> tuple[bool, bool]:
        """Whether ``MPI.IN_PLACE`` is said here, and whether it is not; neither with a root, who
        alone may say so."""
        here = self.send.native is MPI.IN_PLACE
        return root is None and here, root is None and not here


def _beyond_vectors(send: Side, recv: Side) -> bool:
    """Whether MPI's calls that take counts cannot describe the memory of a side."""
    for side in (send, recv):
        apart = side.array is not None and not side.array.flags.c_contiguous
        if side.native is None and (apart or math.prod(side.shape) > INT_MAX):
            return True
    return False


@dataclass
class Exchange(Operation):
    """All that a transport needs to know, the same form for every initialization function.

    ``call`` is the function of MPI that does the same, with ``root`` where it has one.
    ``slots`` is the number of receive slots in turn of this rank (1 with a receive buffer of the
    caller's), ``least_slots`` the fewest of any rank; ``peers`` the ranks that exchange data with
    this one in either direction, without itself, in the order in which they are served: the next
    rank first, so that not all ranks turn to rank 0 at once. ``neighborhood``: the pattern follows
    the communicator's topology, ``by_boxes``: blocks are boxes. ``cuts`` are those of this rank's
    send blocks. ``rows`` tells which rows of the send array are always the same: they have the
    same number. ``beyond_vectors``: the memory of some rank is not what MPI's calls with counts
    take. ``words`` are what the peers have said to this rank, ``said`` what it has said to
    them. ``mixed``: ``MPI.IN_PLACE`` on some ranks only, which MPI's own collectives do not take.
    ``factor``: the blocks stand for others that are so many times longer.
    """

    call: str
    root: int | None
    send: Side
    recv: Side
    words: dict[int, Words]
    said: dict[int, Words]
    peers: list[int]
    slots: int = 1
    least_slots: int = 1
    by_boxes: bool = False
    cuts: Cuts | None = None
    most_chunks: int = 1
    mixed: bool = False
    beyond_vectors: bool = False
    rows: NDArray[np.int64] | None = None
    factor: int = 1

    @cached_property
    def _to(self) -> dict[int, list[Block]]:
        return _by_peer(self.send.blocks)

    @cached_property
    def _from(self) -> dict[int, list[Block]]:
        return _by_peer(self.recv.blocks)

    @property
    def sent(self) -> Any:
        """The send data as the caller gave them."""
        return self.send.given

    def buffers(self) -> list[object]:
        """Local. What must be kept alive as long as the request."""
        return [side.array for side in (self.send, self.recv)] + [
            side.given for side in (self.send, self.recv)]

    @property
    def before(self) -> Callable[[], object] | None:
        """Local. What Start does first: data that do not lie as they travel are gathered."""
        return self.send.before

    @property
    def after(self) -> Callable[[NDArray[Any]], object] | None:
        """Local. What is done with the receive memory when a round is complete."""
        return self.recv.after

    @property
    def neighborhood(self) -> bool:
        """True where the pattern follows the communicator's topology."""
        return self.call.startswith("Neighbor")

    @property
    def chunks(self) -> int:
        """Into how many chunks this rank cuts what it sends."""
        return 1 if self.cuts is None else len(self.cuts.stops)

    @property
    def edges(self) -> Edges:
        """The topology's (destinations, keys) and (sources, keys)."""
        return neighbors(self.context.comm)

    @property
    def owned(self) -> bool:
        """True where the request owns the receive memory."""
        return self.recv.array is None

    @cached_property
    def region(self) -> Region | None:
        """The region of the receive array, where that comes from :func:`~.memory.empty`."""
        return None if self.recv.array is None else find_region(self.recv.array)

    def most_factor(self) -> int:
        """Local. By which factor blocks can be made shorter; both sides must come to the same."""
        extents = [LONGEST]
        for blocks, table in ((self.send.blocks, "wanted"), (self.recv.blocks, "sent")):
            for block in blocks:
                words = self.words.get(block.peer)
                theirs = None if words is None else getattr(words, table)().get(block.key)
                one = len(block.shape) == 1 and (theirs is None or len(theirs.shape) == 1)
                alike = theirs is not None and theirs.shape == block.shape
                extents.append(LONGEST if one else block.shape[0] if alike else 1)
        return min(extents)

    def shortened(self, factor: int) -> Exchange:
        """Local. The same exchange with blocks that are shorter by a factor, of at most
        :meth:`most_factor`, which are not cut; into other memory than the caller's.
        """
        send, recv = _shortened(self.send, factor, False), _shortened(self.recv, factor, True)
        if self.region is not None:
            recv = replace(recv, array=None)
        words, said = (
            {peer: each.shortened(factor) for peer, each in table.items()}
            for table in (self.words, self.said)
        )
        return replace(self, send=send, recv=recv, words=words, said=said, cuts=None,
                       most_chunks=1, rows=None, factor=factor)  # fmt: skip

    def blocks_to(self, peer: int) -> list[Block]:
        """The send blocks for a peer, in the order of their keys."""
        return self._to.get(peer, [])

    def blocks_from(self, peer: int) -> list[Block]:
        """The receive blocks from a peer, in the order of their keys."""
        return self._from.get(peer, [])

    def cuts_to(self, block: Block) -> Cuts | None:
        """The cuts in which a send block travels."""
        return cuts_between(self.said.get(block.peer), self.words.get(block.peer), block.key)

    def cuts_from(self, block: Block) -> Cuts | None:
        """The cuts in which a receive block comes."""
        return cuts_between(self.words.get(block.peer), self.said.get(block.peer), block.key)

    def source(self, block: Block) -> NDArray[Any]:
        """Local. A send block in the send array."""
        if self.send.array is None:
            raise ValueError("no send array")
        view: NDArray[Any] = self.send.array[block.box]
        return view

    def to_itself(self, arrays: Sequence[NDArray[Any]]) -> list[Chain]:
        """Local. By slot, the steps of the blocks that this rank sends to itself."""
        pairs = zip(self.blocks_to(self.rank), self.blocks_from(self.rank), strict=True)
        known = [(self.source(out), into.box) for out, into in pairs]
        return [[step for source, box in known for step in _copied(array[box], source)]
                for array in arrays]

    def parts(self, block: Block) -> list[tuple[slice, ...]]:
        """The parts of the send array that are the chunks of a block."""
        return [block.box] if self.cuts is None else self.cuts.parts(block.box)


def _copied(target: NDArray[Any], source: NDArray[Any]) -> Chain:
    """Local. The steps that copy a block; the bytes may be described in another way."""
    steps: Chain = []
    if source.dtype != target.dtype:
        if not source.flags.c_contiguous:
            apart, source = source, np.empty(source.shape, source.dtype)
            steps.append(copy(source, apart))
        source = source.view(target.dtype)
    return steps + [copy(*each) for each in copies_between(target, source)]


def _by_peer(blocks: Sequence[Block]) -> dict[int, list[Block]]:
    """In the order of their keys."""
    found: dict[int, list[Block]] = {}
    for block in sorted(blocks, key=lambda block: block.key):
        found.setdefault(block.peer, []).append(block)
    return found


class Outlets:
    """Where the caller of filled rounds writes: ``by_slot[slot][chunk]``.

    A block that this rank sends to itself is copied by ``copies[slot]`` when all chunks are ready,
    where it cannot be written to its place.
    """

    def __init__(self, exchange: Exchange, slots: int) -> None:
        self.operation = exchange
        self.by_slot: list[list[list[Outlet]]] = [
            [[] for _ in range(exchange.chunks)] for _ in range(slots)
        ]
        self.copies: list[Chain] = [[] for _ in range(slots)]

    def put(self, block: Block, slot: int, arrays: Sequence[NDArray[Any]]) -> None:
        """The chunks of a block go to these arrays."""
        parts = self.operation.parts(block)
        for outlets, part, array in zip(self.by_slot[slot], parts, arrays, strict=True):
            outlets.append((block.peer, part, array))

    def into(self, block: Block, slot: int, target: NDArray[Any]) -> None:
        """They go to those of ``target``, an array of the block's shape."""
        cuts, box = self.operation.cuts, whole(block.shape)
        parts = [box] if cuts is None else cuts.parts(box)
        self.put(block, slot, [target[part] for part in parts])

    def in_send_array(self, block: Block, slot: int) -> None:
        """They are written where the caller of ``Start`` would write them."""
        self.into(block, slot, self.operation.source(block))

    def keep(self, arrays: Sequence[NDArray[Any]]) -> None:
        """The blocks that this rank sends to itself; ``arrays`` is the receive memory by slot."""
        exchange, rank = self.operation, self.operation.rank
        for out, into in zip(exchange.blocks_to(rank), exchange.blocks_from(rank), strict=True):
            for slot, array in enumerate(arrays):
                source, target = exchange.source(out), array[into.box]
                alike = source.shape == target.shape and source.dtype == target.dtype
                self.into(out, slot, target if alike else source)
                if not alike:
                    self.copies[slot] += _copied(target, source)


class ExchangeTransport(Transport):
    """A transport of an exchange; without a direct way to the peers.

    Examples
    --------
    >>> issubclass(methods()["rma-notify"].load(), ExchangeTransport)
    True
    """

    operation: Exchange

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        for side in (operation.send, operation.recv):
            hold(resources, side.array, side.given)  # which differ where types have holes

    def serve(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Local. Say where the receive memory is; ``Wait`` returns the caller's array as given."""
        exchange = self.operation
        self.arrays = arrays
        self.answers = arrays if exchange.recv.slots else [exchange.recv.given]
        self.chunks = exchange.chunks
        self.owns_slots = exchange.recv.slots and len(arrays) > 1

    def plain_arrays(self) -> list[NDArray[Any]]:
        """Local. The caller's array, or plain arrays that the request owns, one per slot."""
        recv = self.operation.recv
        if recv.array is not None:
            return [recv.array]
        return [np.zeros(recv.shape, recv.dtype) for _ in range(self.operation.slots)]

    def outlets(self) -> list[list[list[Outlet]]]:
        """Local. Parts of the send array, the same in all slots."""
        outlets = Outlets(self.operation, 1)
        for block in self.operation.send.blocks:
            outlets.in_send_array(block, 0)
        return outlets.by_slot * max(len(self.arrays), 1)

    def watched(self) -> tuple[list[NDArray[Any]], list[list[NDArray[Any]]], np.dtype[Any]]:
        send, recv = self.operation.send, self.operation.recv
        out = [] if send.array is None else [send.array[block.box] for block in send.blocks]
        into = [[array[block.box] for block in recv.blocks] for array in self.arrays]
        if self.as_given and send.before is not None:  # what MPI sends lies there
            into = []
        return out, into or [[]], recv.dtype

    def waiting_for(self, number: int) -> str:
        return "data from or to " + ", ".join(f"rank {peer}" for peer in self.operation.peers)


# -- matching ------------------------------------------------------------------------------------


def match(
    call: str,
    root: int | None,
    sides: Sides,
    method: Method,
    context: Context,
    hints: Hints,
    before: Exchange | None,
    sparse: int,
) -> Exchange:
    """Collective. Tell the peers, compare every receive block with the sender's, and agree.

    ``sparse``: some rank has nothing for some other one. With an exchange of the same pattern
    ``before``, the blocks are compared with those alone, and peers are told only where the memory
    is of another kind. Raises :class:`PatternError` on every rank, naming the pair of ranks and
    both numbers.
    """
    comm, send, recv, cuts = context.comm, sides.send, sides.recv, sides.cuts
    number = context.next_tag()
    if before is None:
        said, nothing = sides.words

        def answer(peer: int) -> Words:
            said[peer] = nothing
            return nothing

        theirs = told(comm, number, said, answer) if sparse else swapped(comm, number, said)
    else:
        said, theirs = before.said, before.words
    count, news = 1 if cuts is None else len(cuts.stops), False
    error: Exception | None = None
    try:
        if recv is None:
            recv = _learned(call, theirs, send, sides.sources, sides.keys)
        check_separate(send, recv)
        if before is None:
            _compare(comm.rank, send, theirs)
        else:
            _check_same(before, send, recv, cuts)
            mine, nothing = sides.words
            said = {peer: mine.get(peer, nothing) for peer in before.said}
            news = said != before.said
    except Exception as problem:
        error = problem
    slots = hints.slots if recv is not None and recv.array is None else 1
    beyond = recv is not None and _beyond_vectors(send, recv)
    numbers = [count, -slots, *sides.in_place(root), beyond, news]
    most = largest(comm, error, (call, "matched", number), numbers)
    if recv is None:
        raise PatternError("no receive buffer")
    if most[5]:
        theirs = swapped(comm, number, said)
    others = {b.peer for b in (*send.blocks, *recv.blocks)} - {comm.rank}
    peers = sorted(others, key=lambda peer: (peer - comm.rank) % comm.size)
    return Exchange(
        method.name, method.any_order, context, hints, number, call, root, send, recv, theirs,
        said, peers, slots, -most[1], sides.by_boxes, cuts, most[0], bool(most[2] and most[3]),
        bool(most[4]), sides.rows,
    )  # fmt: skip


def _check_same(before: Exchange, send: Side, recv: Side, cuts: Cuts | None) -> None:
    """Raise :class:`PatternError` where the pattern is another one."""
    for role, side, known in (("send", send, before.send), ("recv", recv, before.recv)):
        if _described(side) != _described(known):
            raise PatternError(
                f"the {role} blocks are others than those of request {before.number}"
            )
    if cuts != before.cuts:
        raise PatternError("the chunks are cut in another way")


def _described(side: Side) -> list[tuple[Any, ...]]:
    """The blocks of a side but for where they lie."""
    return sorted(
        (block.peer, block.key, block.shape, *map(str, _elements(side, block)))
        for block in side.blocks
    )


def _elements(side: Side, block: Block) -> tuple[int, np.dtype[Any]]:
    """How many elements a block is, and of what; not what the program has noted at the dtype."""
    dtype = drop_metadata(side.dtype if block.element is None else block.element)
    return block.size * side.dtype.itemsize // dtype.itemsize, dtype


def _words(
    send: Side, recv: Side | None, cuts: Cuts | None
) -> tuple[dict[int, Words], Words]:
    """By rank, what it is told, and what others are told who ask: that nothing goes either way."""
    sends: dict[int, list[Described]] = {}
    for block in send.blocks:
        sent = Described(block.key, block.shape, _elements(send, block))
        sends.setdefault(block.peer, []).append(sent)
    expects: dict[int, list[Described]] = {}
    region: Region | None = None
    if recv is not None:
        region = None if recv.array is None else find_region(recv.array)
        like = _phantom(recv.shape, recv.dtype) if recv.array is None else recv.array
        flat = like.ndim == 1 and like.flags.c_contiguous
        for block in recv.blocks:
            contiguous = flat or bool(like[block.box].flags.c_contiguous)
            wanted = Described(block.key, block.shape, _elements(recv, block), contiguous)
            expects.setdefault(block.peer, []).append(wanted)
    key, segment = (None, 0) if region is None else (region.key, region.node.comm.rank)

    def of(peer: int) -> Words:
        return Words(
            tuple(sends.get(peer, ())), None if recv is None else tuple(expects.get(peer, ())),
            recv is None or recv.array is None, key, segment, cuts,
        )  # fmt: skip

    return {peer: of(peer) for peer in sends.keys() | expects.keys()}, of(-1)


def _phantom(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of this form without memory: every element is the same one."""
    strides = row_strides(shape, dtype.itemsize)
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)


def _learned(
    call: str, theirs: dict[int, Words], send: Side, sources: Sequence[int], keys: Sequence[int]
) -> Side:
    """The receive side as the senders have told it, in the order of the sources. What nobody sends
    has room only where all blocks are of one size."""
    edges = {(peer, key): sent for peer, words in theirs.items() for key, sent in
             words.sent().items()}
    found = [(peer, edges[peer, key]) for peer, key in zip(sources, keys, strict=True)
             if (peer, key) in edges]
    dtype = found[0][1].elements[1] if found else send.dtype
    for peer, sent in found:
        if sent.elements[1] != dtype:
            raise PatternError(
                f"rank {found[0][0]} sends {dtype}, rank {peer} {sent.elements[1]}, into one buffer"
            )
    counts = [edges[edge].elements[0] if edge in edges else 0
              for edge in zip(sources, keys, strict=True)]
    real = [(n, peer) for n, peer in zip(counts, sources, strict=True) if peer >= 0]
    for count, peer in [] if call.endswith("v") else real:
        if count != real[0][0]:
            raise PatternError(
                f"rank {real[0][1]} sends {real[0][0]} elements, rank {peer} {count}; {call} "
                "gathers as many from each"
            )
    if real and not call.endswith("v"):
        counts = [real[0][0]] * len(sources)
    starts = [0, *accumulate(counts)]
    blocks = blocks_of_counts(counts, starts[:-1], sources, keys)
    return Side(None, (starts[-1],), dtype, blocks, None, slots=True)


def _compare(me: int, send: Side, theirs: dict[int, Words]) -> None:
    """What this rank sends against what its peers expect."""
    sent: dict[int, dict[int, tuple[int, np.dtype[Any]]]] = {}
    for block in send.blocks:
        sent.setdefault(block.peer, {})[block.key] = _elements(send, block)
    nothing = (0, send.dtype)
    for peer in sorted(sent.keys() | theirs.keys()):
        words, mine = theirs.get(peer), sent.get(peer, {})
        if words is not None and words.expects is None:
            continue  # it takes what comes
        expected = {} if words is None else {w.key: w.elements for w in words.expects or ()}
        for key in sorted(mine.keys() | expected.keys()):
            (have, dtype), (want, other) = mine.get(key, nothing), expected.get(key, nothing)
            if have and want and dtype.str != other.str:
                raise PatternError(
                    f"rank {me} sends {dtype} to rank {peer}, which expects {other}"
                )
            if have != want:
                raise PatternError(
                    f"rank {me} sends {have} elements to rank {peer}, which expects {want}"
                )


# -- topologies ----------------------------------------------------------------------------------


Edges = tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]


def neighbors(comm: MPI.Comm) -> Edges:
    """Local. (Destinations, keys) and (sources, keys), in the order of the topology.

    A key tells several edges between two ranks apart. In a graph the n-th edge to a rank matches
    that rank's n-th edge from here. In a Cartesian grid the block sent in the
    negative direction arrives as the one from the positive direction (MPI-4.1 section 8.6), which
    matters where both neighbors are one rank. Ends of a grid that is not periodic have no block:
    their entry is ``MPI.PROC_NULL``.
    """
    if isinstance(comm, MPI.Distgraphcomm):
        sources, destinations, _ = comm.Get_dist_neighbors()
        return _with_keys(destinations), _with_keys(sources)
    if isinstance(comm, MPI.Cartcomm):
        ranks = [rank for axis in range(comm.Get_dim()) for rank in comm.Shift(axis, 1)]
        keys = list(range(len(ranks)))
        return (ranks, keys), (ranks, [key ^ 1 for key in keys])
    if isinstance(comm, MPI.Graphcomm):
        near = _with_keys(comm.Get_neighbors(comm.rank))
        return near, near
    raise UnsupportedError(
        "neighborhoods need a communicator with a graph or Cartesian topology; this one has none"
    )


def _with_keys(ranks: Sequence[int]) -> tuple[list[int], list[int]]:
    """Of several edges to one rank the first has key 0."""
    seen: Counter[int] = Counter()
    keys = []
    for rank in ranks:
        keys.append(seen[rank])
        seen[rank] += 1
    return list(ranks), keys
